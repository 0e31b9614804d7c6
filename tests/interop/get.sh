#!/usr/bin/env bash
# `headwater get` in network namespaces: with multicast, with requests alone, through AMT (named, by DNS, beside requests), with HTTP alone, from a folder of Python's server without a session,
# with a sender that starts again, and with multicast that is cut for 20 s. Needs root. get.py says what must hold.
#
#   tests/interop/get.sh [--full] [native|rainbow|amt|radio|both|driad|sdp|http|folder|restarted|cut ...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

. tests/built.sh
FOLDER=$(mktemp -d "${TMPDIR:-/tmp}/headwater-get-XXXXXXXX")
trap 'rm -rf "$FOLDER"' EXIT
trap 'exit 130' INT TERM
export XDG_STATE_HOME="$FOLDER/state" XDG_CONFIG_HOME="$FOLDER/config" GET_FOLDER="$FOLDER"
PYTHONPATH=tests python3 -B tests/interop/get.py "$HEADWATER" "$@"
