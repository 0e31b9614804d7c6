#!/usr/bin/env bash
# The testbed: a network that stands and goes, a plan beside the kernel's TCP over bridges, one over a wire that delays, and a run that is
# killed, whose leftovers the next command removes. Needs root; a minute. How fast anything is, is nobody's test here.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

. tests/built.sh

if [ "$(id -u)" != 0 ]; then
    echo "testbed: network namespaces need root: run this as root" >&2
    exit 1
fi
folder=$(mktemp -d)
name=
trap 'rm -rf "$folder"; [ -z "$name" ] || "$LAB" testbed down "$name" >/dev/null 2>&1 || true' EXIT

fail() {
    echo "testbed: $*" >&2
    exit 1
}

# plan NAME DELAY: a megabyte by M2C beside one TCP over 8 Mbit/s.
plan() {
    cat >"$folder/$1.toml" <<EOF
name = "$1"
duration = "40s"
topology = { kind = "dumbbell", pairs = 2, bottleneck = { rate = "8M", delay = "$2", queue = { packets = 25 } }, access = { rate = "1G", delay = "0ms" } }
measure = { links = ["bottleneck"], until = ["main"] }
flow.main = { kind = "session", control = "m2c", from = "source-1", receivers = ["sink-1"], max-rate = "16M", size = "1MB", join = "1s" }
flow.tcp = { kind = "tcp", from = "source-2", to = "sink-2" }
EOF
}

# field FILE EXPRESSION: of the only line of results.
field() { python3 -c "import json,sys; line = json.load(open(sys.argv[1])); flows = {f['name']: f for f in line['flows']}; print($2)" "$1"; }

plan near 1ms
plan far 30ms

echo "testbed: a path that has no folder of root's"
name=$(PATH=/usr/bin:/bin "$LAB" testbed up --routing bridge "$folder/near.toml")
"$LAB" testbed down "$name" >/dev/null
name=

echo "testbed: up and down"
name=$("$LAB" testbed up --routing bridge "$folder/near.toml")
[[ "$("$LAB" testbed list)" == *"$name  stands"* ]] || fail "$name is not listed"
[[ "$("$LAB" testbed exec --name "$name" sink-1 -- ip -4 -brief address show eth0)" == *10.72.* ]] || fail "sink-1 has no address"
before=$name
name=$("$LAB" testbed up --routing bridge "$folder/near.toml")
[[ "$("$LAB" testbed list)" != *"$before"* ]] || fail "the same network stands twice"
"$LAB" testbed down "$name" >/dev/null
if [[ "$(ip netns list)" == *"$name-"* ]]; then fail "$name is down, and namespaces of it are there"; fi
name=

echo "testbed: up and down with a wire"
name=$(timeout 60 "$LAB" testbed up --routing bridge "$folder/far.toml") || fail "a network with a wire does not let go"
[[ "$("$LAB" testbed list)" == *"$name  stands"* ]] || fail "$name is not listed"
sink=$("$LAB" testbed exec --name "$name" sink-1 -- ip -4 -brief address show eth0 | grep -o '10\.[0-9.]*')
# A port where nobody listens answers after two ways of 30 ms.
cat >"$folder/refused.py" <<'END'
import socket, sys, time
start = time.monotonic()
try:
    socket.create_connection((sys.argv[1], 9), timeout=10)
except ConnectionRefusedError:
    sys.exit(time.monotonic() - start < 0.06)
sys.exit("somebody listens")
END
"$LAB" testbed exec --name "$name" source-1 -- python3 "$folder/refused.py" "$sink" || fail "the wire does not carry, or does not delay"
[[ "$("$LAB" testbed down "$name")" == *"$name is down; the wire was late: "* ]] || fail "nothing is said of the wire"
if [[ "$(ip netns list)" == *"$name-"* ]]; then fail "$name is down, and namespaces of it are there"; fi
name=$("$LAB" testbed up --routing bridge "$folder/far.toml")
kill -KILL "$(cat "/run/headwater-testbed/$name/holder")"
"$LAB" testbed down >/dev/null
if [[ "$(ip netns list)" == *"$name-"* ]]; then fail "the wire of $name was killed, and namespaces of it are there"; fi
name=

echo "testbed: a plan"
"$LAB" testbed run --routing bridge "$folder/near.toml" --json >"$folder/near.json"
[ "$(field "$folder/near.json" 'flows["main"]["complete"]')" = 1 ] || fail "the file did not come whole"
[ "$(field "$folder/near.json" 'flows["tcp"]["goodput"] > 1e5 and 0 < flows["main"]["criteria"]["net"] < 1')" = True ] || fail "no TCP, or no criteria"
[ "$(field "$folder/near.json" 'line["links"][0]["throughput"] < 8.2e6')" = True ] || fail "the bottleneck let more through than its rate"

echo "testbed: a plan in a network that speaks IGMPv2"
name=$("$LAB" testbed up --routing igmpv2 "$folder/near.toml")
[[ "$("$LAB" testbed exec --name "$name" sink-1 -- cat /proc/net/igmp)" =~ eth0[^$'\n']*V2 ]] || fail "the host does not speak IGMPv2"
"$LAB" testbed down "$name" >/dev/null
name=
"$LAB" testbed run --routing igmpv2 "$folder/near.toml" --json >"$folder/old.json"
[ "$(field "$folder/old.json" 'line["key"].startswith("bed-igmpv2-") and flows["main"]["complete"]')" = 1 ] || fail "the file did not come whole by IGMPv2"

echo "testbed: a plan in a network that speaks MLDv1"
name=$("$LAB" testbed up --routing mldv1 "$folder/near.toml")
[ "$("$LAB" testbed exec --name "$name" sink-1 -- cat /proc/sys/net/ipv6/conf/eth0/force_mld_version)" = 1 ] || fail "the host does not speak MLDv1"
"$LAB" testbed down "$name" >/dev/null
name=
"$LAB" testbed run --routing mldv1 "$folder/near.toml" --json >"$folder/old6.json"
[ "$(field "$folder/old6.json" 'line["key"].startswith("bed-mldv1-") and flows["main"]["complete"]')" = 1 ] || fail "the file did not come whole by MLDv1"
[ "$(field "$folder/old6.json" 'line["links"][0]["throughput"] < 8.2e6')" = True ] || fail "MLDv1: the bottleneck let more through than its rate"

# A busy machine makes the wire late, and a late run says so; that it does is what counts here.
echo "testbed: a wire"
if "$LAB" testbed run --routing bridge "$folder/far.toml" --json >"$folder/far.json" 2>"$folder/far.err"; then
    [ "$(field "$folder/far.json" 'flows["tcp"]["mean_rtt"] >= 0.06 and line["testbed"]["wire"]["p99_ms"] <= 1')" = True ] || fail "the wire does not delay"
else
    grep -q "INVALID: the wire was late" "$folder/far.err" || fail "a run over a wire failed: $(cat "$folder/far.err")"
    echo "testbed: this machine is too busy for a wire: $(grep -o 'p99 [^,]*' "$folder/far.err")"
fi

echo "testbed: a run that is killed"
# Its first bed, x0, only shows what this kernel can do.
"$LAB" testbed run --routing bridge "$folder/near.toml" --quiet >/dev/null &
killed=$!
for _ in $(seq 200); do
    sleep 0.1
    if [ -n "$(ip netns pids "hwtb${killed}x1-sink-1" 2>/dev/null)" ]; then break; fi
done
kill -KILL "$killed"
wait "$killed" 2>/dev/null || true
left=$(ip netns pids "hwtb${killed}x1-sink-1") || fail "there was no bed to kill"
# A folder whose maker was killed before it had a lock is no bed either. Two commands at once do not stumble over each other.
orphan=/run/headwater-testbed/hwtb${killed}x99
mkdir "$orphan"
for at in 1 2; do "$LAB" testbed down hwtb-none 2>"$folder/down.$at" && fail "a network that is not there was taken down" & done
wait
for at in 1 2; do grep -Eq "no network stands|say which network" "$folder/down.$at" || fail "down says: $(cat "$folder/down.$at")"; done
[ ! -e "$orphan" ] || fail "a folder without a lock stays"
if [[ "$(ip netns list)" == *"hwtb${killed}x"* ]]; then fail "namespaces of the killed run stay"; fi
for pid in $left; do
    if [ -e "/proc/$pid" ] && ! grep -q "State:.*Z" "/proc/$pid/status" 2>/dev/null; then fail "process $pid of the killed run stays"; fi
done

echo "testbed: a tool that ends at once"
mkdir "$folder/bin"
printf '#!/bin/sh\nexec sleep 60\n' >"$folder/bin/udp-receiver"
printf '#!/bin/sh\necho "no such option" >&2\nexit 3\n' >"$folder/bin/udp-sender"
chmod +x "$folder"/bin/*
sed 's/^flow.main.*/flow.main = { kind = "transfer", by = "udpcast", from = "source-1", receivers = ["sink-1"], max-rate = "16M", size = "1MB" }/' \
    "$folder/near.toml" >"$folder/tool.toml"
PATH="$folder/bin:$PATH" "$LAB" testbed run --routing bridge "$folder/tool.toml" >/dev/null 2>"$folder/tool.err" && fail "a tool that failed is a result"
grep -q "no such option" "$folder/tool.err" || fail "of a tool that failed it says: $(cat "$folder/tool.err")"

if [ -x /usr/lib/frr/pimd ]; then
    echo "testbed: nothing of FRR stays"
    name=$("$LAB" testbed up --routing frr "$folder/near.toml")
    pids=$(cat "/run/headwater-testbed/$name"/frr-*/*.pid)
    "$LAB" testbed down "$name" >/dev/null
    name=
    for pid in $pids; do
        if ls -d /var/tmp/frr/*."$pid" >/dev/null 2>&1; then fail "FRR's folder of process $pid stays"; fi
    done
fi

echo "testbed: without root"
if command -v setpriv >/dev/null; then
    cp "$HEADWATER" "$folder/headwater" && cp "$LAB" "$folder/headwater-lab" && chmod -R a+rX "$folder"
    for words in "testbed up $folder/near.toml" "testbed down" "testbed exec sink-1 true" "testbed run $folder/near.toml" "arena --out $folder/arena"; do
        code=0
        # shellcheck disable=SC2086 # words
        said=$(setpriv --reuid 65534 --regid 65534 --clear-groups "$folder/headwater-lab" $words 2>&1) || code=$?
        [ "$code" = 3 ] && [[ "$said" == *"needs root: run it with sudo"* ]] || fail "without root '$words' says, with code $code: $said"
    done
fi
echo "testbed: ok"
