"""Sessions over two switches or routers with queues of 25 packets: each receiver with its own rate, and one rate that NAKs make. Root, Linux.

  source, rival --- near === bottleneck === far ---< receivers, each behind a link of its own

What near and far are, routing.py says. What must hold is checked at the end of each part, and what was measured is printed
whatever it is.

usage: multirate.py BINARY [--full] [--control m2c|webrc|flid-dl|le-sbcc|le-sbcc-tfrc] [--routing auto|bridge|igmpv2|mldv2|mldv1|frr] [PART...]

parts: links tcp shared small naks leave senders
"""

import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import capture
import parts
from network import Failed, Network, check, require_root
from routing import OFFLOADS, ROUTING, missing

MB = 1_000_000
QUEUE_PACKETS = 25
# Bytes captured of a packet: its headers.
SNAP_BYTES = 96

TCP_SINK = """
import socket, sys, time
listener = socket.create_server(("", 5001)); print("ready", flush=True)
link, _ = listener.accept(); total = 0; began = time.monotonic(); told = began
while chunk := link.recv(1 << 16):
    total += len(chunk); now = time.monotonic()
    if now - told > 0.1: told = now; print(now, total, flush=True)
print(time.monotonic(), total, flush=True)
"""
TCP_SOURCE = """
import socket, sys, time
link = socket.create_connection((sys.argv[1], 5001)); left = int(sys.argv[2]); chunk = bytes(1 << 16)
while left > 0: left -= link.send(chunk[:left])
link.shutdown(socket.SHUT_WR)
while link.recv(1 << 16): pass
"""


class Bed(Network):
    """The two sides, the source, a rival beside it, and receivers behind links of so many Mbit/s (None: no limit)."""

    count = 0

    def __init__(self, folder, binary, control, routing, bottleneck, links):
        super().__init__("hwmulti")
        # A receiver continues in a folder that it finds.
        Bed.count += 1
        folder = folder / f"bed-{Bed.count}"
        folder.mkdir()
        self.folder, self.binary, self.control = folder, binary, control
        self.routing = ROUTING[routing]()
        self.bottleneck, self.links = bottleneck, links
        self.sides = {"source": "near", "rival": "near", **dict.fromkeys(links, "far")}
        self.run_number = 0

    def __exit__(self, *reason):
        super().__exit__(*reason)
        self.routing.remove()

    def build(self):
        for host in ("near", "far", *self.sides):
            self.add_host(host)
            self.routing.prepare(self, host)
            self.run(host, "sysctl", "-q", "-w", "net.ipv4.tcp_congestion_control=reno", "net.ipv4.tcp_no_metrics_save=1")
        self.routing.build(self)
        for host, rate in self.links.items():
            self.limit("far", host, rate)
        self.limit("near", "bot", self.bottleneck)
        self.routing.settle(self)
        return self

    def address(self, host):
        return self.routing.address(1 + list(self.sides).index(host))

    def cable(self, one, port, other, other_port):
        """A veth pair whose packets are frames."""
        self.ip(one, "link", "add", port, "type", "veth", "peer", "name", other_port, "netns", self.hosts[other])
        for host, name in ((one, port), (other, other_port)):
            self.run(host, "ethtool", "-K", name, *(word for offload in OFFLOADS for word in (offload, "off")))

    def limit(self, switch, port, mbit):
        if mbit is None:
            return
        burst = max(1540, int(mbit * 1e6 / 8 * 0.0005))
        root = ("qdisc", "add", "dev", port, "root", "handle", "1:", "tbf", "rate", f"{mbit}mbit", "burst", burst)
        self.run(switch, "tc", *root, "limit", 1_000_000)
        self.run(switch, "tc", "qdisc", "add", "dev", port, "parent", "1:1", "handle", "10:", "pfifo", "limit", QUEUE_PACKETS)

    def capture(self, side, port):
        """Captures what leaves by a port towards groups."""
        self.run_number += 1
        file = self.folder / f"{self.run_number}.pcap"
        options = ["-i", port, "-Q", "out", "-s", SNAP_BYTES, "-B", 16384, "--immediate-mode", "-Z", "root", "-w", file]
        program = self.start(side, f"tcpdump-{self.run_number}", self.folder, ["tcpdump", *options, "udp and ip multicast"])
        until = time.monotonic() + 20
        while "listening on" not in program.err.read_text():
            check(time.monotonic() < until, f"tcpdump does not start: {program.complaint()}")
            time.sleep(0.02)
        program.file = file
        return program

    def source(self, host):
        """A host's address as the source of a group."""
        return self.routing.source(1 + list(self.sides).index(host))

    def session(self, file, max_mbit, receivers):
        """Starts receivers, then the sender."""
        started = {host: self.receive(host, "source") for host in receivers}
        for program in started.values():
            program.wait_for("its join", lambda events: any(event["event"] == "channel:joined" for event in events))
        return self.send("source", file, max_mbit), started

    def receive(self, host, source=None, *more, is_quiet=True):
        """A receiver of one source, or of any."""
        self.run_number += 1
        out = self.folder / f"{self.run_number}-{host}"
        named = ["--source", self.source(source)] if source else []
        options = ["--json", *(["--quiet"] if is_quiet else []), "--interface", "eth0", "--group", self.routing.group, *named, *more]
        command = [*parts.NICE, *self.own_home(host), self.binary, "receive", *options, "--timeout", "60s", "--out", out]
        program = self.start(host, f"{self.run_number}", self.folder, command)
        program.folder = out
        return program

    def send(self, host, file, max_mbit=None, *more):
        """A sender; without a rate, with the default options."""
        self.run_number += 1
        named = ["--max-rate", f"{max_mbit}M"] if max_mbit else []
        options = ["--json", "--quiet", "--interface", "eth0", "--group", self.routing.group, "--ttl", 8, *named, *more]
        command = [*parts.NICE, *self.own_home(host), self.binary, "send", *options, "--congestion-control", self.control, file]
        return self.start(host, f"send-{self.run_number}", self.folder, command)

    def own_home(self, host):
        """A host's own keys and known senders."""
        home = self.folder / f"home-{host}"
        return ["env", "-u", "XDG_CONFIG_HOME", "-u", "XDG_STATE_HOME", f"HOME={home}"]

    def tcp(self, host, number_of_bytes):
        """A TCP flow from the rival to a host."""
        self.run_number += 1
        sink = self.start(host, f"sink-{self.run_number}", self.folder, [*parts.NICE, sys.executable, "-c", TCP_SINK])
        until = time.monotonic() + 20
        while "ready" not in sink.out.read_text():
            check(time.monotonic() < until, f"no TCP sink: {sink.complaint()}")
            time.sleep(0.01)
        command = [*parts.NICE, sys.executable, "-c", TCP_SOURCE, self.address(host), number_of_bytes]
        return sink, self.start("rival", f"tcp-{self.run_number}", self.folder, command)


def whole(bed, program, file, patience):
    """Waits until a receiver is whole; its seconds from the first packet on, and its last counters."""
    until = time.monotonic() + patience
    while not program.has_ended():
        check(time.monotonic() < until, f"{program.name} is not whole after {patience} s: {program.events()[-1:]}")
        time.sleep(0.02)
    events = program.events()
    ended = events[-1]
    check(ended["event"] == "session:ended" and ended["outcome"] == "completed", f"{program.name}: {program.complaint()}")
    found = next(event for event in events if event["event"] == "session:found")
    done = next(event for event in events if event["event"] == "object:completed")
    return (done["time"] - found["time"]) / 1000, ended


def content(folder, megabytes):
    file = folder / f"{megabytes}.bin"
    if not file.exists():
        file.write_bytes(random.Random(megabytes).randbytes(int(megabytes * MB)))
    return file


def describe(name, seconds, ended, megabytes):
    lost = ended["lost"] / max(1, ended["lost"] + ended["packets"])
    join = ended.get("join_latency") or 0
    print(
        f"  {name:10} {seconds:7.1f} s  {megabytes * 8 / seconds:6.2f} Mbit/s  {lost:6.1%} lost  joins {join:.0f} ms, at most "
        f"{ended.get('join_latency_max') or 0:.0f} ms  needed {ended['useful']} of {ended['packets']} packets",
        flush=True,
    )


def stop(*programs):
    for program in programs:
        program.signal(signal.SIGINT)
    for program in programs:
        program.end()


def links(make, folder, full):
    """Three links: rates in their order, each at least 75 % of its own."""
    megabytes, rates = (20, (2, 10, 50)) if full else (3, (2, 8, 32))
    hosts = {f"mbit{rate}": rate for rate in rates}
    with make(None, hosts) as bed:
        bed.build()
        sender, receivers = bed.session(content(folder, megabytes), 100 if full else 40, hosts)
        shares = {}
        for host, program in sorted(receivers.items(), key=lambda item: -hosts[item[0]]):
            seconds, ended = whole(bed, program, None, 60 + 30 * megabytes / hosts[host])
            describe(host, seconds, ended, megabytes)
            shares[host] = megabytes * 8 / seconds / hosts[host]
        stop(sender)
    print("  share of the link:", ", ".join(f"{host} {share:.2f}" for host, share in shares.items()))
    speeds = [shares[host] * rate for host, rate in hosts.items()]
    return [
        ("rates in the order of the links", speeds == sorted(speeds)),
        ("each at least 75 % of its link", min(shares.values()) >= 0.75, parts.BUSY),
    ]


def tcp(make, folder, full):
    """A TCP beside a receiver, on 10 Mbit/s: between a third and two thirds of the link."""
    share, ours, lost = beside_tcp(make, folder, 90 if full else 40)
    print(f"  TCP {share:.2f} of the link, the receiver {ours:.2f} ({lost:.1%} lost)")
    return [("TCP keeps between 1/3 and 2/3 of the link", 1 / 3 <= share <= 2 / 3, parts.BUSY)]


def beside_tcp(make, folder, seconds, rate=10):
    """Shares of a link that a TCP and a receiver have beside each other, and the receiver's loss."""
    with make(None, {"shared": rate}) as bed:
        bed.build()
        # What the receiver cannot have taken by the end, and the sender need not keep on disk.
        sender, receivers = bed.session(content(folder, 100), 40, ["shared"])
        receivers["shared"].wait_for("a file", lambda events: any(event["event"] == "object:announced" for event in events))
        time.sleep(5)
        sink, source = bed.tcp("shared", 10_000 * MB)
        time.sleep(seconds)
        samples = [line.split() for line in sink.out.read_text().splitlines()[1:-1]]
        samples = [(float(at), int(total)) for at, total in samples]
        last = samples[-1]
        first = next(sample for sample in samples if sample[0] > last[0] - seconds * 0.75)
        share = (last[1] - first[1]) * 8 / (last[0] - first[0]) / (rate * 1e6)
        progress = [event for event in receivers["shared"].events() if event["event"] == "session:progress"]
        later = [event for event in progress if event["time"] > progress[-1]["time"] - seconds * 750]
        ours = (later[-1]["bytes"] - later[0]["bytes"]) * 8 / (later[-1]["time"] - later[0]["time"]) * 1000 / (rate * 1e6)
        lost = (later[-1]["lost"] - later[0]["lost"]) / max(1, later[-1]["packets"] - later[0]["packets"])
        stop(sender, receivers["shared"], source, sink)
    return share, ours, lost


def shared(make, folder, full):
    """Five receivers behind 4 Mbit/s, one of them behind a last hop of 1 Mbit/s: nobody waits for it, nor it for them."""
    megabytes = 10 if full else 2
    hosts = {**{f"fast{number}": None for number in range(1, 5)}, "slow": 1}
    fast = [host for host in hosts if host != "slow"]
    file = content(folder, megabytes)
    patience = 60 + 30 * megabytes
    with make(4, hosts) as bed:
        bed.build()

        def session(what, names):
            print(f"  {what}")
            wire = bed.capture("near", "bot")
            sender, receivers = bed.session(file, 16, names)
            results = {host: whole(bed, receivers[host], file, patience) for host in names}
            stop(sender)
            stop(wire)
            for host, (seconds, ended) in results.items():
                describe(host, seconds, ended, megabytes)
            return {host: seconds for host, (seconds, _) in results.items()}, results, capture.packets(wire.file)

        if full:
            alone, _, _ = session("the four alone", fast)
            slow_alone, _, _ = session("the slow one alone", ["slow"])
        together, results, carried = session("all five", list(hosts))
    # What the receivers would take if each were sent to, and what the link carried for all of them.
    taken = sum(ended["bytes"] for _, ended in results.values())
    twice = len(carried) - len(set(carried))
    carried_bytes = sum(length for length, *_ in carried)
    most = max(ended["bytes"] for _, ended in results.values())
    print(f"  the link carried {len(carried)} packets, {twice} of them twice; {carried_bytes / taken:.2f} of what receivers took together")
    bounds = [
        ("the four are whole before the slow one", max(together[host] for host in fast) < together["slow"]),
        # An empty or short capture proves nothing: what one receiver took has passed here.
        ("the link carries the session once", twice == 0 and most <= carried_bytes < taken),
    ]
    if full:
        ratio = max(together[host] for host in fast) / max(alone.values())
        slow_ratio = together["slow"] / slow_alone["slow"]
        print(f"  the four: {ratio:.2f} of their time alone; the slow one: {slow_ratio:.2f} of its own")
        bounds += [
            ("the four within 1.2 of their time without the slow one", ratio <= 1.2),
            ("the slow one within 1.2 of its own", slow_ratio <= 1.2),
        ]
    return bounds


def small(make, folder, full):
    """4 MB at 4 Mbit/s: at most 1.5 times TCP's time."""
    with make(4, {"only": None}) as bed:
        bed.build()
        sink, source = bed.tcp("only", 4 * MB)
        began = time.monotonic()
        source.end()
        sink.end()
        tcp_seconds = time.monotonic() - began
        times = []
        for _ in range(3 if full else 1):
            sender, receivers = bed.session(content(folder, 4), 16, ["only"])
            seconds, ended = whole(bed, receivers["only"], None, 120)
            describe("only", seconds, ended, 4)
            times.append(seconds)
            stop(sender)
    middle = sorted(times)[len(times) // 2]
    print(f"  TCP {tcp_seconds:.1f} s, ours {middle:.1f} s: {middle / tcp_seconds:.2f} times")
    return [("within 1.5 of TCP's time", middle <= 1.5 * tcp_seconds, parts.BUSY)]


def naks(make, folder, full):
    """Three receivers behind 4, 4 and 1 Mbit/s at one rate, which the sender finds from their NAKs: the slow one's."""
    megabytes = 10 if full else 2
    hosts = {"first": 4, "second": 4, "slow": 1}
    with make(None, hosts) as bed:
        if not bed.control.startswith("le-sbcc"):
            bed.control = "le-sbcc"
        bed.build()
        sender, receivers = bed.session(content(folder, megabytes), 40, hosts)
        results = {host: whole(bed, program, None, 60 + 30 * megabytes) for host, program in receivers.items()}
        slow = bed.address("slow")
        stop(sender)
        told = sender.events()[-1]
    for host, (seconds, ended) in results.items():
        describe(host, seconds, ended, megabytes)
        print(f"  {host:10} {ended['naks']} NAKs")
    share = megabytes * 8 / results["slow"][0]
    print(
        f"  allowed {told['allowed_rate'] / 1e6:.2f} Mbit/s, RTT {told['rtt']:.0f} ms, {told['loss_indications']} LIs, {told['loss_events']} LEs, "
        f"{told['passed']} passed, {told['reductions']} reductions, worst {told.get('worst')} ({told.get('worst_share', 0):.0%}), {told['repairs']} sent again"
    )
    return [
        ("the slow one is found to be the worst receiver", told.get("worst") == slow),
        ("nothing is sent again", told["repairs"] == 0),
        ("the rate is the slow link's, between 60 and 100 %", 0.6 <= share <= 1.0, parts.BUSY),
    ]


def leave(make, folder, full):
    """A receiver that ends, and one that is killed: the link is quiet soon after."""
    with make(None, {"ended": 8, "killed": 8}) as bed:
        bed.build()
        sender, receivers = bed.session(content(folder, 100), 40, bed.links)
        for program in receivers.values():
            program.wait_for("a rate", lambda events: any(event["event"] == "session:progress" and event["packets"] > 500 for event in events))
        version, spoken = bed.routing.version(receivers["ended"])
        seconds = {}
        for host, number in (("ended", signal.SIGINT), ("killed", signal.SIGKILL)):
            receivers[host].signal(number)
            receivers[host].end()
            seconds[host] = quiet_after(bed, host)
        stop(sender)
    print("  quiet after", ", ".join(f"{value:.1f} s ({host})" for host, value in seconds.items()))
    return [
        (f"the hosts speak {bed.routing.protocol}", version == spoken),
        (f"both links are quiet within {bed.routing.leave_seconds} s", max(seconds.values()) <= bed.routing.leave_seconds),
    ]


def quiet_after(bed, host):
    """Seconds until less than 50 kB/s come to a host."""
    began = time.monotonic()
    count = lambda: int(bed.run(host, "cat", "/sys/class/net/eth0/statistics/rx_bytes"))
    before = count()
    while time.monotonic() < began + 20:
        time.sleep(0.2)
        now = count()
        if now - before < 10_000:
            break
        before = now
    return time.monotonic() - began


def senders(make, folder, full):
    """Two senders on one group: each receiver gets the file of the sender that it names, and no packet of the other one counts."""
    megabytes = 2
    files = {"source": folder / "ours.bin", "rival": folder / "theirs.bin"}
    for number, file in enumerate(files.values()):
        file.write_bytes(random.Random(number).randbytes(megabytes * MB))
    with make(None, {"first": 20, "second": 20}) as bed:
        bed.build()
        wanted = {"first": "source", "second": "rival"}
        receivers = {host: bed.receive(host, source) for host, source in wanted.items()}
        for program in receivers.values():
            program.wait_for("its join", lambda events: any(event["event"] == "channel:joined" for event in events))
        sending = [bed.send(host, file, 16) for host, file in files.items()]
        results = {host: whole(bed, program, None, 120) for host, program in receivers.items()}
        stop(*sending)
        for host, (seconds, ended) in results.items():
            describe(host, seconds, ended, megabytes)
        got = {host: next(file for file in program.folder.iterdir() if file.is_file()) for host, program in receivers.items()}
    equal = all(got[host].read_bytes() == files[source].read_bytes() for host, source in wanted.items())
    return [("each receiver has its sender's file", equal)]


PARTS = {"links": links, "tcp": tcp, "shared": shared, "small": small, "naks": naks, "leave": leave, "senders": senders}
SHORT = ("links", "shared", "naks")


def main():
    options = parts.chosen(PARTS, "m2c", routing={"choices": ("auto", *ROUTING), "default": "auto"})
    require_root("ip", "tc", "ethtool", "sysctl", "chrt", "tcpdump")
    if options.routing == "auto":
        options.routing = "bridge" if missing("frr") else "frr"
    if lacking := missing(options.routing):
        sys.exit(f"multirate: routing by {options.routing} needs {', '.join(lacking)} (Debian: apt-get install frr)")
    with tempfile.TemporaryDirectory(prefix="hwmulti") as name:
        folder = Path(name)
        make = lambda bottleneck, hosts: Bed(folder, options.binary, options.control, options.routing, bottleneck, hosts)
        names = options.parts or (PARTS if options.full else SHORT)
        # Short files are mostly start-up, and a busy machine measures itself: the short form proves that files come whole, each receiver at
        # its own rate, and that the link carries them once.
        call = lambda part: part(make, folder, options.full)
        missed = parts.run(PARTS, names, f"multirate, routing by {options.routing}", call, options.full)
    check(not missed, f"must hold: {'; '.join(missed)}")


if __name__ == "__main__":
    try:
        main()
    except Failed as failure:
        sys.exit(f"multirate: {failure}")
