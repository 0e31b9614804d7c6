#!/usr/bin/env bash
# LE-SBCC beside the kernel's TCP over a round trip of 500 ms, 1 Mbit/s to each receiver (experiment L10): the wire is
# crates/cli/examples/wire.rs, as not every kernel can delay packets. By hand: it takes minutes on a machine that does nothing else. Needs root.
#
#   tests/large/distance.sh [--control le-sbcc|le-sbcc-tfrc] [--receivers 3] [--seconds 120] [--queue 42]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

cargo build --locked --release -p headwater-cli --bins --example wire
RELEASE=$(realpath "${CARGO_TARGET_DIR:-target}/release")
PYTHONPATH=tests:tests/interop exec python3 -B tests/large/distance.py "$@" "$RELEASE/headwater" "$RELEASE/examples/wire"
