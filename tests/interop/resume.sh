#!/usr/bin/env bash
# Receivers that are killed again and again, over every congestion control, and what the next ones resume; what must hold is in
# resume.py. The short form takes a minute. The long one, every control with every code, takes a quarter of an hour, and
# --restarts starts the sender again as well.
#
#   tests/interop/resume.sh [--long] [--restarts] [--seed N] [--only CONTROL[/CODE]]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

. tests/built.sh
FOLDER=$(mktemp -d "${TMPDIR:-/tmp}/headwater-resume-XXXXXXXX")
trap 'rm -rf "$FOLDER"' EXIT
trap 'exit 130' INT TERM
python3 -B tests/interop/resume.py "$@" "$HEADWATER" "$FOLDER"
