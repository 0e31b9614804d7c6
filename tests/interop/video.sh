#!/usr/bin/env bash
# Layered video: ffmpeg's encodings by `headwater stream` to pages in Chromium and to mpv. What must hold is in video.py. Without --full, parts of some
# seconds. `--film` adds a film to the clips of `quality`. Without ffmpeg and Chromium the script says that nothing was run.
#
#   tests/interop/video.sh [--full] [--keep FOLDER] [--film FILE] [page|links|switching|restart|quality|join|latency|loss|memory ...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

missing=()
for program in ffmpeg chromium; do
    command -v "$program" >/dev/null || missing+=("$program")
done
if ((${#missing[@]} > 0)); then
    echo "video: NOT RUN: ${missing[*]} is missing; install the packages ffmpeg and chromium"
    exit 0
fi
. tests/built.sh
state=$(mktemp -d)
trap 'rm -rf "$state"' EXIT
export XDG_STATE_HOME=$state/state XDG_CONFIG_HOME=$state/config
PYTHONPATH=tests python3 -B tests/interop/video.py "$HEADWATER" "$@"
if [[ " $* " == *" --full "* ]]; then
    HEADWATER_LONG=1 cargo test --locked --release -q -p headwater-media --test it mutated
fi
