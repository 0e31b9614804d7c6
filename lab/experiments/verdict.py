#!/usr/bin/env python3
"""Runs experiments, sets what comes out beside what was published, and says what holds.

    verdict.py [--lab PROGRAM] [--on simulator|testbed] [--form short|full] [--runs N] [--jobs N] [--out DIR] [--page FILE]
               [EXPERIMENT ...]

With --on testbed the experiments of lab/experiments/testbed run on this machine's kernel (Linux, root), by `headwater-lab testbed run`.
An EXPERIMENT is a folder with plan.toml, verdict.toml and, where something was published, published.csv; without any, all
folders below experiments with a verdict.toml are taken, those of the testbed only with --on testbed. The short form runs a few small cells to
see that everything works, in minutes; the full form is the one to quote. Results go to DIR/FORM-PROGRAM/EXPERIMENT-PLAN/ (digests of the program and of the plan, so that a
new build runs anew and the same one goes on), tables to DIR/FORM-PROGRAM/EXPERIMENT.md and .csv, what was judged to verdict.md.

With --page the tables of a Markdown page are made anew: between a line <!-- verdict EXPERIMENT: WORDS --> and a line
<!-- end --> stand the rows of an experiment that was run in whose name all WORDS are (none: all rows), without columns that
say nothing. Tables of other experiments stay as they are.

verdict.toml:
  title, about         what stands above the table
  plan, published      other files than plan.toml and published.csv beside it, relative to it
  [short]              runs = N; keep = [[0, 1], [0]]: the values kept of each [[sweep]], by number; set = {key = value}: keys of the plan
  [table]              rows from published.csv: flow = the group whose criteria are compared
  [table.labels.COL.VALUE]  a list of tables {path = value}: the cells that a value of a column stands for
  [table.holds.CRITERION]   what must hold: ratio = [low, high] to the published mean, within = [low, high] in its own unit, or
                       interval = true: our mean within the published interval
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
import hashlib
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
# Student's t, two-sided, by degrees of freedom from 1.
T95 = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110,
       2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042]
T99 = [63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169, 3.106, 3.055, 3.012, 2.977, 2.947, 2.921, 2.898,
       2.878, 2.861, 2.845, 2.831, 2.819, 2.807, 2.797, 2.787, 2.779, 2.771, 2.763, 2.756, 2.750]
# With that of a normal distribution behind it.
T = {95: (T95, 1.960), 99: (T99, 2.576)}
# Published units of the criteria. Of `comp` a testbed knows: decoding takes no simulated time.
UNITS = {"time_s": ("time", 1.0), "gput_kbps": ("gput", 1e3), "tput_kbps": ("tput", 1e3), "loss_pct": ("loss", 0.01),
         "net_pct": ("net", 0.01), "dup_pct": ("dup", 0.01), "sym_pct": ("sym", 0.01), "comp_pct": ("comp", 0.01)}
# How the program ends when a signal asks it to.
INTERRUPTED = (130, -2, -15)
ALL_END = "all runs end"
COLUMNS = ["row", "runs", "mean", "ci95", "least", "most", "published", "published_ci95", "ratio", "criterion", "verdict"]


def main():
    arguments = parse_arguments()
    program = arguments.lab.resolve()
    if not program.exists():
        sys.exit(f"verdict.py: there is no program '{program}'; build it with cargo build --release -p headwater-cli")
    out = arguments.out / f"{arguments.form}-{digest(program)}"
    out.mkdir(parents=True, exist_ok=True)
    is_wanted = lambda path: (path.parent.parent.name == "testbed") == (arguments.on == "testbed")
    folders = arguments.experiments or sorted(path.parent for path in HERE.glob("*/*/verdict.toml") if is_wanted(path))
    texts, tables = [], {}
    for folder in folders:
        head, rows = one(folder.resolve(), arguments, program, out)
        texts.append(head + markdown([row for row in rows if row["criterion"]]))
        tables[folder.resolve().name] = rows
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


def digest(file):
    return hashlib.sha256(file.read_bytes()).hexdigest()[:8]


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
    parser.add_argument("--strict", action="store_true", help="fail when something is missed")
    return parser.parse_args()


def one(folder, arguments, program, out):
    """Runs one experiment; what stands above its table, and the rows."""
    wanted = tomllib.loads((folder / "verdict.toml").read_text())
    lines, is_whole = simulate(folder, wanted, arguments, program, out)
    cells = gather(lines)
    plan = tomllib.loads((folder / wanted.get("plan", "plan.toml")).read_text())
    for name, label in wanted.get("labels", {}).items():
        call(cells, name, label["values"], plan["sweep"][label["sweep"]])
    rows = [] if is_whole else [as_row("runs of the plan", Estimate([]), None, "", ALL_END, "missed: the program says above which failed")]
    if "table" in wanted:
        rows += published_rows(folder / wanted.get("published", "published.csv"), wanted["table"], cells)
    for claim in (one for claim in wanted.get("claims", []) for one in instances(claim)):
        claim = {**claim, "published": quantity(folder, claim.get("published"))}
        if "ratio" in claim:
            claim["holds"] = [round(bound * claim["published"], 6) for bound in claim["ratio"]]
        claim["labels"] = wanted.get("labels", {})
        if "receivers" in claim:
            claim["of"] = {**wanted["receivers"], **{key: claim[key] for key in ("flow", "capacity") if key in claim}, "at": plan.get("at", [])}
        judged_rows = claim_rows(claim, cells)
        # The short form has but some of the cells.
        if not judged_rows and "holds" in claim and arguments.form == "full":
            judged_rows = [as_row(claim["name"], Estimate([]), None, "", "a cell to judge", "missed")]
        rows += judged_rows
    with (out / f"{folder.name}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    head = f"## {wanted['title']}\n\n{wanted.get('about', '').strip()}\n\n"
    (out / f"{folder.name}.md").write_text(head + markdown(rows))
    return head, rows


def simulate(folder, wanted, arguments, program, out):
    """Lines of results, as far as they are not there yet run for, and whether no run failed."""
    path = folder / wanted.get("plan", "plan.toml")
    short = wanted.get("short", {}) if arguments.form == "short" else {}
    runs = arguments.runs or short.get("runs")
    if runs or short:
        plan = {**tomllib.loads(path.read_text()), **short.get("set", {})}
        plan["runs"] = runs or plan.get("runs", 1)
        for sweep, keep in zip(plan.get("sweep", []), short.get("keep", [])):
            for values in sweep.values():
                values[:] = [values[index] for index in keep]
        path = out / f"{folder.name}.toml"
        path.write_text("".join(f"{key} = {toml(value)}\n" for key, value in plan.items()))
    # A plan that was changed runs anew, and so does another routing.
    routing = [arguments.routing] if arguments.on == "testbed" and arguments.routing else []
    results = out / "-".join([folder.name, *routing, digest(path)])
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
    return [line for line, routing in zip(lines, by) if routing == by[-1]], ended == 0


def toml(value):
    """A value as TOML, on one line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def gather(lines):
    """[(flattened cell, [lines])] in the order of the plan."""
    cells = {}
    for line in lines:
        flat = {}
        flatten("", line["cell"], flat)
        cells.setdefault(json.dumps(line["cell"], sort_keys=True), (flat, []))[1].append(line)
    return list(cells.values())


def flatten(prefix, value, into):
    if isinstance(value, dict):
        for key, item in value.items():
            flatten(f"{prefix}.{key}" if prefix else key, item, into)
    else:
        into[prefix] = value


def call(cells, name, values, sweep):
    """Gives cells a label by their place in a sweep."""
    for cell, _ in cells:
        for place, value in enumerate(values):
            wanted = {}
            for path, choices in sweep.items():
                flatten(path, choices[place], wanted)
            if wanted == {key: item for key, item in cell.items() if any((key + ".").startswith(path + ".") for path in sweep)}:
                cell[name] = value


def of_names(cell, names):
    """A cell, or of it what has one of these names."""
    return cell if names is None else {path: cell[path] for path in names if path in cell}


def instances(claim):
    """A claim for each of its rows."""
    for row in claim.get("rows", [{}]):
        yield {key: filled_in(value, row) for key, value in claim.items() if key != "rows"}


def filled_in(value, row):
    if isinstance(value, dict):
        return {filled_in(key, row): filled_in(item, row) for key, item in value.items()}
    if isinstance(value, list):
        return [filled_in(item, row) for item in value]
    if isinstance(value, str) and value[:1] == "{" and value[1:-1] in row:
        return row[value[1:-1]]
    return filled(value, row) if isinstance(value, str) else value


def matches(cell, where):
    return all(cell.get(path) == value or isinstance(value, list) and cell.get(path) in value for path, value in where.items())


def published_rows(path, table, cells):
    with path.open() as file:
        published = [row for row in csv.DictReader(file) if row["mean"] and row["criterion"] in UNITS]
    rows = []
    for row in published:
        places = table["labels"]
        found = [lines for cell, lines in cells
                 if all(any(matches(cell, where) for where in places[column].get(row[column], [])) for column in places)]
        if not found:
            continue
        key, unit = UNITS[row["criterion"]]
        values = [value / unit for line in found[0] if (value := look(line, f"flows.{table['flow']}.criteria.{key}")) is not None]
        if not values and row["criterion"] == "comp_pct":
            continue
        name = ", ".join([*(f"{column} {row[column]}" for column in places), row["criterion"]])
        ours = Estimate(values)
        theirs, interval = float(row["mean"]), row.get("ci95", "")
        holds = table.get("holds", {}).get(row["criterion"], {})
        rule, verdict = "", "shown"
        if not values:
            rule, verdict = ("complete", "missed: nothing was complete") if holds else ("", "shown")
        elif holds and len(values) < len(found[0]):
            rule, verdict = f"all of {len(found[0])} runs", f"missed: {len(found[0]) - len(values)} not complete"
        elif "ratio" in holds:
            rule, verdict = judged("ratio", ours.mean / theirs, holds["ratio"])
        elif "within" in holds:
            rule, verdict = judged("ours", ours.mean, holds["within"])
        elif "interval" in holds:
            half = float(interval or 0)
            rule, verdict = judged("ours", ours.mean, [theirs - half, theirs + half])
        only = holds.get("only")
        if only and not all(row[column] in allowed for column, allowed in only.items()):
            rule, verdict = "", "shown"
        rows.append(as_row(name, ours, theirs, interval, rule, verdict))
    return rows


def quantity(folder, name):
    """What was published of a quantity that a claim names; a number stands for itself, and so do words where nothing is listed."""
    path = folder / "published.csv"
    if not isinstance(name, str) or not path.exists():
        return name
    with path.open() as file:
        text = next((row["value"] for row in csv.DictReader(file) if row["quantity"] == name), None)
    if text is None:
        sys.exit(f"verdict.py: '{path}' has no quantity '{name}', which a claim in verdict.toml names")
    try:
        return float(text)
    except ValueError:
        return text


def claim_rows(claim, cells):
    rows, short = [], {}

    def values_of(cell, lines):
        values = claim_values(claim, cell, lines)
        # Once for each cell, however many are compared with it.
        short[id(lines)] = not_complete(claim, cell, lines, len(values))
        return values

    for cell, lines in cells:
        if not matches(cell, claim.get("where", {})) or any(path in cell for path in claim.get("without", [])):
            continue
        values = values_of(cell, lines)
        if not values:
            continue
        if "base" in claim:
            # A table of the base stands in place of the whole table of the cell; labels in place of all that they stand for.
            names = claim["labels"] if claim["base"].keys() <= claim["labels"].keys() else None
            other = {path: value for path, value in of_names(cell, names).items() if not any((path + ".").startswith(key + ".") for key in claim["base"])}
            flatten("", claim["base"], other)
            base = next((base for base in cells if of_names(base[0], names) == other), None)
            mean = Estimate(values_of(*base) if base else []).mean
            values = [value / mean for value in values]
        if "against" in claim:
            mean = Estimate([value for other in cells if matches(other[0], claim["against"]) for value in values_of(*other)]).mean
            values = [value / mean for value in values]
        ours = Estimate(values, claim.get("level", 95))
        name = ", ".join([claim["name"], *(f"{' '.join(path.split('.')[-2:])} {value}" for path, value in cell.items()
                                           if path in claim.get("show", cell))])
        rule, verdict = "", "shown"
        if "holds" in claim:
            rule, verdict = judged("mean", ours.mean, claim["holds"])
            if claim.get("each"):
                rule = rule.replace("mean", "each run")
                verdict = "met" if all(inside(value, claim["holds"]) for value in values) else "missed"
        rows.append(as_row(name, ours, claim.get("published"), "", rule, verdict))
    return [*rows, *(row for found in short.values() for row in found)]


def not_complete(claim, cell, lines, count):
    """A row that is missed where runs have no criteria: what they had to transfer was not there at their end."""
    if "holds" not in claim or ".criteria." not in str([claim.get("value"), claim.get("let")]) or count == len(lines):
        return []
    name = f"{claim['name']}, {' '.join(str(cell[path]) for path in claim.get('show', []) if path in cell)}: not complete".replace(", :", ":")
    return [as_row(name, Estimate([]), None, "", f"all of {len(lines)} runs", f"missed: {len(lines) - count} not complete")]


def claim_values(claim, cell, lines):
    """The value of a claim in each run of a cell."""
    values = []
    for line in lines:
        if "receivers" in claim:
            value = of_receivers(claim, cell, line)
            if value is not None:
                values.append(value)
            continue
        if "jain" in claim:
            shares = [look(line, path) for path in claim["jain"]]
            values.append(sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares)))
            continue
        if "let" in claim:
            names = {name: look(line, filled(path, cell)) for name, path in claim["let"].items()}
            if None not in names.values():
                values.append(eval(claim["value"], {"__builtins__": {}, "sqrt": math.sqrt}, names))
            continue
        value = look(line, filled(claim["value"], cell))
        parts = [look(line, filled(path, cell)) for path in claim.get("over", [])]
        if value is None or None in parts or (parts and not sum(parts)):
            continue
        values.append(value / (sum(parts) if parts else claim.get("unit", 1)))
    return values


def of_receivers(claim, cell, line):
    """What a claim says of the receivers of a group; nothing without the series that it takes."""
    of, what = claim["of"], claim["receivers"]
    place, flow = next((place, flow) for place, flow in enumerate(line["flows"]) if flow["group"] == of["flow"])
    nodes = [node for node in claim.get("only", of["capacity"]) if node not in claim.get("but", [])]
    members = {member["node"]: member for member in flow["members"]}
    if what == "changes":
        return sum(members[node]["joins"] + members[node]["leaves"] for node in nodes)
    parts = {node: [cell.get(part, part) for part in listed(of["capacity"][node])] for node in nodes}
    is_constant = not any(str(part).startswith("at.") for entry in parts.values() for part in entry)
    if what == "efficiency" and is_constant:
        return statistics.fmean(min(1, members[node]["throughput"] / min(map(bits, parts[node]))) for node in nodes)
    if "series" not in line:
        return None
    series, width = line["series"]["flows"][place], line["series"]["bin"]
    first = math.ceil(line["window"]["from"] / width)
    if what in ("efficiency", "deviation"):
        rates = {member["node"]: member["throughput"] for member in series["members"]}
        turns = [{**entry, **{key: cell[f"at.{number}.{key}"] for key in entry if f"at.{number}.{key}" in cell}} for number, entry in enumerate(of["at"])]
        shares = []
        for node in nodes:
            shares.append([min(1, rate / mean_capacity(parts[node], turns, number * width, width))
                           for number, rate in enumerate(rates[node]) if number >= first])
        means = [statistics.fmean(at_once) for at_once in zip(*shares)]
        return statistics.fmean(means) if what == "efficiency" else statistics.pstdev(means)
    changes = [(joins + leaves) / len(members) for joins, leaves in zip(series["joins"][first:], series["leaves"][first:])]
    return {"instability": statistics.fmean, "instability deviation": statistics.pstdev}[what](changes)


def listed(value):
    return value if isinstance(value, list) else [value]


def mean_capacity(parts, turns, begin, width, steps=25):
    """Mean over a bin of the least of some rates, of which those named "at.N" take turns."""
    def rate(part, time):
        if not str(part).startswith("at."):
            return bits(part)
        turn = turns[int(part[3:])]
        return bits(turn["rates"][int(time / seconds(turn["every"])) % len(turn["rates"])])

    return statistics.fmean(min(rate(part, begin + (step + 0.5) * width / steps) for part in parts) for step in range(steps))


def seconds(time):
    """Seconds of a time as plans write it, in ms or s."""
    return float(time[:-2]) / 1e3 if time.endswith("ms") else float(time.rstrip("s"))


def bits(rate):
    """bit/s of a rate as plans write it."""
    if not isinstance(rate, str):
        return rate
    return float(rate.rstrip("kMG")) * {"k": 1e3, "M": 1e6, "G": 1e9}.get(rate[-1], 1)


def filled(path, cell):
    for key, value in cell.items():
        path = path.replace("{" + key + "}", str(value))
    return path


def look(line, path):
    """A value of a run; of a group of flows, the mean over them. Nothing where there is none."""
    kind, _, rest = path.partition(".")
    if kind == "flows":
        group, rest = rest.split(".", 1)
        flows = [flow for flow in line["flows"] if flow["group"] == group]
        values = [value for flow in flows if (value := inner(flow, rest)) is not None]
        # Of a transfer that is not complete at all receivers there are no criteria.
        is_short = len(values) < len(flows) or any((flow.get("complete") or 0) < flow.get("receivers", 0) for flow in flows if "complete" in flow)
        if rest.startswith("criteria.") and is_short:
            return None
    elif kind == "members":
        group, node, rest = rest.split(".", 2)
        values = [value for flow in line["flows"] if flow["group"] == group for member in flow.get("members", [])
                  if member["node"] == node and (value := inner(member, rest)) is not None]
    elif kind == "links":
        name, rest = rest.rsplit(".", 1)
        values = [link[rest] for link in line["links"] if link["name"] == name]
    elif kind == "settled":
        group, rest = rest.split(".", 1)
        series = line["series"]["flows"]
        values = [settled(over_time[rest], line["series"]["bin"])
                  for flow, over_time in zip(line["flows"], series) if flow["group"] == group and over_time.get(rest)]
    elif kind == "jain":
        values = [line.get("jain", {}).get(rest)] if rest in line.get("jain", {}) else []
    else:
        # A rate of the cell.
        values = [bits(path)]
    return sum(values) / len(values) if values else None


def settled(values, width):
    """Seconds until the mean over 10 s stays within 20 % of the mean over the second half."""
    count = max(1, round(10 / width))
    smooth = [sum(values[max(0, end - count):end]) / min(count, end) for end in range(1, len(values) + 1)]
    half = smooth[len(smooth) // 2:]
    mean = sum(half) / len(half)
    last = max((place for place, value in enumerate(smooth) if abs(value / mean - 1) > 0.2), default=-1)
    return (last + 1) * width


def inner(value, path):
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


class Estimate:
    """Mean and half of the confidence interval."""

    def __init__(self, values, level=95):
        self.values = values
        count = len(values)
        self.mean = sum(values) / count if count else math.nan
        self.half = math.nan
        if count > 1:
            spread = math.sqrt(sum((value - self.mean) ** 2 for value in values) / (count - 1))
            table, normal = T[level]
            self.half = (table[count - 2] if count - 2 < len(table) else normal) * spread / math.sqrt(count)


def inside(value, bounds):
    low, high = bounds
    return low <= value <= high


def judged(what, value, bounds):
    return f"{what} {bounds[0]:g} to {bounds[1]:g}", "met" if inside(value, bounds) else "missed"


def as_row(name, ours, theirs, interval, rule, verdict):
    return {"row": name, "runs": len(ours.values), "mean": number(ours.mean), "ci95": number(ours.half),
            "least": number(min(ours.values, default=math.nan)), "most": number(max(ours.values, default=math.nan)),
            "published": "" if theirs is None else theirs if isinstance(theirs, str) else number(theirs), "published_ci95": interval,
            "ratio": number(ours.mean / theirs) if theirs and not isinstance(theirs, str) else "", "criterion": rule, "verdict": verdict}


def number(value):
    return "" if math.isnan(value) else f"{value:.4g}"


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
