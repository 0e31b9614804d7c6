#!/usr/bin/env python3
"""Draws the waves of a source of dynamic channels: what each of its channels sends over time.

    waves.py RESULTS [--out NAME]

RESULTS is a results.jsonl of `headwater-lab simulate lab/experiments/m2c/waves/plan.toml`. Written are NAME.svg and NAME.png. Above the rate of
each channel on a logarithmic axis, where a wave is a straight line; below all of them, one upon the other.
"""

import argparse
import json
import pathlib

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

KBIT = 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("waves"), help="name without suffix (default waves)")
    arguments = parser.parse_args()
    with arguments.results.open() as lines:
        outcome = json.loads(lines.readline())
    series = outcome["series"]
    groups = [group["send_rate"] for group in series["flows"][0]["groups"]]
    groups = [rates for rates in groups if any(rates)]
    times = [(index + 0.5) * series["bin"] for index in range(len(groups[0]))]
    plt.rcParams.update({"svg.hashsalt": outcome["key"], "font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    figure, (above, below) = plt.subplots(2, 1, sharex=True, figsize=(8, 6), layout="constrained")
    colours = plt.get_cmap("viridis")
    for number, rates in enumerate(groups):
        colour = colours(number / max(1, len(groups) - 1))
        shown = [rate / KBIT if rate else float("nan") for rate in smooth(rates)]
        above.plot(times, shown, color="black" if number == 0 else colour, linewidth=1.2, label="base" if number == 0 else None)
    above.set_yscale("log")
    above.set_ylabel("each channel (kbit/s)")
    above.legend(frameon=False, loc="lower right")
    above.set_title(f"{outcome['plan']}: channels that begin high, fall all the time, and are left when silent")
    below.stackplot(times, [[rate / KBIT for rate in smooth(rates)] for rates in groups],
                    colors=[colours(number / max(1, len(groups) - 1)) for number in range(len(groups))], linewidth=0)
    below.set_ylabel("all channels (kbit/s)")
    below.set_xlabel("time (s)")
    below.margins(x=0, y=0)
    for suffix, metadata in ((".svg", {"Date": None}), (".png", {"Software": None})):
        figure.savefig(arguments.out.with_suffix(suffix), metadata=metadata, dpi=120)
        print(arguments.out.with_suffix(suffix))


def smooth(rates, width=5):
    """Means over neighbouring bins, so that slow channels, which send a few packets in one, do not flicker; zeros stay."""
    half = width // 2
    first = next((index for index, rate in enumerate(rates) if rate), 0)
    out = []
    for index, rate in enumerate(rates):
        part = rates[max(first, index - half):index + half + 1]
        out.append(sum(part) / len(part) if rate else 0.0)
    return out


if __name__ == "__main__":
    main()
