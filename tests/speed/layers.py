"""Processor time of the senders and receivers of layers for each packet, over a veth pair with offloads, by binary.

All binaries take turns in each round, so that another load on the machine slows all alike; the median of the rounds counts. Columns: Gbit/s,
microseconds for each packet of the session's thread and of all threads, packets a second; in brackets the second of all rounds. Part `whole`
has seconds and lost packets in place of the session's thread. With --profile, perf records the first round of each binary, and a table of each
recording is printed, the functions with most time of the session's thread, and a flame graph is drawn beside it (flame.py). Stacks of
functions need binaries that keep frame pointers: RUSTFLAGS="-C force-frame-pointers=yes" cargo build --release -p headwater-cli.

usage: layers.sh [--rounds N] [--profile FOLDER] [--parts PART,...] [NAME=BINARY ...]
"""

import argparse
import filecmp
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import flame
from network import Failed, Network, check, require_root

MB = 1_000_000
GROUP = "239.255.72.95:7395"
WARM_SECONDS, MEASURED_SECONDS = 3, 4
# Functions in the table of a profile.
SHOWN = 14
TICKS = os.sysconf("SC_CLK_TCK")


class Bed:
    """A sender's and a receiver's host, and content of several lengths."""

    def __init__(self, network, folder):
        self.network, self.folder, self.number = network, folder, 0
        network.add_host("sender")
        network.add_host("receiver")
        network.add_pair("sender", "receiver", "10.87.0", offloads=True)

    def content(self, megabytes):
        path = self.folder / f"content-{megabytes}.bin"
        if not path.exists():
            chance = random.Random(megabytes)
            with open(path, "wb") as file:
                for _ in range(megabytes):
                    file.write(chance.randbytes(MB))
        return path

    def start(self, host, binary, command, *options):
        self.number += 1
        home = ("env", f"HOME={self.folder}", f"XDG_STATE_HOME={self.folder}/state")
        common = ("--group", GROUP, "--interface", "eth0", "--json", "--quiet")
        words = (*home, binary, command, *common, *options)
        return self.network.start(host, f"{command}-{self.number}", self.folder, words)

    def send(self, binary, *options, megabytes):
        temporary = ("--temp-dir", self.folder)
        return self.start("sender", binary, "send", *temporary, *options, self.content(megabytes))

    def receive(self, binary):
        out = self.folder / "out"
        shutil.rmtree(out, ignore_errors=True)
        receiver = self.start("receiver", binary, "receive", "--out", out, "--timeout", "20s")
        receiver.wait_for("its join", lambda events: any(event["event"] == "channel:joined" for event in events))
        return receiver

    def clear(self):
        for program in self.network.programs:
            program.kill()
        self.network.programs.clear()


def cpu_seconds(program):
    """Processor time of each thread so far, by the thread's name; the session's thread is the first."""
    times = {}
    for task in Path(f"/proc/{program.process.pid}/task").iterdir():
        try:
            name, fields = re.match(r"\d+ \((.*)\) (.*)", (task / "stat").read_text(), re.DOTALL).groups()
        except (FileNotFoundError, ProcessLookupError):
            continue
        fields = fields.split()
        used = (int(fields[11]) + int(fields[12])) / TICKS
        name = "session" if int(task.name) == program.process.pid else name
        times[name] = times.get(name, 0) + used
    return times


def sample(program):
    events = [event for event in program.events() if event["event"] == "session:progress"]
    last = events[-1] if events else {"packets": 0, "bytes": 0, "time": 0}
    return last["packets"], last["bytes"], last["time"], cpu_seconds(program)


def rates(before, after):
    """Gbit/s, microseconds of processor time for each packet of the session's thread and of all threads."""
    packets, seconds = after[0] - before[0], (after[2] - before[2]) / 1e3
    check(packets > 0, "no packets between two samples")
    cpu = {name: after[3].get(name, 0) - before[3].get(name, 0) for name in after[3]}
    own = sum(used for name, used in cpu.items() if name == "session")
    gbits = (after[1] - before[1]) * 8e-9 / seconds
    return gbits, 1e6 * own / packets, 1e6 * sum(cpu.values()) / packets, packets / seconds


def measure(programs, seconds, profile=None, name=""):
    """Samples the programs, which run, at the start and the end of a time."""
    before = [sample(program) for program in programs]
    recording = []
    if profile:
        for program in programs:
            data = profile / f"{name}-{program.name.split(': ')[1].split('-')[0]}.data"
            words = ["perf", "record", "-q", "-g", "-F", "2000", "-o", data, "-p", str(program.process.pid), "--", "sleep", str(seconds)]
            recording.append(subprocess.Popen(list(map(str, words)), stderr=subprocess.DEVNULL))
    time.sleep(seconds)
    after = [sample(program) for program in programs]
    for record in recording:
        record.wait()
    return [rates(one, other) for one, other in zip(before, after)]


def show_profiles(folder):
    """The functions with most time of each recording's session thread, and its flame graph."""
    for data in sorted(folder.glob("*.data")):
        words = ["perf", "report", "-i", data, "--no-children", "--sort", "symbol", "--stdio", "-g", "none", "--percentage", "relative"]
        report = subprocess.run(list(map(str, words)), capture_output=True, text=True)
        lines = [line.split("  - ")[0].rstrip() for line in report.stdout.splitlines() if re.match(r"\s+\d", line)]
        print(f"\n{data.name}\n" + "\n".join(line[:140] for line in lines[:SHOWN]), flush=True)
        print(f"flame graph: {flame.draw(data)}", flush=True)


def alone(megabytes, *options):
    """A sender that nobody listens to, as fast as it can."""

    def run(bed, binary, profile):
        always = ("--congestion-control", "m2c", "--max-rate", "20G", "--demand", "off", "--no-sign")
        sender = bed.send(binary, *always, *options, megabytes=megabytes)
        sender.wait_for("its start", lambda events: any(event["event"] == "session:progress" for event in events))
        time.sleep(WARM_SECONDS)
        return {"sender": measure([sender], MEASURED_SECONDS, *profile)[0]}
    return run


def paced(rate, *options, megabytes=400, command="m2c"):
    """A sender and a receiver at a rate, in the middle of a session."""

    def run(bed, binary, profile):
        receiver = bed.receive(binary)
        control = ("--rate", rate) if command == "fixed" else ("--congestion-control", command, "--max-rate", rate)
        sender = bed.send(binary, *control, *options, megabytes=megabytes)
        receiver.wait_for("its start", lambda events: any(event["event"] == "session:progress" and event["packets"] > 0 for event in events))
        time.sleep(2 * WARM_SECONDS)
        sent, received = measure([sender, receiver], 2 * MEASURED_SECONDS, *profile)
        return {"sender": sent, "receiver": received}
    return run


def whole(rate, *options, megabytes=1_000):
    """A file to one receiver: seconds until the file is whole, lost packets, processor time of both ends."""

    def run(bed, binary, _profile):
        receiver = bed.receive(binary)
        began = time.monotonic()
        sender = bed.send(binary, "--congestion-control", "m2c", "--max-rate", rate, *options, megabytes=megabytes)
        check(receiver.end(180) == 0, f"the receiver is not whole: {receiver.complaint()}")
        seconds = time.monotonic() - began
        sender.signal(signal.SIGINT)
        sender.end(20)
        content = bed.content(megabytes)
        check(filecmp.cmp(content, bed.folder / "out" / content.name, shallow=False), "the files differ")
        sent, received = sender.events()[-1], receiver.events()[-1]
        gbits = 8e-3 * megabytes / seconds

        def row(column, program, counted):
            return gbits, column, 1e6 * program.cpu_seconds / counted["packets"], counted["packets"]
        return {"sender": row(seconds, sender, sent), "receiver": row(received.get("lost", 0), receiver, received)}
    return run


PARTS = {
    "alone": alone(1_000),
    "alone-memory": alone(200),
    "alone-nocode": alone(1_000, "--fec", "none"),
    "whole": whole("2G", "--no-sign"),
    "signed": paced("100M"),
    "unsigned": paced("100M", "--no-sign"),
    "fixed-signed": paced("100M", command="fixed"),
    "fixed-unsigned": paced("100M", "--no-sign", command="fixed"),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binaries", nargs="+")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--profile", type=Path)
    parser.add_argument("--parts", default=",".join(PARTS))
    options = parser.parse_args()
    require_root("ip", "ethtool")
    if options.profile:
        options.profile.mkdir(parents=True, exist_ok=True)
    binaries = dict(word.split("=", 1) for word in options.binaries)
    with tempfile.TemporaryDirectory(prefix="speedlayers-", dir="/dev/shm") as folder, Network("spdlay") as network:
        bed = Bed(network, Path(folder))
        for part in options.parts.split(","):
            found = {}
            for number in range(options.rounds):
                for name, binary in binaries.items():
                    profile = (options.profile, f"{part}-{name}") if options.profile and number == 0 else ()
                    try:
                        measured = PARTS[part](bed, binary, profile)
                    except Failed as failure:
                        print(f"{part}, {name}: {failure}", flush=True)
                        continue
                    finally:
                        bed.clear()
                    for end, numbers in measured.items():
                        found.setdefault((end, name), []).append(numbers)
            for (end, name), numbers in sorted(found.items()):
                middle = [statistics.median(column) for column in zip(*numbers)]
                spread = "  ".join(f"{numbers[2]:.2f}" for numbers in numbers)
                columns = "  ".join(f"{value:10.3f}" for value in middle)
                print(f"{part:14} {end:8} {name:6} {columns}   [{spread}] load {os.getloadavg()[0]:.1f}", flush=True)
    if options.profile:
        show_profiles(options.profile)


if __name__ == "__main__":
    main()
