#!/usr/bin/env python3
"""Runs experiments, sets what comes out beside what was published, and says what holds.

    verdict.py [--lab PROGRAM] [--on simulator|testbed] [--form short|full] [--runs N] [--jobs N] [--out DIR] [--page FILE]
               [EXPERIMENT ...]
    verdict.py --check [--form short|full] [--runs N] [--out DIR] [EXPERIMENT ...]

With --on testbed the experiments of lab/experiments/testbed run on this machine's kernel (Linux, root), by `headwater-lab testbed run`.
An EXPERIMENT is a folder with plan.toml, verdict.toml and, where something was published, published.csv; without any, all
folders below experiments with a verdict.toml are taken, those of the testbed only with --on testbed. The short form runs a few small cells to
see that everything works, in minutes; the full form is the one to quote. Results go to DIR/FORM-PROGRAM/EXPERIMENT-PLAN/ (digests of the program and of the plan, so that a
new build runs anew and the same one goes on), tables to DIR/FORM-PROGRAM/EXPERIMENT.md and .csv, what was judged to verdict.md. The name of an EXPERIMENT is that of its
folder and of the folder above: sim-s4.

With --check nothing is run. Faults are named by file and row, and make the exit code 1: a published number without a criterion; a goal without a day or a reason; a goal
newer than the results of its experiment in DIR; a row that the form's plan has a cell for and the results none. Without results in DIR the first two alone are checked.

With --page the tables of a Markdown page are made anew: between a line <!-- verdict EXPERIMENT: WORDS --> and a line
<!-- end --> stand the rows of an experiment that was run in whose name all WORDS are (none: all rows), without columns that
say nothing. Tables of other experiments stay as they are.

verdict.toml:
  title, about         what stands above the table
  plan, published      other files than plan.toml and published.csv beside it, relative to it
  set                  {key = value}: keys of the plan in place of its own
  since, because       the day when the goals were written down, and why they are these; a goal may have its own
  [short]              runs = N; keep = [[0, 1], [0]]: the values kept of each [[sweep]], by number; set = {key = value}: keys of the plan
  [table]              rows from published.csv: flow = the group whose criteria are compared
  [table.labels.COL.VALUE]  a list of tables {path = value}: the cells that a value of a column stands for
  [table.holds.CRITERION]   what must hold: ratio = [low, high] to the published mean, within = [low, high] in its own unit, or
                       interval = true: our mean within the published interval, or with ratio within the wider of the two;
                       only = {column = [values]}: for these rows; a list of such tables where rows differ
  table.goals          a file with the tables of holds, for tables that share them
  better               of a goal: "low" or "high" makes the other bound none, and its name "at least as good"
  was                  of a goal: the goal that it replaced, {holds, ratio, ... and since}, or a list; each has a row of its own, "goal of" its day
  [table.reasons]      "WORD ..." = why rows with these words in their names differ, for evidence.py
  [[claims]]           a row for each cell (where = {path = value}, without = [path] choose): name; value, or jain = [values];
                       over = [values] divides by their sum, unit by a number, base = {path = value} by the mean of the cell
                       that differs in that; against = {path = value} by the mean of the cells that are so;
                       holds = [low, high], with each = true in every run; show = [path] names the cell;
                       let = {name = path}: value is then an expression of these names; level = 99: the interval's, in place of 95;
                       published = a number, or the name of a quantity in published.csv, or words where there is none; reason = why it is missed or differs, for evidence.py
                       rows = [{word = value}]: a claim for each of these, with the values in place of {word} in its strings;
                       ratio = [low, high]: holds in parts of what was published
  [labels.NAME]        sweep = N, values = [...]: what the cells of the Nth [[sweep]] are called, in order; NAME is a path of the cell
                       then, for where, base and show. A list in where: any of these
  [receivers]          of a group: flow; capacity = {node = bit/s, or a path of the cell, or "at.N" of which the rate follows that entry
                       of the plan, or a list of these: the least}; a claim may have others. In place of value,
                       receivers = "efficiency": mean of what each gets over its capacity, at most 1, from bin to bin of the series
                       where capacities change; "deviation": its standard
                       deviation from bin to bin of the series; "changes": joins and leaves; "instability" and "instability
                       deviation": changes of a receiver in a bin, and their standard deviation from bin to bin;
                       only = [node], but = [node]: of whom
Values are paths in a line of results: flows.GROUP.throughput, flows.GROUP.criteria.time, members.GROUP.NODE.goodput,
links.NAME.throughput, settled.GROUP.KEY (seconds until the mean over 10 s of what a series has stays within 20 % of its mean over the
second half); {path} in them stands for a value of the cell.
"""

import argparse
import csv
import json
import os
import pathlib
import re
import subprocess
import sys

from check import check
from judge import Estimate, as_row, claim_rows, gather, instances, of_group, published_rows, read
from plans import day_of, digest, name_cells, name_of, plan_of

HERE = pathlib.Path(__file__).resolve().parent
# How the program ends when a signal asks it to.
INTERRUPTED = (130, -2, -15)
ALL_END = "all runs end"
COLUMNS = ["row", "runs", "mean", "ci95", "least", "most", "published", "published_ci95", "ratio", "criterion", "verdict", "since", "measured"]


def main():
    arguments = parse_arguments()
    is_wanted = lambda path: (path.parent.parent.name == "testbed") == (arguments.on == "testbed")
    folders = arguments.experiments or sorted(path.parent for path in HERE.glob("*/*/verdict.toml") if arguments.check or is_wanted(path))
    if arguments.check:
        sys.exit(1 if check([folder.resolve() for folder in folders], arguments) else 0)
    program = arguments.lab.resolve()
    if not program.exists():
        sys.exit(f"verdict.py: there is no program '{program}'; build it with cargo build --release -p headwater-cli")
    out = arguments.out / f"{arguments.form}-{digest(program.read_bytes())}"
    out.mkdir(parents=True, exist_ok=True)
    texts, tables = [], {}
    for folder in folders:
        head, rows = one(folder.resolve(), arguments, program, out)
        texts.append(head + markdown([row for row in rows if row["criterion"]]))
        tables[name_of(folder.resolve())] = rows
        print(texts[-1])
    (out / "verdict.md").write_text("\n".join(texts))
    if arguments.page:
        arguments.page.write_text(page(arguments.page.read_text(), tables))
    missed = sum(row["verdict"].startswith("missed") for rows in tables.values() for row in rows)
    print(f"{missed} missed; tables and results are in {out}")
    # Whether numbers hold is for --strict; that runs end is for everybody.
    has_failed = any(row["criterion"] == ALL_END for rows in tables.values() for row in rows)
    if has_failed or (arguments.strict and missed):
        sys.exit(1)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("experiments", nargs="*", type=pathlib.Path, metavar="EXPERIMENT")
    parser.add_argument("--lab", type=pathlib.Path, default=pathlib.Path("target/release/headwater-lab"))
    parser.add_argument("--on", choices=["simulator", "testbed"], default="simulator", help="what runs the plans")
    parser.add_argument("--routing", help="who forwards multicast on a testbed: bridge, frr or static")
    parser.add_argument("--form", choices=["short", "full"], default="full")
    parser.add_argument("--runs", type=int, help="runs of each cell, in place of the plan's")
    parser.add_argument("--jobs", type=int, help="runs at once (default: all processor cores; on a testbed 1, in the short form 2)")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("/tmp/headwater-verdicts"))
    parser.add_argument("--page", type=pathlib.Path, metavar="FILE", help="make the tables of a Markdown page anew")
    parser.add_argument("--check", action="store_true", help="run nothing; say which published values, goals and results are wanting")
    parser.add_argument("--strict", action="store_true", help="fail when something is missed")
    return parser.parse_args()


def one(folder, arguments, program, out):
    """Runs one experiment; what stands above its table, and the rows."""
    wanted = read(folder)
    lines, is_whole, day = simulate(folder, wanted, arguments, program, out)
    cells = gather(lines)
    plan, _, _ = plan_of(folder, wanted, arguments.form, arguments.runs)
    name_cells(folder, wanted, cells)
    rows = [] if is_whole else [as_row("runs of the plan", Estimate([]), None, "", ALL_END, "missed: the program says above which failed")]
    if "table" in wanted:
        rows += published_rows(folder / wanted.get("published", "published.csv"), wanted["table"], cells)
    for claim in instances(folder, wanted):
        judged_rows = claim_rows({**of_group(claim, wanted, plan), "is_whole": arguments.form == "full"}, cells)
        # The short form has but some of the cells.
        if not judged_rows and "holds" in claim and arguments.form == "full":
            judged_rows = [as_row(claim["name"], Estimate([]), None, "", "a cell to judge", "missed")]
        rows += judged_rows
    rows = [{**row, "measured": day if row["runs"] else ""} for row in rows]
    with (out / f"{name_of(folder)}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    head = f"## {wanted['title']}\n\n{wanted.get('about', '').strip()}\n\n"
    (out / f"{name_of(folder)}.md").write_text(head + markdown(rows))
    return head, rows


def simulate(folder, wanted, arguments, program, out):
    """Lines of results, as far as they are not there yet run for, whether no run failed, and the day of the last run."""
    _, text, path = plan_of(folder, wanted, arguments.form, arguments.runs)
    if path is None:
        path = out / f"{name_of(folder)}.toml"
        path.write_bytes(text)
    # A plan that was changed runs anew, and so does another routing.
    routing = [arguments.routing] if arguments.on == "testbed" and arguments.routing else []
    results = out / "-".join([name_of(folder), *routing, digest(text)])
    command = [str(program), "simulate", str(path), "--out", str(results)]
    if arguments.on == "testbed":
        command = [str(program), "testbed", "run", str(path), "--out", str(results)]
        command += ["--routing", *routing] if routing else []
    jobs = arguments.jobs
    if arguments.on == "testbed" and arguments.form == "short":
        # Small enough for two at once.
        jobs = jobs or min(2, os.cpu_count() or 1)
    if jobs:
        command += ["--jobs", str(jobs)]
    try:
        ended = subprocess.run(command, stdout=subprocess.DEVNULL).returncode
    except KeyboardInterrupt:
        ended = INTERRUPTED[0]
    except OSError as error:
        sys.exit(f"verdict.py: cannot run '{program}': {error.strerror}")
    if ended in INTERRUPTED:
        sys.exit(f"verdict.py: interrupted while {folder.name} ran; the same command goes on from there")
    file = results / "results.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    if ended:
        print(f"verdict.py: {folder.name} did not end well (code {ended}); what it says stands above, and its table has what is left", file=sys.stderr)
    # What is installed decides where no routing is said, and may have changed between two calls: the last one's counts.
    by = [line.get("testbed", {}).get("routing") for line in lines]
    return [line for line, routing in zip(lines, by) if routing == by[-1]], ended == 0, day_of(file) if lines else ""


def markdown(rows):
    head = "| row | runs | ours | least..most | published | ratio | criterion | verdict |\n|---|---|---|---|---|---|---|---|\n"

    def mean(value, half):
        return f"{value} ± {half}" if half else f"{value}"

    return head + "".join(
        f"| {row['row']} | {row['runs']} | {mean(row['mean'], row['ci95'])} | {row['least']}..{row['most']} | "
        f"{mean(row['published'], row['published_ci95'])} | {row['ratio']} | {row['criterion']} | {row['verdict']} |\n"
        for row in rows)


def page(text, tables):
    """The text with the tables of the experiments in it."""

    def table(match):
        wanted = match["words"].split()
        rows = [row for row in tables.get(match["name"], []) if all(word in row["row"].replace(",", "").split() for word in wanted)]
        return f"{match['begin']}\n{condensed(rows)}<!-- end -->" if rows else match[0]

    marks = r"(?P<begin><!-- verdict (?P<name>[\w-]+):(?P<words>[^>]*) -->)\n.*?<!-- end -->"
    return re.sub(marks, table, text, flags=re.DOTALL)


def condensed(rows):
    """Rows as a table of the columns that say something."""

    def mean(value, half):
        return f"{value} ± {half}" if half else value

    columns = {
        "what": [row["row"].replace("_", " ") for row in rows],
        "runs": [str(row["runs"]) for row in rows],
        "ours": [mean(row["mean"], row["ci95"]) for row in rows],
        "least..most": [f"{row['least']}..{row['most']}" if row["runs"] > 1 else "" for row in rows],
        "published": [mean(row["published"], row["published_ci95"]) for row in rows],
        "ratio": [row["ratio"] for row in rows],
        "goal": [row["criterion"] for row in rows],
        "verdict": [row["verdict"] for row in rows],
    }
    columns = {name: cells for name, cells in columns.items() if any(cells)}
    lines = [list(columns), ["---"] * len(columns), *map(list, zip(*columns.values()))]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    main()
