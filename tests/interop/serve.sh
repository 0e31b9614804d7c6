#!/usr/bin/env bash
# `headwater serve` in network namespaces: carousels over folders that change, and followers. Needs root. serve.py says what must hold;
# the short form takes half a minute, the long one ten minutes.
#
#   tests/interop/serve.sh [--full] [carousels|crash|reload ...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

. tests/built.sh
FOLDER=$(mktemp -d "${TMPDIR:-/tmp}/headwater-serve-XXXXXXXX")
trap 'rm -rf "$FOLDER"' EXIT
trap 'exit 130' INT TERM
export XDG_STATE_HOME="$FOLDER/state" XDG_CONFIG_HOME="$FOLDER/config" SERVE_FOLDER="$FOLDER"
PYTHONPATH=tests python3 -B tests/interop/serve.py "$HEADWATER" "$@"
