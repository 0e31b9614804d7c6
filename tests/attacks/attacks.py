"""Attacks on sessions, in network namespaces: a stranger with the tools of a stranger, and the bar that must hold beside it. Root, Linux.

  sender, relay, receiver, late, victim, forger: six hosts at one switch, 10.90.0.1 to 10.90.0.6; addresses elsewhere are behind the forger

usage: attacks.py BINARY FORGER [--full] [ATTACK...]

An attack is a function of the table ATTACKS at the end: it takes the bed and whether the form is full, and returns what must hold, whether it does,
and perhaps BUSY, which the short form shows and does not judge. The short forms take some 10 s each.
"""

import argparse
import os
import random
import re
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "interop"))
import parts
from network import Failed, Network, check, require_root

MB = 1_000_000
HOSTS = ("sender", "relay", "receiver", "late", "victim", "forger")
GROUP = "239.255.72.87"
PORT = 7287
FRAME_BYTES = 14 + 20 + 8


class Bed(Network):
    """Six hosts at a switch."""

    def __init__(self, folder, binary, forger):
        super().__init__("hwatk")
        self.folder, self.binary, self.forger, self.runs = folder, binary, forger, 0

    def __enter__(self):
        super().__enter__()
        self.add_host("switch")
        self.ip("switch", "link", "add", "lan", "type", "bridge", "mcast_snooping", "0")
        self.ip("switch", "link", "set", "dev", "lan", "up")
        for number, host in enumerate(HOSTS, start=1):
            self.add_host(host)
            self.ip(host, "link", "add", "eth0", "type", "veth", "peer", "name", f"p{number}", "netns", self.hosts["switch"])
            self.bring_up(host, self.address(host))
            self.ip("switch", "link", "set", "dev", f"p{number}", "master", "lan", "up")
            if host != "forger":
                self.ip(host, "route", "add", "default", "via", self.address("forger"))
        self.ip("forger", "route", "add", "blackhole", "default")
        return self

    def address(self, host):
        return f"10.90.0.{1 + HOSTS.index(host)}"

    def file(self, size):
        path = self.folder / f"file-{size}"
        if not path.exists():
            path.write_bytes(random.Random(size).randbytes(size))
        return path

    def headwater(self, host, what, *arguments):
        self.runs += 1
        return self.start(host, f"{what}{self.runs}", self.folder, [self.binary, what, "--json", *arguments])

    def send(self, path, control, *options):
        program = self.headwater("sender", "send", "--congestion-control", control, *options, str(path))
        program.wait_for("its start", lambda events: any(event["event"] == "session:started" for event in events))
        return program

    def receive(self, host, *options):
        out = self.folder / f"out-{host}{self.runs}"
        program = self.headwater(host, "receive", "--out", str(out), *options)
        program.out_folder, program.began = out, time.monotonic()
        return program

    def relay(self):
        program = self.headwater("relay", "relay")
        program.wait_for("its start", lambda events: any(event["event"] == "relay:started" for event in events))
        return program

    def frames_to(self, host):
        """Bytes of frames that a host has received."""
        return int(self.run(host, "cat", "/sys/class/net/eth0/statistics/rx_bytes"))

    def forge(self, attack, **values):
        self.runs += 1
        words = [f"{name}={value}" for name, value in values.items()]
        return self.start("forger", f"forger{self.runs}", self.folder, [self.forger, attack, *words])

    def by_request(self, host, via):
        nearest = () if via == "sender" else ("--via", self.address(via))
        return self.receive(host, "--ask", self.address("sender"), *nearest)


def forged(program):
    """What a forger has sent: datagrams, and bytes of frames."""
    check(program.end() == 0, f"{program.name}: {program.complaint()}")
    told = program.events()[-1]
    check(told["sent"] > 0, f"{program.name} has sent nothing")
    return told["sent"], told["bytes"] + told["sent"] * FRAME_BYTES


def packets(receiver):
    """Packets that a receiver of files has taken so far."""
    return max((event["packets"] for event in receiver.events() if event["event"] == "session:progress"), default=0)


def until_first(receiver, patience=20):
    """Seconds from the start of a receiver to its first packet, to a tenth of a second."""
    while packets(receiver) == 0 and time.monotonic() < receiver.began + patience:
        check(not receiver.has_ended(), f"{receiver.name} ended: {receiver.complaint()}")
        time.sleep(0.05)
    return time.monotonic() - receiver.began


def rate(receiver, seconds):
    """Packets a second over some time."""
    before, since = packets(receiver), time.monotonic()
    time.sleep(seconds)
    return (packets(receiver) - before) / (time.monotonic() - since)


def memory(program):
    """Resident bytes of a program, now and at most."""
    lines = Path(f"/proc/{program.process.pid}/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return [int(fields[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM")]


def amplifier(bed, full):
    """forged requests in a victim's name, to a relay and to a source: fewer bytes come to the victim than leave the forger"""
    bed.send(bed.file(1 * MB), "rainbow")
    bed.relay()
    check(bed.by_request("receiver", "relay").end() == 0, "an honest receiver is served")
    holds = []
    for host, port in (("relay", 7289), ("sender", 7288)):
        before = bed.frames_to("victim")
        attack = bed.forge(
            "requests", to=f"{bed.address(host)}:{port}", source=f"{bed.address('sender')}:7288", victim=bed.address("victim"),
            rate=20_000 if full else 5_000, seconds=10 if full else 3, label=2**31,
        )
        sent, octets = forged(attack)
        time.sleep(0.5)
        came = bed.frames_to("victim") - before
        holds.append((f"{host}: {sent} requests of {octets} bytes bring the victim {came} bytes, {came / octets:.3f} of them", came <= octets))
    return holds


def keep_out(bed, full):
    """requests from made-up addresses, to a relay and to a source: a new receiver is served, one that was there keeps its rate, and memory stays"""
    flood = 100_000 if full else 20_000
    sender = bed.send(bed.file(60 * MB), "rainbow", "--max-rate", "40M")
    relay = bed.relay()
    holds = []
    for host, port, program in (("relay", 7289, relay), ("sender", 7288, sender)):
        old = bed.by_request("receiver", host)
        check(until_first(old) < 15, f"{old.name}: an honest receiver is served: {old.complaint()}")
        time.sleep(1)
        # A receiver that asks the source itself shares the source's 40 Mbit/s with another one.
        other = bed.by_request("late", host)
        until_first(other)
        time.sleep(1)
        without = rate(old, 4 if full else 2)
        other.kill()
        time.sleep(1)
        idle, _ = memory(program)
        attack = bed.forge(
            "requests", to=f"{bed.address(host)}:{port}", source=f"{bed.address('sender')}:7288", rate=flood, seconds=12 if full else 6
        )
        time.sleep(1)
        new = bed.by_request("late", host)
        wait = until_first(new)
        beside = rate(old, 4 if full else 2)
        sent, _ = forged(attack)
        _, most = memory(program)
        print(f"  {host}: {sent} forged requests; {without:.0f} packets/s beside a new receiver, {beside:.0f} beside both")
        holds += [
            (f"{host}: a new receiver has its first data within 2 s: {wait:.2f} s", wait <= 2, parts.BUSY),
            (f"{host}: a new receiver has its first data: {wait:.2f} s", wait < 15),
            (f"{host}: a receiver that was there keeps its rate: {beside / without:.2f}, at least 0.95", beside >= 0.95 * without, parts.BUSY),
            (f"{host}: {(most - idle) / MB:.1f} MB more memory", most - idle <= 16 << 20),
        ]
        for receiver in (old, new):
            receiver.kill()
    return holds


def naks(bed, full):
    """NAKs of packets that nobody lost, from one address or many: LE-SBCC sends on"""
    size = 10 * MB
    holds = []
    forms = [(1, 1), (10, 1), (100, 1), (1, 250), (10, 250), (100, 250)] if full else [(10, 250)]
    for count, addresses in forms:
        receiver = bed.receive("receiver", "--group", f"{GROUP}:{PORT}")
        attack = bed.forge(
            "naks", group=f"{GROUP}:{PORT}", interface=bed.address("forger"), network="10.90.7", addresses=addresses, rate=count, seconds=40
        )
        time.sleep(0.5)
        began = time.monotonic()
        sender = bed.send(bed.file(size), "le-sbcc", "--max-rate", "20M", "--group", f"{GROUP}:{PORT}")
        check(receiver.end(patience_seconds=90) == 0, f"{receiver.name}: {receiver.complaint()}")
        seconds = time.monotonic() - began
        sender.kill()
        attack.kill()
        what = f"10 MB beside {count} NAKs/s from {addresses} addresses within 25 s: {seconds:.1f} s"
        holds += [(what, seconds <= 25, parts.BUSY), (f"within 60 s: {seconds:.1f} s", seconds <= 60)]
    return holds


def sim_reports(bed, full):
    """SIM: reports of congestion from 200 addresses of a network: the file comes whole, in about the time that it takes without them"""
    seconds = []
    for is_attacked in (False, True):
        receiver = bed.receive("receiver", "--group", f"{GROUP}:{PORT}")
        values = {"group": f"{GROUP}:{PORT}", "interface": bed.address("forger"), "network": "10.90.7", "addresses": 190}
        attack = bed.forge("reports", **values, rate=400, seconds=90) if is_attacked else None
        time.sleep(0.5)
        began = time.monotonic()
        sender = bed.send(bed.file((6 if full else 2) * MB), "sim", "--max-rate", "20M", "--group", f"{GROUP}:{PORT}")
        check(receiver.end(patience_seconds=90) == 0, f"{receiver.name}: {receiver.complaint()}")
        seconds.append(time.monotonic() - began)
        sender.kill()
        if attack:
            attack.kill()
    clean, attacked = seconds
    return [(f"whole after {attacked:.1f} s, {clean:.1f} s without reports", attacked <= 1.5 * clean + 1, parts.BUSY), ("whole", True)]


def sim_joins(bed, full):
    """SIM: a member of a link of 4 Mbit/s announces all groups of a session of 20: the relay prunes what the link does not carry"""
    bed.add_host("honest")
    bed.ip("relay", "link", "add", "dev", "lower", "type", "veth", "peer", "name", "eth0", "netns", bed.hosts["honest"])
    bed.ip("relay", "address", "add", "10.91.0.1/24", "dev", "lower")
    bed.ip("relay", "link", "set", "dev", "lower", "up")
    bed.bring_up("honest", "10.91.0.2")
    group = f"{GROUP}:{PORT}"
    relay = bed.headwater("relay", "relay", "--sim", group, "--sim-from", "eth0", "--sim-to", "lower=4M")
    relay.wait_for("its start", lambda events: any(event["event"] == "relay:started" for event in events))
    # Natively at the switch: its reports open the session's higher groups.
    bed.receive("late", "--group", group)
    honest = bed.receive("honest", "--group", group)
    bed.send(bed.file(200 * MB), "sim", "--max-rate", "20M", "--sim-relay", bed.address("relay"), "--group", group)
    check(until_first(honest) < 15, f"an honest receiver is served: {honest.complaint()}")
    time.sleep(30 if full else 12)
    alone = rate(honest, 5)
    bed.runs += 1
    words = [f"group={group}", "interface=10.91.0.2", "network=10.91.0", "groups=8", "rate=2", "seconds=60"]
    bed.start("honest", "forger", bed.folder, [bed.forger, "reports", *words])
    time.sleep(6)
    beside = rate(honest, 10 if full else 5)
    relay.signal(signal.SIGINT)
    check(relay.end() == 0, f"{relay.name}: {relay.complaint()}")
    told = relay.events()[-1]
    print(f"  {alone:.0f} packets/s before, {beside:.0f} from 6 s on; the relay pruned {told['pruned']} groups and dropped {told['egress']['queue_drops']} packets")
    return [
        (f"an honest member of the link keeps its rate: {beside / alone:.2f}, at least 0.8", beside >= 0.8 * alone, parts.BUSY),
        (f"an honest member is served: {beside / alone:.2f}", beside > 0.1 * alone),
    ]


def garbage(bed, full):
    """random bytes on the group, in the sender's name: the file comes whole"""
    receiver = bed.receive("receiver", "--group", f"{GROUP}:{PORT}")
    attack = bed.forge(
        "garbage", to=f"{GROUP}:{PORT}", **{"from": f"{bed.address('sender')}:9"}, bytes=20, rate=100_000 if full else 10_000, seconds=60
    )
    sender = bed.send(bed.file(5 * MB), "m2c", "--group", f"{GROUP}:{PORT}")
    code = receiver.end(patience_seconds=90)
    sender.kill()
    attack.kill()
    return [(f"the file is whole (exit code {code})", code == 0), (f"{receiver.cpu_seconds:.1f} s of processor time", receiver.cpu_seconds < 20)]


def opened(trace):
    """Paths that a traced program has opened since it confined itself; whether it did, and whether it started a program."""
    paths, is_confined, starts = [], False, 0
    for line in trace.read_text(errors="replace").splitlines():
        is_confined |= bool(re.search(r"landlock_restrict_self\(.*\) = 0", line))
        if not is_confined:
            continue
        starts += bool(re.search(r"execve(at)?\(.*\) = 0", line))
        if found := re.search(r'openat2?\((?:AT_FDCWD<([^>]*)>|\d+<([^>]*)>), "([^"]*)".* = \d+', line):
            paths.append(os.path.normpath(os.path.join(found[1] or found[2], found[3])))
    return paths, is_confined, starts


def confined(bed, full):
    """a sender and a receiver under strace: after start each opens files in its folders alone, and starts no program"""
    path = bed.file(1 * MB)
    traces = {host: bed.folder / f"{host}.strace" for host in ("sender", "receiver")}

    def traced(host, *arguments):
        calls = "trace=openat,openat2,open,creat,execve,execveat,landlock_restrict_self"
        command = ["strace", "-f", "-qq", "-y", "-e", calls, "-o", str(traces[host]), bed.binary, *arguments]
        return bed.start(host, "traced", bed.folder, command)

    out = bed.folder / "out"
    receiver = traced("receiver", "receive", "--group", f"{GROUP}:{PORT}", "--out", str(out))
    sender = traced("sender", "send", "--group", f"{GROUP}:{PORT}", "--duration", "6s", str(path))
    check(receiver.end() == 0, f"{receiver.name}: {receiver.complaint()}")
    check(sender.end() == 0, f"{sender.name}: {sender.complaint()}")
    system = ("/proc", "/sys", "/dev/urandom")
    # A session records its start beside the key that signs it.
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    record = f"{config}/headwater/id_ed25519.started"
    holds = [("the file is whole", (out / path.name).read_bytes() == path.read_bytes())]
    for host, own in (("sender", (str(path), tempfile.gettempdir(), record)), ("receiver", (str(out),))):
        paths, is_confined, starts = opened(traces[host])
        outside = [name for name in paths if not any(name == of or name.startswith(of + "/") for of in (*system, *own))]
        holds += [
            (f"{host}: is confined", is_confined),
            (f"{host}: of {len(paths)} files opened, these are outside of its folders: {', '.join(sorted(set(outside))) or 'none'}", not outside),
            (f"{host}: programs started: {starts}", starts == 0),
        ]
    return holds


ATTACKS = {attack.__name__: attack for attack in (amplifier, keep_out, naks, sim_reports, sim_joins, garbage, confined)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("forger")
    parser.add_argument("--full", action="store_true", help="all bars, with the full rates and durations")
    parser.add_argument("attacks", nargs="*", metavar="ATTACK", help=", ".join(ATTACKS))
    options = parser.parse_intermixed_args()
    if unknown := [name for name in options.attacks if name not in ATTACKS]:
        parser.error(f"'{unknown[0]}' is no attack; there are {', '.join(ATTACKS)}")
    require_root("ip", "strace")

    def call(attack):
        with tempfile.TemporaryDirectory(prefix="headwater-attacks-") as folder:
            with Bed(Path(folder), options.binary, options.forger) as bed:
                return attack(bed, options.full)

    try:
        missed = parts.run(ATTACKS, options.attacks or list(ATTACKS), "attack", call, options.full)
    except Failed as failure:
        sys.exit(f"attacks: {failure}")
    if missed:
        sys.exit("attacks: missed: " + "; ".join(missed))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    main()
