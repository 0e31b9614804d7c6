#!/usr/bin/env bash
# AMT relays and gateways in namespaces, beside native multicast and another implementation. Needs root. amt.py says what must hold.
#
# The other implementation is built from AMT_SOURCE, a clone of https://github.com/GrumpyOldTroll/amt, or from a clone that the script
# makes; without network, libevent or a compiler, its part is skipped.
#
#   tests/interop/amt.sh [families|rates|demand|restart|strangers|neighbour|driad|witness ...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

. tests/built.sh
FOLDER=$(mktemp -d "${TMPDIR:-/tmp}/headwater-amt-XXXXXXXX")
trap 'rm -rf "$FOLDER"' EXIT
trap 'exit 130' INT TERM
PYTHONPATH=tests python3 -B tests/interop/amt.py "$HEADWATER" "$FOLDER" "$@"
