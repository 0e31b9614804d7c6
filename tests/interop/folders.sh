#!/usr/bin/env bash
# Folders with metadata, sparse files and older versions, in network namespaces. Needs root and rsync. folders.py says what must hold. The
# short form takes half a minute; --full kills receivers more often and sends longer files.
#
#   tests/interop/folders.sh [--full] [modes|all|user|sparse|follow|base ...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

. tests/built.sh
# Times are those of the protocol, not of a disk.
PLACE=/dev/shm
[ -w "$PLACE" ] || PLACE=${TMPDIR:-/tmp}
FOLDER=$(mktemp -d "$PLACE/headwater-folders-XXXXXXXX")
trap 'rm -rf "$FOLDER"' EXIT
trap 'exit 130' INT TERM
# A receiver that becomes another user works below.
chmod 755 "$FOLDER"
export XDG_STATE_HOME="$FOLDER/state" XDG_CONFIG_HOME="$FOLDER/config" FOLDERS_FOLDER="$FOLDER"
umask 022
PYTHONPATH=tests python3 -B tests/interop/folders.py "$HEADWATER" "$@"
