#!/usr/bin/env bash
# A file to a disk slower than the session, in window order: a loop device whose writes the kernel throttles (blkio, cgroup
# v1) and whose dirty pages it bounds. Root, on a quiet machine, by hand; results stand in lab/notebook/speed.md.
#
#   tests/speed/bursts.sh BINARY [MEGABYTES [RATE [DISK_BYTES_PER_S]]]
set -euo pipefail
binary=$1 megabytes=${2:-2000} rate=${3:-1500M} disk=${4:-125000000}
dirty=200000000
work=$(mktemp -d "${SCRATCH:-/dev/shm}/bursts.XXXXXX")
name=bursts$$ loop=
clean() {
    for pid in ${sender:-} ${receiver:-}; do kill -TERM "$pid" 2>/dev/null || true; done
    wait || true
    mountpoint -q "$work/disk" && umount "$work/disk"
    if [ -n "$loop" ]; then
        echo "$number 0" >/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device
        losetup -d "$loop"
    fi
    ip netns delete "$name-s" 2>/dev/null || true
    ip netns delete "$name-r" 2>/dev/null || true
    rm -rf "$work"
}
trap clean EXIT

# Since the machine started: loop devices are used again.
sectors_written() { awk '{ print $7 }' "/sys/block/${loop#/dev/}/stat"; }

head -c "${megabytes}000000" /dev/urandom >"$work/content.bin"
truncate -s "$((megabytes * 2 + 500))M" "$work/image"
loop=$(losetup -f --show "$work/image")
number=$(cat "/sys/block/${loop#/dev/}/dev")
mkfs.ext4 -q "$loop"
mkdir "$work/disk"
mount "$loop" "$work/disk"
echo "$number $disk" >/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device
echo 1 >"/sys/block/${loop#/dev/}/bdi/strict_limit"
echo $dirty >"/sys/block/${loop#/dev/}/bdi/max_bytes"

ip netns add "$name-s"
ip netns add "$name-r"
ip link add veth0 netns "$name-s" type veth peer name veth0 netns "$name-r"
for host in s r; do
    ip -n "$name-$host" link set lo up
    ip -n "$name-$host" link set veth0 up
done
ip -n "$name-s" addr add 10.88.1.1/24 dev veth0
ip -n "$name-r" addr add 10.88.1.2/24 dev veth0
sectors_before=$(sectors_written)
ip netns exec "$name-r" "$binary" receive --out "$work/disk/out" --interface veth0 --json --timeout 60s >"$work/received.json" &
receiver=$!
sleep 1
TMPDIR=$work ip netns exec "$name-s" "$binary" send "$work/content.bin" --interface veth0 --rate "$rate" --quiet &
sender=$!
wait "$receiver" && echo "the file is whole" || echo "the receiver ended with exit code $?"
receiver=
echo "the disk wrote $((($(sectors_written) - sectors_before) * 512 / 1000000)) MB"
python3 - "$work/received.json" <<'PY'
import json
import sys

events = [json.loads(line) for line in open(sys.argv[1])]
times = {event["event"]: event["time"] for event in events}
last = [event for event in events if "packets" in event][-1]
names = ("packets", "useful", "duplicates", "surplus", "fdt_packets", "signalling", "pending", "dropped")
counters = {name: last.get(name, 0) for name in (*names, "lost", "kernel_drops")}
accounted = sum(counters[name] for name in names[1:])
print(f"{(last['time'] - times['session:found']) / 1e3:.1f} s from the first packet on; {counters}")
sys.exit(0 if accounted == counters["packets"] else "the counters do not add up to the packets")
PY
