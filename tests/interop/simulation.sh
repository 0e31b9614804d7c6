#!/usr/bin/env bash
# Stock tshark reads what the simulator captures: multicast datagrams and TCP segments, none malformed, no checksum wrong.
set -euo pipefail
cd "$(dirname "$0")/../.."

. tests/built.sh
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

cat > "$scratch/plan.toml" <<'PLAN'
name = "captured"
duration = "5s"

[topology]
kind = "dumbbell"
pairs = 2
access = { rate = "100M", delay = "1ms" }
bottleneck = { rate = "1M", delay = "5ms", queue = { kind = "drop-tail", packets = 10 } }

[flow.tcp]
kind = "tcp"
from = "source-1"
to = "sink-1"

[flow.session]
kind = "fixed"
from = "source-2"
receivers = ["sink-2"]
rate = "300k"
size = "1MB"
PLAN
simulate() { "$LAB" simulate "$scratch/plan.toml" "$@"; }
# Traces are of one run, named by its key: the first word of its line.
key=$(simulate --list | tail -1 | awk '{ print $1 }')
simulate --quiet --cell "$key" --pcap "$scratch/x.pcap"

read_fields() { tshark -n -r "$scratch/x.pcap" -o tcp.check_checksum:TRUE -o udp.check_checksum:TRUE -o ip.check_checksum:TRUE "$@"; }
frames=$(read_fields -T fields -e frame.number | wc -l)
tcp=$(read_fields -Y tcp -T fields -e frame.number | wc -l)
udp=$(read_fields -Y udp -T fields -e frame.number | wc -l)
wrong=$(read_fields -Y '_ws.malformed || tcp.checksum.status == "Bad" || udp.checksum.status == "Bad" || ip.checksum.status == "Bad"' \
    -T fields -e frame.number | wc -l)
echo "simulation: $frames packets captured, $tcp of TCP, $udp datagrams, $wrong malformed or with a wrong checksum"
[ "$tcp" -gt 500 ] && [ "$udp" -gt 100 ] && [ $((tcp + udp)) -eq "$frames" ] && [ "$wrong" -eq 0 ]
