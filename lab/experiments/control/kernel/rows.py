#!/usr/bin/env python3
"""Measures M2C's control on this machine's kernel, row by row, and judges each row by a goal.

The network of a row is one of `headwater-lab testbed up`: a token bucket in the kernel with a queue in packets, and the
wire in user space for delay, random loss, CoDel and policers. source-1 sends a session to sink-1; source-2 sends a TCP
or a second session to sink-2. Shares are of the bytes that reach the two sinks.

usage: rows.py [--rows NAME,..] [--list] [--rules RULES,..] [--repeats N] [--seconds N] [--jobs N] [--csv FILE]
               [--headwater PROGRAM] [--lab PROGRAM]

Linux, root. A row needs an algorithm or a queue that the kernel may lack: the row is then skipped, and the skip is
reported. A row that was measured while the processors were idle for less than a fifth of the time, or with a late wire,
is marked as not valid and not judged. Time of programs at a lower priority (nice) counts as idle. Appends a line of CSV per run, and prints the summary of all lines of the file.
"""

import argparse
import csv
import json
import platform
import re
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "validation"))
from kernel_pairs import IDLE_LEAST, NETWORKS, End, bits, run  # noqa: E402

WARM_UP_SECONDS, SECONDS = 15, 45
FILE_PATIENCE_SECONDS = 150
STEP_SECONDS = (20, 50, 85)  # down, up, end
TTL = 8
COLUMNS = ("kernel", "row", "rules", "repeat", "measure", "value", "goal", "met", "idle", "late_p99_ms",
           "valid")


def row(rate, queue=25, rtt=0.2, **more):
    return {"rate": rate, "queue": queue, "rtt": rtt, "goals": {}, **more}


def share(rate, tcp, goal, **more):
    return row(rate, beside=tcp, goals={"share": goal} if goal else {}, **more)


# Goals (at least, at most) are those written down for the kernel before the control's second edition. Beside CUBIC: at
# least 0.8 of the share of the kernel's Reno there, 0.50 at 4 Mb/s and 0.37 at 40 (kernel_pairs.csv).
SHARES = {
    ("reno", "1M"): (0.40, 0.60),
    ("reno", "4M"): (0.43, 0.57),
    ("reno", "40M"): (0.40, 0.60),
    ("cubic", "4M"): (0.40, 1),
    ("cubic", "40M"): (0.30, 1),
}
ROWS = {
    **{
        f"{tcp}-{rate}{'' if order == 'tcp' else '-own-first'}": share(
            rate, tcp, SHARES.get((tcp, rate)), first=order, queue=queue
        )
        for tcp in ("reno", "cubic", "bbr")
        for rate, queue in (("1M", 25), ("4M", 25), ("40M", 25), ("200M", 250))
        for order in ("tcp", "own")
    },
    **{f"reno-4M-rtt{rtt}": share("4M", "reno", (0.40, 0.60), rtt=rtt, first="tcp") for rtt in (2, 20, 200)},
    **{
        f"loss-{percent}": row("10M", queue=62, rtt=10, loss=percent / 100, goals={"use": (use, 1)})
        for percent, use in ((1, 0.85), (3, 0.85), (10, 0.5))
    },
    **{
        f"alone-{rate}": row(rate, goals={"use": (0.9, 1), "queue": (0, 1 / 3), "loss": (0, 0.005)})
        for rate in ("1M", "4M", "40M", "200M")
    },
    "steps": row("10M", step="1M", queue=62, beside="reno", first="own", goals={
        "offered_after_2s_bps": (0, 1.3e6), "drops_30s": (0, 2500), "tcp_share": (0.3, 1), "return_s": (0, 10),
    }),
    "police": row("10M", kind='kind = "policer", rate = "4M", burst = "16kB", packets = 62', limit="4M", goals={"use": (0.8, 1)}),
    "codel": row("4M", kind='kind = "codel", packets = 1000', beside="reno", first="tcp", goals={"share": (0.4, 0.6)}),
    "codel-ecn": row("4M", kind='kind = "codel", packets = 1000, ecn = true', beside="reno", ecn=True, first="tcp",
                     goals={"share": (0.4, 0.6)}),
    "fq-codel": row("4M", qdisc=("fq_codel", "ecn"), beside="reno", first="tcp", goals={"share": (0.4, 0.6)}),
    "cake": row("4M", qdisc=("cake", "bandwidth", "4mbit"), beside="reno", first="tcp", goals={"share": (0.4, 0.6)}),
    "two-sessions-4M": row("4M", beside="session", first="own", gap=20, goals={"share": (0.4, 0.6)}),
    "two-sessions-40M": row("40M", beside="session", first="own", gap=20, goals={"share": (0.4, 0.6)}),
    "file-4MB": row("4M", size=4_000_000, goals={"over_ideal": (0, 1.15)}),
    "file-20MB-rtt200": row("10M", queue=62, rtt=200, size=20_000_000, goals={"file_s": (0, 23)}),
}

PLAN = """
# A network of the same plan would be replaced.
name = "{name}"
duration = "1s"
[topology]
kind = "dumbbell"
pairs = 2
access = {{ rate = "10G", delay = "0s", queue = {{ packets = 10000 }} }}
bottleneck = {{ rate = "{rate}", delay = "{delay}us", queue = {{ {queue} }}{loss}, back = {{ rate = "1G", queue = {{ packets = 10000 }} }} }}
[flow.tcp]
kind = "tcp"
from = "source-1"
to = "sink-1"
"""


def main():
    arguments = parse()
    names = arguments.rows.split(",") if arguments.rows else list(ROWS)
    unknown = [name for name in names if name not in ROWS]
    if unknown:
        sys.exit(f"there is no row {', '.join(unknown)}: --list prints all")
    if arguments.list:
        return print(*ROWS, sep="\n")
    names = [name for name in names if not is_skipped(name)]
    is_new = not arguments.csv.exists()
    with open(arguments.csv, "a", newline="") as out, ThreadPoolExecutor(arguments.jobs) as pool:
        writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
        if is_new:
            writer.writeheader()
        rules = arguments.rules.split(",")
        cells = [(name, which, repeat) for repeat in range(arguments.repeats) for name in names for which in rules]
        for lines in pool.map(lambda cell: attempt(arguments, *cell), cells):
            writer.writerows(lines)
            out.flush()
    with open(arguments.csv) as lines:
        print(summary(list(csv.DictReader(lines))))


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", help="names, with commas; default all")
    parser.add_argument("--list", action="store_true", help="print the names of all rows")
    parser.add_argument("--rules", default="revised", help="rules of the receivers, with commas: revised, published")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=SECONDS, help="time that is measured, after the warm-up")
    parser.add_argument("--jobs", type=int, default=1, help="rows side by side: only rows of 10 Mb/s and less")
    parser.add_argument("--csv", type=Path, default=Path("control-kernel.csv"))
    parser.add_argument("--headwater", type=Path, default=Path("target/release/headwater"))
    parser.add_argument("--lab", type=Path, default=Path("target/release/headwater-lab"))
    return parser.parse_args()


def is_skipped(name):
    """Whether the kernel lacks a part of the row; reports the missing part."""
    wanted = ROWS[name]
    available = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
    tcp = wanted.get("beside")
    missing = f"TCP {tcp}" if tcp not in (None, "session", *available) else None
    if "qdisc" in wanted:
        kind = wanted["qdisc"][0]
        with tempfile.NamedTemporaryFile("w", prefix="hwprobe") as probe:
            namespace = Path(probe.name).name
            run("ip", "netns", "add", namespace)
            command = ("ip", "netns", "exec", namespace, "tc", "qdisc", "add", "dev", "lo", "root", *wanted["qdisc"])
            has = subprocess.run(command, capture_output=True).returncode == 0
            run("ip", "netns", "delete", namespace)
        missing = missing if has else f"tc qdisc {kind}"
    if missing:
        print(f"SKIPPED {name}: this kernel ({platform.release()}) has no {missing}", file=sys.stderr)
    return missing is not None


def attempt(arguments, name, rules, repeat):
    try:
        return measure(arguments, name, rules, repeat)
    except (RuntimeError, OSError) as error:
        print(f"FAILED {name}, {rules}: {error}", file=sys.stderr)
        return []


def measure(arguments, name, rules, repeat):
    """One row once: a line of CSV per measure."""
    wanted = ROWS[name]
    queue = wanted.get("kind", f"packets = {wanted['queue']}")
    loss = f', loss = {{ kind = "bernoulli", p = {wanted["loss"]} }}' if "loss" in wanted else ""
    delay = 0 if wanted["rtt"] < 1 else wanted["rtt"] * 500
    with tempfile.TemporaryDirectory(prefix="row-") as folder:
        plan = Path(folder) / "plan.toml"
        plan.write_text(PLAN.format(name=Path(folder).name, rate=wanted["rate"], delay=delay, queue=queue, loss=loss))
        with NETWORKS:
            bed = run(arguments.lab, "testbed", "up", plan, "--routing", "bridge").split()[0]
        row_run = RowRun(arguments, bed, {**wanted, "rules": rules}, Path(folder))
        try:
            cpu = processors()
            values = row_run.measure()
            spent = [now - past for past, now in zip(cpu, processors())]
        finally:
            row_run.end()
            with NETWORKS:
                down = run(arguments.lab, "testbed", "down", bed)
    late = re.search(r"p99 ([\d.]+) ms", down)
    idle = round((spent[1] + spent[3] + spent[4]) / max(1, sum(spent)), 2)
    is_valid = idle >= IDLE_LEAST and (late is None or float(late[1]) <= 1)
    lines = []
    for measure, value in values.items():
        low, high = wanted["goals"].get(measure, (None, None))
        met = "" if low is None or not is_valid else "yes" if low <= value <= high else "no"
        lines.append({
            "kernel": platform.release(), "row": name, "rules": rules, "repeat": repeat, "measure": measure,
            "value": round(value, 4),
            "goal": "" if low is None else f"{low:.3g} to {high:.3g}", "met": met, "idle": idle,
            "late_p99_ms": late[1] if late else "", "valid": "yes" if is_valid else "no",
        })
        print(*lines[-1].values(), file=sys.stderr)
    return lines


def processors():
    return [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:]]


class RowRun:
    """A row under way on its network."""

    def __init__(self, arguments, bed, wanted, folder):
        self.headwater, self.seconds = arguments.headwater, arguments.seconds
        self.bed, self.wanted, self.folder = bed, wanted, folder
        self.rate = bits(wanted["rate"])
        self.programs, self.ends = [], []
        if "qdisc" in wanted:
            self.left("tc", "qdisc", "replace", "dev", "p0", "parent", "1:1", *wanted["qdisc"])

    def left(self, *command):
        return run("ip", "netns", "exec", f"{self.bed}-left", *command)

    def end(self):
        for program in self.programs + self.ends:
            program.kill() if isinstance(program, subprocess.Popen) else program.end()

    def start(self, host, output, *command):
        with open(self.folder / output, "wb") as out:
            words = ["ip", "netns", "exec", f"{self.bed}-{host}", *map(str, command)]
            program = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
        self.programs.append(program)
        return program

    def session(self, number):
        """A session from source to sink NUMBER; returns the receiver."""
        file = self.folder / f"content-{number}"
        with open(file, "wb") as out:
            if "size" in self.wanted:
                out.write(Path("/dev/urandom").open("rb").read(self.wanted["size"]))
            else:
                out.truncate(round(self.rate / 8 * 150))
        address = json.loads(run("ip", "-n", f"{self.bed}-source-{number}", "-j", "-4", "address", "show", "eth0"))
        address = address[0]["addr_info"][0]["local"]
        group = ("--interface", "eth0", "--group", f"232.7.28.{number}:7287")
        options = ("--json", "--quiet", "--ttl", TTL, "--max-rate", 4 * self.rate)
        self.start(f"source-{number}", f"send-{number}", self.headwater, "send", *options, *group, file)
        time.sleep(2)
        options = ("--json", "--quiet", "--source", address, "--out", self.folder / f"in-{number}")
        options += ("--rules", self.wanted["rules"])
        return self.start(f"sink-{number}", f"receive-{number}", self.headwater, "receive", *options, *group)

    def tcp(self, number, control):
        for host in (f"source-{number}", f"sink-{number}"):
            ecn = 1 if self.wanted.get("ecn") else 0
            run("ip", "netns", "exec", f"{self.bed}-{host}", "sysctl", "-q", "-w", f"net.ipv4.tcp_ecn={ecn}")
        self.ends.append(End(self.bed, f"sink-{number}", "receive"))
        self.ends[-1].last()
        address = json.loads(run("ip", "-n", f"{self.bed}-sink-{number}", "-j", "-4", "address", "show", "eth0"))
        self.ends.append(End(self.bed, f"source-{number}", "send", address[0]["addr_info"][0]["local"], control))
        self.ends[-1].last()

    def received(self, number):
        path = "/sys/class/net/eth0/statistics/rx_bytes"
        return int(run("ip", "netns", "exec", f"{self.bed}-sink-{number}", "cat", path))

    def counters(self):
        """Bytes at both sinks, and what the bottleneck's queue holds, sent and dropped."""
        queues = json.loads(self.left("tc", "-s", "-j", "qdisc", "show", "dev", "p0"))
        inner = next((queue for queue in queues if queue["kind"] == "pfifo"), {"drops": 0, "packets": 0, "qlen": 0})
        bytes_at = [self.received(number) for number in (1, 2)]
        return {"at": time.monotonic(), "bytes": bytes_at, **{key: inner[key] for key in ("drops", "packets", "qlen")}}

    def measure(self):
        if "size" in self.wanted:
            return self.measure_file()
        beside, is_tcp_first = self.wanted.get("beside"), self.wanted.get("first") == "tcp"
        starts = [lambda: self.session(1)]
        if beside is not None:
            starts.append(lambda: self.session(2) if beside == "session" else self.tcp(2, beside))
        for start in reversed(starts) if is_tcp_first else starts:
            start()
            time.sleep(self.wanted.get("gap", 3) if len(starts) > 1 else 0)
        return self.measure_steps() if "step" in self.wanted else self.measure_steady()

    def measure_steady(self):
        time.sleep(WARM_UP_SECONDS)
        before, queue = self.counters(), []
        while time.monotonic() < before["at"] + self.seconds:
            time.sleep(0.5)
            queue.append(self.counters()["qlen"])
        after = self.counters()
        own, other = (now - past for past, now in zip(before["bytes"], after["bytes"]))
        seconds, drops = after["at"] - before["at"], after["drops"] - before["drops"]
        limit = bits(self.wanted.get("limit", self.wanted["rate"]))
        values = {"use": 8 * (own + other) / seconds / limit / (1 - self.wanted.get("loss", 0))}
        if "beside" in self.wanted:
            values["share"] = own / (own + other)
        packets = after["packets"] - before["packets"]
        if packets:
            values["queue"] = sum(queue) / len(queue) / self.wanted["queue"]
            values["loss"] = drops / (drops + packets)
        return values

    def measure_steps(self):
        """Down after STEP_SECONDS[0], up after STEP_SECONDS[1]."""
        began, trace = time.monotonic(), []
        down, up, end = STEP_SECONDS
        changes = [(down, self.wanted["step"]), (up, self.wanted["rate"])]
        while (now := time.monotonic() - began) < end:
            if changes and now >= changes[0][0]:
                rate = ("rate", f"{bits(changes.pop(0)[1])}bit", "burst", 1540, "limit", 1_000_000)
                self.left("tc", "qdisc", "change", "dev", "p0", "root", "handle", "1:", "tbf", *rate)
                # The bucket has handed its own limit down to the queue.
                queue = ("pfifo", "limit", self.wanted["queue"])
                self.left("tc", "qdisc", "change", "dev", "p0", "parent", "1:1", "handle", "10:", *queue)
            trace.append({**self.counters(), "second": now})
            time.sleep(0.25)
        at = {second: min(trace, key=lambda one: abs(one["second"] - second)) for second in range(end)}
        between = lambda key, low, high: at[high][key] - at[low][key]  # noqa: E731
        own = lambda low, high: at[high]["bytes"][0] - at[low]["bytes"][0]  # noqa: E731
        other = lambda low, high: at[high]["bytes"][1] - at[low]["bytes"][1]  # noqa: E731
        # All drops count as the session's own: an upper bound.
        offered = 8 * (own(down + 2, down + 12) + 1_514 * between("drops", down + 2, down + 12)) / 10
        both = own(down + 2, up) + other(down + 2, up)
        back = (s for s in range(up + 1, end - 1) if 8 * (own(s, s + 1) + other(s, s + 1)) >= 0.8 * self.rate)
        return {
            "offered_after_2s_bps": offered,
            "drops_30s": between("drops", down, down + 30 - 1),
            "tcp_share": other(down + 2, up) / both,
            "return_s": next(back, end) - up,
        }

    def measure_file(self):
        receiver, began = self.session(1), time.monotonic()
        try:
            code = receiver.wait(FILE_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"the file did not come within {FILE_PATIENCE_SECONDS} s") from None
        seconds = time.monotonic() - began
        if code != 0:
            raise RuntimeError(f"the receiver ended with {code}: {(self.folder / 'receive-1').read_text()[-300:]}")
        return {"file_s": seconds, "over_ideal": seconds / (8 * self.wanted["size"] / self.rate)}


def summary(lines):
    """Means over the valid runs of each row and measure, for each set of rules."""
    groups, rules = {}, []
    for line in lines:
        groups.setdefault((line["row"], line["measure"]), {}).setdefault(line["rules"], []).append(line)
        if line["rules"] not in rules:
            rules.append(line["rules"])
    text = [f"| row | measure | {' | '.join(rules)} | goal |", "|---" * (len(rules) + 3) + "|"]
    for (name, measure), group in groups.items():
        bounds = ROWS.get(name, {"goals": {}})["goals"].get(measure)
        cells = [mean_of(group.get(which, []), bounds) for which in rules]
        goal = "" if bounds is None else f"{bounds[0]:.3g} to {bounds[1]:.3g}"
        text.append(f"| {name} | {measure} | {' | '.join(cells)} | {goal} |")
    return "\n".join(text)


def mean_of(lines, bounds):
    """Mean of the valid runs, and how many of how many, where some are not valid; bold where the goal is missed."""
    valid = [float(line["value"]) for line in lines if line["valid"] == "yes"]
    if not valid:
        return "not valid: the machine was busy" if lines else ""
    mean = sum(valid) / len(valid)
    shown = f"{mean:.3g}" if bounds is None or bounds[0] <= mean <= bounds[1] else f"**{mean:.3g}**"
    return shown if len(valid) == len(lines) else f"{shown} ({len(valid)} of {len(lines)})"


if __name__ == "__main__":
    main()
