#!/usr/bin/env bash
# Builds what is measured and runs veth.py, which says what that is. By hand, as root, on a quiet machine; Debian packages
# uftp, udpcast and libnorm-dev give the peers.
#
#   tests/speed/veth.sh [--help | veth.py's options]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

FOLDER=$(mktemp -d /dev/shm/headwater-speed-XXXXXXXX)
trap 'rm -rf "$FOLDER"' EXIT
trap 'exit 130' INT TERM
# HEADWATER takes a binary that is there already.
if [ -z "${HEADWATER:-}" ]; then
    cargo build --locked --release -p headwater-cli
    HEADWATER=$(realpath "${CARGO_TARGET_DIR:-target}/release/headwater")
fi
cc -O2 -Wall -Wextra -Werror -o "$FOLDER/bare" tests/speed/bare.c
c++ -O2 -Wall -Wextra -Werror -o "$FOLDER/norm" tests/speed/norm.cc -lnorm -lprotokit
PYTHONPATH=tests python3 -B tests/speed/veth.py --binary "$HEADWATER" --folder "$FOLDER" "$@"
