#!/usr/bin/env bash
# SIM over two levels of relays in namespaces, with six receivers behind 2, 4 and 8 Mbit/s. Needs root. sim.py says what must hold; the short form takes
# a minute and a half, and fails only where it is certain on a busy machine, too.
#
#   tests/interop/sim.sh [--full] [rates|file ...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

. tests/built.sh
PYTHONPATH=tests exec python3 -B tests/interop/sim.py "$HEADWATER" "$@"
