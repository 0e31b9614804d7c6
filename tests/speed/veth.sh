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
. tests/built.sh
cc -O2 -Wall -Wextra -Werror -o "$FOLDER/bare" tests/speed/bare.c
c++ -O2 -Wall -Wextra -Werror -o "$FOLDER/norm" tests/speed/norm.cc -lnorm -lprotokit
PYTHONPATH=tests python3 -B tests/speed/veth.py --binary "$HEADWATER" --folder "$FOLDER" "$@"
