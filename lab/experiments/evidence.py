#!/usr/bin/env python3
"""Puts what verdict.py found into one page: every published number beside ours, from the simulator and from the testbed.

    evidence.py [--from DIR ...] [--page FILE]

DIR is an --out of verdict.py (default: /tmp/headwater-verdicts). Of each experiment the newest results of the full form are taken, else what the page has
already, with the tables of the notebook (which verdict.py makes, of the full form) in its place where they have the same rows, else the short form, which is said. The page
says which were run again. An experiment without any is named. A testbed's experiment that has the plan of a simulated one stands beside
it. Rows that neither a paper nor a goal speaks of are left out. Reasons are those of verdict.toml.
"""

import argparse
import csv
import pathlib
import re
import sys
import tomllib

from judge import read
from plans import name_of

HERE = pathlib.Path(__file__).resolve().parent
HEAD = """# Evidence: what was published, and what came out

Made by `python3 lab/experiments/evidence.py` from the tables of `lab/experiments/verdict.py`; not written by hand. What each row means stands with its experiment
([experiments](../experiments/README.md)); what was found out about the differences at length in [multirate](multirate.md), [single-rate](single-rate.md), [rainbow](rainbow.md) and [sim](sim.md).
"""
PAPERS = {"m2c": "M2C and the sequencer (Lucas, Pansiot, Grad, Hilt 2010)", "le_sbcc": "LE-SBCC (Thapliyal, Sidhartha, Li, Kalyanaraman)",
          "rainbow": "Rainbow (Yano, McCanne 1999)", "sim": "SIM (Gorinsky, Ramakrishnan, Vin)", "control": "M2C's control by goals of ours",
          "groups": "M2C on fewer groups", "security": "Sessions with signatures", "testbed": "The testbed's own"}

# In the names of rows that are judged by a goal that was replaced.
FORMER = ", goal of "


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--from", dest="folders", nargs="+", type=pathlib.Path, default=[pathlib.Path("/tmp/headwater-verdicts")], metavar="DIR")
    parser.add_argument("--page", type=pathlib.Path, metavar="FILE", help="write here (default: standard output)")
    arguments = parser.parse_args()
    before = arguments.page.read_text() if arguments.page and arguments.page.exists() else ""
    found = {folder: Found(folder, arguments.folders, before) for folder in sorted(path.parent for path in HERE.glob("*/*/verdict.toml"))}
    beside = {one.simulated: one for one in found.values() if one.simulated in found}
    text, tally, missing = [HEAD], [], []
    for paper, title in PAPERS.items():
        sections = [section(one, beside.get(folder)) for folder, one in found.items()
                    if folder.parent.name == paper and one not in beside.values() and (one.rows or beside.get(folder, one).rows)]
        missing += [f"{paper}/{folder.name}" for folder, one in found.items() if folder.parent.name == paper and not one.rows and one.judges and not one.is_new]
        text += [f"\n## {title}\n", *sections] if sections else []
        rows = [row for folder, one in found.items() if folder.parent.name == paper for row in one.rows]
        count = lambda verdict, is_former: sum(row["verdict"].startswith(verdict) and (FORMER in row["row"]) == is_former for row in rows)
        counts = [count(verdict, False) for verdict in ("met", "missed", "shown")] + [count(verdict, True) for verdict in ("met", "missed")]
        tally.append(f"| {title} | {' | '.join(map(str, counts))} |\n")
    text.insert(1, "\nRows by their goals, and by goals that were replaced, which stand below the rows as \"goal of\" their day.\n\n"
                "| | met | missed | shown beside what was published | replaced: met | replaced: missed |\n|---|---|---|---|---|---|\n" + "".join(tally))
    again = [f"{folder.parent.name}/{folder.name}" for folder, one in found.items() if one.is_new]
    text.append(f"\n## Made again\n\nRun last: {', '.join(again) or 'none'}. All else stands as it came out before, by the goals of its day: a row that is shown there "
                "and has a goal in verdict.toml by now is judged when it is run again.\n")
    if missing:
        text.append(f"\n## Not run\n\nNo results were there of: {', '.join(missing)}.\n")
    page = "".join(text)
    if arguments.page:
        arguments.page.write_text(page)
    else:
        sys.stdout.write(page)


class Found:
    """An experiment, and the newest of its tables."""

    def __init__(self, folder, roots, before):
        self.wanted = read(folder)
        # Those that only show what comes out have no rows here.
        claims = self.wanted.get("claims", [])
        self.judges = "table" in self.wanted or any(key in claim for claim in claims for key in ("holds", "ratio", "published"))
        self.world = "testbed" if folder.parent.name == "testbed" else "simulated"
        # A plan of another window is another experiment.
        self.simulated = (folder / self.wanted["plan"]).resolve().parent if "plan" in self.wanted and "set" not in self.wanted else None
        title = tomllib.loads((self.simulated / "verdict.toml").read_text())["title"] if self.simulated else self.wanted["title"]
        kept, self.form = from_page(before, title, self.world)
        # The page may have rows that docs leave out; what docs have is newer.
        self.rows = list({row["row"].replace("_", " "): row for row in kept + from_notebook(name_of(folder))}.values())
        tables = [path for root in roots for form in ("full", "short") for path in root.glob(f"{form}-*/{name_of(folder)}.csv")]
        # The full form before the short one, then the newest.
        path = max(tables, key=lambda path: (path.parent.name.startswith("full"), path.stat().st_mtime), default=None)
        self.is_new = bool(path) and (not self.rows or self.form == "short" or path.parent.name.startswith("full"))
        if self.is_new:
            self.form = path.parent.name.split("-")[0]
            self.rows = list(csv.DictReader(path.open()))
        # The page has no underscores.
        self.rows = [{**row, "row": row["row"].replace("_", " "), "reason": self.reason(row["row"])} for row in self.rows if row["published"] or row["criterion"]]

    def reason(self, name):
        """What verdict.toml says of a row: of its claim, or by words that are in it."""
        plain = lambda text: text.replace("_", " ")
        for claim in self.wanted.get("claims", []):
            # Cells of one claim are told apart by what it shows.
            shown = [f"{' '.join(path.split('.')[-2:])} {claim['where'][path]}" for path in claim.get("show", []) if path in claim.get("where", {})]
            if plain(name).startswith(plain(claim["name"])) and all(plain(word) in plain(name) for word in shown) and "reason" in claim:
                return claim["reason"]
        reasons = self.wanted.get("table", {}).get("reasons", {})
        return next((why for words, why in reasons.items() if all(plain(word) in plain(name) for word in words.split())), "")


def from_page(page, title, world):
    """The rows of a section of the page as it was, of one of its worlds; and the form of its runs."""
    section = page.partition(f"\n### {title}\n")[2].partition("\n#")[0]
    table = [[cell.strip() for cell in line[1:-2].split(" | ")] for line in section.splitlines() if line.startswith("| ")]
    if not table or world not in table[0]:
        return [], "full"
    head, *lines = table
    own = head.index(world)
    rows = []
    for line in lines:
        mean, ratio, verdict = line[own:own + 3]
        runs, _, day = line[own + 3].partition(", ") if head[own + 3] == "runs" else ("", "", "")
        if mean:
            rows.append(row(line[0], mean, line[1], ratio, line[head.index("goal")], verdict, runs, day))
    return rows, "short" if "The short form:" in section else "full"


def row(what, ours, published, ratio, criterion, verdict, runs="", measured=""):
    (mean, _, half), (value, _, interval) = (text.partition(" ± ") for text in (ours, published))
    return {"row": what, "mean": mean, "ci95": half, "published": value, "published_ci95": interval, "ratio": ratio, "criterion": criterion, "verdict": verdict,
            "runs": runs, "measured": measured}


def from_notebook(name):
    """The rows of an experiment's tables in the notebook."""
    rows = []
    for page in sorted((HERE.parent / "notebook").glob("*.md")):
        for table in re.findall(rf"<!-- verdict {re.escape(name)}:[^>]* -->\n(.*?)<!-- end -->", page.read_text(), re.DOTALL):
            if not table:
                continue
            head, _, *lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
            for line in lines:
                cells = dict(zip(head, line))
                rows.append(row(cells["what"], cells.get("ours", ""), cells.get("published", ""), cells.get("ratio", ""), cells.get("goal", ""), cells["verdict"], cells.get("runs", "")))
    return rows


def section(one, testbed):
    """An experiment's table; with the testbed's rows beside, where that ran the same plan."""
    others = {row["row"]: row for row in testbed.rows} if testbed else {}
    own = {row["row"]: row for row in one.rows}
    names = [*own, *(name for name in others if name not in own)]
    table, reasons = [], []
    for name in names:
        row, other = own.get(name), others.get(name)
        known = row or other
        published = known["published"] + (f" ± {known['published_ci95']}" if known["published_ci95"] else "")
        cells = [name.replace("_", " "), published, *(ours(row) if row else [""] * 4), *((ours(other) if other else [""] * 4) if testbed else [])]
        cells += [known["criterion"].replace("|", "/")]
        reason = next((of["reason"] for of in (row, other) if of and of["reason"]), "")
        if reason and reason not in reasons:
            reasons.append(reason)
        cells.append(f"[{reasons.index(reason) + 1}]" if reason else "")
        table.append(f"| {' | '.join(cells)} |\n")
    heads = ["what", "published", one.world, "ratio", "verdict", "runs"]
    heads += ["testbed", "ratio", "verdict", "runs"] if testbed else []
    heads += ["goal", "why"]
    form = " The short form: a few runs of a few cells." if "short" in (one.form, testbed.form if testbed else "") else ""
    lines = [f"\n### {one.wanted['title']}\n\n{one.wanted.get('about', '').strip()}{form}\n\n", f"| {' | '.join(heads)} |\n", "|---" * len(heads) + "|\n", *table]
    lines += ["\n"] * bool(reasons) + [f"{number}. {reason}\n" for number, reason in enumerate(reasons, start=1)]
    return "".join(lines)


def ours(row):
    half = f" ± {row['ci95']}" if row["ci95"] else ""
    runs = ", ".join(filter(None, (row["runs"], row.get("measured"))))
    return [f"{row['mean']}{half}", row["ratio"], row["verdict"], runs]


if __name__ == "__main__":
    main()
