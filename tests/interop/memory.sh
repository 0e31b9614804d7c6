#!/usr/bin/env bash
# A gibibyte over loopback, the memory of both ends bounded: the short form of tests/large/loopback.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
if [ ! -x /usr/bin/time ]; then
    echo "memory: /usr/bin/time is missing: install the package 'time'" >&2
    exit 1
fi
for order in spread window; do SEND="--order $order" tests/large/loopback.sh 1 600M; done
