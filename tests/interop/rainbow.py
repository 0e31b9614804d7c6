"""Files by request (Rainbow) over a tree of relays, each receiver behind a link of its own with a queue of packets. Root, Linux.

  source --- top ---< left, right          three receivers below each of the three relays: 2, 10 and 50 Mbit/s

usage: rainbow.py BINARY [--full] [PART...]

parts: tree restarts multicast tcp

What must hold is checked at the end of each part, and what was measured is printed whatever it is. Rates are of the file's bytes, from the start of the
receiver until the file is in place.
"""

import json
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import parts
from multirate import TCP_SINK
from parts import NICE
from network import Failed, Network, check, require_root

MB = 1_000_000
LINKS = (2, 10, 50)
RELAYS = ("top", "left", "right")
# TBF alone makes bursts; behind it the queue is counted in packets.
QUEUE_PACKETS = 50
GROUP = "239.1.2.3:7290"
OFFLOADS = ("gro", "gso", "tso", "tx-udp-segmentation")

TCP_SOURCE = """
import socket, sys, time
link = socket.create_connection((sys.argv[1], 5001)); link.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic"); chunk = bytes(1 << 16); end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end: link.send(chunk)
"""


class Bed(Network):
    """Source and relays in a row of links; three receivers at each relay."""

    def __init__(self, folder, binary):
        super().__init__("hwrb")
        self.folder, self.binary, self.subnets, self.runs = folder, binary, 0, 0

    def __enter__(self):
        super().__enter__()
        for host in ("source", *RELAYS):
            self.add_host(host)
        self.origin, top = self.join("source", "top")
        self.run("source", "ip", "route", "add", "default", "via", top)
        self.above = {"top": None}
        self.run("top", "sysctl", "-q", "-w", "net.ipv4.ip_forward=1")
        for side in ("left", "right"):
            self.above[side], _ = self.join("top", side)
        # By receiver: its relay's address as it has it, and its own.
        self.receivers = {}
        for relay in RELAYS:
            for megabits in LINKS:
                host = f"{relay}-{megabits}"
                self.add_host(host)
                self.receivers[host] = self.join(relay, host, megabits)
        return self

    def join(self, one, other, megabits=None):
        """A link; its addresses. What goes down it has this rate."""
        self.subnets += 1
        port = f"v{self.subnets}"
        addresses = [f"10.89.{self.subnets}.{number}" for number in (1, 2)]
        self.ip(one, "link", "add", port, "type", "veth", "peer", "name", port, "netns", self.hosts[other])
        for host, address in zip((one, other), addresses):
            self.run(host, "ethtool", "-K", port, *(word for name in OFFLOADS for word in (name, "off")))
            self.ip(host, "address", "add", f"{address}/24", "dev", port)
            self.ip(host, "link", "set", "dev", port, "up")
        if megabits:
            self.shape(one, port, megabits)
        return addresses

    def shape(self, host, port, megabits):
        # A frame, or half a millisecond.
        burst = max(1540, megabits * MB // 8 // 2000)
        shape = ("rate", f"{megabits}mbit", "burst", str(burst), "limit", "1000000")
        self.run(host, "tc", "qdisc", "add", "dev", port, "root", "handle", "1:", "tbf", *shape)
        self.run(host, "tc", "qdisc", "add", "dev", port, "parent", "1:1", "handle", "10:", "pfifo", "limit", str(QUEUE_PACKETS))

    def add_rival(self, relay, host, near):
        """A host that sends to `host` by the relay's. On the relay's itself TCP would see its own queue: Linux lets a socket have two packets in it (TCP small queues), and its window
        does not grow."""
        if "rival" in self.hosts:
            return
        self.add_host("rival")
        gateway, address = self.join(relay, "rival")
        self.run(relay, "sysctl", "-q", "-w", "net.ipv4.ip_forward=1")
        self.run("rival", "ip", "route", "add", "default", "via", gateway)
        self.run(host, "ip", "route", "add", address, "via", near)

    def add_lan(self, megabits):
        """A relay below the top one, and three receivers with it at a switch: what it sends to them leaves by one port, `self.lan_port`."""
        names = [f"lan-{number}" for number in (1, 2, 3)]
        for host in ("lan", "switch", *names):
            self.add_host(host)
        self.above["lan"], _ = self.join("top", "lan")
        self.subnets += 1
        self.network = f"10.89.{self.subnets}"
        self.ip("switch", "link", "add", "lan", "type", "bridge", "mcast_snooping", "0")
        self.ip("switch", "link", "set", "dev", "lan", "up")
        self.lan_port = "lan"
        for number, host in enumerate(("lan", *names), start=1):
            self.ip(host, "link", "add", "lan", "type", "veth", "peer", "name", f"p{number}", "netns", self.hosts["switch"])
            self.run(host, "ethtool", "-K", "lan", *(word for name in OFFLOADS for word in (name, "off")))
            self.ip(host, "address", "add", f"{self.network}.{number}/24", "dev", "lan")
            self.ip(host, "link", "set", "dev", "lan", "up")
            self.ip(host, "route", "add", "224.0.0.0/4", "dev", "lan")
            self.ip("switch", "link", "set", "dev", f"p{number}", "master", "lan", "up")
        self.shape("lan", "lan", megabits)
        return names

    def sent_frames(self, host, port):
        """Frames that left by a port, and their bytes."""
        told = json.loads(self.ip(host, "-j", "-s", "link", "show", "dev", port))[0]["stats64"]["tx"]
        return told["packets"], told["bytes"]

    def file(self, size):
        path = self.folder / f"file-{size}"
        if not path.exists():
            path.write_bytes(random.Random(size).randbytes(size))
        return path

    def program(self, host, what, *arguments):
        self.runs += 1
        command = [*NICE, self.binary, what, "--json", *arguments]
        return self.start(host, f"{what}{self.runs}", self.folder, command)

    def relay(self, host, *options):
        above = self.above[host]
        program = self.program(host, "relay", *(("--upstream", above) if above else ()), *options)
        program.wait_for("its start", lambda events: any(event["event"] == "relay:started" for event in events))
        return program

    def source(self, path):
        program = self.program("source", "send", "--congestion-control", "rainbow", str(path))
        program.wait_for("its start", lambda events: any(event["event"] == "session:started" for event in events))
        return program

    def receiver(self, host, name="", relay=None, options=()):
        relay = relay or self.receivers[host][0]
        out = self.folder / f"out-{host}{name}"
        program = self.program(host, "receive", "--ask", self.origin, "--via", relay, "--out", str(out), *options)
        program.out_folder = out
        return program


def finished(receiver, path, patience):
    check(receiver.end(patience) == 0, f"{receiver.name}: {receiver.complaint()}")
    held = receiver.out_folder / path.name
    check(held.read_bytes() == path.read_bytes(), f"{receiver.name}: the file is another one")
    held.unlink()


def stopped(program, code):
    program.signal(signal.SIGINT)
    check(program.end() in code, f"{program.name} ended badly: {program.complaint()}")
    return program.events()[-1]


def samples(receiver):
    """Times in milliseconds, and packets received until then."""
    return [(event["time"], event["packets"]) for event in receiver.events() if event["event"] == "session:progress"]


def at_least(receivers):
    """Packets that a link must carry for these: in each tenth of a second as many as the fastest took."""
    most = {}
    for receiver in receivers:
        before = 0
        for when, packets in samples(receiver):
            tenth = round(when / 100)
            most[tenth] = max(most.get(tenth, 0), packets - before)
            before = packets
    return sum(most.values())


def tree(bed, full):
    """nine receivers begin together; each has its link, and links carry what their fastest receiver takes"""
    path = bed.file((20 if full else 3) * MB)
    relays = {host: bed.relay(host) for host in RELAYS}
    source = bed.source(path)
    receivers = {host: bed.receiver(host) for host in bed.receivers}
    for receiver in receivers.values():
        finished(receiver, path, 240)
    sent = stopped(source, (130,))
    told = {host: stopped(relay, (0,)) for host, relay in relays.items()}
    print(f"  {'receiver':10} {'Mbit/s':>8} {'of link':>8} {'lost':>6} {'extra':>6}")
    holds = []
    for host, receiver in receivers.items():
        last = receiver.events()[-1]
        done = next(event["time"] for event in receiver.events() if event["event"] == "object:completed")
        megabits = path.stat().st_size * 8 / done / 1e3
        link = int(host.split("-")[1])
        extra = last["packets"] / last["symbols_total"] - 1
        print(f"  {host:10} {megabits:8.2f} {megabits / link:8.2f} {last['lost']:6} {extra:6.3f}")
        holds.append((f"{host}: at least 0.8 of its link: {megabits / link:.2f}", megabits >= 0.8 * link, parts.BUSY))
    below = {"top": list(receivers.values())}
    below.update({side: [receiver for host, receiver in receivers.items() if host.startswith(side)] for side in ("left", "right")})
    for host in RELAYS:
        carried, least = told[host]["router"]["replies"], at_least(below[host])
        print(f"  the link to {host}: {carried} packets, {carried / least - 1:+.3f} over what the fastest of its receivers took in each tenth of a second")
        what = f"the link to {host} carries {carried / least:.2f} of what its fastest receivers took, at most 1.35"
        holds.append((what, carried <= 1.35 * least, parts.BUSY))
    served = sum(receiver.events()[-1]["packets"] for receiver in receivers.values())
    answered = sum(event["router"]["answered"] for event in told.values())
    print(f"  relays answered {answered} requests by what they had kept")
    print(f"  the source sent {sent['packets']} packets; receivers took {served}")
    holds.append((f"of requests, links carry each packet once: {sent['packets']} packets served {served}", sent["packets"] < 0.5 * served))
    return holds


def restarts(bed, full):
    """a relay is killed and comes back, then a receiver, then the source: nothing is lost"""
    path = bed.file((4 if full else 2) * MB)
    relays = {host: bed.relay(host) for host in RELAYS}
    source = bed.source(path)
    receivers = {host: bed.receiver(host) for host in ("left-2", "left-10", "right-2", "top-2")}
    time.sleep(0.7)
    relays["left"].kill()
    time.sleep(0.7)
    relays["left"] = bed.relay("left")
    time.sleep(0.7)
    receivers["right-2"].kill()
    receivers["right-2"] = bed.receiver("right-2")
    time.sleep(0.5)
    source.kill()
    source = bed.source(path)
    for receiver in receivers.values():
        finished(receiver, path, 120)
    resumed = receivers["right-2"].events()[-1]["resumed"]
    late = bed.receiver("top-50", "late")
    finished(late, path, 60)
    stopped(source, (130,))
    for relay in relays.values():
        stopped(relay, (0,))
    return [(f"a receiver that was killed goes on with the {resumed} symbols that it had", resumed > 0)]


def multicast(bed, full):
    """three receivers at one switch, served at a group: what the relay sends crosses its port once for all of them, though they begin at different times"""
    path = bed.file((6 if full else 2) * MB)
    megabits = 10
    names = bed.add_lan(megabits)
    relays = [bed.relay("top"), bed.relay("lan", "--multicast", GROUP, "--interface", "lan", "--network", f"{bed.network}.0/24")]
    source = bed.source(path)
    before = bed.sent_frames("lan", bed.lan_port)
    receivers = []
    for host in names:
        receivers.append(bed.receiver(host, relay=f"{bed.network}.1", options=("--multicast", GROUP)))
        time.sleep(0.2)
    for receiver in receivers:
        finished(receiver, path, 60)
    frames, octets = (after - start for after, start in zip(bed.sent_frames("lan", bed.lan_port), before))
    stopped(source, (130,))
    told = [stopped(relay, (0,)) for relay in relays]
    taken = [receiver.events()[-1]["packets"] for receiver in receivers]
    times = [next(event["time"] for event in receiver.events() if event["event"] == "object:completed") / 1e3 for receiver in receivers]
    size = path.stat().st_size
    print(f"  the relay's port carried {frames} frames, {octets / size:.2f} times the file; receivers took {', '.join(map(str, taken))} packets in {', '.join(f'{time:.1f}' for time in times)} s")
    print(f"  of {told[1]['router']['requests']} requests the relay sent {told[1]['router']['sent_on']} on, and answered {told[1]['router']['answered']}")
    return [
        (f"the port carries each packet once: {frames} frames for {sum(taken)} packets taken", frames < 0.5 * sum(taken)),
        (f"the port carries {octets / size:.2f} times the file, at most 1.5", octets <= 1.5 * size, parts.BUSY),
        (f"each has at least 0.6 of the link: {min(size * 8 / MB / time / megabits for time in times):.2f}", all(size * 8 / MB / time >= 0.6 * megabits for time in times), parts.BUSY),
    ]


def rate(before, after):
    return (after[1] - before[1]) * 8 / (after[0] - before[0])


def counts(sink, receiver):
    """Seconds and bytes, of TCP and of the receiver, as they said last."""
    when, total = sink.out.read_text().rsplit("\n", 1)[0].split("\n")[-1].split()
    last = [event for event in receiver.events() if event["event"] == "session:progress"][-1]
    return (float(when), int(total)), (last["time"] / 1e3, last["bytes"])


def tcp(bed, full):
    """one TCP (CUBIC) by the relay's host to the receiver behind 10 Mbit/s shares its link"""
    # More than there is time for.
    path = bed.file(40 * MB)
    seconds = 24 if full else 6
    host = "left-10"
    near, own = bed.receivers[host]
    bed.add_rival("left", host, near)
    relays = {host: bed.relay(host) for host in ("top", "left")}
    source = bed.source(path)
    sink = bed.start(host, "sink", bed.folder, [*NICE, sys.executable, "-c", TCP_SINK])
    until = time.monotonic() + 10
    while "ready" not in sink.out.read_text():
        check(time.monotonic() < until and not sink.has_ended(), f"the sink did not start: {sink.complaint()}")
        time.sleep(0.02)
    rival = bed.start("rival", "rival", bed.folder, [*NICE, sys.executable, "-c", TCP_SOURCE, own, str(10 * seconds)])
    receiver = bed.receiver(host, "tcp")
    until = time.monotonic() + 30
    while len(sink.out.read_text().split("\n")) < 3 or not any(event["event"] == "session:found" for event in receiver.events()):
        check(time.monotonic() < until, f"one did not begin: {rival.complaint()} {receiver.complaint()}")
        time.sleep(0.05)
    # A quarter of the time to find shares.
    time.sleep(seconds / 4)
    before = counts(sink, receiver)
    time.sleep(seconds * 0.65)
    after = counts(sink, receiver)
    check(not rival.has_ended() and not receiver.has_ended(), "one ended before the other")
    shares = [rate(*times) / 1e6 for times in zip(before, after)]
    rival.kill()
    receiver.kill()
    stopped(source, (130,))
    for relay in relays.values():
        stopped(relay, (0,))
    print(f"  TCP {shares[0]:.2f} Mbit/s, the receiver {shares[1]:.2f} Mbit/s of 10")
    ratio = shares[0] / shares[1]
    return [(f"TCP has between half and twice the receiver's rate: {ratio:.2f}", 0.5 <= ratio <= 2, parts.BUSY)]


PARTS = {"tree": tree, "restarts": restarts, "multicast": multicast, "tcp": tcp}


def main():
    options = parts.chosen(PARTS, "rainbow")
    require_root("ip", "tc", "ethtool")
    with tempfile.TemporaryDirectory(prefix="headwater-rainbow-") as folder:
        try:
            with Bed(Path(folder), options.binary) as bed:
                missed = parts.run(PARTS, options.parts or list(PARTS), "rainbow", lambda part: part(bed, options.full), options.full)
        except Failed as failed:
            sys.exit(f"rainbow.sh: {failed}")
    if missed:
        sys.exit("rainbow.sh: missed: " + "; ".join(missed))


if __name__ == "__main__":
    main()
