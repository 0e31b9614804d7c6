#!/usr/bin/env bash
# Many small files in bundles, in network namespaces. Needs root, rsync and unzip. bundle.py says what must hold. The short form takes a
# minute; --full compares with a zip at 4 Mb/s and sends 100 000 files.
#
#   tests/interop/bundle.sh [--full] [fast|killed|select|zip|changed|compress|slow|many ...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

. tests/built.sh
# Times are those of the protocol, not of a disk.
PLACE=/dev/shm
[ -w "$PLACE" ] || PLACE=${TMPDIR:-/tmp}
FOLDER=$(mktemp -d "$PLACE/headwater-bundle-XXXXXXXX")
trap 'rm -rf "$FOLDER"' EXIT
trap 'exit 130' INT TERM
export XDG_STATE_HOME="$FOLDER/state" XDG_CONFIG_HOME="$FOLDER/config" BUNDLE_FOLDER="$FOLDER"
PYTHONPATH=tests python3 -B tests/interop/bundle.py "$HEADWATER" "$@"
