#!/usr/bin/env bash
# Networks that speak IGMPv2 or MLDv1, as some clouds' do: starts, leaves, a TCP beside, two senders on one group, each beside the same in IGMPv3
# or MLDv2. Needs root. What must hold is in igmp2.py. The short form takes two minutes and a half and judges what is certain on a busy machine, too.
#
#   tests/interop/igmp2.sh [--full] [--control m2c|webrc|flid-dl] [start|leave|fairness|senders ...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

. tests/built.sh
PYTHONPATH=tests exec python3 -B tests/interop/igmp2.py "$HEADWATER" "$@"
