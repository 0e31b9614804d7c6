#!/usr/bin/env bash
# Runs layers.py, which says what is measured, with the binary of this tree unless others are named. By hand, as root; a profile needs perf.
#
#   tests/speed/layers.sh [--help | layers.py's options] [NAME=BINARY ...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

case "$*" in
*=* | *--help*) ;;
*)
    . tests/built.sh
    set -- "$@" "now=$HEADWATER"
    ;;
esac
PYTHONPATH=tests exec python3 -B tests/speed/layers.py "$@"
