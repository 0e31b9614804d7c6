#!/usr/bin/env bash
# Attacks in namespaces, each with its bar: attacks.py says what must hold. Needs root. The short form takes some
# 170 s, and judges what is certain on a busy machine, too; the full one judges every bar.
#
#   tests/attacks/attacks.sh [--full] [ATTACK...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

. tests/built.sh
cargo build --locked --release -p headwater-cli -p headwater-lab -p headwater-python -p headwater-attacks --bin headwater-forger
FORGER=$(realpath "${CARGO_TARGET_DIR:-target}/release/headwater-forger")
PYTHONPATH=tests exec python3 -B tests/attacks/attacks.py "$HEADWATER" "$FORGER" "$@"
