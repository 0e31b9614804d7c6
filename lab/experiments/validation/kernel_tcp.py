#!/usr/bin/env python3
"""Measures the kernel's own TCP (Reno) over a token bucket in network namespaces, for the simulator to be held against.

    source 1 --\\
    source 2 ---- left ==== token bucket, N packets of queue ==== right ---- destination

usage: kernel_tcp.py [--seconds S] [--repeats N] [--csv FILE]

Linux, root. Prints one line of CSV per connection: kernel_tcp.csv is its output, which the test
`cargo test -p headwater-netsim --test tcp kernel` compares with the same scenarios simulated.
There is no delay but the queue's: the mechanism under test is congestion control, not a delay line.
"""

import argparse
import csv
import json
import platform
import socket
import struct
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tests"))
from network import Failed, Network, require_root  # noqa: E402

PORT = 5001
QUEUE_PACKETS = 25
# One frame: the queue is the discipline's, not the bucket's.
BURST_BYTES = 1540
FRAME_BYTES = 1514
CHUNK_BYTES = 1 << 16
WARM_UP_SECONDS = 5
REPORT_SECONDS = 0.05
# Above this, half a millisecond of the rate goes into the bucket, or the kernel's timer cannot keep the rate.
SMALL_BURST_RATE = 25_000_000
# tcpi_total_retrans in struct tcp_info of linux/tcp.h.
TOTAL_RETRANSMITS = struct.Struct("=100xI")
SETTINGS = (
    "ipv4.tcp_congestion_control=reno",
    "ipv4.tcp_sack=1",
    "ipv4.tcp_ecn=0",
    "ipv4.tcp_no_metrics_save=1",
    "ipv4.tcp_slow_start_after_idle=0",
    "ipv4.ip_forward=1",
)
COLUMNS = (
    "kernel", "rate_bps", "flows", "queue_packets", "seconds", "repeat", "flow", "goodput_bps", "retransmits",
    "link_bps", "drops",
)


def main():
    arguments = parse()
    if arguments.end:
        end, number = arguments.end
        return {"receive": receive, "send": send}[end](int(number))
    require_root("ip", "tc", "ethtool")
    rows = []
    for rate in (4_000_000, 40_000_000):
        for flows in (1, 2):
            for repeat in range(arguments.repeats):
                rows += measure(rate, flows, repeat, arguments.seconds)
                print(rows[-1], file=sys.stderr)
    out = open(arguments.csv, "w", newline="") if arguments.csv else sys.stdout
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=30, help="length of the measurement, after 5 s of warm-up")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--end", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--csv", help="write there instead of to the standard output")
    return parser.parse_args()


def measure(rate, flows, repeat, seconds):
    """One scenario once: a row per connection."""
    with tempfile.TemporaryDirectory() as folder, Network("hwktcp") as network:
        build(network, rate, flows)
        ends = start_ends(network, flows, Path(folder))
        time.sleep(WARM_UP_SECONDS)
        before = read(network, ends)
        time.sleep(seconds)
        after = read(network, ends)
    shared = {
        "kernel": platform.release(),
        "rate_bps": rate,
        "flows": flows,
        "queue_packets": QUEUE_PACKETS,
        "seconds": seconds,
        "repeat": repeat,
        "link_bps": round(8 * (after["link"]["bytes"] - before["link"]["bytes"]) / (after["at"] - before["at"])),
        "drops": after["link"]["drops"] - before["link"]["drops"],
    }
    received = after["received"]["at"] - before["received"]["at"]
    return [
        {
            **shared,
            "flow": flow,
            "goodput_bps": round(8 * (after["received"]["bytes"][flow] - before["received"]["bytes"][flow]) / received),
            "retransmits": after["resent"][flow] - before["resent"][flow],
        }
        for flow in range(flows)
    ]


def build(network, rate, flows):
    sources = [f"source{flow}" for flow in range(flows)]
    for host in (*sources, "left", "right", "destination"):
        network.add_host(host)
        network.run(host, "sysctl", "-q", "-w", *(f"net.{setting}" for setting in SETTINGS))
    for flow, source in enumerate(sources):
        join(network, (source, "eth0", f"10.88.{flow}.2"), ("left", f"in{flow}", f"10.88.{flow}.1"))
        network.ip(source, "route", "add", "default", "via", f"10.88.{flow}.1")
    join(network, ("left", "out", "10.88.100.1"), ("right", "in", "10.88.100.2"))
    join(network, ("right", "out", "10.88.101.1"), ("destination", "eth0", "10.88.101.2"))
    network.ip("left", "route", "add", "10.88.101.0/24", "via", "10.88.100.2")
    network.ip("right", "route", "add", "default", "via", "10.88.100.1")
    network.ip("destination", "route", "add", "default", "via", "10.88.101.1")
    burst = BURST_BYTES if rate <= SMALL_BURST_RATE else max(BURST_BYTES, rate // 8 // 2000)
    bucket = ("tbf", "rate", f"{rate}bit", "burst", burst, "limit", 1_000_000)
    network.run("left", "tc", "qdisc", "add", "dev", "out", "root", "handle", "1:", *bucket)
    queue = ("pfifo", "limit", QUEUE_PACKETS)
    network.run("left", "tc", "qdisc", "add", "dev", "out", "parent", "1:1", "handle", "10:", *queue)


def join(network, one, other):
    """A veth pair between two (host, interface, address); no segments are put together or cut on the way."""
    (host, interface, _), (peer, peer_interface, _) = one, other
    pair = ("type", "veth", "peer", "name", peer_interface, "netns", network.hosts[peer])
    network.ip(host, "link", "add", interface, *pair)
    for host, interface, address in (one, other):
        offloads = ("gro", "gso", "tso", "tx-udp-segmentation")
        network.run(host, "ethtool", "-K", interface, *(word for name in offloads for word in (name, "off")))
        network.ip(host, "address", "add", f"{address}/24", "dev", interface)
        network.ip(host, "link", "set", "dev", interface, "up")


def link(network):
    """Bytes and packets that left the bucket, and packets that its queue dropped."""
    disciplines = json.loads(network.run("left", "tc", "-s", "-j", "qdisc", "show", "dev", "out"))
    root = next(discipline for discipline in disciplines if discipline["kind"] == "tbf")
    queue = next(discipline for discipline in disciplines if discipline["kind"] == "pfifo")
    return {"bytes": root["bytes"], "packets": root["packets"], "drops": queue["drops"]}


def start_ends(network, flows, folder):
    """The connections: this program at each end, in the namespaces."""
    this = (sys.executable, Path(__file__).resolve(), "--end")
    destination = network.start("destination", "receive", folder, (*this, "receive", flows))
    destination.wait_for("its first line", bool)
    return destination, [network.start(f"source{flow}", "send", folder, (*this, "send", flow)) for flow in range(flows)]


def read(network, ends):
    """What each end said last, and what the link counts; each with the instant of its own."""
    destination, sources = ends
    for source in sources:
        source.wait_for("its first line", bool)
    return {
        "at": time.monotonic(),
        "link": link(network),
        "received": destination.events()[-1],
        "resent": [source.events()[-1]["resent"] for source in sources],
    }


def say(**event):
    print(json.dumps({"at": time.monotonic(), **event}), flush=True)


def receive(flows):
    """Takes the connections and counts what comes; each says its number first."""
    counts = [0] * flows

    def take(connection):
        flow = connection.recv(1, socket.MSG_WAITALL)[0]
        buffer = bytearray(CHUNK_BYTES)
        while received := connection.recv_into(buffer):
            counts[flow] += received

    with socket.create_server(("", PORT), backlog=flows) as server:
        say(bytes=counts)
        for _ in range(flows):
            threading.Thread(target=take, args=(server.accept()[0],), daemon=True).start()
        while True:
            time.sleep(REPORT_SECONDS)
            say(bytes=counts)


def send(flow):
    """Sends without end, and says now and then how much was sent again."""
    chunk = bytes(CHUNK_BYTES)
    said = 0
    with socket.create_connection(("10.88.101.2", PORT)) as connection:
        connection.sendall(bytes([flow]))
        while True:
            connection.sendall(chunk)
            if time.monotonic() - said >= REPORT_SECONDS:
                information = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TOTAL_RETRANSMITS.size)
                say(resent=TOTAL_RETRANSMITS.unpack(information)[0])
                said = time.monotonic()


if __name__ == "__main__":
    try:
        main()
    except Failed as failed:
        sys.exit(f"kernel_tcp: {failed}")
