"""Rows of an experiment: what came out in its cells, beside what was published, and whether its goals hold."""

import csv
import json
import math
import statistics
import sys
import tomllib

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


def read(folder):
    """verdict.toml of an experiment, with the goals that its table shares with others."""
    wanted = tomllib.loads((folder / "verdict.toml").read_text())
    table = wanted.get("table", {})
    if "goals" in table:
        table["holds"] = tomllib.loads((folder / table["goals"]).read_text())
    return wanted


def published_rows(path, table, cells):
    """A row for each goal of each published value whose cell was run."""
    rows = []
    for row in published_values(path):
        found = [lines for cell, lines in cells if is_of(row, table, cell)]
        if not found:
            continue
        key, unit = UNITS[row["criterion"]]
        values = [value / unit for line in found[0] if (value := look(line, f"flows.{table['flow']}.criteria.{key}")) is not None]
        # Decoding takes no simulated time.
        if not values and row["criterion"] == "comp_pct":
            continue
        ours = Estimate(values)
        for goal in table_goals(table, row) or [{}]:
            verdict = table_verdict(goal, ours, len(found[0]), row)
            rows.append({**as_row(table_name(table, row, goal), ours, float(row["mean"]), row.get("ci95", ""), *verdict), "since": goal.get("since", "")})
    return rows


def published_values(path):
    with path.open() as file:
        return [row for row in csv.DictReader(file) if row["mean"] and row["criterion"] in UNITS]


def is_of(row, table, cell):
    """Whether a published row speaks of a cell."""
    return all(any(matches(cell, where) for where in places.get(row[column], [])) for column, places in table["labels"].items())


def is_spoken_of(row, table):
    """Whether the table has a cell for each column of a published row."""
    return all(row[column] in places for column, places in table["labels"].items())


def table_name(table, row, goal):
    return ", ".join([*(f"{column} {row[column]}" for column in table["labels"]), row["criterion"]]) + goal.get("suffix", "")


def table_goals(table, row):
    """The goals of a published row, each followed by the goal that it replaced."""
    goals = [goal for given in listed(table.get("holds", {}).get(row["criterion"], [])) for goal in with_superseded(given)]
    return [goal for goal in goals if all(row[column] in allowed for column, allowed in goal.get("only", {}).items() if column in row)]


def table_verdict(goal, ours, count, row):
    """The criterion of a goal of a published row in words, and the verdict."""
    theirs, half = float(row["mean"]), float(row.get("ci95") or 0)
    if not ours.values:
        return ("complete", "missed: nothing was complete") if goal else ("", "shown")
    if goal and len(ours.values) < count:
        return f"all of {count} runs", f"missed: {count - len(ours.values)} not complete"
    better = goal.get("better")
    if "within" in goal:
        return judged("ours", ours.mean, goal["within"], better)
    if "ratio" in goal and not goal.get("interval"):
        return judged("ratio", quotient(ours.mean, theirs), goal["ratio"], better)
    if not goal.get("interval"):
        return "", "shown"
    low, high = (bound * theirs for bound in goal.get("ratio", [1, 1]))
    bounds = [max(0, min(low, theirs - half)), max(high, theirs + half)]
    if better:
        bounds = [0, bounds[1]] if better == "low" else [bounds[0], math.inf]
    return judged("ours", ours.mean, bounds, better)


def has_criterion(goal):
    return any(key in goal for key in ("holds", "ratio", "within", "interval"))


def with_superseded(goal):
    """A goal, and those that it replaced, under names of their own."""
    yield goal
    kept = {key: value for key, value in goal.items() if key not in ("holds", "ratio", "within", "interval", "better", "each", "because", "was")}
    for former in listed(goal.get("was", [])):
        yield {**kept, **former, "suffix": f", goal of {former['since']}"}


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
            # The short form may not have it.
            if base is None and not claim.get("is_whole"):
                continue
            mean = Estimate(values_of(*base)).mean if base else math.nan
            values = [quotient(value, mean) for value in values]
        if "against" in claim:
            mean = Estimate([value for other in cells if matches(other[0], claim["against"]) for value in values_of(*other)]).mean
            values = [quotient(value, mean) for value in values]
        ours = Estimate(values, claim.get("level", 95))
        name = ", ".join([claim["name"] + claim.get("suffix", ""), *(f"{' '.join(path.split('.')[-2:])} {value}" for path, value in cell.items()
                                           if path in claim.get("show", cell))])
        rule, verdict = "", "shown"
        if "holds" in claim:
            rule, verdict = judged("mean", ours.mean, claim["holds"], claim.get("better"))
            if claim.get("each"):
                rule = rule.replace("mean", "each run")
                verdict = "met" if all(inside(value, claim["holds"]) for value in values) else "missed"
        rows.append(as_row(name, ours, claim.get("published"), "", rule, verdict))
    rows += [row for found in short.values() for row in found]
    return [{**row, "since": claim.get("since", "") if row["criterion"] else ""} for row in rows]


def not_complete(claim, cell, lines, count):
    """A row that is missed where runs have no criteria: what they had to transfer was not there at their end."""
    if "holds" not in claim or ".criteria." not in str([claim.get("value"), claim.get("let")]) or count == len(lines):
        return []
    name = f"{claim['name']}{claim.get('suffix', '')}, {' '.join(str(cell[path]) for path in claim.get('show', []) if path in cell)}: not complete".replace(", :", ":")
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


def matches(cell, where):
    return all(cell.get(path) == value or isinstance(value, list) and cell.get(path) in value for path, value in where.items())


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


def instances(folder, wanted):
    """The claims of an experiment: one for each of their rows, with what was published, and each followed by the goal that it replaced."""
    for claim in wanted.get("claims", []):
        for row in claim.get("rows", [{}]):
            one = {"since": wanted.get("since", ""), **{key: filled_in(value, row) for key, value in claim.items() if key != "rows"}}
            one = {**one, "published": quantity(folder, one.get("published")), "labels": wanted.get("labels", {})}
            for goal in with_superseded(one):
                if "ratio" in goal:
                    goal["holds"] = [round(bound * goal["published"], 6) for bound in goal["ratio"]]
                yield goal


def filled_in(value, row):
    if isinstance(value, dict):
        return {filled_in(key, row): filled_in(item, row) for key, item in value.items()}
    if isinstance(value, list):
        return [filled_in(item, row) for item in value]
    if isinstance(value, str) and value[:1] == "{" and value[1:-1] in row:
        return row[value[1:-1]]
    return filled(value, row) if isinstance(value, str) else value


def of_group(claim, wanted, plan):
    """A claim with the group of receivers that it speaks of."""
    if "receivers" not in claim:
        return claim
    return {**claim, "of": {**wanted["receivers"], **{key: claim[key] for key in ("flow", "capacity") if key in claim}, "at": plan.get("at", [])}}


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


def judged(what, value, bounds, better=None):
    """A criterion in words, and the verdict. Where `better` is low or high, the other bound is none, and the words say so."""
    low, high = bounds
    words = f"at most {high:.5g}" if better == "low" else f"at least {low:.5g}" if math.isinf(high) or better == "high" else f"{low:.5g} to {high:.5g}"
    return f"{'at least as good: ' if better else ''}{what} {words}", "met" if inside(value, bounds) else "missed"


def quotient(value, base):
    """Nothing over nothing is 1."""
    return value / base if base else 1.0 if value == 0 else math.inf


def as_row(name, ours, theirs, interval, rule, verdict):
    return {"row": name, "runs": len(ours.values), "mean": number(ours.mean), "ci95": number(ours.half),
            "least": number(min(ours.values, default=math.nan)), "most": number(max(ours.values, default=math.nan)),
            "published": "" if theirs is None else theirs if isinstance(theirs, str) else number(theirs), "published_ci95": interval,
            "ratio": number(quotient(ours.mean, theirs)) if theirs and not isinstance(theirs, str) else "", "criterion": rule, "verdict": verdict, "since": ""}


def number(value):
    return "" if math.isnan(value) else f"{value:.4g}"
