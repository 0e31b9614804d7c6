#!/usr/bin/env bash
# One sender, one switch and five receivers in network namespaces, with real UDP multicast and 5 % independent loss in
# front of every receiver. Needs root. What is sent and what must hold is in namespaces.py; here is the network.
#
#   sender --- switch (a bridge that snoops IGMP and MLD) ---< receiver 1..5
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

RECEIVERS=5
LOSS_PERCENT=5
# All that a run makes is named by this and its process.
NAME=hwbed
FOLDERS=${TMPDIR:-/tmp}

say() { echo "namespaces: $*"; }

die() {
    echo "namespaces: $*" >&2
    exit 1
}

check_tools() {
    local tool
    [ "$(id -u)" = 0 ] || die "network namespaces and loss need root: run this as root"
    for tool in ip tc ethtool tcpdump python3 cargo; do
        command -v "$tool" >/dev/null || die "'$tool' is missing: install it, or run ./ci.sh interop, which does"
    done
}

# What a run of this script that was killed has left behind, and at the end our own.
remove_beds() {
    local bed folder
    for bed in $(ip netns list | awk -v name="^${NAME}[0-9]+-" '$1 ~ name { print $1 }'); do
        if is_ours_or_dead "$bed"; then remove_namespace "$bed"; fi
    done
    for folder in "$FOLDERS/$NAME"[0-9]*-*; do
        if [ -d "$folder" ] && is_ours_or_dead "${folder##*/}"; then rm -rf "$folder"; fi
    done
}

# is_ours_or_dead THING: its name says which process made it.
is_ours_or_dead() {
    local owner=${1#"$NAME"}
    owner=${owner%%-*}
    [ "$owner" = $$ ] || ! kill -0 "$owner" 2>/dev/null
}

remove_namespace() {
    local pids
    readarray -t pids < <(ip netns pids "$1")
    # Those that end between the two commands are no error.
    [ ${#pids[@]} = 0 ] || kill -9 "${pids[@]}" 2>/dev/null || true
    # Its interfaces, and their other ends, go with it.
    ip netns delete "$1"
}

add_namespace() {
    ip netns add "$1"
    # Interfaces inherit these, so they come first. Duplicate address detection would cost seconds.
    ip netns exec "$1" sysctl -q -w net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0 \
        net.ipv4.conf.default.force_igmp_version=3 net.ipv6.conf.default.accept_dad=0
    ip -n "$1" link set dev lo up
}

# One packet is one frame: no segments are put together or cut on the way.
offloads_off() {
    ip netns exec "$1" ethtool -K "$2" gro off gso off tso off tx-udp-segmentation off
}

# add_host NAME NUMBER: a namespace with eth0, and its port on the switch.
add_host() {
    local host="$BED-$1" port=$1
    add_namespace "$host"
    ip -n "$BED-switch" link add "$port" type veth peer name eth0 netns "$host"
    offloads_off "$BED-switch" "$port"
    offloads_off "$host" eth0
    ip -n "$BED-switch" link set dev "$port" master bridge up
    ip -n "$host" link set dev eth0 up
    ip -n "$host" address add "10.87.0.$2/24" dev eth0
    ip -n "$host" address add "fd87::$2/64" dev eth0 nodad
    ip -n "$host" route add 224.0.0.0/4 dev eth0
}

# Times are in hundredths of a second: the bridge must know its neighbours before the test begins.
add_switch() {
    add_namespace "$BED-switch"
    ip -n "$BED-switch" link add bridge type bridge stp_state 0 mcast_snooping 1 mcast_querier 1 \
        mcast_igmp_version 3 mcast_mld_version 2 mcast_startup_query_interval 50 mcast_startup_query_count 4 \
        mcast_query_interval 500 mcast_query_response_interval 50 mcast_last_member_interval 10 \
        mcast_last_member_count 3
    ip -n "$BED-switch" link set dev bridge up
    # Stays down: what is sent there is gone.
    ip -n "$BED-switch" link add hole type ifb
}

# lossy PORT: drops packets at random before they reach the host, so that its counters and captures show what came
# through. Classic BPF: load a random word; below the loss, match.
lossy() {
    local protocol loss=$((LOSS_PERCENT * 4294967296 / 100))
    tc -n "$BED-switch" qdisc add dev "$1" clsact
    for protocol in ip ipv6; do
        tc -n "$BED-switch" filter add dev "$1" egress protocol "$protocol" prio "${#protocol}" \
            bpf bytecode "4,32 0 0 4294963256,53 1 0 $loss,6 0 0 4294967295,6 0 0 0" \
            action mirred egress redirect dev hole
    done
}

build_bed() {
    local number on
    add_switch
    add_host sender 1
    for number in $(seq "$RECEIVERS"); do
        add_host "receiver$number" $((number + 1))
        ip netns exec "$BED-switch" sh -c "echo 1 >/sys/class/net/receiver$number/brport/multicast_fast_leave"
        lossy "receiver$number"
    done
    # All ports are up: query now.
    for on in 0 1; do ip -n "$BED-switch" link set dev bridge type bridge mcast_querier $on; done
    # A bridge forwards by what it has snooped only after the response interval of its first query.
    sleep 1
}

check_tools
. tests/built.sh
BED=$NAME$$
remove_beds
trap remove_beds EXIT
trap 'exit 130' INT TERM
FOLDER=$(mktemp -d "$FOLDERS/$BED-XXXXXXXX")
build_bed
say "$BED: 1 sender, $RECEIVERS receivers, $LOSS_PERCENT % loss each"
PYTHONPATH=tests python3 -B tests/interop/namespaces.py "$HEADWATER" "$BED" "$FOLDER" "$RECEIVERS" "$LOSS_PERCENT"
