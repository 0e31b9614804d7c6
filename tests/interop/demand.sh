#!/usr/bin/env bash
# Senders that send what receivers report: quiet without receivers, and as fast as without reports for those who are there. Needs root. demand.py says
# what must hold; the short form takes a minute.
#
#   tests/interop/demand.sh [--full] [idle|slow|medium|start|lossy|restart|blocked|ended|fast|auto|groups ...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

. tests/built.sh
PYTHONPATH=tests exec python3 -B tests/interop/demand.py "$HEADWATER" "$@"
