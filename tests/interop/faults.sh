#!/usr/bin/env bash
# What breaks around a session while it runs: interfaces, senders, ports. Needs root. faults.py says what must hold.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

. tests/built.sh
FOLDER=$(mktemp -d "${TMPDIR:-/tmp}/headwater-faults-XXXXXXXX")
trap 'rm -rf "$FOLDER"' EXIT
trap 'exit 130' INT TERM
PYTHONPATH=tests python3 -B tests/interop/faults.py "$HEADWATER" "$FOLDER"
