#!/usr/bin/env bash
# Files by request: a source, three relays and nine receivers in namespaces, on links of 2, 10 and 50 Mbit/s. Needs root. What must hold is in rainbow.py. The short form
# takes a minute, and fails only where it is certain on a busy machine, too; the full one fails where any goal is missed.
#
#   tests/interop/rainbow.sh [--full] [tree|restarts|multicast|tcp ...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

. tests/built.sh
PYTHONPATH=tests exec python3 -B tests/interop/rainbow.py "$HEADWATER" "$@"
