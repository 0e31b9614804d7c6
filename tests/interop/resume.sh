#!/usr/bin/env bash
# Receivers that end again and again, over every congestion control, and what the next ones resume, in network namespaces. Needs root. What must
# hold is in resume.py. The short form takes a minute. The long one, every control with every code, takes a quarter of an hour for each fault.
#
#   tests/interop/resume.sh [--long [--fault killed|stopped|restarted]] [--seed N] [--only CONTROL[/CODE[/FAULT]],...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

. tests/built.sh
FOLDER=$(mktemp -d "${TMPDIR:-/tmp}/headwater-resume-XXXXXXXX")
trap 'rm -rf "$FOLDER"' EXIT
trap 'exit 130' INT TERM
export XDG_STATE_HOME="$FOLDER/state" XDG_CONFIG_HOME="$FOLDER/config"
PYTHONPATH=tests python3 -B tests/interop/resume.py "$@" "$HEADWATER" "$FOLDER"
