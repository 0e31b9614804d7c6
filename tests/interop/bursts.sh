#!/usr/bin/env bash
# A file in window order at 1 Gbit/s to a receiver that loses 10 % of it in bursts, over a veth pair. Needs root. bursts.py says what must
# hold; the short form takes 20 s at most.
#
#   tests/interop/bursts.sh [--full] [short|long|large ...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

. tests/built.sh
PYTHONPATH=tests exec python3 -B tests/interop/bursts.py "$HEADWATER" "$@"
