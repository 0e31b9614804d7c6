"""LE-SBCC beside four TCP to each receiver, far away: what each gets of a receiver's link. Root, Linux.

  source, rival --- switch === wire: 1 Mbit/s, 250 ms each way, a queue === receiver     (as often as there are receivers)

usage: distance.py [--control NAME] [--receivers N] [--seconds S] [--queue PACKETS] BINARY WIRE
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from multirate import NICE, Bed
from network import Failed, Network, check, require_root

GROUP = "239.192.87.1:7287"
FLOWS = 4
MBIT = 1
ONE_WAY_MS = 250
# What is measured begins when the starts are over.
WARM_UP = 0.25

SINK = """
import selectors, socket, time
selector, listener = selectors.DefaultSelector(), socket.create_server(("", 5001)); print("ready", flush=True)
selector.register(listener, selectors.EVENT_READ); totals = {}; told = time.monotonic()
while True:
    for key, _ in selector.select(0.5):
        if key.fileobj is listener:
            link, _ = listener.accept(); totals[link] = 0; selector.register(link, selectors.EVENT_READ)
        elif chunk := key.fileobj.recv(1 << 16): totals[key.fileobj] += len(chunk)
        else: selector.unregister(key.fileobj)
    if time.monotonic() - told > 0.5: told = time.monotonic(); print(told, *totals.values(), flush=True)
"""
SOURCE = """
import socket, sys, threading
def flow():
    link = socket.create_connection((sys.argv[1], 5001)); chunk = bytes(1 << 14)
    while True: link.send(chunk)
threads = [threading.Thread(target=flow) for _ in range(int(sys.argv[2]))]
for thread in threads: thread.start()
"""
MESSAGES = "import sys\nwhile True: sys.stdout.buffer.write(b'x' * 1399 + b'\\n')"


class Far(Network):
    """A switch, and receivers behind the wire."""

    cable = Bed.cable

    def __init__(self, folder, receivers):
        super().__init__("hwfar")
        self.folder = folder
        self.receivers = [f"far{number}" for number in range(1, receivers + 1)]

    def build(self, wire, queue):
        for host in ("switch", "wire", "source", "rival", *self.receivers):
            self.add_host(host)
            for setting in ("tcp_congestion_control=reno", "tcp_sack=1", "tcp_no_metrics_save=1"):
                self.run(host, "sysctl", "-q", "-w", f"net.ipv4.{setting}")
        self.ip("switch", "link", "add", "bridge", "type", "bridge", "stp_state", 0, "mcast_snooping", 0)
        self.ip("switch", "link", "set", "dev", "bridge", "up")
        for host in ("source", "rival"):
            self.cable("switch", host, host, "eth0")
            self.plug(host)
        for host in self.receivers:
            self.cable("switch", host, "wire", f"n-{host}")
            self.plug(host)
            self.cable("wire", f"f-{host}", host, "eth0")
            for port in (f"n-{host}", f"f-{host}"):
                self.ip("wire", "link", "set", "dev", port, "up")
        for number, host in enumerate(("source", "rival", *self.receivers), start=1):
            self.bring_up(host, f"10.87.0.{number}")
        pairs = [f"n-{host},f-{host}" for host in self.receivers]
        options = ["--rate", f"{MBIT}M", "--delay", f"{ONE_WAY_MS}ms", "--queue", queue]
        self.wire = self.start("wire", "wire", self.folder, [*NICE, wire, *options, *pairs])
        self.wait(self.wire)

    def plug(self, port):
        self.ip("switch", "link", "set", "dev", port, "master", "bridge", "up")

    def wait(self, program):
        until = time.monotonic() + 20
        while "ready" not in program.out.read_text():
            check(time.monotonic() < until, f"{program.name} does not start: {program.complaint()}")
            time.sleep(0.02)

    def address(self, host):
        return f"10.87.0.{3 + self.receivers.index(host)}"


def rate(samples, end):
    """Mbit/s of what came in the measured part; samples are (seconds, bytes)."""
    later = [sample for sample in samples if end * WARM_UP <= sample[0]]
    return (later[-1][1] - later[0][1]) * 8e-6 / (later[-1][0] - later[0][0])


def measure(bed, binary, control, seconds):
    ends = {}
    for host in bed.receivers:
        options = ["--json", "--quiet", "--interface", "eth0", "--group", GROUP, "--out", "/dev/null"]
        receiver = bed.start(host, "receive", bed.folder, [*NICE, binary, "pgm", "receive", *options])
        sink = bed.start(host, "sink", bed.folder, [sys.executable, "-c", SINK])
        ends[host] = (receiver, sink)
        bed.wait(sink)
        receiver.wait_for("its join", lambda events: any(event["event"] == "channel:joined" for event in events))
    began = time.monotonic()
    options = f"--json --quiet --interface eth0 --ttl 8 --group {GROUP} --congestion-control {control} --start-rate 200k"
    command = ["sh", "-c", f"{sys.executable} -c \"$0\" | exec {' '.join(NICE)} '{binary}' pgm send {options}", MESSAGES]
    sender = bed.start("source", "send", bed.folder, command)
    for host in bed.receivers:
        bed.start("rival", f"tcp-{host}", bed.folder, [sys.executable, "-c", SOURCE, bed.address(host), FLOWS])
    time.sleep(seconds)
    told = [event for event in sender.events() if event["event"] == "session:progress"][-1]
    shares = {}
    for host, (receiver, sink) in ends.items():
        lines = [[float(word) for word in line.split()] for line in sink.out.read_text().splitlines()[1:-1]]
        flows = [rate([(line[0] - began, line[1 + flow]) for line in lines if len(line) > FLOWS], seconds) for flow in range(FLOWS)]
        progress = [event for event in receiver.events() if event["event"] == "session:progress"]
        ours = rate([(event["time"] / 1000, event["bytes"]) for event in progress], progress[-1]["time"] / 1000)
        shares[host] = ours / (sum(flows) / FLOWS)
        tcp = " ".join(f"{flow:.3f}" for flow in flows)
        print(f"  {host}: {control} {ours:.3f} Mbit/s, TCP {tcp}; ratio {shares[host]:.2f}, missed {progress[-1]['missed']}", flush=True)
    why = " ".join(f"{name} {told[name]}" for name in ("loss_indications", "loss_events", "passed", "reductions", "repairs"))
    print(f"  sender: allowed {told['allowed_rate'] / 1e6:.3f} Mbit/s, rtt {told['rtt']:.0f} ms, {why}", flush=True)
    return sum(shares.values()) / len(shares)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--control", default="le-sbcc")
    parser.add_argument("--receivers", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--queue", type=int, default=42)
    parser.add_argument("binary")
    parser.add_argument("wire")
    options = parser.parse_args()
    require_root("ip", "ethtool", "sysctl")
    with tempfile.TemporaryDirectory(prefix="hwfar") as name:
        with Far(Path(name), options.receivers) as bed:
            bed.build(options.wire, options.queue)
            ratio = measure(bed, options.binary, options.control, options.seconds)
            bed.wire.signal(2)
            bed.wire.end()
            report = bed.wire.out.read_text().splitlines()[1:]
    print("  wire:", "\n        ".join(report))
    print(f"  {options.control} over the mean of the TCP: {ratio:.2f}; published: somewhat above 1")
    check(report[-1] == "valid", "the wire was late: this is no measurement")


if __name__ == "__main__":
    try:
        main()
    except Failed as failure:
        sys.exit(f"distance: {failure}")
