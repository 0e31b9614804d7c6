#!/usr/bin/env bash
# Images straight to block devices and pipes, over loopback. Needs root, for loop devices. What must hold is in target.py.
#
#   tests/interop/target.sh [--full] [device|refused|pipe|input|used ...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

. tests/built.sh
PYTHONPATH=tests exec python3 -B tests/interop/target.py "$HEADWATER" "$@"
