"""A source, a relay of AMT and gateways in namespaces.

  source --- lan --- relay --- gateway-10, -1, -4, -16, -open: links of so many Mbit/s, without multicast
              |
            native: a link of 10 Mbit/s

usage: amt.py HEADWATER FOLDER [PART...]
       amt.py dns ADDRESS RELAY        a DNS server that names the relay of any source

parts: families rates demand restart strangers neighbour driad witness
"""

import concurrent.futures
import ctypes
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import parts
from network import Failed, Network, check, require_root

MB = 1_000_000
PORT = 2268
GROUP_PORT = 7287
SOURCE, SOURCE6 = "10.90.0.1", "fd90::1"
LINKS = {"open": None, "10": 10, "1": 1, "4": 4, "16": 16}
# Packets of a session fit the tunnel without fragments.
SYMBOL_BYTES = 1280
WITNESS, WITNESS_COMMIT = "https://github.com/GrumpyOldTroll/amt", "be9491d"


def dns(address, relay):
    """Answers every query with one relay, at precedence 10 by address."""
    end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    end.bind((address, 53))
    print('{"event": "listening"}', flush=True)
    while True:
        query, asker = end.recvfrom(512)
        data = b"\x0a\x01" + socket.inet_aton(relay)
        answer = b"\xc0\x0c" + struct.pack("!HHIH", 260, 1, 60, len(data)) + data
        end.sendto(query[:2] + b"\x81\x80" + query[4:6] + b"\0\1" + query[8:] + answer, asker)


class Bed(Network):
    def __init__(self, part, folder, headwater):
        super().__init__(f"hwamt{list(PARTS).index(part)}x")
        self.folder, self.headwater, self.count = folder / part, headwater, 0
        self.folder.mkdir()

    def build(self):
        for host in ("source", "lan", "native", "relay", *(f"gateway-{name}" for name in LINKS)):
            self.add_host(host)
        self.run("relay", "sysctl", "-q", "-w", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
        # Times in hundredths of a second.
        times = {"query_interval": 500, "query_response_interval": 50, "startup_query_interval": 50, "startup_query_count": 4,
                 "last_member_interval": 10, "hash_max": 4096, "igmp_version": 3, "mld_version": 2, "snooping": 1, "querier": 0}
        options = [word for name, value in times.items() for word in (f"mcast_{name}", value)]
        self.ip("lan", "link", "add", "bridge", "type", "bridge", "stp_state", 0, *options)
        self.ip("lan", "link", "set", "dev", "bridge", "up")
        for number, host in ((1, "source"), (2, "relay"), (3, "native")):
            self.cable("lan", host, host, "eth0")
            self.ip("lan", "link", "set", "dev", host, "master", "bridge")
            self.write(f"/sys/class/net/{host}/brport/multicast_fast_leave", 1)
            self.address(host, "eth0", f"10.90.0.{number}/24", f"fd90::{number}/64")
            for route in ("224.0.0.0/4", "ff00::/8"):
                family = "-6" if ":" in route else "-4"
                table = ("table", "local") if family == "-6" else ()
                self.ip(host, family, "route", "replace", "multicast" if table else "unicast", route, "dev", "eth0", *table)
        self.shape("lan", "native", 10)
        for number, (name, megabits) in enumerate(LINKS.items(), start=1):
            host = f"gateway-{name}"
            self.cable("relay", f"down{number}", host, "eth0")
            self.address("relay", f"down{number}", f"10.90.{number}.1/24", f"fd90:{number}::1/64")
            self.address(host, "eth0", f"10.90.{number}.2/24", f"fd90:{number}::2/64")
            self.ip(host, "route", "add", "default", "via", f"10.90.{number}.1")
            self.ip(host, "-6", "route", "add", "default", "via", f"fd90:{number}::1")
            if megabits:
                self.shape("relay", f"down{number}", megabits)
        self.ip("source", "route", "add", "10.90.0.0/16", "via", "10.90.0.2")
        self.ip("source", "-6", "route", "add", "fd90::/16", "via", "fd90::2")

        # A switch forwards by what it has snooped only after the first response interval.
        self.write("/sys/class/net/bridge/bridge/multicast_querier", 1)
        time.sleep(1.5)

    def write(self, file, value):
        self.run("lan", "sh", "-c", f"echo {value} > {file}")

    def cable(self, one, port, other, far):
        self.ip(one, "link", "add", port, "type", "veth", "peer", "name", far, "netns", self.hosts[other])
        for host, device in ((one, port), (other, far)):
            words = (word for name in ("gro", "gso", "tso", "tx-udp-segmentation") for word in (name, "off"))
            self.run(host, "ethtool", "-K", device, *words)
            self.ip(host, "link", "set", "dev", device, "up")

    def address(self, host, device, *addresses):
        for address in addresses:
            self.ip(host, "address", "add", address, "dev", device)

    def shape(self, host, device, megabits):
        """A link with a queue of 100 ms."""
        burst = max(1600, int(megabits * 1e6 / 8 * 0.001))
        limit = max(20_000, int(megabits * 1e6 / 8 * 0.1))
        self.run(host, "tc", "qdisc", "add", "dev", device, "root", "tbf", "rate", f"{megabits}mbit", "burst", burst, "limit", limit)

    def program(self, host, *arguments):
        self.count += 1
        return self.start(host, f"{arguments[0]}-{self.count}", self.folder, [*parts.NICE, self.headwater, *arguments, "--json", "--quiet"])

    def relay(self, *arguments):
        relay = self.program("relay", "relay", "--amt", "--interface", "eth0", *arguments)
        relay.wait_for("its start", lambda events: has(events, "relay:started"))
        return relay

    def send(self, group, content, *arguments):
        return self.program("source", "send", "--interface", "eth0", "--group", group, "--symbol-size", SYMBOL_BYTES, *arguments, content)

    def receive(self, host, group, *arguments):
        out = self.folder / f"out-{self.count}"
        receiver = self.program(host, "receive", "--group", group, "--out", out, "--timeout", "30s", *arguments)
        receiver.out_folder = out
        return receiver

    def content(self, megabytes):
        path = self.folder / f"content-{megabytes}.bin"
        if not path.exists():
            path.write_bytes(random.Random(megabytes).randbytes(int(megabytes * MB)))
        return path

    def whole(self, receiver, content):
        code = receiver.end()
        check(code == 0, f"{receiver.name} ended with {code}: {receiver.complaint()}")
        got = (receiver.out_folder / content.name).read_bytes()
        check(got == content.read_bytes(), f"{receiver.name}: the file differs")


def has(events, name):
    return any(event["event"] == name for event in events)


def say(line):
    print(f"amt.sh: {line}", flush=True)


def relay_of(host, is_ipv6=False):
    """The relay's address on the link of a gateway."""
    number = list(LINKS).index(host.removeprefix("gateway-")) + 1
    return f"fd90:{number}::1" if is_ipv6 else f"10.90.{number}.1"


def ended(program, event):
    program.signal(signal.SIGINT)
    check(program.end() == 0, f"{program.name} ended badly: {program.complaint()}")
    last = program.events()[-1]
    check(last["event"] == event, f"{program.name} ended with {last}")
    return last


def families(bed):
    """Groups of both IP versions through relays at addresses of both, from one source and from any."""
    relay, content = bed.relay(), bed.content(2)
    host, runs = "gateway-open", []
    for number, (group, source, is_ipv6) in enumerate((
        ("232.72.90.{}:7287", SOURCE, False), ("239.72.90.{}:7287", None, False), ("232.72.90.{}:7287", SOURCE, True),
        ("[ff3e::8000:90{}]:7287", SOURCE6, False), ("[ff3e::8000:90{}]:7287", SOURCE6, True), ("[ff15::90{}]:7287", None, True),
    )):
        group = group.format(number)
        address = relay_of(host, is_ipv6)
        source = () if source is None else ("--source", source)
        receiver = bed.receive(host, group, "--amt", f"[{address}]" if is_ipv6 else address, *source)
        runs.append((group, address, receiver, bed.send(group, content, "--rate", "6M", "--passes", "4", "--ttl", "3")))
    for group, address, receiver, sender in runs:
        bed.whole(receiver, content)
        say(f"{group} through {address}: {content.stat().st_size} bytes, the same")
        sender.kill()
    time.sleep(1)
    progress = relay.events()[-1]
    check(progress["gateways"] == 0 and progress["memberships"] == 0, f"receivers left, but the relay has {progress}")
    check(not any(progress["refused"].values()), f"the relay refused {progress['refused']}")
    ended(relay, "amt-relay:ended")


def rate_of(receiver, begin, end):
    """Bit/s of UDP payload between two times, in seconds since the first packet."""
    events = receiver.events()
    progress = [event for event in events if event["event"] == "session:progress" and event["bytes"] > 0]
    check(progress, f"{receiver.name}: nothing came: {receiver.complaint()}")
    first = progress[0]["time"]
    span = [event for event in progress if begin <= (event["time"] - first) / 1e3 <= end]
    check(len(span) > 1, f"{receiver.name}: it ended too early")
    return (span[-1]["bytes"] - span[0]["bytes"]) * 8e3 / (span[-1]["time"] - span[0]["time"])


def wait_seconds(receiver, seconds):
    """Waits until so many seconds after the first packet."""

    def holds(events):
        progress = [event["time"] for event in events if event["event"] == "session:progress" and event["bytes"] > 0]
        return progress and progress[-1] - progress[0] >= seconds * 1e3

    receiver.wait_for(f"{seconds} s of the session", holds)


def rates(bed):
    """Measured twice at most: a machine that is busy with other things slows down all receivers, the native one too."""
    try:
        measure(bed, "232.72.92.0:7287")
    except Failed as failed:
        say(f"once more, as {failed}")
        measure(bed, "232.72.92.128:7287")


def measure(bed, group):
    """One session for a native receiver, and for gateways behind links of their own, each at its own rate."""
    relay = bed.relay()
    through = {"native": ("native", "--interface", "eth0")}
    through |= {name: (f"gateway-{name}", "--amt", relay_of(f"gateway-{name}")) for name in ("10", "1", "4", "16")}
    receivers = {name: bed.receive(host, group, "--source", SOURCE, *path) for name, (host, *path) in through.items()}
    sender = bed.send(group, bed.content(60), "--max-rate", "50M", "--ttl", "3")
    rates = {}
    for name, receiver in receivers.items():
        wait_seconds(receiver, 24)
        rates[name] = rate_of(receiver, 8, 24) / 1e6
    for program in (*receivers.values(), sender):
        program.kill()
    ended(relay, "amt-relay:ended")
    native = rates.pop("native")
    say(f"10 Mbit/s: {rates['10']:.2f} Mbit/s of UDP payload by AMT, {native:.2f} natively: {rates['10'] / native:.2f} of it")
    for name, rate in rates.items():
        say(f"behind {name} Mbit/s: {rate:.2f} Mbit/s, {rate / int(name):.2f} of the link")
    check(rates["10"] >= 0.9 * native, f"AMT got {rates['10'] / native:.2f} of native multicast, less than 0.9")
    for name, rate in rates.items():
        check(rate >= 0.75 * int(name), f"behind {name} Mbit/s: {rate / int(name):.2f} of the link, less than 0.75")


def demand(bed):
    """Receivers without a unicast route to the source: the relay alone tells the sender which levels they need, and who they are."""
    relay, group = bed.relay(), "232.72.98.0:7287"
    receivers = {}
    for name in ("4", "16"):
        host = f"gateway-{name}"
        bed.ip(host, "route", "add", "unreachable", SOURCE)
        receivers[name] = bed.receive(host, group, "--source", SOURCE, "--amt", relay_of(host), "--name", host)
    sender = bed.send(group, bed.content(60), "--ttl", "3")
    for receiver in receivers.values():
        wait_seconds(receiver, 24)
    rates = {name: rate_of(receiver, 12, 24) / 1e6 for name, receiver in receivers.items()}
    progress = [event for event in sender.events() if event["event"] == "session:progress"][-12:]
    names = {event.get("name") for event in sender.events() if event["event"] == "receiver:reported"}
    sent = (progress[-1]["bytes"] - progress[0]["bytes"]) * 8e-3 / (progress[-1]["time"] - progress[0]["time"])
    for program in (*receivers.values(), sender):
        program.kill()
    last = ended(relay, "amt-relay:ended")
    say(f"no route to the source: {rates['4']:.2f} Mbit/s behind 4, {rates['16']:.2f} behind 16; the source sends {sent:.1f} Mbit/s; "
        f"the relay sent on {last['reports_sent']} of {last['reports']} reports, and passed {last['passed']} reports to the roster and replies on")
    check(names == {"gateway-4", "gateway-16"}, f"the sender knows of {names}")
    for name, rate in rates.items():
        check(rate >= 0.6 * int(name), f"behind {name} Mbit/s: {rate / int(name):.2f} of the link: the sender was not told")
    check(sent <= 40, f"the source sends {sent:.1f} Mbit/s, where 16 are received")


def restart(bed):
    """A relay that is killed and started again."""
    relay, group = bed.relay(), "232.72.93.0:7287"
    receiver = bed.receive("gateway-open", group, "--source", SOURCE, "--amt", relay_of("gateway-open"))
    sender = bed.send(group, bed.content(40), "--rate", "4M", "--ttl", "3")
    wait_seconds(receiver, 2)
    for down in (0.2, 4):
        relay.kill()
        time.sleep(down)
        relay = bed.relay()
        begun = time.monotonic()
        before = last_bytes(receiver)
        receiver.wait_for("data after the restart", lambda events: last_bytes(receiver) > before + 100_000)
        seconds = time.monotonic() - begun
        say(f"relay down for {down} s: data again {seconds:.1f} s after its start")
        check(seconds <= 10, f"data came {seconds:.1f} s after the relay's start")
    for program in (receiver, sender):
        program.kill()
    ended(relay, "amt-relay:ended")


def last_bytes(receiver):
    return max((event["bytes"] for event in receiver.events() if event["event"] == "session:progress"), default=0)


def enter(namespace):
    """Moves this thread into a network namespace."""
    new_net = 0x40000000
    check(ctypes.CDLL(None, use_errno=True).setns(namespace, new_net) == 0, "cannot enter a namespace")


class Gateway:
    """A gateway by hand, from the layouts of RFC 7450 and RFC 3376, in the namespace of a program: sockets stay where they were opened."""

    def __init__(self, bed, host, relay):
        own = os.open("/proc/self/ns/net", os.O_RDONLY)
        other = os.open(f"/run/netns/{bed.hosts[host]}", os.O_RDONLY)
        enter(other)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        enter(own)
        os.close(own), os.close(other)
        self.socket.connect((relay, PORT))
        self.socket.settimeout(1)

    def ask(self, message):
        self.socket.send(message)
        return self.hear()

    def hear(self):
        try:
            return self.socket.recv(9000)
        except TimeoutError:
            return None

    def proof(self, nonce):
        """The code of a query, which is checked."""
        query = self.ask(struct.pack("!BBHI", 3, 0, 0, nonce))
        check(query and query[0] == 4 and query[8:12] == struct.pack("!I", nonce), f"no query: {query}")
        packet = query[12:-18] if query[1] & 1 else query[12:]
        check(packet[0] == 0x46 and packet[9] == 2 and checksum(packet[:24]) == 0, f"no IGMP in {packet.hex()}")
        check(packet[24] == 0x11 and checksum(packet[24:]) == 0 and len(packet) == 36, f"no general query in {packet.hex()}")
        return query[2:8]


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def update(code, nonce, group, source):
    """An update that allows a source of a group."""
    body = struct.pack("!BBHHH", 0x22, 0, 0, 0, 1) + struct.pack("!BBH", 5, 0, 1) + socket.inet_aton(group) + socket.inet_aton(source)
    body = body[:2] + struct.pack("!H", checksum(body)) + body[4:]
    header = struct.pack("!BBHHHBBH4s4s", 0x46, 0xC0, 24 + len(body), 0, 0, 1, 2, 0, bytes(4), socket.inet_aton("224.0.0.22")) + b"\x94\x04\0\0"
    header = header[:10] + struct.pack("!H", checksum(header)) + header[12:]
    return b"\x05\0" + code + struct.pack("!I", nonce) + header + body


def strangers(bed):
    """Messages by hand: what is right is served, what is forged brings nothing."""
    relay, group = bed.relay(), "232.72.94.0"
    address = relay_of("gateway-open")
    sender = bed.send(f"{group}:7287", bed.content(2), "--rate", "2M", "--ttl", "3")
    honest, thief = (Gateway(bed, "gateway-open", address) for _ in range(2))
    advert = honest.ask(struct.pack("!II", 0x01000000, 77))
    check(advert and advert[:8] == struct.pack("!II", 0x02000000, 77) and len(advert) == 12, f"no advertisement: {advert}")
    code = honest.proof(1)
    chance = random.Random(1)
    forged = [update(code, 1, group, SOURCE), *(update(chance.randbytes(6), 1, group, SOURCE) for _ in range(200))]
    for message in forged:
        thief.socket.send(message)
    for _ in range(200):
        thief.socket.send(chance.randbytes(chance.randrange(1, 100)))
    # Some of the random bytes are requests.
    while answer := thief.hear():
        check(answer[0] in (2, 4), f"a forged update brought {answer[:2].hex()}")
    before = relay.events()[-1]
    check(before["gateways"] == 0, f"a forged update made a gateway: {before}")
    data = honest.ask(update(code, 1, group, SOURCE))
    check(data and data[0] == 6 and data[1] == 0, f"no data: {data}")
    packet = data[2:]
    check(packet[0] == 0x45 and packet[9] == 17 and checksum(packet[:20]) == 0, f"no IP packet: {packet[:28].hex()}")
    check(packet[12:16] == socket.inet_aton(SOURCE) and packet[16:20] == socket.inet_aton(group), "addresses")
    datagram = packet[20:] + bytes(len(packet) % 2)
    pseudo = packet[12:20] + struct.pack("!BBH", 0, 17, len(packet) - 20)
    check(checksum(pseudo + datagram) == 0, "the UDP checksum is wrong")
    check(struct.unpack("!H", packet[22:24])[0] == GROUP_PORT, "the port is wrong")
    # Teardown by another address, with the right code.
    endpoint = struct.pack("!H12s4s", honest.socket.getsockname()[1], bytes(12), socket.inet_aton(honest.socket.getsockname()[0]))
    thief.socket.send(b"\x07\0" + code + struct.pack("!I", 1) + endpoint)
    time.sleep(0.3)
    while honest.hear():
        pass
    sender.kill()
    last = ended(relay, "amt-relay:ended")
    check(last["gateways"] == 0 and last["refused"]["forged"] >= len(forged), f"the relay counted {last}")
    say(f"by hand: discovery, request, update, data, teardown; {len(forged)} forged updates and 200 of random bytes brought nothing")


def neighbour(bed):
    """A gateway that joins all groups of a session, beside an honest one behind the same link of 10 Mbit/s: it is pruned, and harms nobody."""
    host, group, egress = "gateway-10", "232.72.98.0", 4.5
    relay = bed.relay("--egress-rate", f"{egress}M")
    sender = bed.send(f"{group}:7287", bed.content(40), "--max-rate", "30M", "--demand", "off", "--ttl", "3")
    receiver = bed.receive(host, f"{group}:7287", "--source", SOURCE, "--amt", relay_of(host))
    wait_seconds(receiver, 10)
    alone = rate_of(receiver, 5, 10) / 1e6
    stranger = Gateway(bed, host, relay_of(host))
    code = stranger.proof(1)
    for number in range(125):
        stranger.socket.send(update(code, 1, f"232.72.98.{number}", SOURCE))
    wait_seconds(receiver, 21)
    beside = rate_of(receiver, 16, 21) / 1e6
    for program in (receiver, sender):
        program.kill()
    last = ended(relay, "amt-relay:ended")
    say(f"alone {alone:.2f} Mbit/s, {beside / alone:.2f} of it from 5 s after a gateway joined 125 groups; {last['pruned']} memberships pruned")
    check(last["pruned"] > 0, f"no group was pruned: {last}")
    check(beside >= 0.8 * alone, f"the neighbour leaves {beside / alone:.2f} of the rate, less than 0.8")


def driad(bed):
    """The relay of a source by DNS."""
    host, content, group = "gateway-open", bed.content(2), "232.72.95.0:7287"
    folder = Path("/etc/netns") / bed.hosts[host]
    folder.mkdir(parents=True)
    try:
        (folder / "resolv.conf").write_text("nameserver 127.0.0.1\n")
        server = bed.start(host, "dns", bed.folder, [sys.executable, __file__, "dns", "127.0.0.1", relay_of(host)])
        server.wait_for("its start", lambda events: has(events, "listening"))
        relay = bed.relay()
        sender = bed.send(group, content, "--rate", "6M", "--passes", "4", "--ttl", "3")
        bed.whole(bed.receive(host, group, "--source", SOURCE, "--amt", "auto"), content)
        for program in (sender, server):
            program.kill()
        ended(relay, "amt-relay:ended")
        say("--amt auto: the relay was found by DNS")
    finally:
        shutil.rmtree(folder)
        # The folder above stays while another script has a name there.
        with suppress(OSError):
            folder.parent.rmdir()


def witness(bed):
    """The kernel's device and another implementation, as gateway and as relay."""
    kernel = subprocess.run(
        ["ip", "-n", bed.hosts["lan"], "link", "add", "dev", "amt0", "type", "amt", "mode", "gateway", "local", "127.0.0.1",
         "dev", "lo", "discovery", "127.0.0.1"], capture_output=True, text=True)
    if kernel.returncode != 0:
        say(f"SKIPPED: this kernel has no amt device ({kernel.stderr.strip()})")
    else:
        bed.ip("lan", "link", "delete", "amt0")
        kernel_gateway(bed)
        kernel_relay(bed)
    folder = build(bed.folder)
    if folder is None:
        return
    foreign_gateway(bed, folder)
    foreign_relay(bed, folder)


def through_device(bed, device, who):
    """A receiver that joins natively on a tunnel's device."""
    content, group = bed.content(2), "232.72.96.0:7287"
    sender = bed.send(group, content, "--rate", "4M", "--passes", "10", "--ttl", "3")
    bed.whole(bed.receive("gateway-open", group, "--source", SOURCE, "--interface", device), content)
    sender.kill()
    say(f"our relay served {who}")


def through_relay(bed, address, who):
    content, group = bed.content(2), "232.72.97.0:7287"
    sender = bed.send(group, content, "--rate", "4M", "--passes", "10", "--ttl", "3")
    bed.whole(bed.receive("gateway-open", group, "--source", SOURCE, "--amt", address), content)
    sender.kill()
    say(f"our gateway received through {who}")


def kernel_gateway(bed):
    relay, host, address = bed.relay("--listen", relay_of("gateway-open")), "gateway-open", relay_of("gateway-open")
    local = address.removesuffix("1") + "2"
    bed.ip(host, "link", "add", "dev", "amt0", "type", "amt", "mode", "gateway", "local", local, "dev", "eth0", "discovery", address)
    bed.ip(host, "link", "set", "dev", "amt0", "up")
    through_device(bed, "amt0", "the kernel's gateway")
    bed.ip(host, "link", "delete", "amt0")
    ended(relay, "amt-relay:ended")


def kernel_relay(bed):
    address = relay_of("gateway-open")
    bed.ip("relay", "link", "add", "dev", "amt0", "type", "amt", "mode", "relay", "local", address, "dev", "down1")
    bed.ip("relay", "link", "set", "dev", "amt0", "up")
    say("SKIPPED: the kernel's relay needs a multicast routing daemon between its device and the interface")
    bed.ip("relay", "link", "delete", "amt0")


def build(folder):
    """Builds the other implementation; returns the folder, or None with the reason printed."""
    source, made = os.environ.get("AMT_SOURCE", WITNESS), folder / "witness"
    steps = (
        ["git", "clone", "-q", source, made],
        ["git", "checkout", "-q", WITNESS_COMMIT],
        ["sh", "-c", "touch aclocal.m4 configure Makefile.in */Makefile.in include/config.h.in && ./configure"],
        ["make", "-j2", "CFLAGS=-O2 -w -fcommon"],
    )
    for step in steps:
        where = made if made.exists() else folder
        try:
            ran = subprocess.run(step, cwd=where, capture_output=True, text=True, timeout=120, env={**os.environ, "GIT_TERMINAL_PROMPT": "0"})
        except (OSError, subprocess.TimeoutExpired) as error:
            return say(f"SKIPPED: the other implementation cannot be built: {error}")
        if ran.returncode != 0:
            why = (ran.stderr.strip() or ran.stdout.strip()).splitlines()[-1:]
            return say(f"SKIPPED: the other implementation cannot be built ({step[0]}: {' '.join(why)})")
    return made


def foreign_gateway(bed, folder):
    host, address = "gateway-open", relay_of("gateway-open")
    relay = bed.relay("--listen", address)
    bed.ip(host, "tuntap", "add", "mode", "tun", "dev", "tun0")
    bed.address(host, "tun0", "10.8.8.1/24")
    bed.ip(host, "link", "set", "dev", "tun0", "up")
    gateway = bed.start(host, "amtgwd", bed.folder, [folder / "gateway/amtgwd", "-a", address, "-s", "10.8.8.2", "-n", "inet", "-l", "inet", "-c", "tun0"])
    time.sleep(1)
    through_device(bed, "tun0", "GrumpyOldTroll's amtgwd")
    gateway.kill()
    bed.ip(host, "link", "delete", "tun0")
    ended(relay, "amt-relay:ended")


def foreign_relay(bed, folder):
    address = relay_of("gateway-open")
    relay = bed.start("relay", "amtrelayd", bed.folder, [folder / "relay/amtrelayd", "-a", address, "-c", "eth0", "-n", "inet", "-l", "inet"])
    time.sleep(1)
    through_relay(bed, address, "GrumpyOldTroll's amtrelayd")
    relay.kill()


PARTS = {part.__name__: part for part in (families, rates, demand, restart, strangers, neighbour, driad, witness)}


def main():
    headwater, folder, chosen = sys.argv[1], Path(sys.argv[2]), sys.argv[3:] or list(PARTS)
    require_root("ip", "tc", "ethtool")
    for name in chosen:
        if name not in PARTS:
            sys.exit(f"amt.sh: there is no part '{name}', only {', '.join(PARTS)}")
    # What is measured runs by itself; the other parts wait for clocks more than they compute.
    alone = [name for name in chosen if name in ("rates", "demand", "neighbour")]
    beside = [name for name in chosen if name not in alone]
    try:
        for names in (*([name] for name in alone), beside):
            with concurrent.futures.ThreadPoolExecutor(len(PARTS)) as pool:
                for done in [pool.submit(run, name, folder, headwater) for name in names]:
                    done.result()
    except Failed as failed:
        sys.exit(f"amt.sh: {failed}")


def run(name, folder, headwater):
    with Bed(name, folder, headwater) as bed:
        bed.build()
        PARTS[name](bed)


if __name__ == "__main__":
    dns(*sys.argv[2:]) if sys.argv[1] == "dns" else main()
