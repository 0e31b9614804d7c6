#!/usr/bin/env bash
# Repair by HTTP in network namespaces: servers nginx and ours, crowds, servers that a session must not name, receivers that serve others. Needs root. repair.py says what
# must hold.
#
#   tests/interop/repair.sh [--full] [killed_nginx|killed_ours|ended|crowd|local|peer|peer_bundle|liar|foreign ...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

. tests/built.sh
FOLDER=$(mktemp -d "${TMPDIR:-/tmp}/headwater-repair-XXXXXXXX")
trap 'rm -rf "$FOLDER"' EXIT
trap 'exit 130' INT TERM
# nginx's workers run as another user.
chmod 755 "$FOLDER"
export XDG_STATE_HOME="$FOLDER/state" XDG_CONFIG_HOME="$FOLDER/config" REPAIR_FOLDER="$FOLDER"
PYTHONPATH=tests python3 -B tests/interop/repair.py "$HEADWATER" "$@"
