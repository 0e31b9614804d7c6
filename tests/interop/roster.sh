#!/usr/bin/env bash
# Reports of receivers: who has everything, who lacks what and why, in network namespaces. Needs root. roster.py says
# what must hold. --full: 40 receivers, 500 at one address, and the time that reports cost.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

. tests/built.sh
FOLDER=$(mktemp -d "${TMPDIR:-/tmp}/headwater-roster-XXXXXXXX")
clean() {
    ! mountpoint -q "$FOLDER/disk" || umount "$FOLDER/disk"
    rm -rf "$FOLDER"
}
trap clean EXIT
trap 'exit 130' INT TERM
mkdir "$FOLDER/disk"
mount -t tmpfs -o size=200k tmpfs "$FOLDER/disk"
export XDG_STATE_HOME="$FOLDER/state"
PYTHONPATH=tests python3 -B tests/interop/roster.py "$HEADWATER" "$FOLDER" "$@"
