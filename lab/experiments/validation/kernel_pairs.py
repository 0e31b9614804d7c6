#!/usr/bin/env python3
"""Measures pairs of the kernel's TCPs behind one bottleneck, for the simulator's TCP to be held against.

The first connection starts at 0 s, the second after SECOND_SECONDS; both send until the end. The network is one of
`headwater-lab testbed up`: a token bucket with a queue in packets and, for round trips above 1 ms, the wire in user
space. Each sender sets TCP_CONGESTION, reads the option back, and ends with an error if the kernel has set another one.

usage: kernel_pairs.py [--rates 1M,4M] [--queues 25,250] [--rtts 0.2,20,200] [--pairs reno-reno,..] [--jobs N] [--csv FILE]
       kernel_pairs.py --beside RESULTS [--csv FILE]     # a table beside results.jsonl of kernel_pairs.toml

Linux, root. Appends a line of CSV per pair to FILE. A pair measured while the processors were idle for less than a
fifth of the time is marked as not valid, and the wire's p99 lateness stands in the line.
"""

import argparse
import csv
import json
import platform
import re
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PORT = 5001
SECOND_SECONDS = 3
CHUNK_BYTES = 1 << 16
REPORT_SECONDS = 0.1
IDLE_LEAST = 0.2
PATIENCE_SECONDS = 10
# Difference of shares beyond which a row is marked.
SHARE_OFF_MAX = 0.1
# Networks are made and removed one at a time.
NETWORKS = threading.Lock()
# tcpi_total_retrans in struct tcp_info of linux/tcp.h.
TOTAL_RETRANSMITS = struct.Struct("=100xI")
# Counters of /proc/net/netstat, by the column of the CSV.
NETSTAT = {"timeouts": "TCPTimeouts", "probes": "TCPLossProbes", "lost_again": "TCPLostRetransmit"}
COLUMNS = (
    "kernel", "rate_bps", "queue_packets", "rtt_ms", "first", "second", "seconds", "first_bps", "second_bps",
    "first_retransmits", "second_retransmits", *(f"{end}_{name}" for end in ("first", "second") for name in NETSTAT),
    "drops", "idle", "late_p99_ms", "valid",
)
PLAN = """
# A network of the same plan would be replaced.
name = "pair-{name}"
duration = "1s"
[topology]
kind = "dumbbell"
pairs = 2
bottleneck = {{ rate = {rate}, delay = "{delay}us", queue = {{ packets = {queue} }}, back = {{ rate = "1G", queue = {{ packets = 10000 }} }} }}
access = {{ rate = "10G", delay = "0s", queue = {{ packets = 10000 }} }}
[flow.tcp]
kind = "tcp"
count = 2
from = "source-{{i}}"
to = "sink-{{i}}"
"""


def main():
    if len(sys.argv) > 1 and sys.argv[1] == "--end":
        end, *words = sys.argv[2:]
        return {"receive": receive, "send": send}[end](*words)
    arguments = parse()
    if arguments.beside:
        return print(beside(arguments.csv, arguments.beside))
    available = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
    pairs = [tuple(pair.split("-")) for pair in arguments.pairs.split(",")]
    for name in {name for pair in pairs for name in pair} - set(available):
        print(f"SKIPPED: this kernel has no {name}, only {' '.join(available)}", file=sys.stderr)
        pairs = [pair for pair in pairs if name not in pair]
    cells = [
        (rate, queue, rtt, pair, repeat)
        for repeat in range(arguments.repeats)
        for rate in map(bits, arguments.rates.split(","))
        for queue in map(int, arguments.queues.split(","))
        for rtt in map(float, arguments.rtts.split(","))
        for pair in pairs
    ]
    is_new = not arguments.csv.exists()
    with open(arguments.csv, "a", newline="") as out, ThreadPoolExecutor(arguments.jobs) as pool:
        writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
        if is_new:
            writer.writeheader()
        for row in pool.map(lambda cell: attempt(arguments, *cell), cells):
            if row is not None:
                writer.writerow(row)
                out.flush()
                print(*row.values(), file=sys.stderr)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rates", default="1M,4M,40M")
    parser.add_argument("--queues", default="25,250")
    parser.add_argument("--rtts", default="0.2,20,200", help="ms, without the queue; 0.2 is the machine's own")
    parser.add_argument("--pairs", default="reno-reno,cubic-reno,reno-cubic")
    parser.add_argument("--seconds", type=float, default=30, help="length of the measurement")
    parser.add_argument("--warm-up", type=float, default=10, help="seconds before it")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=3, help="networks side by side")
    parser.add_argument("--lab", type=Path, default=Path("target/release/headwater-lab"))
    parser.add_argument("--beside", type=Path, help="print the CSV beside results of the simulator, and measure nothing")
    parser.add_argument("--csv", type=Path, default=Path("kernel_pairs.csv"))
    return parser.parse_args()


def beside(measured, results):
    """A table of the second connection's share, in the kernel and simulated; valid rows only."""
    kernel, simulated = {}, {}
    for row in csv.DictReader(open(measured)):
        if row["valid"] == "yes":
            key = (int(row["rate_bps"]), int(row["queue_packets"]), float(row["rtt_ms"]), row["first"], row["second"])
            rates, seconds = [int(row["first_bps"]), int(row["second_bps"])], float(row["seconds"])
            timeouts = int(row["first_timeouts"]) + int(row["second_timeouts"])
            kernel.setdefault(key, []).append((rates[1] / sum(rates), seconds, timeouts, int(row["drops"])))
    for line in open(results):
        result = json.loads(line)
        cell, flows = result["cell"], {flow["name"]: flow for flow in result["flows"]}
        queue = {24: 25, 25: 25, 249: 250, 250: 250}[cell["topology.bottleneck.queue.packets"]]
        rtt = {"50us": 0.2, "10ms": 20.0, "100ms": 200.0}[cell["topology.bottleneck.delay"]]
        growths = [cell[f"flow.{name}.growth"].removeprefix("linux-") for name in ("first", "second")]
        rates = [flows[name]["goodput"] for name in ("first", "second")]
        seconds = result["window"]["to"] - result["window"]["from"]
        timeouts = sum(flows[name]["timeouts"] for name in ("first", "second"))
        key = (bits(cell["topology.bottleneck.rate"]), queue, rtt, *growths)
        drops = result["links"][0]["drops"]
        simulated.setdefault(key, []).append((rates[1] / sum(rates), seconds, timeouts, drops))
    text = [
        "| Mb/s, queue, RTT | first, second | kernel: share | s | timeouts / 100 s | drops / s | simulated: share | least to most | "
        "timeouts / 100 s | drops / s | |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for key in sorted(kernel.keys() & simulated.keys()):
        rate, queue, rtt, first, second = key
        means, shown = [], []
        for runs in (kernel[key], simulated[key]):
            time = sum(run[1] for run in runs)
            means.append(sum(run[0] * run[1] for run in runs) / time)
            shown.append((sum(run[2] for run in runs) * 100 / time, sum(run[3] for run in runs) / time, time))
        shares = [run[0] for run in simulated[key]]
        off = "" if abs(means[0] - means[1]) <= SHARE_OFF_MAX else "**off**"
        text.append(
            f"| {rate / 1e6:g}, {queue}, {rtt:g} ms | {first}, {second} | {means[0]:.2f} | {shown[0][2]:.0f} | {shown[0][0]:.1f} | "
            f"{shown[0][1]:.2f} | {means[1]:.2f} | {min(shares):.2f} to {max(shares):.2f} | {shown[1][0]:.1f} | {shown[1][1]:.2f} | {off} |"
        )
    return "\n".join(text)


def bits(text):
    number, unit = re.fullmatch(r"([\d.]+)([kMG]?)", text).groups()
    return round(float(number) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}[unit])


def run(*words):
    ended = subprocess.run([str(word) for word in words], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if ended.returncode != 0:
        raise RuntimeError(f"`{' '.join(map(str, words))}` failed: {ended.stderr.strip() or ended.stdout.strip()}")
    return ended.stdout


def attempt(arguments, *cell):
    try:
        return measure(arguments, *cell)
    except (RuntimeError, OSError) as error:
        print(f"FAILED {cell}: {error}", file=sys.stderr)
        return None


def measure(arguments, rate, queue, rtt, pair, repeat):
    """One pair once: a row."""
    with tempfile.TemporaryDirectory(prefix="pair-") as folder:
        plan = Path(folder) / "plan.toml"
        plan.write_text(PLAN.format(name=Path(folder).name, rate=rate, queue=queue, delay=0 if rtt < 1 else rtt * 500))
        with NETWORKS:
            bed = run(arguments.lab, "testbed", "up", plan, "--routing", "bridge").split()[0]
        try:
            measured = measure_on(arguments, bed, pair)
        finally:
            with NETWORKS:
                down = run(arguments.lab, "testbed", "down", bed)
    late = re.search(r"p99 ([\d.]+) ms", down)
    row = {
        "kernel": platform.release(),
        "rate_bps": rate,
        "queue_packets": queue,
        "rtt_ms": rtt,
        "first": pair[0],
        "second": pair[1],
        "seconds": arguments.seconds,
        **measured,
        "late_p99_ms": late[1] if late else "",
    }
    valid = row["idle"] >= IDLE_LEAST and (not late or float(late[1]) <= 1)
    return {**row, "valid": "yes" if valid else "no"}


def measure_on(arguments, bed, pair):
    ends = []
    try:
        for number, control in enumerate(pair, start=1):
            ends.append(End(bed, f"sink-{number}", "receive"))
            ends[-1].last()
            address = json.loads(run("ip", "-n", f"{bed}-sink-{number}", "-j", "-4", "address", "show", "eth0"))
            address = address[0]["addr_info"][0]["local"]
            ends.append(End(bed, f"source-{number}", "send", address, control))
            ends[-1].last()
            if number == 1:
                time.sleep(SECOND_SECONDS)
        time.sleep(arguments.warm_up)
        before = read(bed, ends)
        time.sleep(arguments.seconds)
        after = read(bed, ends)
    finally:
        for end in ends:
            end.end()
    row = {}
    for place, name in enumerate(("first", "second")):
        past, now = before["ends"][2 * place], after["ends"][2 * place]
        row[f"{name}_bps"] = round(8 * (now["bytes"] - past["bytes"]) / (now["at"] - past["at"]))
        past, now = before["ends"][2 * place + 1], after["ends"][2 * place + 1]
        row[f"{name}_retransmits"] = now["resent"] - past["resent"]
        for column in NETSTAT:
            row[f"{name}_{column}"] = after["netstat"][place][column] - before["netstat"][place][column]
    row["drops"] = after["drops"] - before["drops"]
    spent = [now - past for past, now in zip(before["cpu"], after["cpu"])]
    row["idle"] = round((spent[3] + spent[4]) / max(1, sum(spent)), 2)
    return row


def read(bed, ends):
    """Counters of the ends, of their namespaces, of the queue and of the processors."""
    disciplines = json.loads(run("ip", "netns", "exec", f"{bed}-left", "tc", "-s", "-j", "qdisc", "show"))
    return {
        "ends": [end.last() for end in ends],
        "netstat": [netstat(f"{bed}-source-{number}") for number in (1, 2)],
        "drops": sum(discipline["drops"] for discipline in disciplines if discipline["kind"] == "pfifo"),
        "cpu": [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:]],
    }


def netstat(namespace):
    lines = run("ip", "netns", "exec", namespace, "cat", "/proc/net/netstat").splitlines()
    names, values = (line.split()[1:] for line in lines if line.startswith("TcpExt:"))
    counters = dict(zip(names, map(int, values)))
    return {column: counters[name] for column, name in NETSTAT.items()}


class End:
    """This program at an end, in its namespace; prints a line of JSON now and then."""

    def __init__(self, bed, host, *words):
        command = ("ip", "netns", "exec", f"{bed}-{host}", sys.executable, __file__, "--end", *words)
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        self.line = None
        self.came = threading.Event()
        threading.Thread(target=self.follow, daemon=True).start()

    def follow(self):
        for line in self.process.stdout:
            self.line = json.loads(line)
            self.came.set()
        self.came.set()

    def last(self):
        self.came.wait(10)
        if self.line is None or self.process.poll() is not None:
            raise RuntimeError("an end of a connection ended early; its error stands above")
        return self.line

    def end(self):
        self.process.kill()
        self.process.wait()


def say(**event):
    print(json.dumps({"at": time.monotonic(), **event}), flush=True)


def receive():
    with socket.create_server(("", PORT)) as server:
        say(bytes=0)
        connection, _ = server.accept()
        buffer, total, said = bytearray(CHUNK_BYTES), 0, 0
        while received := connection.recv_into(buffer):
            total += received
            if time.monotonic() - said >= REPORT_SECONDS:
                said = time.monotonic()
                say(bytes=total)


def send(address, control):
    chunk, said = bytes(CHUNK_BYTES), 0
    with socket.socket() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
        got = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()
        if got != control:
            sys.exit(f"asked the kernel for {control} and got {got}: load its module")
        for _ in range(PATIENCE_SECONDS):
            try:
                connection.connect((address, PORT))
                break
            except OSError:
                time.sleep(1)
        while True:
            connection.send(chunk)
            if time.monotonic() - said >= REPORT_SECONDS:
                said = time.monotonic()
                information = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TOTAL_RETRANSMITS.size)
                say(resent=TOTAL_RETRANSMITS.unpack(information)[0])


if __name__ == "__main__":
    main()
