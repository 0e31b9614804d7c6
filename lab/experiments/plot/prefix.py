#!/usr/bin/env python3
"""Draws how much of a buffer receivers hold from its beginning on, against the share of its packets that they received.

    prefix.py PREFIX [--out NAME]

PREFIX is the prefix.csv of lab/experiments/m2c/sequencer/verdict.py. Written are NAME.svg and NAME.png.
"""

import argparse
import csv
import pathlib

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

MARKS = {"between": (".", "tab:blue", "rates between levels"), "boundary": ("o", "tab:green", "rates at which tiles end"),
         "wandering": ("x", "tab:orange", "a rate that wanders by a third")}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("prefix", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("prefix"), help="name without suffix (default prefix)")
    arguments = parser.parse_args()
    with arguments.prefix.open() as lines:
        rows = list(csv.DictReader(lines))
    orders = list(dict.fromkeys(row["order"] for row in rows))
    plt.rcParams.update({"svg.hashsalt": "prefix", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplots(1, len(orders), sharey=True, figsize=(9, 4.2), layout="constrained")
    for order, axis in zip(orders, axes):
        axis.plot([0, 1], [0, 1], color="tab:grey", linewidth=0.8, label="all that was received")
        for kind, (mark, colour, label) in MARKS.items():
            points = [row for row in rows if (row["order"], row["kind"]) == (order, kind)]
            received, prefix = ([int(row[name]) / int(row["sent_packets"]) for row in points] for name in ("received_packets", "prefix_packets"))
            axis.plot(received, prefix, mark, color=colour, markersize=4, label=label)
        axis.set_title({"Tiles": "order by tiles", "Exact": "exact order"}[order])
        axis.set_xlabel("received, of the buffer's packets")
    axes[0].set_ylabel("held from the beginning on")
    axes[0].legend(frameon=False)
    for suffix in (".svg", ".png"):
        figure.savefig(f"{arguments.out}{suffix}", dpi=110, metadata={"Date": None} if suffix == ".svg" else None)


if __name__ == "__main__":
    main()
