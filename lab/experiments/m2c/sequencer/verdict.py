#!/usr/bin/env python3
"""The scheduler and the sequencer by themselves (M4, M5): tables with what was published beside ours, and what holds.

    verdict.py [--lab PROGRAM] [--out DIR] [--strict]

Runs `headwater-lab analyse`, which simulates nothing: a schedule is a set of closed forms.
"""

import argparse
import csv
import io
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
# Our column, the published one.
COLUMNS = [("before_duplicate", "blocks_sent_before_duplicate(B=8000)"),
           ("without_code", "buffers_to_complete_4000_blocks_noFEC"),
           ("with_code", "buffers_to_complete_k4000_n8000")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lab", type=pathlib.Path, default=pathlib.Path("target/release/headwater-lab"))
    parser.add_argument("--out", type=pathlib.Path, help="folder for the two files of CSV")
    parser.add_argument("--strict", action="store_true", help="fail when something is missed")
    arguments = parser.parse_args()
    missed = scheduler(table("scheduler", arguments)) + sequencer(table("prefix", arguments))
    print(f"{missed} missed")
    if arguments.strict and missed:
        sys.exit(1)


def table(name, arguments):
    """The rows of a table."""
    text = subprocess.run([arguments.lab, "analyse", name], stdout=subprocess.PIPE, text=True, check=True).stdout
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / f"{name}.csv").write_text(text)
    return list(csv.DictReader(io.StringIO(text)))


def scheduler(ours):
    published = list(csv.DictReader((HERE / "published.csv").open()))
    assert len(ours) == len(published)
    print("## M4: the scheduler alone, 1 to 32 levels\n\n| what | ours | published | equal rows | verdict |\n|---|---|---|---|---|")
    missed = 0
    for column, known in COLUMNS:
        equal = sum(row[column] == other[known] for row, other in zip(ours, published))
        shown = [2, 6, 31]
        missed += equal < len(published)
        print(f"| {column}, levels 3, 7, 32 | {', '.join(ours[i][column] for i in shown)} "
              f"| {', '.join(published[i][known] for i in shown)} | {equal} of {len(published)} | {verdict(equal == len(published))} |")
    print()
    return missed


def sequencer(rows):
    print("## M5: the prefix that a receiver holds, over what it received\n\n"
          "| order | receivers | mean | least | packets missing at most | goal | verdict |\n|---|---|---|---|---|---|---|")
    missed = 0
    for order in ["Tiles", "Exact"]:
        for kind in ["boundary", "between", "wandering"]:
            some = [row for row in rows if (row["order"], row["kind"]) == (order, kind) and int(row["received_packets"])]
            shares = [int(row["prefix_packets"]) / int(row["received_packets"]) for row in some]
            gap = max(int(row["received_packets"]) - int(row["prefix_packets"]) for row in some)
            is_exact = kind == "boundary" or (kind == "between" and order == "Exact")
            missed += is_exact and gap > 0
            print(f"| {order} | {kind}, {len(some)} | {sum(shares) / len(shares):.4f} | {min(shares):.4f} | {gap} "
                  f"| {'0' if is_exact else ''} | {verdict(gap == 0) if is_exact else ''} |")
    print()
    return missed


def verdict(holds):
    return "met" if holds else "missed"


if __name__ == "__main__":
    main()
