#!/usr/bin/env python3
"""Draws the figures of SIM's experiments: what the paper shows as figures 2, 3, 4.

    sim.py FOLDER [--out NAME]

FOLDER is where verdict.py --out left results (DIR/FORM-PROGRAM), of s1 to s7 as far as they were run. Written are NAME.svg and NAME.png.
"""

import argparse
import csv
import json
import pathlib

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

MBIT = 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("sim"), help="name without suffix (default sim)")
    arguments = parser.parse_args()
    folder = arguments.folder
    plt.rcParams.update({"svg.hashsalt": "sim", "font.size": 8, "axes.spines.top": False, "axes.spines.right": False})
    panels = [draw for name, draw in PANELS if (folder / f"{name}.csv").exists()]
    if not panels:
        raise SystemExit(f"sim.py: nothing of {', '.join(name for name, _ in PANELS)} was run in {folder}")
    columns = min(4, len(panels))
    lines = -(-len(panels) // columns)
    figure, places = plt.subplots(lines, columns, squeeze=False, figsize=(3.7 * columns, 3.1 * lines), layout="constrained")
    for place, draw in zip(places.flat, panels):
        draw(place, folder)
    for place in list(places.flat)[len(panels):]:
        place.axis("off")
    for place in places.flat:
        labels = len(place.get_legend_handles_labels()[0])
        if labels:
            place.legend(frameon=False, fontsize=7, loc="upper right" if labels > 4 else "lower right", ncols=2 if labels > 4 else 1)
    for suffix, metadata in ((".svg", {"Date": None}), (".png", {"Software": None})):
        figure.savefig(arguments.out.with_suffix(suffix), metadata=metadata, dpi=110)
        print(arguments.out.with_suffix(suffix))


def fluctuating(place, folder):
    for f in (1, 2, 3):
        by_number(place, rows(folder, "s3"), "efficiency", "p", "figure 3(b): period p of fluctuations", f"f {f}", f"f = {f}")


def migrating(place, folder):
    by_number(place, rows(folder, "s4"), "efficiency", "p", "figure 3(c): period p of migrations", "", "SIM")


def beside(place, folder):
    for who in ("SIM", "RLM"):
        by_number(place, rows(folder, "s7"), who, "b", "figure 4(c): width of the bottlenecks b", "", who, scale="linear")


def rows(folder, name):
    """Rows of a table of verdict.py, none where it was not run."""
    path = folder / f"{name}.csv"
    if not path.exists():
        return []
    with path.open() as file:
        return list(csv.DictReader(file))


def by_number(place, table, what, key, title, word="", label=None, scale="log"):
    """What a claim comes to, by the number behind a label in its rows."""
    points = []
    for row in table:
        name, *parts = row["row"].split(", ")
        labels = dict(part.rsplit(" ", 1) for part in parts if " " in part)
        # "p none" is of no number.
        if name == what and labels.get(key, "none") != "none" and (not word or word in parts) and row["mean"]:
            points.append((float(labels[key]), float(row["mean"])))
    if points:
        place.plot(*zip(*sorted(points)), "o-", markersize=3, linewidth=1, label=label)
    place.set(title=title, xlabel=key, ylabel="efficiency", xscale=scale, ylim=(0, 1.02))


def steady(place, folder):
    """Rates of receivers over time, one of each kind, marked by RED."""
    found = sorted(folder.glob("s1-*/results.jsonl"), key=lambda path: path.stat().st_mtime)
    place.set(title="figure 2: steady state, by RED", xlabel="time (s)", ylabel="Mbit/s received")
    if not found:
        return
    outcome = json.loads(found[-1].read_text().splitlines()[0])
    series = outcome["series"]
    members = {member["node"]: member["throughput"] for member in series["flows"][0]["members"]}
    for node in ("n29", "n27", "n25", "n20", "n19", "n15"):
        rates = members[node]
        smooth = [sum(rates[max(0, end - 4):end + 1]) / len(rates[max(0, end - 4):end + 1]) / MBIT for end in range(len(rates))]
        place.plot([end * series["bin"] for end in range(len(rates))], smooth, linewidth=0.9, label=f"receiver {node[1:]}")
    # Room for the legend above the lines.
    place.set_ylim(0, 8.5)


def shares(place, folder):
    """Shares against their goals, both ways of marking."""
    table = rows(folder, "s6")
    place.set(title="figure 4(b): TCPs that come; share over fair share", xlabel="fair share (Mbit/s)", ylabel="got over fair", yscale="log")
    for marking, sign in (("threshold", "o"), ("red", "x")):
        for tcp, colour in ((False, "tab:blue"), (True, "tab:orange")):
            points = [(float(row["published"]), max(float(row["ratio"]), 0.01)) for row in table
                      if f"marking {marking}" in row["row"] and row["row"].startswith("TCP") == tcp and row["ratio"]]
            if points:
                place.plot(*zip(*points), sign, color=colour, markersize=4, label=f"{'TCP' if tcp else 'SIM'}, {marking}")
    place.axhspan(0.8, 1.2, color="tab:blue", alpha=0.12)
    place.axhspan(0.5, 2, color="tab:orange", alpha=0.08)


def bottlenecks(place, folder):
    by_number(place, rows(folder, "s2"), "efficiency", "n_b", "figure 3(a): different bottlenecks", scale="linear")


def coming(place, folder):
    by_number(place, rows(folder, "s5"), "efficiency of those who stay", "m", "figure 4(a): period m of coming and going")


# What is drawn, and the experiment that it needs.
PANELS = [("s1", steady), ("s2", bottlenecks), ("s3", fluctuating), ("s4", migrating), ("s5", coming), ("s6", shares), ("s7", beside)]


if __name__ == "__main__":
    main()
