#!/usr/bin/env bash
# ZeroMQ's epgm:// subscribers (Debian's python3-zmq and libzmq5, OpenPGM inside), as they are, take a stream from `headwater pgm send`
# through queues of 25 packets and random loss; and `headwater pgm receive` takes one from a ZeroMQ publisher. Needs root. What must hold is in epgm.py.
#
#   tests/interop/zmq.sh [--full] [--control le-sbcc|le-sbcc-tfrc|le-sbcc-sqrt|le-sbcc-iiad] [bottleneck|loss|slow|publisher ...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# Debian's module is for Debian's interpreter.
/usr/bin/python3 -c 'import sys, zmq; sys.exit(not zmq.has("pgm"))' || {
    echo "zmq: python3-zmq with PGM is missing: apt-get install python3-zmq, or run ./ci.sh interop, which does" >&2
    exit 1
}
. tests/built.sh
PYTHONPATH=tests exec /usr/bin/python3 -B tests/interop/epgm.py "$HEADWATER" "$@"
