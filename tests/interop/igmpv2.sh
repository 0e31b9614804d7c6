#!/usr/bin/env bash
# Sessions of many rates on switches that speak IGMPv2: joins name no source, leaves take 2 s. Needs root. The short form takes 20 s.
#
#   tests/interop/igmpv2.sh [--full] [PART ...]    parts as of multirate.sh; by default leave and senders, with --full links, tcp and small, too
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

case "$*" in
"") set -- leave senders ;;
--full) set -- --full leave senders links tcp small ;;
esac
exec bash tests/interop/multirate.sh --routing igmpv2 "$@"
