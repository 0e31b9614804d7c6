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
import shlex
import signal
import statistics
import subprocess
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
# Most time of a signed session.
PATIENCE_SECONDS = 150
# A group whose senders receivers remember.
KNOWN_GROUP = "239.255.72.99:7287"
# Controls of signed sessions that are attacked, at 20 Mbit/s: options, and groups that the forger hears.
SIGNED = {
    "fixed": (("--rate", "20M"), 1),
    "m2c": (("--max-rate", "20M"), 8),
    "webrc": (("--max-rate", "20M"), 8),
    "flid-dl": (("--max-rate", "20M"), 8),
}
# Counters of packets that no trusted sender has sent.
STRANGE = ("forged", "unlisted", "replayed", "untrusted", "over_budget", "foreign")
FRAME_BYTES = 14 + 20 + 8


class Bed(Network):
    """Six hosts at a switch."""

    def __init__(self, folder, binary, forger):
        super().__init__("hwatk")
        self.folder, self.binary, self.forger, self.runs = folder, binary, forger, 0
        # Runs without an attack, by control.
        self.clean = {}
        # Keys and known senders of this bed alone.
        for variable in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
            os.environ[variable] = str(folder)
        self.key = folder / "headwater" / "id_ed25519.pub"

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
        # Before the forger: all hosts share the machine's processors, and an attacker's flood would measure the scheduler.
        self.runs += 1
        return self.start(host, f"{what}{self.runs}", self.folder, [*parts.NICE, self.binary, what, "--json", *arguments])

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


def forged_rate(program):
    """Datagrams a second of a forger so far, from its first one on."""
    told = [event for event in program.events() if event.get("sent", 0) > 0]
    if len(told) < 2:
        return 0
    return (told[-1]["sent"] - told[0]["sent"]) / (told[-1]["seconds"] - told[0]["seconds"])


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
    """Resident bytes of a program, now and at most; zeros of a program that has ended."""
    lines = Path(f"/proc/{program.process.pid}/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return [int(fields.get(name, "0").split()[0]) * 1024 for name in ("VmRSS", "VmHWM")]


def cpu_seconds(program):
    fields = Path(f"/proc/{program.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def summary(receiver):
    """The last counters of a receiver, those of dropped packets among them."""
    told = [event for event in receiver.events() if event["event"] in ("session:progress", "session:ended")]
    return told[-1] if told else {}


def strange(receiver):
    """Packets that a receiver has dropped as those of no trusted sender."""
    return sum(summary(receiver).get("dropped_for", {}).get(reason, 0) for reason in STRANGE)


def is_whole(receiver, path):
    """Whether a receiver has ended with the true content, and no other file is in its folder."""
    files = [file for file in receiver.out_folder.iterdir() if not file.name.startswith(".")]
    return receiver.process.returncode == 0 and [file.name for file in files] == [path.name] and files[0].read_bytes() == path.read_bytes()


class Signed:
    """A signed session by default options with two receivers that trust its key: one before the session begins, one a second into it."""

    def __init__(self, bed, control, size, attack=None):
        options, groups = SIGNED[control]
        self.path, group = bed.file(size), f"{GROUP}:{PORT}"
        if not bed.key.exists():
            bed.run("sender", bed.binary, "keygen")
        attacks = attack(bed, {"group": group, "interface": bed.address("forger"), "groups": groups, "seconds": PATIENCE_SECONDS}) if attack else []
        trust = ("--group", group, "--trust", str(bed.key))
        early = bed.receive("receiver", *trust)
        early.wait_for("its start", lambda events: any(event["event"] == "session:started" for event in events))
        sender, began = bed.send(self.path, control, *options, "--group", group), time.monotonic()
        # Memory is the receiver's own: what the system tells of a process that has ended begins with the memory of this script.
        self.receivers, self.seconds, self.memory = {"early": (early, began)}, {}, {"early": 0, "late": 0}
        while len(self.seconds) < 2 and time.monotonic() < began + PATIENCE_SECONDS:
            if "late" not in self.receivers and time.monotonic() >= began + 1:
                self.receivers["late"] = (bed.receive("late", *trust), time.monotonic())
            for name, (receiver, since) in self.receivers.items():
                if name in self.seconds:
                    continue
                self.memory[name] = max(self.memory[name], memory(receiver)[1])
                if receiver.has_ended():
                    self.seconds[name] = time.monotonic() - since
            time.sleep(0.01)
        for program in attacks:
            check(not program.has_ended(), f"{program.name} ended: {program.complaint()}")
        self.forged = [forged_rate(program) for program in attacks]
        for program in (sender, *attacks):
            program.kill()
        for receiver, _ in self.receivers.values():
            if not receiver.has_ended():
                receiver.signal(signal.SIGINT)
                receiver.end()

    def cpu(self, name):
        return self.receivers[name][0].cpu_seconds


class Clean:
    """Medians of sessions without an attack: seconds, processor time and memory of each receiver."""

    def __init__(self, bed, control, size, runs):
        sessions = [Signed(bed, control, size) for _ in range(runs)]
        check(all(len(session.seconds) == 2 for session in sessions), f"{control}: a clean session ends within {PATIENCE_SECONDS} s")
        median = lambda value: {name: statistics.median(value(session, name) for session in sessions) for name in sessions[0].receivers}
        self.seconds = median(lambda session, name: session.seconds[name])
        self.cpu, self.memory = median(Signed.cpu), median(lambda session, name: session.memory[name])


def beside(bed, full, control, what, attack):
    """What must hold of a signed session beside an attack; and the run. The clean sessions are of the same row: the machine changes."""
    size = file_bytes(full)
    if control not in bed.clean:
        bed.clean[control] = Clean(bed, control, size, runs=3 if full else 1)
    clean, run = bed.clean[control], Signed(bed, control, size, attack)
    rates = ", ".join(f"{rate:.0f}" for rate in run.forged if rate > 0)
    print(f"  {control}, {what}: forged datagrams a second: {rates or 'none'}; load {os.getloadavg()[0]:.1f}")
    holds = []
    for name, (receiver, _) in run.receivers.items():
        seconds, bar = run.seconds.get(name, PATIENCE_SECONDS), max(1.1 * clean.seconds[name], clean.seconds[name] + 1)
        beginning = f"{control}, {what}, {name} receiver"
        last, more = summary(receiver), run.memory[name] - clean.memory[name]
        dropped = {reason: count for reason, count in last.get("dropped_for", {}).items() if count > 0}
        print(f"  {beginning}: {seconds:.1f} s, clean {clean.seconds[name]:.1f} s, {receiver.cpu_seconds:.1f} s of processor time")
        print(f"    {last.get('lost')} packets lost, {last.get('kernel_drops')} for want of buffer; dropped: {dropped}")
        holds += [
            (f"{beginning}: the file is whole, and nothing else came", is_whole(receiver, run.path)),
            (f"{beginning}: the attack reached it: {strange(receiver)} packets dropped", strange(receiver) > 0),
            (f"{beginning}: {seconds:.1f} s, at most {bar:.1f} s", seconds <= bar, parts.BUSY),
            (f"{beginning}: {more / MB:.1f} MB more memory than {clean.memory[name] / MB:.1f} MB, at most 8 MiB", more <= 8 << 20),
        ]
    return holds, run


def file_bytes(full):
    return (10 if full else 2) * MB


def over_controls(full, *short):
    """The controls of a row: all in the full form."""
    return SIGNED if full else short


def own_content(bed, full):
    """L: a forged FDT that gives the file's name five bytes, and the five bytes: neither stops a receiver nor gives it a foreign byte"""
    holds = []
    for control in over_controls(full, "fixed"):
        attack = lambda bed, values: [bed.forge("descriptions", **values, name=bed.file(file_bytes(full)).name, rate=40)]
        holds += beside(bed, full, control, "20 forged FDTs a second", attack)[0]
    return holds


def pollution(bed, full):
    """L: forged symbols of the session's blocks"""
    holds = []
    for control in over_controls(full, "m2c"):
        for count in (100, 100_000) if full else (10_000,):
            attack = lambda bed, values: [bed.forge("symbols", **values, rate=count)]
            holds += beside(bed, full, control, f"{count} forged symbols a second", attack)[0]
    return holds


def first_session(bed, full):
    """L: another session on the group, from before the true one on: of another TSI, and signed with another key"""
    holds = []
    foreign = bed.folder / "foreign"
    bed.run("sender", bed.binary, "keygen", foreign)

    def another_key(bed, values):
        other = bed.file(1 * MB)
        sender = bed.headwater("forger", "send", "--rate", "1M", "--sign", str(foreign), "--group", values["group"], str(other))
        sender.wait_for("its start", lambda events: any(event["event"] == "session:started" for event in events))
        return [sender]

    for control in over_controls(full, "m2c"):
        name = bed.file(file_bytes(full)).name
        another_tsi = lambda bed, values: [bed.forge("descriptions", **values, name=name, session=1, rate=10)]
        holds += beside(bed, full, control, "5 packets a second of another TSI", another_tsi)[0]
        holds += beside(bed, full, control, "a session of another key", another_key)[0]
    return holds


def numbers(bed, full):
    """L: random sequence numbers for the congestion control"""
    holds = []
    for control in over_controls(full, "m2c"):
        holds += beside(bed, full, control, "50 random numbers a second", lambda bed, values: [bed.forge("numbers", **values, rate=50)])[0]
    return holds


def closes_and_replays(bed, full):
    """L: the close flag, and packets of the session again"""
    holds = []
    for control in over_controls(full, "fixed"):
        attack = lambda bed, values: [bed.forge("closes", **values, rate=20), bed.forge("replays", **values, rate=2_000)]
        holds += beside(bed, full, control, "20 closing packets and 2000 replays a second", attack)[0]
    return holds


def old_session(bed, full):
    """L: a recording of an earlier session of the same key: refused by a receiver that heard the later one"""
    holds = []
    sessions = (("fixed", "--rate", "8M"), ("m2c", "--max-rate", "8M"))
    for control, *options in sessions if full else sessions[1:]:
        holds += [(f"{control}: {what}", holds_it) for what, holds_it in replayed(bed, control, *options)]
    return holds


def replayed(bed, control, *options):
    """What must hold of receivers that hear a recording of an earlier session under a control."""
    path, record = bed.file(1 * MB), str(bed.folder / f"recording-{control}")
    options = (*options, "--group", KNOWN_GROUP)

    def received(*more):
        receiver = bed.receive("receiver", "--group", KNOWN_GROUP, *more)
        return receiver, receiver.end()

    recorder = bed.forge("record", group=KNOWN_GROUP, interface=bed.address("forger"), groups=SIGNED[control][1], file=record, seconds=4)
    earlier = bed.send(path, control, *options)
    check(recorder.end() == 0, f"{recorder.name}: {recorder.complaint()}")
    earlier.kill()
    later = bed.send(path, control, *options)
    _, code = received()
    later.kill()
    holds = [(f"the later session is received (exit code {code})", code == 0)]
    replay = bed.forge("recording", interface=bed.address("forger"), file=record, rate=700, seconds=60)
    refused, code = received("--timeout", "5s")
    nothing = not [file for file in refused.out_folder.iterdir() if not file.name.startswith(".")]
    holds.append((f"the recording alone: exit code {code}, {strange(refused)} packets dropped", code == 8 and nothing and strange(refused) > 0))
    last = bed.send(path, control, *options)
    beside, code = received()
    replay.kill()
    last.kill()
    holds.append((f"a session beside the recording: exit code {code}, {strange(beside)} packets dropped", is_whole(beside, path) and strange(beside) > 0))
    return holds


def signatures(bed, full):
    """L: 40 000 forged signatures a second: at most 0.3 of a core and 8 MiB more, and a late receiver verifies its first packet within 2 s"""
    count = 40_000 if full else 10_000
    holds = []
    for control in over_controls(full, "fixed"):
        attack = lambda bed, values: [bed.forge("signatures", **values, rate=count)]
        more, run = beside(bed, full, control, f"{count} forged signatures a second", attack)
        holds += more
        for name, seconds in run.seconds.items():
            cpu = (run.cpu(name) - bed.clean[control].cpu[name]) / seconds
            holds.append((f"{control}, {name}: {cpu:.2f} of a core more, at most 0.3", cpu <= 0.3, parts.BUSY))
        holds += late_starts(bed, full, control, count)
    return holds


def late_starts(bed, full, control, count):
    """Receivers that start beside a flood of signatures, one after the other."""
    options, groups = SIGNED[control]
    group, starts = f"{GROUP}:{PORT}", 100 if full else 10
    values = {"group": group, "interface": bed.address("forger"), "groups": groups}
    forger = bed.forge("signatures", **values, rate=count, seconds=600)
    sender = bed.send(bed.file(200 * MB), control, *options, "--group", group)
    time.sleep(1)
    waits = []
    for _ in range(starts):
        receiver = bed.receive("late", "--group", group, "--trust", str(bed.key))
        verified = []
        while not verified and time.monotonic() < receiver.began + 10:
            time.sleep(0.01)
            verified = [event["time"] / 1000 for event in receiver.events() if event["event"] == "session:verified"]
        waits.append(verified[0] if verified else 10)
        receiver.kill()
    forger.kill()
    sender.kill()
    waits.sort()
    in_time = sum(wait <= 2 for wait in waits)
    print(f"  {control}: first verified packet of {starts} late receivers: median {waits[starts // 2]:.2f} s, last {waits[-1]:.2f} s")
    return [(f"{control}: {in_time} of {starts} late receivers have their first verified packet within 2 s", in_time >= 0.95 * starts, parts.BUSY)]


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
        forged(attack)
        _, most = memory(program)
        print(f"  {host}: {forged_rate(attack):.0f} forged requests a second; {without:.0f} packets/s beside a new receiver, {beside:.0f} beside both; load {os.getloadavg()[0]:.1f}")
        holds += [
            (f"{host}: a new receiver has its first data within 2 s: {wait:.2f} s", wait <= 2, parts.BUSY),
            (f"{host}: a new receiver has its first data: {wait:.2f} s", wait < 15),
            (f"{host}: a receiver that was there keeps its rate: {beside / without:.2f}, at least 0.95", beside >= 0.95 * without, parts.BUSY),
            (f"{host}: {(most - idle) / MB:.1f} MB more memory", most - idle <= 16 << 20),
        ]
        for receiver in (old, new):
            receiver.kill()
    return holds


def sent_mbits(sender):
    """Most that a sender has sent in two seconds, in Mbit/s of UDP payload."""
    told = [(event["time"] / 1e3, event["bytes"]) for event in sender.events() if event["event"] == "session:progress"]
    spans = [(one, next((other for other in told if other[0] >= one[0] + 2), None)) for one in told]
    return max((8e-6 * (other[1] - one[1]) / (other[0] - one[0]) for one, other in spans if other), default=0)


def receivers(bed, full):
    """reports of levels, hellos, ends of receivers and round-trip questions, in a victim's name and from made-up addresses: the victim gets fewer bytes than leave the forger, the sender sends at most --max-rate, knows its one receiver alone, and the file comes whole"""
    group, most = f"{GROUP}:{PORT}", 20
    bed.ip("switch", "link", "set", "dev", f"p{1 + HOSTS.index('victim')}", "type", "bridge_slave", "mcast_flood", "off")
    path = bed.file((60 if full else 20) * MB)
    sender = bed.send(path, "m2c", "--max-rate", f"{most}M", "--group", group)
    time.sleep(3)
    holds, loads, receiver = [], [], None
    values = {"group": group, "interface": bed.address("forger"), "seconds": 10 if full else 4}
    flood = 100_000 if full else 20_000
    # The few forged reports of the first run keep all levels sent, as those of a flood do.
    for what, rate, victim in (("few", 20, {}), ("in a victim's name", flood, {"victim": bed.address("victim")}), ("from made-up addresses", flood, {})):
        if what == "from made-up addresses":
            receiver = bed.receive("receiver", "--group", group)
        before, began, used = bed.frames_to("victim"), time.monotonic(), cpu_seconds(sender)
        attack = bed.forge("receivers", rate=rate, **values, **victim)
        sent, octets = forged(attack)
        loads.append((cpu_seconds(sender) - used) / (time.monotonic() - began))
        time.sleep(0.5)
        came = bed.frames_to("victim") - before
        print(f"  {what}: {forged_rate(attack):.0f} datagrams a second, {loads[-1]:.3f} processors of the sender; load {os.getloadavg()[0]:.1f}")
        if victim:
            holds.append((f"{sent} datagrams of {octets} bytes bring the victim {came} bytes, {came / octets:.4f} of them", came <= octets))
    more = loads[1] - loads[0]
    holds.append((f"a flood costs {more:.3f} processors, at most 0.1", more <= 0.1, parts.BUSY))
    check(receiver.end(patience_seconds=120) == 0, f"{receiver.name}: {receiver.complaint()}")
    told, rate = sender.events(), sent_mbits(sender)
    known = {event["receiver"] for event in told if event["event"] == "receiver:reported"}
    return [
        *holds,
        ("the file is whole", is_whole(receiver, path)),
        (f"the sender sent {rate:.1f} Mbit/s at most, of {most}", 0.5 * most <= rate <= 1.02 * most),
        (f"the sender knows {len(known)} receivers, of one", len(known) <= 1),
    ]


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
    holds = []
    for size in (20, 1400) if full else (20,):
        receiver = bed.receive("receiver", "--group", f"{GROUP}:{PORT}")
        values = {"to": f"{GROUP}:{PORT}", "from": f"{bed.address('sender')}:9", "interface": bed.address("forger"), "bytes": size}
        attack = bed.forge("garbage", **values, rate=100_000 if full else 10_000, seconds=60)
        sender, began = bed.send(bed.file(5 * MB), "m2c", "--group", f"{GROUP}:{PORT}"), time.monotonic()
        code = receiver.end(patience_seconds=90)
        cores = receiver.cpu_seconds / (time.monotonic() - began)
        check(not attack.has_ended(), f"{attack.name} ended: {attack.complaint()}")
        sender.kill()
        attack.kill()
        holds += [
            (f"{size} bytes: the file is whole (exit code {code})", code == 0),
            (f"{size} bytes: {cores:.2f} of a core, at most 0.5", cores <= 0.5, parts.BUSY),
        ]
    return holds


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
    """each command under strace: after start it opens files in its folders alone, and starts no program"""
    path = bed.file(1 * MB)
    programs = {}

    def traced(host, name, *arguments):
        calls = "trace=openat,openat2,open,creat,execve,execveat,landlock_restrict_self"
        trace = ["strace", "-f", "-qq", "-y", "-e", calls, "-o", str(bed.folder / f"{name}.strace")]
        command = shlex.join([*trace, "timeout", "--signal=INT", "9", bed.binary, *arguments])
        programs[name] = bed.start(host, name, bed.folder, ["sh", "-c", f"exec {command} < '{path}'"])

    out, group = bed.folder / "out", f"{GROUP}:{PORT}"
    traced("receiver", "receiver", "receive", "--group", group, "--out", str(out))
    traced("sender", "sender", "send", "--group", group, "--duration", "6s", str(path))
    traced("receiver", "pgm-receiver", "pgm", "receive", "--framing", "bytes", "--out", str(bed.folder / "messages"))
    traced("sender", "pgm-sender", "pgm", "send", "--framing", "bytes", "--max-rate", "4M")
    traced("relay", "relay", "relay")
    bed.send(path, "rainbow")
    by_request = bed.receive("late", "--ask", bed.address("sender"), "--via", bed.address("relay"))
    check(by_request.end() == 0, f"{by_request.name}: {by_request.complaint()}")
    for program in programs.values():
        # 124 is of `timeout`, which interrupts programs that do not end by themselves.
        check(program.end() in (0, 124), f"{program.name}: {program.complaint()}")
    system = ("/proc", "/sys", "/dev/urandom")
    # A session records its start beside the key that signs it.
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    record = f"{config}/headwater/id_ed25519.started"
    came = [out / path.name, bed.folder / "messages", by_request.out_folder / path.name]
    holds = [("files and messages are whole", all(copy.read_bytes() == path.read_bytes() for copy in came))]
    folders = {"sender": (str(path), tempfile.gettempdir(), record), "receiver": (str(out),), "pgm-receiver": (str(bed.folder / "messages"),)}
    for host in programs:
        own = folders.get(host, ())
        paths, is_confined, starts = opened(bed.folder / f"{host}.strace")
        outside = [name for name in paths if not any(name == of or name.startswith(of + "/") for of in (*system, *own))]
        holds += [
            (f"{host}: is confined", is_confined),
            (f"{host}: of {len(paths)} files opened, these are outside of its folders: {', '.join(sorted(set(outside))) or 'none'}", not outside),
            (f"{host}: programs started: {starts}", starts == 0),
        ]
    for unit in sorted((Path(__file__).resolve().parents[2] / "packaging").glob("**/*.service")):
        exposure = subprocess.run(["systemd-analyze", "security", "--offline=true", "--threshold=20", unit], capture_output=True)
        holds.append((f"{unit.name}: systemd-analyze finds an exposure of at most 2.0", exposure.returncode == 0))
    return holds


ATTACKS = {
    attack.__name__: attack
    for attack in (
        own_content, pollution, first_session, numbers, closes_and_replays, old_session, signatures,
        amplifier, keep_out, receivers, naks, sim_reports, sim_joins, garbage, confined,
    )
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("forger")
    parser.add_argument("--full", action="store_true", help="all bars, with the full rates and durations")
    parser.add_argument("attacks", nargs="*", metavar="ATTACK", help=", ".join(ATTACKS))
    options = parser.parse_intermixed_args()
    if unknown := [name for name in options.attacks if name not in ATTACKS]:
        parser.error(f"'{unknown[0]}' is no attack; there are {', '.join(ATTACKS)}")
    require_root("ip", "strace", "systemd-analyze")

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
