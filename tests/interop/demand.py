"""A sender of many levels that sends what its receivers report, signed as by default, over a switch that snoops.

  sender === switch === receiver, behind a link of so many Mbit/s with a queue of 25 packets, or of so many groups

Rates are those of UDP payload, as the sender counts them. The short form runs its parts side by side and judges what is certain on a busy machine;
the full one runs each part by itself, three times, and judges all.

usage: demand.py BINARY [--full] [PART...]

parts: idle slow medium start lossy restart blocked fast auto groups
"""

import concurrent.futures
import itertools
import os
import random
import re
import shutil
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

import parts
from network import Failed, Network, check, require_root
from routing import OFFLOADS

MB = 1_000_000
QUEUE_PACKETS = 25
GROUP = "232.72.87.28:7287"
NUMBERS = itertools.count(1)
# Bounds the groups of a bridge's port by rtnetlink, as iproute2 does from 6.2 on: IFLA_BRPORT_MCAST_MAX_GROUPS in IFLA_PROTINFO.
LIMIT_GROUPS = """
import socket, struct, sys
index, groups = socket.if_nametoindex(sys.argv[1]), int(sys.argv[2])
limit = struct.pack("=HHI", 8, 42, groups)
body = struct.pack("=BxHiII", 7, 0, index, 0, 0) + struct.pack("=HH", 4 + len(limit), 12 | 0x8000) + limit
link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
link.send(struct.pack("=IHHII", 16 + len(body), 19, 5, 1, 0) + body)
error = -struct.unpack_from("=i", link.recv(4096), 16)[0]
sys.exit(f"the kernel refuses: error {error}" if error else 0)
"""


class Bed(Network):
    """A sender and a receiver on a switch, or on one cable."""

    def __init__(self, folder, binary, mbit=None, is_cable=False):
        super().__init__(f"hwdem{next(NUMBERS)}x")
        self.folder, self.binary = Path(tempfile.mkdtemp(dir=folder)), binary
        self.starts = itertools.count(1)
        for host in ("sender", "receiver"):
            self.add_host(host)
        if is_cable:
            self.add_pair("sender", "receiver", "10.89.0", offloads=True)
            return
        self.add_host("switch")
        times = {"query_interval": 500, "query_response_interval": 50, "startup_query_interval": 50, "startup_query_count": 4,
                 "last_member_interval": 10, "hash_max": 16384, "igmp_version": 3, "snooping": 1, "querier": 0}
        options = [word for name, value in times.items() for word in (f"mcast_{name}", value)]
        self.ip("switch", "link", "add", "bridge", "type", "bridge", "stp_state", 0, *options)
        self.ip("switch", "link", "set", "dev", "bridge", "up")
        for number, host in enumerate(("sender", "receiver"), start=1):
            self.ip("switch", "link", "add", host, "type", "veth", "peer", "name", "eth0", "netns", self.hosts[host])
            for at, port in (("switch", host), (host, "eth0")):
                self.run(at, "ethtool", "-K", port, *(word for offload in OFFLOADS for word in (offload, "off")))
            self.ip("switch", "link", "set", "dev", host, "master", "bridge", "up")
            self.bring_up(host, f"10.89.0.{number}")
        if mbit is not None:
            burst = max(1540, int(mbit * 1e6 / 8 * 0.0005))
            tbf = ("qdisc", "add", "dev", "receiver", "root", "handle", "1:", "tbf", "rate", f"{mbit}mbit", "burst", burst, "limit", MB)
            self.run("switch", "tc", *tbf)
            self.run("switch", "tc", "qdisc", "add", "dev", "receiver", "parent", "1:1", "handle", "10:", "pfifo", "limit", QUEUE_PACKETS)
        self.run("switch", "sh", "-c", "echo 1 > /sys/class/net/receiver/brport/multicast_fast_leave")
        self.run("switch", "sh", "-c", "echo 1 > /sys/class/net/bridge/bridge/multicast_querier")
        time.sleep(1)

    def __exit__(self, *arguments):
        super().__exit__(*arguments)
        shutil.rmtree(self.folder)

    def send(self, *options):
        """A sender of an endless session of 600 MB: no receiver here is whole within 80 s."""
        file = self.folder / "content.bin"
        if not file.exists():
            file.write_bytes(random.Random(28).randbytes(20 * MB) * 30)
        return self.start_program("sender", "send", "--ttl", "8", *options, file)

    def receive(self, *options):
        return self.start_program("receiver", "receive", "--out", self.folder / f"in{next(self.starts)}", *options)

    def start_program(self, host, command, *arguments):
        state = f"XDG_STATE_HOME={self.folder / 'state'}"
        home = f"HOME={self.folder}"
        words = ["env", state, home, self.binary, command, "--json", "--interface", "eth0", "--group", GROUP, *arguments]
        return self.start(host, f"{command}{next(self.starts)}", self.folder, words)


def progress(program):
    return [event for event in program.events() if event["event"] == "session:progress"]


def bytes_at(samples, seconds):
    """Bytes sent or received by so many seconds after the first event, between two samples."""
    before = max((sample for sample in samples if sample["time"] <= 1e3 * seconds), key=lambda sample: sample["time"], default=None)
    after = min((sample for sample in samples if sample["time"] > 1e3 * seconds), key=lambda sample: sample["time"], default=None)
    if before is None or after is None:
        return (before or after or {"bytes": 0})["bytes"]
    part = (1e3 * seconds - before["time"]) / (after["time"] - before["time"])
    return before["bytes"] + part * (after["bytes"] - before["bytes"])


def mbits(samples, begin, end):
    return 8e-6 * (bytes_at(samples, end) - bytes_at(samples, begin)) / (end - begin)


def cpu_seconds(program):
    fields = Path(f"/proc/{program.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def samples_of(program):
    """Progress since the program's first packet."""
    found = progress(program)
    begin = next((event["time"] for event in program.events() if event["event"] in ("session:started", "session:found")), 0)
    return [{**event, "time": event["time"] - begin} for event in found]


def idle(bed_of, full):
    """Nobody there: at most 1.3 Mbit/s and 0.02 processors after 20 s."""
    with bed_of() as bed:
        sender = bed.send()
        time.sleep(20)
        before, began = cpu_seconds(sender), time.monotonic()
        time.sleep(10)
        load = (cpu_seconds(sender) - before) / (time.monotonic() - began)
        rate = mbits(samples_of(sender), 20, 29)
        print(f"  nobody there: {rate:.2f} Mbit/s, {load:.3f} processors", flush=True)
        return [("nobody there: at most 1.3 Mbit/s", rate <= 1.3), ("nobody there: at most 0.02 processors", load <= 0.02, parts.BUSY)]


def behind(bed_of, full, mbit, most):
    seconds = 60 if full else 30
    with bed_of(mbit) as bed:
        sender = bed.send()
        time.sleep(3)
        began = len(progress(sender))
        receiver = bed.receive()
        time.sleep(seconds + 1)
        sent = samples_of(sender)
        start = sent[began]["time"] / 1e3
        rate = mbits(sent, start, start + seconds)
        received = samples_of(receiver)
        got = mbits(received, 10, seconds - 2)
        print(f"  one behind {mbit} Mbit/s: {rate:.2f} Mbit/s sent in {seconds} s, {got:.2f} received after 10 s", flush=True)
        return [
            (f"one behind {mbit} Mbit/s: at most {most} Mbit/s sent", rate <= most, *(() if full else (parts.BUSY,))),
            (f"one behind {mbit} Mbit/s: receives three quarters of the link", got >= 0.75 * mbit, parts.BUSY),
        ]


def slow(bed_of, full):
    """One receiver behind 4 Mbit/s: at most 7 Mbit/s sent over a minute."""
    return behind(bed_of, full, 4, 7)


def medium(bed_of, full):
    """One receiver behind 50 Mbit/s: at most 72 Mbit/s sent over a minute."""
    return behind(bed_of, full, 50, 72)


def start_seconds(bed_of, options, mbit, runs):
    """Times from the first packet of a session until two seconds' worth of the link has arrived."""
    needed = mbit * 1e6 / 8 * 2
    found = []
    with bed_of(mbit) as bed:
        bed.send("--max-rate", "100M", *options)
        time.sleep(2)
        for run in range(runs):
            time.sleep(0.617 * run)
            receiver = bed.receive()
            receiver.wait_for("its content", lambda events: any(event.get("bytes", 0) >= needed for event in events if event["event"] == "session:progress"))
            samples = samples_of(receiver)
            after = next(at for at, sample in enumerate(samples) if sample["bytes"] >= needed)
            one, other = samples[max(0, after - 1)], samples[after]
            part = (needed - one["bytes"]) / max(1, other["bytes"] - one["bytes"])
            found.append((one["time"] + part * (other["time"] - one["time"])) / 1e3)
            receiver.kill()
            # The levels of a receiver that has gone are sent for 20 s more: the next start shall find none.
            time.sleep(21 if runs > 3 and "off" not in options else 0)
    return found


def start(bed_of, full):
    """Starts take at most 0.1 s longer than without demand, as medians. Round trips of 20 and 200 ms: lab/experiments/testbed/starts, as this kernel may
    lack netem, and crates/proto/tests/demand.rs."""
    lines = []
    for mbit in (4, 20) if full else (20,):
        runs = 7 if full else 3
        off, on = (start_seconds(bed_of, options, mbit, runs) for options in (["--demand", "off"], []))
        more = statistics.median(on) - statistics.median(off)
        shown = [", ".join(f"{seconds:.2f}" for seconds in times) for times in (on, off)]
        print(f"  start behind {mbit} Mbit/s: {more:+.2f} s ({shown[0]} s; without demand {shown[1]} s)", flush=True)
        lines.append((f"start behind {mbit} Mbit/s: at most 0.1 s longer (median of {runs})", more <= 0.1, *(() if full else (parts.BUSY,))))
    return lines


def levels_held(events):
    """Levels that a receiver holds above the base, as they change, each with its time; a level is a channel."""
    held = 0
    for event in events:
        if event["event"] in ("channel:joined", "channel:left"):
            held += 1 if event["event"] == "channel:joined" else -1
            yield event["time"], held - 1


def ceilings_below(events):
    """Ceilings that a receiver heard and that were below a level held for a second before, each with its time and that level."""
    held, found = list(levels_held(events)), []
    for event in events:
        if event["event"] == "demand:changed":
            # Of a slot's end the channel of the lowest level is left a moment later.
            before = [level for at, level in held if at <= event["time"] - 1_000][-1:]
            steady = min(before + [level for at, level in held if event["time"] - 1_000 < at <= event["time"]], default=0)
            if event["ceiling"] < steady:
                found.append((event["time"], event["ceiling"], steady))
    return found


def lossy(bed_of, full):
    """30 % of the reports lost: no level that is held stops."""
    seconds = 90 if full else 25
    with bed_of(10) as bed:
        bed.set_loss("sender", 30)
        sender = bed.send()
        receiver = bed.receive()
        time.sleep(seconds)
        # A level that stops is missed for seconds; samples of 0.1 s would judge the machine's scheduler.
        samples = samples_of(receiver)
        rates = [mbits(samples, second, second + 1) for second in range(10, seconds - 2)]
        lowest, mean = min(rates), statistics.mean(rates)
        changes = [event for event in sender.events() if event["event"] == "demand:changed"]
        below = ceilings_below(receiver.events())
        levels = [level for _, level in levels_held(receiver.events())][-12:]
        # Of a driver that is late, on a busy machine.
        driver = sum(event["ceiling"] < event["level"] for event in changes)
        print(f"  30 % of reports lost: {mean:.2f} Mbit/s received after 10 s, never below {lowest:.2f}; ceilings {[event['ceiling'] for event in changes][-12:]}, {driver} below the level reported of late, held {levels}", flush=True)
        return [
            (f"30 % of reports lost: no ceiling below a level held ({len(changes)} ceilings, {below} below)", not below),
            ("30 % of reports lost: in no second below half of the mean", lowest >= 0.5 * mean, *(() if full else (parts.BUSY,))),
        ]


def restart(bed_of, full):
    """A sender that is killed and started again sends the levels held within a second of the receiver's taking the new session."""
    with bed_of(10) as bed:
        first = bed.send("--tsi", "77")
        receiver = bed.receive()
        receiver.wait_for("5 MB", lambda events: any(event.get("bytes", 0) >= 5 * MB for event in events if event["event"] == "session:progress"))
        before = receiver.events()
        killed = before[-1]["time"]
        held = list(levels_held(before))[-1][1]
        ceiling = next(event["ceiling"] for event in reversed(before) if event["event"] == "demand:changed")
        first.kill()
        second = bed.send("--tsi", "77")
        changed = lambda: [event for event in receiver.events()[len(before):] if event["event"] == "demand:changed"]
        # The receiver waits for 5 s whether the first sender comes back.
        receiver.wait_for("the levels", lambda _: any(event["ceiling"] >= ceiling for event in changed()))
        ceilings = changed()
        taken, *times = (next(event["time"] for event in ceilings if event["ceiling"] >= least) / 1e3 for least in (0, held, ceiling))
        sent, back = (seconds - taken for seconds in times)
        shown = [event["ceiling"] for event in ceilings]
        told = [event["level"] for event in second.events() if event["event"] == "demand:changed"]
        print(f"  sender killed and started again: level {held} held and ceiling {ceiling} before, then ceilings {shown}, reported {told}; the level is sent "
              f"{sent:.2f} s, the ceiling back {back:.2f} s after the new sender's first ceiling. Not counted: {taken - killed / 1e3:.2f} s from the kill to that, in "
              "which the receiver waited for the first sender", flush=True)
        return [("a restarted sender sends the levels held within 1 s", sent <= 1 and shown[0] < held, *(() if full else (parts.BUSY,)))]


def blocked(bed_of, full):
    """Reports that a firewall drops: the idle rate, and warnings on both sides."""
    with bed_of(10) as bed:
        bed.set_loss("sender", 99.9999)
        sender = bed.send()
        receiver = bed.receive()
        time.sleep(70 if full else 25)
        rate = mbits(samples_of(receiver), 12, 22)
        names = [event["event"] for event in receiver.events()]
        print(f"  reports blocked: {rate:.2f} Mbit/s received", flush=True)
        lines = [
            ("reports blocked: the idle rate arrives", 0.8 <= rate <= 1.4),
            ("reports blocked: the receiver warns once", names.count("demand:unheard") == 1 and "--demand off" in receiver.complaint()),
        ]
        if full:
            said = [event["event"] for event in sender.events()].count("demand:unreported")
            lines.append(("reports blocked: the sender warns once", said == 1 and "--demand off" in sender.complaint()))
        return lines


def ended(bed_of, full):
    """Receivers that are whole: the sender sends the idle rate a second after the last one, and all that a receiver needs that starts before."""
    with bed_of() as bed:
        file = bed.folder / "content.bin"
        file.write_bytes(random.Random(28).randbytes(16 * MB))
        sender = bed.send("--max-rate", "20M")
        first = bed.receive()
        first.wait_for("14 MB", lambda events: any(event.get("bytes", 0) >= 14 * MB for event in events if event["event"] == "session:progress"))
        last = bed.receive()
        for receiver in (first, last):
            check(receiver.end(60) == 0, f"a receiver is not whole: {receiver.complaint()}")
        end = progress(sender)[-1]["time"] / 1e3
        time.sleep(4)
        after = mbits(progress(sender), end + 1, end + 3)
        took = [samples_of(receiver)[-1]["time"] / 1e3 for receiver in (first, last)]
        print(f"  ended: {after:.2f} Mbit/s sent 1 s after the last receiver; the first took {took[0]:.1f} s, the last {took[1]:.1f} s", flush=True)
        return [
            ("ended: at most 1.3 Mbit/s a second after the last receiver", after <= 1.3, *(() if full else (parts.BUSY,))),
            ("ended: the last receiver takes at most a second longer than the first", took[1] <= took[0] + 1, *(() if full else (parts.BUSY,))),
        ]


def fast(bed_of, full):
    """1 GB (short: 100 MB) to one receiver over a cable by the bare command, within 1.25 of the time at --rate 900M."""
    size = 1_000 * MB if full else 100 * MB

    def seconds(options):
        with bed_of(is_cable=True) as bed:
            file = bed.folder / "content.bin"
            file.write_bytes(random.Random(1).randbytes(10 * MB) * (size // (10 * MB)))
            receiver = bed.receive("--timeout", "60s")
            receiver.wait_for("its join", lambda events: any(event["event"] == "channel:joined" for event in events))
            began = time.monotonic()
            bed.send(*options)
            check(receiver.end(180) == 0, f"the receiver is not whole: {receiver.complaint()}")
            return time.monotonic() - began
    bare, fixed = seconds([]), seconds(["--rate", "900M"])
    print(f"  {size // MB} MB: {bare:.1f} s by the bare command, {fixed:.1f} s at --rate 900M", flush=True)
    return [("the bare command takes at most 1.25 times as long as --rate 900M", bare <= 1.25 * fixed, *(() if full else (parts.BUSY,)))]


def auto(bed_of, full):
    """`--rate auto` behind 50 Mbit/s: 0.85 of the link after 10 s, and at most 3 % lost from then on. Behind a firewall the rate of the start."""
    with bed_of(50) as bed:
        bed.send("--rate", "auto")
        receiver = bed.receive()
        time.sleep(27)
        samples = samples_of(receiver)
        got = mbits(samples, 10, 25)
        counts = [(event["packets"], event["lost"]) for event in samples if event["time"] >= 10_000]
        packets, lost = (last - first for first, last in zip(counts[0], counts[-1], strict=True))
        share = lost / (packets + lost)
        print(f"  --rate auto behind 50 Mbit/s: {got:.2f} Mbit/s received after 10 s, {100 * share:.2f} % lost", flush=True)
    with bed_of(50) as bed:
        bed.set_loss("sender", 99.9999)
        bed.send("--rate", "auto")
        receiver = bed.receive()
        time.sleep(12)
        kept = mbits(samples_of(receiver), 2, 7)
        print(f"  --rate auto, reports blocked: {kept:.2f} Mbit/s received", flush=True)
    return [
        ("--rate auto: 0.85 of a link of 50 Mbit/s after 10 s", got >= 0.85 * 50, *(() if full else (parts.BUSY,))),
        ("--rate auto: at most 3 % lost after 10 s", share <= 0.03, *(() if full else (parts.BUSY,))),
        ("--rate auto, reports blocked: the rate of the start arrives", 9 <= kept <= 10.5, *(() if full else (parts.BUSY,))),
    ]


def groups(bed_of, full):
    """A port of the switch that takes 40 or 80 groups: the doctor says about as many."""
    lines = []
    for limit in (40, 80):
        with bed_of() as bed:
            bed.run("switch", sys.executable, "-c", LIMIT_GROUPS, "receiver", limit)
            bed.send()
            time.sleep(1)
            doctor = bed.start("receiver", "doctor", bed.folder, [bed.binary, "doctor", "--group", GROUP, "--interface", "eth0"])
            doctor.end()
            said = doctor.out.read_text() + doctor.complaint()
            found = re.search(r"seems\s+to\s+carry\s+(\d+)\s+to\s+(\d+)\s+groups", said)
            least, most = map(int, found.groups()) if found else (0, 0)
            print(f"  a port of {limit} groups: the doctor says {least} to {most}" + ("" if found else f": {said}"), flush=True)
            # Joins of one report change places.
            lines.append((f"a port of {limit} groups: the doctor says {limit} to {limit + 16}", limit <= least <= most <= limit + 16, *(() if full else (parts.BUSY,))))
    return lines


PARTS = {part.__name__: part for part in (idle, slow, medium, start, lossy, restart, blocked, ended, fast, auto, groups)}
# Judged by the full form alone: they fill the machine.
LONG = ("medium", "fast", "auto")


def main():
    options = parts.chosen(PARTS, "m2c")
    require_root("ip", "ethtool", "tc")
    names = options.parts or [name for name in PARTS if options.full or name not in LONG]
    with tempfile.TemporaryDirectory(prefix="headwater-demand-", dir="/dev/shm") as folder:
        def bed_of(*arguments, **named):
            return Bed(folder, options.binary, *arguments, **named)

        def call(part):
            return part(bed_of, options.full)
        if options.full:
            missed = []
            for _ in range(3):
                missed += parts.run(PARTS, names, "by a switch", call, options.full)
            return missed
        with concurrent.futures.ThreadPoolExecutor() as pool:
            found = {name: pool.submit(call, PARTS[name]) for name in names}
            return parts.run(PARTS, names, "by a switch", lambda part: found[part.__name__].result(), options.full)


if __name__ == "__main__":
    try:
        if missed := main():
            sys.exit("demand: missed " + "; ".join(missed))
    except Failed as error:
        sys.exit(f"demand: {error}")
