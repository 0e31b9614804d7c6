#!/usr/bin/env python3
"""Runs the plans of this folder in netsim and in ns-2 and ns-3, and writes a table of both.

    apt-get install ns2 ns3 libns3-dev g++
    ./compare.py --lab ../../../target/release/headwater-lab drop-tail.toml red.toml bernoulli.toml > table.md

A cell with profile `ns2005` goes beside ns-2, one with `rfc` beside ns-3. Every parameter comes from the plan; a key that
the other simulators have no option for is an error, never ignored. Not run by CI: it takes about half an hour.
"""

import argparse
import copy
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor

HERE = pathlib.Path(__file__).resolve().parent
# Student's t, two-sided 95 %, by degrees of freedom.
T_95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
# What the comparison asks for, by measure.
LIMITS = {"goodput": 0.05, "loss": 0.15, "queue": 0.15}
UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}


def quantity(value):
    """A number from '10M', '20ms', '1042', 5."""
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"([0-9.]+)\s*([a-zA-Z]*)", value)
    return float(match[1]) * UNITS[match[2]]


def cell_plan(plan, cell):
    """The plan with the values of one cell in place."""
    plan = copy.deepcopy(plan)
    for path, value in cell.items():
        *tables, key = path.split(".")
        table = plan
        for name in tables:
            table = table[name]
        table[key] = value
    return plan


class Taken(dict):
    """A table whose keys are taken out as they are understood."""

    def table(self, key):
        return Taken(self.pop(key, {}))

    def done(self, where):
        if self:
            sys.exit(f"{where}: the other simulators have no option for {', '.join(self)}")


def options(plan):
    """The options of dumbbell.cc and dumbbell.tcl that say what the plan says."""
    plan = Taken(copy.deepcopy(plan))
    topology, tcp, flow = plan.table("topology"), plan.table("tcp"), plan.table("flow").table("tcp")
    assert topology.pop("kind") == "dumbbell"
    pairs = topology.pop("pairs")
    bottleneck, access = topology.table("bottleneck"), topology.table("access")
    topology.done("topology")
    unlimited = {"queue": {"packets": 100000}}
    assert bottleneck.pop("back") == unlimited and access.pop("queue") == unlimited["queue"]
    count = flow.pop("count")
    assert flow.pop("kind") == "tcp" and flow.pop("from") == "source-{i}" and flow.pop("to") == "sink-{i}"
    assert count <= pairs
    spread = flow.pop("start")["uniform"]
    assert quantity(spread[0]) == 0
    flow.done("flow.tcp")
    options = {
        "flows": count,
        "start_spread": quantity(spread[1]),
        "duration": quantity(plan.pop("duration")),
        "warmup": quantity(plan.pop("warm-up")),
        "rate": quantity(bottleneck.pop("rate")),
        "delay": quantity(bottleneck.pop("delay")),
        "access_rate": quantity(access.pop("rate")),
        "access_delay": quantity(access.pop("delay")),
    }
    options["delay_step"] = delay_step(plan.table("link"), options["access_delay"], pairs)
    options |= queue_options(bottleneck.table("queue")) | loss_options(bottleneck.table("loss")) | tcp_options(tcp)
    bottleneck.done("bottleneck")
    access.done("access")
    for key in ("name", "title", "seed", "runs", "measure", "sweep"):
        plan.pop(key, None)
    plan.done("plan")
    return options


def delay_step(links, first, pairs):
    """What each further source's link adds; the same for all of them."""
    steps = {round((quantity(links[f"source-{i}"]["delay"]) - first) / (i - 1), 9) for i in range(2, pairs + 1)}
    assert len(steps) <= 1 and len(links) == max(pairs - 1, 0)
    return steps.pop() if steps else 0


def queue_options(queue):
    options = {"limit": queue.pop("packets"), "queue": queue.pop("kind", "drop-tail")}
    if options["queue"] == "red":
        names = {"th-min": "red_min", "th-max": "red_max", "weight": "red_weight", "max-p": "red_max_p"}
        options |= {option: queue.pop(name) for name, option in names.items()}
        options |= {"red_mean": int(quantity(queue.pop("mean-packet"))), "gentle": queue.pop("gentle"), "wait": queue.pop("wait")}
        # What both others do, and their drivers have no option for.
        assert not queue.pop("average-in-bytes") and not queue.pop("draw-by-bytes")
        assert queue.pop("mark-p") == 1 and queue.pop("hard-drop")
        options["ecn"] = queue.pop("ecn")
    queue.done("queue")
    return options


def loss_options(loss):
    if not loss:
        return {}
    assert loss.pop("kind") == "bernoulli" and loss.pop("filter") == "data"
    options = {"loss": loss.pop("p")}
    loss.done("loss")
    return options


def tcp_options(tcp):
    assert tcp.pop("header-bytes") == tcp.pop("ack-bytes") == 42 and quantity(tcp.pop("tick")) == 0.001
    tcp.pop("profile"), tcp.pop("ecn")
    names = {
        "variant": "variant",
        "segment-bytes": "segment",
        "initial-window": "initial_window",
        "maximum-window": "window",
        "limited-transmit": "limited_transmit",
        "rto-minimum": "min_rto",
        "ack-every": "delack",
    }
    options = {option: quantity(tcp.pop(name)) if name != "variant" else tcp.pop(name) for name, option in names.items()}
    tcp.done("tcp")
    return options


def spelled(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def run_other(command, options, run):
    arguments = [f"--{name}={spelled(value)}" for name, value in options.items()] + [f"--run={run}"]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join([*command, *arguments])} failed:\n{done.stderr}")
    result = json.loads(done.stdout)
    return {
        "goodput": sum(result["goodput"]) / 1e6,
        "loss": 100 * (result["dropped"] + result["lost"]) / result["offered"],
        "marked": 100 * result["marked"] / result["offered"],
        "queue": result["queue"],
    }


def read_ours(line):
    link = next(link for link in line["links"] if link["name"] == "bottleneck")
    return {
        "goodput": sum(flow["goodput"] for flow in line["flows"]) / 1e6,
        "loss": 100 * (link["drops"] + link["lost"]) / link["arrivals"],
        "marked": 100 * link["marks"] / link["arrivals"],
        "queue": link["mean_queue"],
    }


def interval(values):
    """Mean and half the width of the 95 % interval."""
    return statistics.mean(values), T_95[len(values) - 1] * statistics.stdev(values) / len(values) ** 0.5


def verdict(measure, ours, other):
    """Within the limit; or outside, by more or by less than chance explains."""
    if measure not in LIMITS or other[0] == 0:
        return ""
    difference = abs(ours[0] - other[0])
    if difference <= LIMITS[measure] * other[0]:
        return "within"
    return "outside" if difference > (ours[1] ** 2 + other[1] ** 2) ** 0.5 else "outside, by chance"


def rows(plan_path, lab, ns3, jobs, beside):
    plan = tomllib.loads(plan_path.read_text())
    with tempfile.TemporaryDirectory() as out:
        subprocess.run([lab, "simulate", plan_path, "--out", out, "--jobs", str(jobs), "--quiet"], check=True, stdout=subprocess.DEVNULL)
        lines = [json.loads(line) for line in (pathlib.Path(out) / "results.jsonl").read_text().splitlines()]
    cells = {}
    for line in lines:
        cells.setdefault(json.dumps(line["cell"]), []).append(line)
    for text, lines in cells.items():
        cell = json.loads(text)
        profile = cell.pop("tcp.profile")
        name, command = {"ns2005": ("ns-2", ["ns", HERE / "dumbbell.tcl"]), "rfc": ("ns-3", [ns3])}[profile]
        if beside not in (None, name):
            continue
        its_options = options(cell_plan(plan, cell))
        with ThreadPoolExecutor(jobs) as pool:
            others = list(pool.map(lambda line: run_other(list(map(str, command)), its_options, line["run"]), lines))
        ours = [read_ours(line) for line in lines]
        what = ", ".join(f"{path.split('.')[-1]} {spelled(value)}" for path, value in cell.items())
        for measure in ("goodput", "loss", "queue", "marked"):
            a, b = (interval([run[measure] for run in runs]) for runs in (ours, others))
            if measure == "marked" and a[0] == b[0] == 0:
                continue
            change = f"{100 * (a[0] / b[0] - 1):+.1f} %" if b[0] else ""
            yield f"| {plan['name']}: {what} | {name} | {measure} | {b[0]:.3f} ± {b[1]:.3f} | {a[0]:.3f} ± {a[1]:.3f} | {change} | {verdict(measure, a, b)} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plans", nargs="+", type=pathlib.Path)
    parser.add_argument("--lab", required=True, type=pathlib.Path)
    parser.add_argument("--beside", choices=("ns-2", "ns-3"), help="only this one (ns-3 takes most of the time)")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as build:
        ns3 = pathlib.Path(build) / "dumbbell"
        if arguments.beside != "ns-2":
            subprocess.run([HERE / "build.sh", ns3], check=True)
        print("| scenario | beside | | it: mean ± 95 % | netsim | difference | limit |\n|---|---|---|---|---|---|---|")
        for plan in arguments.plans:
            for row in rows(plan, arguments.lab, ns3, arguments.jobs, arguments.beside):
                print(row, flush=True)


if __name__ == "__main__":
    main()
