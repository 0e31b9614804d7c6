#!/usr/bin/env bash
# Senders that are asked for more than the machine can send, over a veth pair with offloads. Needs root. overload.py says what must hold; the short form
# takes a minute.
#
#   tests/interop/overload.sh [--full] [levels|two|three|rate|six ...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

. tests/built.sh
PYTHONPATH=tests exec python3 -B tests/interop/overload.py "$HEADWATER" "$@"
