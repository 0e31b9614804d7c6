#!/usr/bin/env bash
# One file to eight machines, by Headwater and by the tools that people use: seconds until the last machine has the file, bytes on the
# sender's link, processor time. headline.py says what is measured. By hand, as root, on a quiet machine; Debian packages uftp, udpcast and
# rsync give peers, and a wheel of libtorrent BitTorrent.
#
#   tests/speed/headline.sh [--help | headline.py's options]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

. tests/built.sh
FOLDER=$(mktemp -d "${TMPDIR:-/dev/shm}/headwater-headline-XXXXXXXX")
trap 'rm -rf "$FOLDER"' EXIT
trap 'exit 130' INT TERM
export XDG_STATE_HOME="$FOLDER/state" XDG_CONFIG_HOME="$FOLDER/config"
TORRENT_PYTHON=${TORRENT_PYTHON:-}
if [ -z "$TORRENT_PYTHON" ]; then
    python3 -m venv "$FOLDER/venv"
    if "$FOLDER/venv/bin/pip" install --quiet --disable-pip-version-check libtorrent; then TORRENT_PYTHON=$FOLDER/venv/bin/python; fi
fi
PYTHONPATH=tests python3 -B tests/speed/headline.py --binary "$HEADWATER" --folder "$FOLDER" --torrent-python "$TORRENT_PYTHON" "$@"
