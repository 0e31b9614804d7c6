#!/usr/bin/env bash
# Sessions in which each receiver has its own rate, over routers that speak IGMPv3 and PIM-SSM (FRR) or switches that snoop IGMPv3 or IGMPv2
# (MLDv2 or MLDv1),
# and queues of 25 packets, beside the kernel's TCP. Needs root. What must hold is in multirate.py. The short form takes two minutes,
# and fails only where it is certain on a busy machine, too: orders, and that a link carries each packet once. The full one fails where any bound is missed.
#
#   tests/interop/multirate.sh [--full] [--control m2c|webrc|flid-dl|le-sbcc|le-sbcc-tfrc] [--routing auto|bridge|igmpv2|mldv2|mldv1|frr] [links|tcp|shared|small|naks|leave|senders ...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

. tests/built.sh
PYTHONPATH=tests exec python3 -B tests/interop/multirate.py "$HEADWATER" "$@"
