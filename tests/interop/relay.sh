#!/usr/bin/env bash
# Relays in namespaces, with ends that are not ours. Needs root. relay.py says what must hold.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

. tests/built.sh
FOLDER=$(mktemp -d "${TMPDIR:-/tmp}/headwater-relay-XXXXXXXX")
trap 'rm -rf "$FOLDER"' EXIT
trap 'exit 130' INT TERM
PYTHONPATH=tests python3 -B tests/interop/relay.py "$HEADWATER" "$FOLDER"
