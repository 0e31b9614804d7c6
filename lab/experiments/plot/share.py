#!/usr/bin/env python3
"""Draws a receiver of a session against its fair share: what it subscribes to and gets, with the flow beside it.

    share.py RESULTS [--run N] [--rate RATE] [--out NAME]

RESULTS is a results.jsonl of a plan like lab/experiments/m2c/share/plan.toml: a session with one receiver first, one flow beside it. Written
are NAME.svg and NAME.png. The fair share is half of the link while both are there, the whole link before.
"""

import argparse
import json
import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

MBIT = 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--run", type=int, default=1)
    parser.add_argument("--rate", type=float, default=4e6, help="rate of the link they share in bit/s (default 4e6)")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("share"), help="name without suffix (default share)")
    arguments = parser.parse_args()
    with arguments.results.open() as lines:
        outcome = next((one for one in map(json.loads, lines) if one["run"] == arguments.run), None)
    if outcome is None:
        sys.exit(f"share.py: there is no run {arguments.run}")
    series = outcome["series"]
    session, beside = series["flows"][:2]
    member = session["members"][0]
    width = series["bin"]
    times = [(index + 0.5) * width for index in range(len(member["level"]))]
    plt.rcParams.update({"svg.hashsalt": outcome["key"], "font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    figure, rows = plt.subplots(4, 1, sharex=True, figsize=(8, 9), layout="constrained", height_ratios=[2.2, 1, 1, 1])
    rates, levels, window, lost = rows
    fair = [arguments.rate / (1 + (got > 0)) / MBIT for got in there(member["throughput"])]
    rates.plot(times, [value / MBIT for value in smooth(member["throughput"])], label=f"{session['name']} received", linewidth=1.3)
    rates.plot(times, [value / MBIT for value in smooth(beside["throughput"])], label=f"{beside['name']} received", linewidth=1.3)
    rates.plot(times, held(session), label=f"{session['name']} subscribed", linewidth=0.9, alpha=0.7)
    rates.plot(times, [value / MBIT for value in member["fair_rate"]], label="its own estimate", linewidth=0.8, alpha=0.6)
    rates.step(times, fair, "k--", where="mid", linewidth=1, label="fair share")
    rates.set_ylim(0, 1.35 * arguments.rate / MBIT)
    rates.set_ylabel("Mbit/s on the wire")
    rates.legend(frameon=False, ncols=3, loc="upper center")
    rates.set_title(f"{outcome['plan']}, run {outcome['run']}: receiver {member['node']}")
    levels.step(times, member["level"], where="mid", color="tab:blue")
    levels.set_ylabel("levels held")
    levels.yaxis.get_major_locator().set_params(integer=True)
    window.plot(times, member["window"], color="tab:blue", linewidth=1)
    window.set_ylabel("window (packets)")
    round_trip = window.twinx()
    round_trip.spines["top"].set_visible(False)
    round_trip.plot(times, [1e3 * value for value in member["rtt"]], color="tab:grey", linewidth=1)
    round_trip.set_ylabel("round trip (ms)", color="tab:grey")
    round_trip.set_ylim(bottom=0)
    lost.bar(times, member["lost"], width=width, color="tab:red", alpha=0.6)
    lost.set_ylabel(f"lost in {width:g} s")
    lost.set_xlabel("time (s)")
    for row in rows:
        row.margins(x=0)
    for suffix, metadata in ((".svg", {"Date": None}), (".png", {"Software": None})):
        figure.savefig(arguments.out.with_suffix(suffix), metadata=metadata, dpi=120)
        print(arguments.out.with_suffix(suffix))


def there(throughput):
    """The same, but never 0 again once something has come."""
    seen = False
    for value in throughput:
        seen = seen or value > 0
        yield 1.0 if seen else 0.0


def held(flow):
    """Mbit/s of the groups that the receiver is a member of."""
    columns = [[rate * part / MBIT for rate, part in zip(group["send_rate"], group["held"])] for group in flow["groups"]]
    return smooth([sum(column) for column in zip(*columns)])


def smooth(values, width=3):
    half = width // 2
    parts = (values[max(0, index - half):index + half + 1] for index in range(len(values)))
    return [sum(part) / len(part) for part in parts]


if __name__ == "__main__":
    main()
