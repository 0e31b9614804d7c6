#!/usr/bin/env python3
"""Draws the four-row figure of a run: who sends what, who holds what, who gets what, and what is lost.

    rates.py RESULTS [--run N] [--cell PATH=VALUE ...] [--fair RATE] [--out NAME]

RESULTS is a results.jsonl of `headwater-lab simulate`, of a plan whose [measure] has a bin. Written are NAME.svg and NAME.png; the same
results give the same bytes.

Rows, on one time axis:
  1. the rates sent, as bands one upon the other: a band for each group of a multicast flow, by channel
  2. the cumulative rate that receivers hold, the mean over them, with ticks where they join (up) and leave (down)
  3. the rates received, with the fair rate if it is given
  4. in windows of 10 s: packets lost, symbols that came twice, and Jain's index of the goodputs
"""

import argparse
import json
import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

POINTS_MAX = 500
WINDOW_SECONDS = 10.0
MBIT = 1e6


def main():
    arguments = parse_arguments()
    outcome = choose(arguments)
    series = outcome.get("series") or sys.exit("rates.py: the run has no series; give the plan [measure] bin = \"1s\"")
    # Fixed ids in the SVG and no date, so that a figure changes only when its data does.
    plt.rcParams.update({"svg.hashsalt": outcome["key"], "font.size": 9, "axes.spines.top": False,
                         "axes.spines.right": False})
    figure, rows = plt.subplots(4, 1, sharex=True, figsize=(8, 9), layout="constrained")
    draw_sent(rows[0], series)
    draw_members(rows[1], series, outcome)
    draw_received(rows[2], series, arguments.fair)
    draw_lost(rows[3], series)
    rows[-1].set_xlabel("time (s)")
    rows[0].set_title(title(outcome))
    for row in rows:
        row.margins(x=0)
    for suffix, metadata in ((".svg", {"Date": None}), (".png", {"Software": None})):
        figure.savefig(arguments.out.with_suffix(suffix), metadata=metadata, dpi=120)
        print(arguments.out.with_suffix(suffix))


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--run", type=int, default=1, help="number of the run (default 1)")
    parser.add_argument("--cell", action="append", default=[], metavar="PATH=VALUE", help="a swept value, as results have it")
    parser.add_argument("--fair", type=float, help="fair rate in bit/s, drawn in the third row")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("rates"), help="name without suffix (default rates)")
    return parser.parse_args()


def choose(arguments):
    """The first run of the results that is asked for."""
    wanted = dict(pair.split("=", 1) for pair in arguments.cell)
    with arguments.results.open() as lines:
        for line in lines:
            outcome = json.loads(line)
            cell = {path: value if isinstance(value, str) else json.dumps(value) for path, value in outcome["cell"].items()}
            if outcome["run"] == arguments.run and all(cell.get(path) == value for path, value in wanted.items()):
                return outcome
    return sys.exit(f"rates.py: {arguments.results} has no run {arguments.run} with {wanted}")


def title(outcome):
    cell = ", ".join(f"{path} = {value}" for path, value in outcome["cell"].items())
    return f"{outcome['plan']}, run {outcome['run']}" + (f": {cell}" if cell else "")


def thinned(values, bin_seconds):
    """Middles of bins and means over neighbouring bins, at most POINTS_MAX of them."""
    step = max(1, -(-len(values) // POINTS_MAX))
    groups = [values[start:start + step] for start in range(0, len(values), step)]
    times = [(start + len(group) / 2) * bin_seconds for start, group in zip(range(0, len(values), step), groups)]
    return times, [sum(group) / len(group) for group in groups]


def colour(index):
    """By number, so that a flow keeps its colour whatever its rate."""
    return plt.get_cmap("tab20")(index % 20)


def legend(axes, columns=1):
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, ncols=columns, fontsize=8)


def draw_sent(axes, series):
    # A flow with one group is its own band.
    parts = [(flow["name"], [group["send_rate"] for group in flow.get("groups", [])]) for flow in series["flows"]]
    whole = {flow["name"]: flow["send_rate"] for flow in series["flows"]}
    named = [(f"{name} {channel}" if len(groups) > 1 else name, rates)
             for name, groups in parts for channel, rates in enumerate(groups or [whole[name]])]
    bands = [thinned(rates, series["bin"]) for _, rates in named]
    names = [name for name, _ in named]
    axes.stackplot(bands[0][0], [[rate / MBIT for rate in rates] for _, rates in bands], labels=names,
                   colors=[colour(index) for index in range(len(bands))], linewidth=0)
    axes.set_ylabel("sent (Mbit/s)")
    legend(axes)


def draw_members(axes, series, outcome):
    groups = [(index, flow) for index, flow in enumerate(series["flows"]) if flow.get("joins")]
    for index, flow in groups:
        held, ticks = held_rate(flow), {"joins": [], "leaves": []}
        for number, (joins, leaves) in enumerate(zip(flow["joins"], flow["leaves"])):
            at = (number + 0.5) * series["bin"]
            ticks["joins"] += [at] if joins else []
            ticks["leaves"] += [at] if leaves else []
        times, values = thinned(held, series["bin"])
        axes.step(times, values, where="mid", color=colour(index), label=flow["name"])
        top = max(held, default=0) or 1
        axes.plot(ticks["joins"], [-0.06 * top] * len(ticks["joins"]), "^", color="tab:green", markersize=4)
        axes.plot(ticks["leaves"], [-0.14 * top] * len(ticks["leaves"]), "v", color="tab:red", markersize=4)
    axes.set_ylabel("held (Mbit/s)")
    if not groups:
        axes.text(0.5, 0.5, "no multicast group", transform=axes.transAxes, ha="center", color="grey")
    legend(axes)


def held_rate(flow):
    """Mbit/s of all groups, each for the part of the receivers that hold it."""
    columns = [[rate * held / MBIT for rate, held in zip(group["send_rate"], group["held"])] for group in flow["groups"]]
    return [sum(column) for column in zip(*columns)]


def draw_received(axes, series, fair):
    for index, flow in enumerate(series["flows"]):
        times, rates = thinned(flow["throughput"], series["bin"])
        axes.plot(times, [rate / MBIT for rate in rates], color=colour(index), linewidth=1, label=flow["name"])
    if fair:
        axes.axhline(fair / MBIT, color="black", linestyle="--", linewidth=1, label="fair rate")
    axes.set_ylim(bottom=0)
    axes.set_ylabel("received (Mbit/s)")
    legend(axes)


def draw_lost(axes, series):
    bins = max(1, round(WINDOW_SECONDS / series["bin"]))
    count = -(-len(series["flows"][0]["dropped"]) // bins)
    times = [number * bins * series["bin"] for number in range(count)]
    width = bins * series["bin"]

    def windows(values):
        return [values[number * bins:(number + 1) * bins] for number in range(count)]

    lost = [sum(sum(window) for window in column) for column in zip(*(windows(flow["dropped"]) for flow in series["flows"]))]
    axes.bar(times, lost, width=width, align="edge", color="tab:red", alpha=0.5, label="packets lost")
    twice = [sum(sum(window) for window in column)
             for column in zip(*(windows(flow.get("duplicates") or [0] * len(flow["dropped"])) for flow in series["flows"]))]
    axes.step([*times, times[-1] + width], [*twice, twice[-1]], where="post", color="tab:purple", linewidth=1, label="came twice")
    axes.set_ylabel(f"packets in {width:g} s")
    # Inside: the right of these axes is Jain's.
    axes.legend(loc="upper right", frameon=False, fontsize=8)
    index = axes.twinx()
    index.spines["top"].set_visible(False)
    fairness = [jain([sum(window) for window in column]) for column in zip(*(windows(flow["goodput"]) for flow in series["flows"]))]
    middles = [time + width / 2 for time in times]
    index.plot(middles, fairness, "o-", color="tab:blue", markersize=3, linewidth=1, label="Jain's index")
    index.set_ylim(0, 1.05)
    index.set_ylabel("Jain's index", color="tab:blue")


def jain(shares):
    """(sum x)^2 / (n sum x^2); not a number when nobody has anything."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else float("nan")


if __name__ == "__main__":
    main()
