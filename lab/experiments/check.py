"""Faults of what is judged: published values without a criterion, goals newer than their results, rows without a result."""

import json

from judge import claim_values, gather, has_criterion, instances, is_of, is_spoken_of, listed, matches, not_complete, of_group, published_values, read, table_goals, table_name
from plans import day_of, digest, expected_cells, name_cells, name_of, plan_of, results_in


def check(folders, arguments):
    """Prints each fault with file and row; how many there are."""
    faults, with_results, without = [], {}, []
    for folder in folders:
        file, wanted = folder / "verdict.toml", read(folder)
        claims = list(instances(folder, wanted))
        faults += [f"{file}: {fault}" for fault in unjudged(folder, wanted, claims) + undated(wanted, claims)]
        plan, text, _ = plan_of(folder, wanted, arguments.form, arguments.runs)
        results = results_in(arguments.out, arguments.form, name_of(folder), digest(text))
        world = "testbed" if folder.parent.name == "testbed" else "simulator"
        if results:
            with_results[world] = with_results.get(world, 0) + 1
            faults += [f"{file}: {fault}" for fault in newer(wanted, claims, day_of(results)) + missing(folder, wanted, claims, plan, results)]
        elif goals_of(wanted, claims):
            without.append((world, file))
    # Where nothing of a world was run, its rows have not been asked for.
    faults += [f"{file}: no result of the {arguments.form} form" for world, file in without if world in with_results]
    print("".join(f"{fault}\n" for fault in faults), end="")
    print(f"{len(folders)} experiments, {sum(with_results.values())} with results of the {arguments.form} form in {arguments.out}: {len(faults)} faults")
    for world in ("simulator", "testbed"):
        if world not in with_results:
            print(f"{world}: no results, so that only criteria of published values, and days and reasons of goals, were checked")
    return len(faults)


def unjudged(folder, wanted, claims):
    """Rows with a published number and without a criterion."""
    found = [f"'{claim['name']}' has {claim['published']} published and no criterion" for claim in claims
             if isinstance(claim["published"], (int, float)) and not has_criterion(claim)]
    if "table" in wanted:
        table = wanted["table"]
        for row in published_values(folder / wanted.get("published", "published.csv")):
            if is_spoken_of(row, table) and not any(map(has_criterion, table_goals(table, row))):
                found.append(f"'{table_name(table, row, {})}' has {row['mean']} published and no criterion")
    return found


def goals_of(wanted, claims):
    """(name, goal) of everything that must hold."""
    tables = [(criterion, goal) for criterion, goals in wanted.get("table", {}).get("holds", {}).items()
              for goal in listed(goals)]
    return tables + [(claim["name"], claim) for claim in claims if has_criterion(claim)]


def undated(wanted, claims):
    """Goals of which the day or the reason is not told."""
    found = []
    for key in ("since", "because"):
        found += [f"'{name}' has a goal and no `{key}`" for name, goal in goals_of(wanted, claims)
                  if not (goal.get(key) or wanted.get(key)) and "suffix" not in goal]
    return list(dict.fromkeys(found))


def newer(wanted, claims, day):
    """Goals that were written down after the day of their results."""
    goals = {(name, goal.get("since") or wanted.get("since", "")) for name, goal in goals_of(wanted, claims)}
    return [f"'{name}' has a goal of {since}, and results of {day}" for name, since in sorted(goals) if since > day]


def missing(folder, wanted, claims, plan, results):
    """Rows that the plan has a cell for and the results no value."""
    expected, found = expected_cells(plan), gather([json.loads(line) for line in results.read_text().splitlines()])
    name_cells(folder, wanted, expected)
    name_cells(folder, wanted, found)
    known = {json.dumps(cell, sort_keys=True): lines for cell, lines in found}
    rows = []
    for claim in claims:
        claim = of_group(claim, wanted, plan)
        for cell, _ in expected:
            if not matches(cell, claim.get("where", {})) or any(path in cell for path in claim.get("without", [])):
                continue
            lines = known.get(json.dumps(cell, sort_keys=True))
            # A transfer that is not complete is a miss, which its row tells.
            has_value = lines and (claim_values(claim, cell, lines) or not_complete(claim, cell, lines, 0))
            if has_criterion(claim) and not has_value:
                words = [f"{' '.join(path.split('.')[-2:])} {value}" for path, value in cell.items() if path in claim.get("show", cell)]
                rows.append(f"no result of '{', '.join([claim['name'], *words])}'")
    if "table" in wanted:
        table = wanted["table"]
        for row in published_values(folder / wanted.get("published", "published.csv")):
            cells = [cell for cell, _ in expected if is_of(row, table, cell)]
            if cells and not any(json.dumps(cell, sort_keys=True) in known for cell in cells):
                rows.append(f"no result of '{table_name(table, row, {})}'")
    return list(dict.fromkeys(rows))
