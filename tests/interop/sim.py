"""SIM over two levels of `headwater relay --sim` in namespaces. Root, Linux.

  source --- top ---< left, right >--- each three receivers, behind 2, 4 and 8 Mbit/s

The relays' queues are the only ones that are slow, and they mark. What must hold is checked at the end of each part.

usage: sim.py BINARY [--full] [PART...]

parts: rates file
"""

import filecmp
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import capture
import parts
from parts import NICE
from network import Failed, Network, check, require_root

MB = 1_000_000
GROUP = "239.255.72.80:7287"
RATES = (2, 4, 8)
SIDES = ("left", "right")
REPORT_BYTES = 40
ROSTER = b"HWP"
CE = 3


class Link:
    """A veth pair: interfaces and addresses of both ends."""

    def __init__(self, number):
        self.port = f"v{number}"
        self.upper, self.lower = (f"10.89.{number}.{end}" for end in (1, 2))


class Bed(Network):
    def __init__(self, folder, binary):
        super().__init__("hwsim")
        self.folder, self.binary, self.links, self.runs = folder, binary, {}, 0

    def build(self):
        self.receivers = {f"{side}{rate}": (side, rate) for side in SIDES for rate in RATES}
        for host in ("source", "top", *SIDES, *self.receivers):
            self.add_host(host)
        self.join("source", "top")
        for side in SIDES:
            self.join("top", side)
        for host, (side, _) in self.receivers.items():
            self.join(side, host)
        return self

    def join(self, upper, lower):
        link = self.links[lower] = Link(len(self.links) + 1)
        self.ip(upper, "link", "add", link.port, "type", "veth", "peer", "name", link.port, "netns", self.hosts[lower])
        for host, address in ((upper, link.upper), (lower, link.lower)):
            off = (word for name in ("gro", "gso", "tso", "tx-udp-segmentation") for word in (name, "off"))
            self.run(host, "ethtool", "-K", link.port, *off)
            self.ip(host, "address", "add", f"{address}/24", "dev", link.port)
            self.ip(host, "link", "set", "dev", link.port, "up")

    def headwater(self, host, *arguments):
        self.runs += 1
        return self.start(host, f"{arguments[0]}-{self.runs}", self.folder, [*NICE, self.binary, *arguments])

    def relays(self):
        top, links = self.links["top"], self.links
        said = [word for side in SIDES for word in ("--sim-to", f"{links[side].port}=30M", "--sim-relay", links[side].lower)]
        started = {"top": self.headwater("top", "relay", "--json", "--quiet", "--sim", GROUP, "--sim-from", top.port, *said)}
        for side in SIDES:
            below = [(links[host].port, rate) for host, (of, rate) in self.receivers.items() if of == side]
            said = [word for port, rate in below for word in ("--sim-to", f"{port}={rate}M")]
            started[side] = self.headwater(side, "relay", "--json", "--quiet", "--sim", GROUP, "--sim-from", links[side].port, *said)
        for program in started.values():
            program.wait_for("its start", lambda events: any(event["event"] == "relay:started" for event in events))
        return started

    def session(self, file, *options):
        """Relays, receivers, and then the sender."""
        relays, receivers = self.relays(), {}
        for host in self.receivers:
            out = self.folder / f"{self.runs}-{host}"
            arguments = ("--json", "--quiet", "--interface", self.links[host].port, "--group", GROUP, "--timeout", "60s", "--name", host, "--out", out)
            receivers[host] = self.headwater(host, "receive", *arguments)
            receivers[host].folder = out
        for program in receivers.values():
            program.wait_for("its join", lambda events: any(event["event"] == "channel:joined" for event in events))
        arguments = ("--json", "--quiet", "--interface", self.links["top"].port, "--group", GROUP)
        control = ("--congestion-control", "sim", "--sim-relay", self.links["top"].lower, "--max-rate", "20M")
        return relays, receivers, self.headwater("source", "send", *arguments, *control, *options, file)

    def capture(self, host, port, what):
        self.runs += 1
        file = self.folder / f"{self.runs}.pcap"
        options = ["-i", port, "-s", "128", "-B", "16384", "--immediate-mode", "-Z", "root", "-w", file]
        program = self.start(host, f"tcpdump-{self.runs}", self.folder, ["tcpdump", *options, what])
        until = time.monotonic() + 20
        while "listening on" not in program.err.read_text():
            check(time.monotonic() < until, f"tcpdump does not start: {program.complaint()}")
            time.sleep(0.02)
        program.file = file
        return program


def stop(*programs):
    for program in programs:
        program.signal(signal.SIGINT)
    for program in programs:
        program.end()


def content(folder, megabytes):
    file = folder / f"{megabytes}.bin"
    if not file.exists():
        file.write_bytes(random.Random(megabytes).randbytes(int(megabytes * MB)))
    return file


def progress(program):
    return [event for event in program.events() if event["event"] == "session:progress"]


def marks(file):
    """Packets of groups in a capture, and by the last byte of the group those that carry CE."""
    count, marked = 0, {}
    for frame in capture.frames(file):
        count += 1
        if frame[15] & 3 == CE:
            marked[frame[33]] = marked.get(frame[33], 0) + 1
    return count, marked


def unicast(file):
    """Source address and payload of each datagram of SIM: relays pass reports to a roster on, with the names that receivers tell in them."""
    return [(frame[26:30], frame[42:]) for frame in capture.frames(file) if not frame[42:].startswith(ROSTER)]


def rates(bed, full):
    """Rates settle at what the links carry, by marks that are on the wire, and nobody's name leaves the first relay."""
    settle, measured = (60, 60) if full else (42, 20)
    # At a relay's side of a link, what it sends to a receiver; at the top's, what comes up from a relay.
    relays, receivers, sender = bed.session(content(bed.folder, 200))
    ups = {host: bed.capture(side, bed.links[host].port, "udp and dst port 7291 and not ip multicast") for host, (side, _) in bed.receivers.items()}
    above = bed.capture("top", bed.links["left"].port, "udp and dst port 7291 and not ip multicast")
    time.sleep(settle)
    downs = {host: bed.capture(host, bed.links[host].port, "udp and ip multicast") for host in bed.receivers}
    before = {host: progress(program)[-1] for host, program in receivers.items()}
    time.sleep(measured)
    after = {host: progress(program)[-1] for host, program in receivers.items()}
    stop(*downs.values(), *ups.values(), above, *receivers.values(), sender, *relays.values())
    shares, speeds, ce, base = {}, {}, {}, int(GROUP.split(":")[0].rsplit(".", 1)[1])
    print("  receiver     Mbit/s  of its link  groups  lost  packets  with CE, by rank")
    for host, (_, rate) in bed.receivers.items():
        span = (after[host]["time"] - before[host]["time"]) / 1000
        speeds[host] = (after[host]["bytes"] - before[host]["bytes"]) * 8 / span / 1e6
        shares[host] = speeds[host] / rate
        count, marked = marks(downs[host].file)
        ce[host] = {group - base: number for group, number in sorted(marked.items())}
        lost = after[host]["lost"] - before[host]["lost"]
        print(f"  {host:10} {speeds[host]:8.2f} {shares[host]:12.2f} {after[host]['channels']:7} {lost:5} {count:8}  {ce[host]}", flush=True)
    reports = {host: [payload for _, payload in unicast(program.file) if len(payload) >= REPORT_BYTES] for host, program in ups.items()}
    names = {payload[4:8] for payloads in reports.values() for payload in payloads}
    addresses = {bytes(map(int, bed.links[host].lower.split("."))) for host in bed.receivers}
    merged = unicast(above.file)
    leaks = [payload for _, payload in merged if any(secret in payload for secret in names | addresses)]
    sources = {source for source, _ in merged}
    seen = [payload[2:4] + payload[11:12] for _, payload in merged if len(payload) >= REPORT_BYTES]
    told = {host: program.events()[-1] for host, program in relays.items()}
    below = sum(map(len, reports.values()))
    print(f"  {below} reports of receivers below both relays, {len(seen)} from the left one on, {told['top']['merged']} to the sender")
    for host, event in told.items():
        egress = event["egress"]
        print(f"  {host}: {event['packets']} packets in, {egress['sent']} out, {egress['marked']} marked, {egress['queue_drops']} dropped; refused {event['refused']}")
    by_rate = [min(speeds[f"{side}{rate}"] for side in SIDES) for rate in RATES]
    return [
        ("rates in the order of the links", by_rate == sorted(by_rate)),
        ("marks are CE on the wire", any(ce.values())),
        ("marks at each link", all(ce.values()), parts.BUSY),
        ("each report that went up is a relay's own", len(names) == 6 and not leaks and sources == {bytes(map(int, bed.links["left"].lower.split(".")))}),
        ("at most one report of a group and request went up", len(seen) == len(set(seen)) > 50),
        ("each rate within 15 % of its link's", all(0.85 <= share <= 1.15 for share in shares.values()), parts.BUSY),
    ]


def file(bed, full):
    """A file is whole at all, and the sender ends once all have said so through two relays."""
    megabytes = 20 if full else 3
    source = content(bed.folder, megabytes)
    expected = bed.folder / "expected"
    expected.write_text("".join(f"{host}\n" for host in bed.receivers))
    relays, receivers, sender = bed.session(source, "--expect", expected)
    began, until = time.monotonic(), time.monotonic() + 60 + 8 * megabytes
    while not all(program.has_ended() for program in receivers.values()) and time.monotonic() < until:
        time.sleep(0.05)
    is_whole = {}
    for host, program in receivers.items():
        events = program.events()
        done = [event for event in events if event["event"] == "object:completed"]
        is_whole[host] = bool(done) and filecmp.cmp(source, program.folder / source.name, shallow=False)
        seconds = done[0]["time"] / 1000 if done else time.monotonic() - began
        print(f"  {host:10} {seconds:6.1f} s  {'whole' if is_whole[host] else 'not whole'}  {events[-1].get('lost')} lost", flush=True)
    last, code = time.monotonic(), sender.end(patience_seconds=10)
    print(f"  the sender ends {time.monotonic() - last:.1f} s after the last receiver, with code {code}: {sender.complaint()}")
    stop(*receivers.values(), *relays.values())
    passed = {host: program.events()[-1]["passed"] for host, program in relays.items()}
    print(f"  reports to the roster, and replies, that relays passed on: {passed}")
    return [
        (f"{megabytes} MB are whole at all six", all(is_whole.values())),
        ("the sender knows the end of all six", code == 0),
    ]


PARTS = {"rates": rates, "file": file}


def main():
    options = parts.chosen(PARTS, "sim")
    require_root("ip", "ethtool", "chrt", "tcpdump")
    with tempfile.TemporaryDirectory(prefix="hwsim") as name:

        def call(part):
            with Bed(Path(name), options.binary) as bed:
                return part(bed.build(), options.full)

        missed = parts.run(PARTS, options.parts or PARTS, "sim", call, options.full)
    check(not missed, f"must hold: {'; '.join(missed)}")


if __name__ == "__main__":
    try:
        main()
    except Failed as failure:
        sys.exit(f"sim: {failure}")
