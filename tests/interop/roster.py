"""Reports of receivers to a sender, and what the sender makes of them. Each scenario has a group of its own.

usage: roster.py BINARY FOLDER [--full]
"""

import filecmp
import json
import random
import signal
import statistics
import struct
import sys
import time
from pathlib import Path

import blake3
from network import Failed, Network, check, require_root

INCOMPLETE, DISK = 5, 7
# From the last end to the end of the sender: the report, a look at the rows, and the farewell.
END_SECONDS_MAX = 6
LINGER_SECONDS = 5
# Silence of an expected receiver after which the sender does not wait any more.
LOST_SECONDS = 15
DIFFERENCE_MAX = 0.01
SLOW, FULL, KILLED = 1, 2, 3


class Bed:
    """A sender and receivers at a bridge; receiver SLOW is behind 1 Mb/s."""

    def __init__(self, network, binary, folder, receivers, crowd):
        self.network, self.binary, self.folder, self.receivers, self.crowd = network, binary, folder, receivers, crowd
        # Members of a group alone get its packets: the slow one could not choose its rate otherwise.
        snooping = ("mcast_snooping", "1", "mcast_querier", "1", "mcast_igmp_version", "3", "mcast_startup_query_interval", "20")
        network.add_switch(*snooping)
        for number in range(receivers + 1):
            self.plug(self.host(number), f"10.91.0.{number + 1}")
        shape = ("rate", "1mbit", "burst", "3000", "latency", "100ms")
        network.run("bridge", "tc", "qdisc", "add", "dev", self.host(SLOW), "root", "tbf", *shape)

    @staticmethod
    def host(number):
        return "sender" if number == 0 else f"r{number}"

    def plug(self, host, address):
        self.network.plug(host, address)
        self.network.ip("bridge", "link", "set", "dev", host, "type", "bridge_slave", "mcast_fast_leave", "on")

    def content(self, name, length):
        path = self.folder / name
        path.write_bytes(random.Random(name).randbytes(length))
        return path

    def send(self, name, group, file, *options):
        network = ("--group", group, "--interface", "eth0", "--max-rate", "8M")
        return self.network.start("sender", name, self.folder, [self.binary, "send", "--json", *network, *options, file])

    def receive(self, name, group, number, *options, out=None):
        out = out or self.folder / f"{name}-{number}"
        named = () if "--no-reports" in options else ("--name", self.host(number))
        network = ("--group", group, "--interface", "eth0", "--timeout", "60s", "--out", out, *named)
        command = [self.binary, "receive", "--json", *network, *options]
        return self.network.start(self.host(number), name, self.folder, command), out

    def expect(self, numbers):
        path = self.folder / "expected"
        path.write_text("# receivers\n" + "".join(f"{self.host(number)}\n" for number in numbers))
        return path


def told(program, kind):
    return [event for event in program.events() if event["event"] == kind]


def whole(out, file):
    check(filecmp.cmp(file, out / file.name, shallow=False), f"{out}: the file differs")


def session_digest(file):
    """The digest of a session of one file of one block (docs/reference/wire/roster.md)."""
    content, name = file.read_bytes(), file.name.encode()
    row = struct.pack(">Q", len(name)) + name + struct.pack(">Q", len(content)) + blake3.digest(blake3.digest(content))
    return blake3.digest(row, "headwater 2026 session content").hex()


def receipts(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def poll_end(program, until):
    """Waits for the end of a program, which must come before `until`; returns the instant."""
    while not program.has_ended():
        check(time.monotonic() < until, f"{program.name} does not end: {program.complaint()}")
        time.sleep(0.02)
    return time.monotonic()


def some_fail(bed):
    """One receiver is killed, one has a full disk, one is behind 1 Mb/s: the sender ends when the others have everything, and names the two."""
    group, numbers = "239.255.72.91:7391", range(1, bed.receivers + 1)
    file, record = bed.content("some.bin", 2_100_000), bed.folder / "some.receipts"
    started = time.monotonic()
    receivers = {n: bed.receive("some", group, n, out=bed.folder / "disk" if n == FULL else None) for n in numbers}
    sender = bed.send("some", group, file, "--expect", bed.expect(numbers), "--receipts", record)
    sender.wait_for("the report of the one to kill", lambda _: reported(sender, bed.host(KILLED)))
    receivers[KILLED][0].kill()
    killed = time.monotonic()
    last = killed + LOST_SECONDS
    for number in numbers:
        program, out = receivers[number]
        if number == KILLED:
            continue
        last = max(last, poll_end(program, started + 120))
        code = program.end()
        check(code == (DISK if number == FULL else 0), f"{program.name} ended with {code}: {program.complaint()}")
        if number != FULL:
            whole(out, file)
    ended = poll_end(sender, last + END_SECONDS_MAX)
    print(f"  the sender ended {ended - last:.1f} s after the last receiver, {ended - started:.1f} s after the start")
    code, said = sender.end(), sender.err.read_text()
    check(code == INCOMPLETE, f"the sender ended with {code}: {said}")
    for words in (f"{bed.host(FULL)} ended at", "exit code 7", f"{bed.host(KILLED)} fell silent at", f"2 of {bed.receivers}"):
        check(words in said, f"'{words}' is missing in {said}")
    lines = receipts(record)
    names = sorted(line["name"] for line in lines)
    check(names == sorted(bed.host(n) for n in numbers if n not in (FULL, KILLED)), f"receipts of {names}")
    right = session_digest(file)
    check({line["digest"] for line in lines} == {right}, f"receipts have digests other than {right} of the file: {lines[:1]}")
    contents = {event["content"] for event in told(sender, "receiver:reported") if event["state"] == "done"}
    check(contents == {lines[0]["digest"][:8]}, f"receivers have {contents}, receipts {lines[0]['digest']}")


def reported(sender, name):
    return any(event.get("name") == name for event in told(sender, "receiver:reported"))


def all_well(bed):
    """All receivers end well: the sender ends by itself, with exit code 0; the content waits for the receivers."""
    group, numbers = "239.255.72.91:7392", [n for n in range(1, bed.receivers + 1) if n != SLOW]
    file, record = bed.content("well.bin", 600_000), bed.folder / "well.receipts"
    options = ("--expect", bed.expect(numbers), "--receipts", record, "--start-when", len(numbers))
    sender = bed.send("well", group, file, *options)
    receivers = [bed.receive("well", group, number) for number in numbers]
    for program, out in receivers:
        code = program.end()
        check(code == 0, f"{program.name} ended with {code}: {program.complaint()}")
        whole(out, file)
    last = time.monotonic()
    ended = poll_end(sender, last + END_SECONDS_MAX)
    code = sender.end()
    check(code == 0, f"the sender ended with {code}: {sender.complaint()}")
    print(f"  the sender ended {ended - last:.1f} s after the last receiver")
    digests, right = [line["digest"] for line in receipts(record)], session_digest(file)
    check(digests == [right] * len(numbers), f"{len(digests)} receipts with digests {set(digests)}, of the file {right}")


def blocked(bed):
    """No report reaches the sender: the transfer is whole, the sender says so once, and nobody waits for longer than --linger."""
    group, numbers = "239.255.72.91:7393", [n for n in range(1, bed.receivers + 1) if n != SLOW]
    file = bed.content("blocked.bin", 600_000)
    for number in numbers:
        bed.network.ip(bed.host(number), "route", "add", "blackhole", "10.91.0.1/32")
    receivers = [bed.receive("blocked", group, number) for number in numbers]
    sender = bed.send("blocked", group, file, "--until", len(numbers), "--duration", "12s")
    waits = []
    for program, out in receivers:
        poll_end(program, time.monotonic() + 30)
        code = program.end()
        check(code == 0, f"{program.name} ended with {code}: {program.complaint()}")
        whole(out, file)
        completed, end = (told(program, kind)[-1]["time"] for kind in ("session:completed", "session:ended"))
        waits.append((end - completed) / 1e3)
    check(max(waits) <= LINGER_SECONDS + 0.5, f"a receiver waited for {max(waits):.1f} s")
    code, said = sender.end(), sender.err.read_text()
    check(code == INCOMPLETE, f"the sender ended with {code}: {said}")
    check(said.count("no receiver has reported") == 1, f"the sender said: {said}")
    for number in numbers:
        bed.network.ip(bed.host(number), "route", "delete", "blackhole", "10.91.0.1/32")
    print(f"  receivers waited for {max(waits):.1f} s at most")


def crowd(bed):
    """Many receivers at one address, with a --roster-key: each has a row and a receipt, and the sender's work hardly grows with their number."""
    receivers = bed.crowd
    file, key, loads = bed.content("crowd.bin", 1_500_000), bed.folder / "crowd.key", {}
    bed.network.run("sender", bed.binary, "keygen", "--group", key)
    for turn, count in enumerate((1, receivers)):
        group, record, name = f"239.255.72.91:{7400 + turn}", bed.folder / f"crowd-{count}.receipts", f"crowd{count}"
        options = ("--until", count, "--start-when", f"{count}:120s", "--receipts", record, "--roster-key", key)
        sender = bed.send(name, group, file, *options)
        programs = []
        for number in range(count):
            out = bed.folder / f"{name}-{number}"
            command = [bed.binary, "receive", "--json", "--quiet", "--group", group, "--interface", "eth0", "--timeout", "120s", "--out", out]
            program = bed.network.start("r4", f"{name}-{number}", bed.folder, [*command, "--name", f"n{number}", "--roster-key", key])
            programs.append((program, out))
        for program, out in programs:
            code = program.end(patience_seconds=240)
            check(code == 0, f"{program.name} ended with {code}: {program.complaint()}")
            whole(out, file)
        code = sender.end(patience_seconds=60)
        check(code == 0, f"the sender ended with {code}: {sender.complaint()}")
        names = {line["name"] for line in receipts(record)}
        check(names == {f"n{number}" for number in range(count)}, f"{len(names)} receipts of {count} receivers")
        progress = [event for event in sender.events() if event["event"] == "session:progress"]
        seconds, sent = progress[-1]["time"] / 1e3, progress[-1]["bytes"]
        reports = len(told(sender, "receiver:reported"))
        loads[count] = sender.cpu_seconds / seconds
        print(f"  {count} receivers: {sent / 1e6:.1f} MB sent in {seconds:.1f} s, {reports} reports, {sender.cpu_seconds:.2f} s of processor time, "
              f"{sender.memory_bytes / 1e6:.0f} MB", flush=True)
    more = loads[receivers] - loads[1]
    print(f"  {more:+.3f} processors for {receivers} receivers in place of one")
    check(more <= 0.05, f"{receivers} receivers take {more:.3f} processors of the sender more than one")


def costs(bed):
    """10 MB at 4 Mb/s to 5 receivers take as long with reports as without."""
    file, times = bed.content("costs.bin", 10_000_000), {True: [], False: []}
    numbers = [n for n in range(1, 7) if n != SLOW]
    for turn in range(6):
        on, group = turn % 2 == 0, f"239.255.72.91:{7394 + turn}"
        receivers = [bed.receive(f"costs{turn}", group, n, *(() if on else ("--no-reports",))) for n in numbers]
        for program, _ in receivers:
            program.wait_for("its join", lambda events: any(event["event"] == "channel:joined" for event in events))
        rate = ("--rate", "4M")
        options = rate if on else (*rate, "--no-roster")
        base = [bed.binary, "send", "--json", "--group", group, "--interface", "eth0", *options, file]
        sender = bed.network.start("sender", f"costs{turn}", bed.folder, base)
        for program, out in receivers:
            poll_end(program, time.monotonic() + 90)
            check(program.end() == 0, f"{program.name}: {program.complaint()}")
            whole(out, file)
            found, completed = (told(program, kind)[0]["time"] for kind in ("session:found", "session:completed"))
            times[on].append((completed - found) / 1e3)
        sender.signal(signal.SIGINT)
        sender.end()
    with_reports, without = (statistics.mean(times[on]) for on in (True, False))
    print(f"  mean time with reports {with_reports:.3f} s, without {without:.3f} s ({100 * (with_reports / without - 1):+.2f} %)")
    check(abs(with_reports / without - 1) < DIFFERENCE_MAX, "reports cost time")


def main():
    binary, folder, *rest = sys.argv[1:]
    full = rest == ["--full"]
    if rest and not full:
        sys.exit(__doc__)
    require_root("ip", "ethtool", "tc")
    with Network("hw-roster") as network:
        bed = Bed(network, binary, Path(folder), *((40, 500) if full else (8, 24)))
        for scenario in (some_fail, all_well, blocked, crowd, *([costs] if full else [])):
            print(f"{scenario.__name__}: {scenario.__doc__}", flush=True)
            try:
                scenario(bed)
            except Failed as failure:
                sys.exit(f"roster: FAILED: {scenario.__name__}: {failure}")


if __name__ == "__main__":
    main()
