"""Plans of experiments: the form that is run, where its results lie, and the cells that it has."""

import datetime
import hashlib
import itertools
import json
import tomllib

from judge import call, flatten


def name_of(folder):
    """Name of an experiment: that of its paper and its own."""
    return f"{folder.parent.name}-{folder.name}"


def digest(content):
    return hashlib.sha256(content).hexdigest()[:8]


def plan_of(folder, wanted, form, runs=None):
    """The plan of a form, and its text where it is not that of the file as it stands."""
    path = folder / wanted.get("plan", "plan.toml")
    plan = tomllib.loads(path.read_text())
    short = wanted.get("short", {}) if form == "short" else {}
    runs = runs or short.get("runs")
    if not (runs or short or "set" in wanted):
        return plan, path.read_bytes(), path
    plan |= {**wanted.get("set", {}), **short.get("set", {})}
    plan["runs"] = runs or plan.get("runs", 1)
    for sweep, keep in zip(plan.get("sweep", []), short.get("keep", [])):
        for values in sweep.values():
            values[:] = [values[index] for index in keep]
    return plan, "".join(f"{key} = {toml(value)}\n" for key, value in plan.items()).encode(), None


def toml(value):
    """A value as TOML, on one line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def expected_cells(plan):
    """Every cell of a plan, flattened as those of results are."""
    places = [range(len(next(iter(sweep.values())))) for sweep in plan.get("sweep", [])]
    cells = []
    for choice in itertools.product(*places):
        cell = {}
        for sweep, place in zip(plan.get("sweep", []), choice):
            for path, values in sweep.items():
                flatten(path, values[place], cell)
        cells.append((cell, []))
    return cells


def name_cells(folder, wanted, cells):
    """Gives cells the labels of verdict.toml, which count in the whole plan."""
    whole = tomllib.loads((folder / wanted.get("plan", "plan.toml")).read_text())
    for name, label in wanted.get("labels", {}).items():
        call(cells, name, label["values"], whole["sweep"][label["sweep"]])


def results_in(out, form, name, plan_digest):
    """Newest results of a plan by any program, in a verdict.py --out, if there are some."""
    found = [path for routing in ("", "-bridge", "-frr", "-static") for path in out.glob(f"{form}-*/{name}{routing}-{plan_digest}/results.jsonl")]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def day_of(results):
    """Day (UTC) when results were last written, as YYYY-MM-DD."""
    return datetime.datetime.fromtimestamp(results.stat().st_mtime, datetime.timezone.utc).strftime("%Y-%m-%d")
