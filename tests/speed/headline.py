"""One file to eight machines behind 100 Mbit/s each, by Headwater and by other tools, in turns on the same bed.

Time runs from the start of the sender, with receivers that wait (rsync: from the start of the clients), until a machine has the whole file
under its final name; the content is compared afterwards. Headwater's and BitTorrent's receivers verify by digests, rsync by checksums. The
sender's bytes are those of frames that left its interface. Processor time is of the sender, and the mean of the receivers.

Cases: `all` (eight at once), `slow` (one of the eight behind 10 Mbit/s), `late` (one of the eight comes when half of the limit is over).
The limit is the file's bits over 0.935 of the link, the share of payload with the headers of Ethernet, IP, UDP and ALC.
"""

import argparse
import filecmp
import json
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

from network import Failed, Network, check, require_root

MACHINES = 8
LINK_BITS, SLOW_BITS = 100_000_000, 10_000_000
PAYLOAD_SHARE = 0.935
# Preamble, checksum and gap of a frame, which the kernel does not count.
FRAME_BYTES_MORE = 24
QUEUE_MS = 50
SENDER = "10.93.0.1"
GROUP, PORT = "239.255.72.93", 7393
# At which UDP payload fills the link: of 1490 bytes of a frame on the wire, 1424 are UDP payload.
RATE_BITS = int(LINK_BITS * 1424 / 1490 * 0.995)
SYMBOL_BYTES = 1408
LOOK_SECONDS = 0.01


class Bed:
    def __init__(self, network, options, content):
        self.network, self.options, self.content = network, options, content
        self.folder, self.bytes = options.folder, content.stat().st_size
        # IGMPv3: with version 2, Linux's default here, hosts that join at once silence each other, and the switch never learns of some.
        network.add_switch("mcast_snooping", "1", "mcast_igmp_version", "3", "mcast_query_response_interval", "50", "mcast_startup_query_interval", "50")
        for number, host in enumerate(("sender", *machines()), start=1):
            network.plug(host, f"10.93.0.{number}")
            network.set_offloads(host, False)
            self.shape(host, "eth0", options.uplink * 1_000_000 if host == "sender" else LINK_BITS)
            network.run("bridge", "ethtool", "-K", host, "gro", "off", "gso", "off", "tso", "off")
        self.limit_all(LINK_BITS)
        # All ports are up: ask now. The switch forwards by what it has snooped only after the response interval.
        network.ip("bridge", "link", "set", "dev", "lan", "type", "bridge", "mcast_querier", "1")
        time.sleep(1.5)

    def shape(self, host, device, bits, namespace=None):
        queue = int(bits / 8 * QUEUE_MS / 1000)
        burst = max(3_000, bits // 8 // 2_000)
        words = ("root", "tbf", "rate", f"{bits}bit", "burst", burst, "limit", queue + burst, "overhead", FRAME_BYTES_MORE)
        self.network.run(namespace or host, "tc", "qdisc", "replace", "dev", device, *words)

    def limit_all(self, last_bits):
        """The links to all machines, of which the last has this rate."""
        for host in machines():
            self.shape(host, host, last_bits if host == machines()[-1] else LINK_BITS, "bridge")

    def place(self, host):
        return self.folder / f"out-{host}"

    def result(self, host):
        return self.place(host) / self.content.name

    def start(self, host, name, *arguments):
        return self.network.start(host, name, self.folder, arguments)

    def sent_bytes(self):
        return int(self.network.run("sender", "cat", "/sys/class/net/eth0/statistics/tx_bytes"))

    def limit_seconds(self, bits=LINK_BITS):
        return self.bytes * 8 / (PAYLOAD_SHARE * bits)


def machines():
    return [f"m{number}" for number in range(1, MACHINES + 1)]


class Tool:
    """A way of distributing a file. Receivers wait, then the sender starts."""

    needs = ()
    # Whether a machine that comes late gets the file.
    takes_late = True

    def __init__(self, bed, name):
        self.bed, self.name = bed, name

    def is_whole(self, host, program):
        try:
            return self.bed.result(host).stat().st_size == self.bed.bytes
        except FileNotFoundError:
            return False

    def stop(self, sender, receivers):
        for program in (*receivers, sender):
            if program is not None:
                program.kill()


class Headwater(Tool):
    def __init__(self, bed, name, sending=(), receiving=()):
        super().__init__(bed, name)
        self.sending, self.receiving = sending, receiving
        self.where = ("--group", f"{GROUP}:{PORT}", "--interface", "eth0", "--json", "--quiet")

    def receive(self, host):
        return self.bed.start(host, "receive", self.bed.options.binary, "receive", *self.where, *self.receiving, "--out", self.bed.place(host))

    def is_waiting(self, program):
        return program.memberships(GROUP) > 0

    def send(self):
        options = ("--temp-dir", self.bed.folder, *self.sending)
        return self.bed.start("sender", "send", self.bed.options.binary, "send", *self.where, *options, self.bed.content)


class Uftp(Tool):
    needs, takes_late = ("uftp", "uftpd"), False

    def receive(self, host):
        number = machines().index(host) + 1
        options = ("-d", "-t", "-I", "eth0", "-M", GROUP, "-p", PORT + 1, "-U", f"0x{number:08X}", "-D", self.bed.place(host))
        return self.bed.start(host, "uftpd", "uftpd", *options)

    def is_waiting(self, program):
        return program.memberships(GROUP) > 0

    def send(self):
        options = ("-M", GROUP, "-P", "239.255.72.94", "-p", PORT + 1, "-I", "eth0", "-t", 1, "-b", SYMBOL_BYTES, "-R", RATE_BITS // 1000)
        return self.bed.start("sender", "uftp", "uftp", *options, self.bed.content)


class Udpcast(Tool):
    needs, takes_late = ("udp-sender", "udp-receiver"), False

    def receive(self, host):
        options = ("--mcast-rdv-address", GROUP, "--portbase", PORT + 11, "--interface", "eth0", "--ttl", 1, "--nokbd", "--no-progress")
        return self.bed.start(host, "udp-receiver", "udp-receiver", *options, "--exit-wait", 0, "--file", self.bed.result(host))

    def is_waiting(self, program):
        return program.memberships(GROUP) > 0

    def is_whole(self, host, program):
        # The file has its length at the end, when the receiver ends.
        return program.has_ended() and program.process.returncode == 0

    def send(self):
        options = ("--mcast-rdv-address", GROUP, "--portbase", PORT + 11, "--interface", "eth0", "--ttl", 1, "--nokbd", "--no-progress")
        more = ("--mcast-data-address", "239.255.72.95", "--nopointopoint", "--min-receivers", self.expected, "--blocksize", SYMBOL_BYTES)
        return self.bed.start("sender", "udp-sender", "udp-sender", *options, *more, "--max-bitrate", f"{RATE_BITS // 1000}k", "--file", self.bed.content)


class BitTorrent(Tool):
    def __init__(self, bed, name):
        super().__init__(bed, name)
        self.python, self.torrent = bed.options.torrent_python, bed.folder / "content.torrent"
        if self.python and not self.torrent.exists():
            subprocess.run([self.python, script("torrent.py"), "make", bed.content, self.torrent], check=True)

    def addresses(self, without):
        return [f"10.93.0.{number + 2}" for number, host in enumerate(machines()) if host != without]

    def receive(self, host):
        own = f"10.93.0.{machines().index(host) + 2}"
        words = (self.python, script("torrent.py"), "peer", self.torrent, self.bed.place(host), own, SENDER, *self.addresses(host))
        return self.bed.start(host, "torrent", *words)

    def is_waiting(self, program):
        return "ready" in program.out.read_text()

    def is_whole(self, host, program):
        return "whole" in program.out.read_text()

    def send(self):
        words = (self.python, script("torrent.py"), "seed", self.torrent, self.bed.content.parent, SENDER, *self.addresses(None))
        return self.bed.start("sender", "torrent", *words)


class Rsync(Tool):
    """Clients of a daemon, at once or one after another."""

    needs = ("rsync",)

    def __init__(self, bed, name, is_serial):
        super().__init__(bed, name)
        self.is_serial = is_serial

    def send(self):
        config = self.bed.folder / "rsyncd.conf"
        config.write_text(f"use chroot = no\nuid = root\ngid = root\n[content]\npath = {self.bed.content.parent}\nread only = yes\n")
        daemon = self.bed.start("sender", "rsyncd", "rsync", "--daemon", "--no-detach", "--config", config, "--address", SENDER)
        time.sleep(0.5)
        return daemon

    def receive(self, host):
        return self.bed.start(host, "rsync", "rsync", f"rsync://{SENDER}/content/{self.bed.content.name}", f"{self.bed.place(host)}/")


def script(name):
    return Path(__file__).with_name(name)


def distribute(bed, tool, case):
    """One distribution: seconds of each machine, bytes, processor time; or the reason of a failure."""
    bed.limit_all(SLOW_BITS if case == "slow" else LINK_BITS)
    for host in machines():
        shutil.rmtree(bed.place(host), ignore_errors=True)
        bed.place(host).mkdir()
    shutil.rmtree(bed.folder / "state", ignore_errors=True)
    last = machines()[-1]
    early = machines()[:-1] if case == "late" else machines()
    tool.expected = len(early)
    slow_seconds = bed.limit_seconds(SLOW_BITS if case == "slow" else LINK_BITS)
    patience = 30 + (MACHINES * 1.5 if isinstance(tool, Rsync) else 6) * max(slow_seconds, bed.limit_seconds())
    receivers, seconds, sender, gives_up = {}, {}, None, False
    is_client = isinstance(tool, Rsync)
    try:
        if is_client:
            sender = tool.send()
        else:
            for host in early:
                receivers[host] = tool.receive(host)
            until = time.monotonic() + 20
            while not all(tool.is_waiting(program) for program in receivers.values()):
                check(time.monotonic() < until, f"{tool.name}: its receivers do not wait")
                time.sleep(LOOK_SECONDS)
            time.sleep(1)
        before, began = bed.sent_bytes(), time.monotonic()
        if not is_client:
            sender = tool.send()
        elif not tool.is_serial:
            receivers |= {host: tool.receive(host) for host in early}
        while len(seconds) < MACHINES:
            now = time.monotonic() - began
            if is_client and tool.is_serial and len(receivers) == len(seconds):
                host = machines()[len(seconds)]
                if host != last or case != "late" or now >= bed.limit_seconds() / 2:
                    receivers[host] = tool.receive(host)
            elif case == "late" and last not in receivers and now >= bed.limit_seconds() / 2 and tool.takes_late and not (is_client and tool.is_serial):
                receivers[last] = tool.receive(last)
            for host, program in receivers.items():
                if host not in seconds and tool.is_whole(host, program):
                    seconds[host] = time.monotonic() - began
                program.has_ended()
            sender.has_ended()
            if now > patience or (case == "late" and not tool.takes_late and len(seconds) == MACHINES - 1):
                gives_up = True
                break
            time.sleep(LOOK_SECONDS)
        sent = bed.sent_bytes() - before
        tool.stop(sender, receivers.values())
        differing = [host for host in seconds if not filecmp.cmp(bed.content, bed.result(host), shallow=False)]
        used = [program.cpu_seconds for program in receivers.values() if program.cpu_seconds is not None]
        return {
            "tool": tool.name, "case": case, "seconds": seconds, "sent_bytes": sent, "sender_cpu": sender.cpu_seconds,
            "receiver_cpu": statistics.mean(used) if used else None, "is_complete": not gives_up and not differing, "differing": differing,
        }
    finally:
        for program in bed.network.programs:
            program.kill()
        bed.network.programs.clear()


def tools(bed):
    no_sign = (("--no-sign",), ("--unsigned",))
    found = [
        Headwater(bed, "Headwater"),
        Headwater(bed, "Headwater, --no-sign", *no_sign),
        Headwater(bed, "Headwater, --rate", ("--rate", RATE_BITS, "--no-sign"), ("--unsigned",)),
        Uftp(bed, "UFTP"), Udpcast(bed, "udpcast"), BitTorrent(bed, "BitTorrent"),
        Rsync(bed, "rsync, at once", False), Rsync(bed, "rsync, in turn", True),
    ]
    for tool in found:
        lacking = [need for need in tool.needs if shutil.which(need) is None]
        if isinstance(tool, BitTorrent) and not tool.python:
            lacking = ["libtorrent"]
        if lacking:
            print(f"headline: {tool.name} was left out: no {', '.join(lacking)}", file=sys.stderr)
        else:
            yield tool


def row(result, limit):
    """A line of the table."""
    seconds = result["seconds"]
    last = f"{max(seconds.values()):.1f}" if result["is_complete"] else f"{len(seconds)} of {MACHINES}"
    others = [value for host, value in seconds.items() if host != machines()[-1]]
    first = f"{max(others):.1f}" if others else "-"
    share = f"{max(seconds.values()) / limit:.2f}" if result["is_complete"] else "-"
    cpu = "-" if result["receiver_cpu"] is None else f"{result['receiver_cpu']:.1f}"
    return f"| {result['tool']} | {last} | {share} | {first} | {result['sent_bytes'] / 1e6:.0f} | {result['sender_cpu'] or 0:.1f} | {cpu} |"


def judge(results, case, limit):
    """What the project asks for: (text, whether it holds)."""
    by_name = {result["tool"]: result for result in results if result["case"] == case}
    last = lambda name: max(by_name[name]["seconds"].values()) if by_name.get(name, {}).get("is_complete") else float("inf")
    if case == "all":
        for name, bound in (("Headwater", 1.15), ("Headwater, --no-sign", 1.10), ("Headwater, --rate", 1.02)):
            if name in by_name:
                yield f"{name}: {last(name) / limit:.3f} of the limit, at most {bound}", last(name) <= bound * limit
    peers = {name: last(name) for name in by_name if not name.startswith("Headwater")}
    if peers and "Headwater" in by_name:
        best = min(peers, key=peers.get)
        yield f"{case}: Headwater {last('Headwater'):.1f} s, the best other tool {peers[best]:.1f} s ({best})", last("Headwater") < peers[best]


def draw(results, case, limit, path):
    """Bars of the seconds until the last machine has the file."""
    rows = [result for result in results if result["case"] == case and result["is_complete"]]
    top = max((max(result["seconds"].values()) for result in rows), default=1) * 1.12
    left, width, height = 180, 520, 26
    bars = []
    for index, result in enumerate(rows):
        value = max(result["seconds"].values())
        y, is_ours = 34 + index * height, result["tool"].startswith("Headwater")
        bars.append(
            f'<text x="{left - 8}" y="{y + 15}" text-anchor="end">{result["tool"]}</text>'
            f'<rect x="{left}" y="{y + 2}" width="{width * value / top:.1f}" height="18" rx="2" class="{"ours" if is_ours else "peer"}"/>'
            f'<text x="{left + width * value / top + 6:.1f}" y="{y + 15}">{value:.1f} s</text>'
        )
    bottom = 34 + len(rows) * height
    at = left + width * limit / top
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 60} {bottom + 30}" font-family="sans-serif" font-size="13">'
        "<style>text{fill:#222}.ours{fill:#1f77b4}.peer{fill:#b0b7bf}line{stroke:#d62728}"
        "@media(prefers-color-scheme:dark){text{fill:#ddd}.peer{fill:#5c646d}}</style>"
        f'<text x="{left}" y="18">Seconds until the last of {MACHINES} machines has {path.stem.split("-")[-1]}</text>{"".join(bars)}'
        f'<line x1="{at:.1f}" x2="{at:.1f}" y1="28" y2="{bottom}" stroke-dasharray="4 3"/>'
        f'<text x="{at:.1f}" y="{bottom + 18}" text-anchor="middle">limit of the link, {limit:.1f} s</text></svg>\n'
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--torrent-python", default="", help=argparse.SUPPRESS)
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--uplink", type=int, default=LINK_BITS // 1_000_000, help="Mbit/s of the sender's link")
    parser.add_argument("--cases", nargs="+", choices=("all", "slow", "late"), default=["all", "slow", "late"])
    parser.add_argument("--tools", nargs="+", help="names or their beginnings, such as Headwater UFTP")
    parser.add_argument("--rounds", type=int, default=1, help="the median round of each tool counts")
    parser.add_argument("--out", type=Path, help="a folder for results.json and a figure")
    options = parser.parse_args()
    require_root("ip", "tc", "ethtool")
    content = options.folder / "content" / "image.bin"
    content.parent.mkdir()
    content.write_bytes(random.Random(1).randbytes(options.megabytes * 1_000_000))
    missed, kept = [], []
    with Network("hwhead") as network:
        bed = Bed(network, options, content)
        limit = bed.limit_seconds()
        for case in options.cases:
            print(f"\n{case}: {options.megabytes} MB, limit {limit:.2f} s\n\n| tool | s until the last has it | of the limit | s of the first 7 | MB sent | sender CPU s | receiver CPU s |")
            print("|---|---|---|---|---|---|---|", flush=True)
            for tool in tools(bed):
                if options.tools and not any(f"{tool.name}.".startswith(wanted) for wanted in options.tools):
                    continue
                rounds = [distribute(bed, tool, case) for _ in range(options.rounds)]
                rounds.sort(key=lambda result: max(result["seconds"].values(), default=1e9) if result["is_complete"] else 1e9)
                result = rounds[len(rounds) // 2]
                kept.append(result)
                print(row(result, limit), flush=True)
            for text, holds in judge(kept, case, limit):
                print(f"{'met   ' if holds else 'MISSED'} {text}", flush=True)
                missed += [] if holds else [text]
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "results.json").write_text(json.dumps({"megabytes": options.megabytes, "limit": limit, "results": kept}, indent=1))
        draw(kept, options.cases[0], limit, options.out / f"headline-{options.megabytes} MB.svg")
    check(not missed, f"missed: {'; '.join(missed)}")


if __name__ == "__main__":
    try:
        main()
    except Failed as failure:
        sys.exit(f"headline: {failure}")
