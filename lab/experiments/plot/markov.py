#!/usr/bin/env python3
"""Draws how many lost packets make a loss event, against the rate of losses: the curves of LE-SBCC's analysis.

    markov.py MARKOV [--published PUBLISHED] [--out NAME]

MARKOV is what `headwater-lab analyse markov` prints, PUBLISHED the derived table (default: that of
lab/experiments/le_sbcc/markov). Written are NAME.svg and NAME.png.
"""

import argparse
import csv
import pathlib

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

PUBLISHED = pathlib.Path(__file__).resolve().parent.parent / "le_sbcc" / "markov" / "published.csv"
# What the paper says of its curves.
CASES = {"nonbursty": ("losses by themselves", 1.25, "the paper: below 1.25"), "bursty": ("a loss, and all behind it", 90.0, "the paper: 9 to 90")}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("markov", type=pathlib.Path)
    parser.add_argument("--published", type=pathlib.Path, default=PUBLISHED)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("markov"), help="name without suffix (default markov)")
    arguments = parser.parse_args()
    ours, published = read(arguments.markov), read(arguments.published)
    plt.rcParams.update({"svg.hashsalt": "markov", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplots(1, len(CASES), figsize=(9, 3.6), layout="constrained")
    for (case, (title, bound, label)), axis in zip(CASES.items(), axes):
        axis.plot(*curve(published, case), "o", color="tab:grey", markersize=4, fillstyle="none", label="derived from the paper")
        axis.plot(*curve(ours, case), color="tab:blue", linewidth=1.2, label="ours")
        axis.axhline(bound, color="tab:orange", linewidth=0.8, linestyle="--", label=label)
        axis.set_title(title)
        axis.set_xlabel("loss indications per packet")
        axis.set_xscale("log")
    axes[1].set_yscale("log")
    axes[0].set_ylabel("loss indications per loss event")
    for axis in axes:
        axis.legend(frameon=False)
    for suffix in (".svg", ".png"):
        figure.savefig(f"{arguments.out}{suffix}", dpi=110, metadata={"Date": None} if suffix == ".svg" else None)


def read(path):
    with path.open() as lines:
        return list(csv.DictReader(lines))


def curve(rows, case):
    points = [(float(row["p_li"]), float(row["ratio_pli_over_ple_per_packet"])) for row in rows if row["case"] == case]
    return list(zip(*sorted(points)))


if __name__ == "__main__":
    main()
