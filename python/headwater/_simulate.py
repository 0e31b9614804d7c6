"""Experiments in the packet simulator, by the command `headwater-lab`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from ._errors import HeadwaterError, UsageError, of_exit_code
from ._session import Path

if TYPE_CHECKING:
    import pandas
    import polars

_PROGRAM = "headwater-lab"


@dataclass(frozen=True)
class Results:
    """Results of a plan's runs."""

    #: One object for each run, sorted by its key.
    rows: list[dict[str, Any]]

    def flat(self) -> list[dict[str, Any]]:
        """A row for each flow of each run; nested objects are columns with points in their names."""
        flat = []
        for row in self.rows:
            run = dict(_flat("", {key: value for key, value in row.items() if key != "flows"}))
            flat += [run | dict(_flat("flow", flow)) for flow in row.get("flows") or [{}]]
        return flat

    def to_pandas(self) -> pandas.DataFrame:
        """A data frame of pandas: a row for each flow of each run."""
        import pandas

        return pandas.DataFrame(self.flat())

    def to_polars(self) -> polars.DataFrame:
        """A data frame of Polars: a row for each flow of each run."""
        import polars

        return polars.DataFrame(self.flat(), infer_schema_length=None)


def _flat(prefix: str, value: object) -> list[tuple[str, object]]:
    if not isinstance(value, dict):
        return [(prefix, value)]
    return [pair for key, inner in value.items() for pair in _flat(f"{prefix}.{key}" if prefix else key, inner)]


def simulate(
    plan: Path,
    *,
    jobs: int | None = None,
    shard: tuple[int, int] | None = None,
    out: Path | None = None,
    seed: int | None = None,
    program: Path | None = None,
) -> Results:
    """Runs a plan (docs/reference/plans.md) and returns the results of its runs.

    `shard=(i, n)` does every n-th run from the i-th on. Runs with results in `out` are not done again. The
    simulator is `headwater-lab`, in the search path, or `program`.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = FilePath(out if out is not None else scratch)
        options = ["--out", os.fspath(folder)]
        if jobs is not None:
            options += ["--jobs", str(jobs)]
        if shard is not None:
            options += ["--shard", f"{shard[0]}/{shard[1]}"]
        call([*options, os.fspath(plan)], seed, program)
        return Results(_read(results_of(folder, shard)))


def call(words: list[str], seed: int | None, program: Path | None) -> None:
    """Calls `headwater-lab simulate`, and raises the exception of the exit code."""
    found = os.fspath(program) if program is not None else _find()
    seeded = [] if seed is None else ["--seed", str(seed)]
    command = [found, "simulate", "--quiet", *seeded, *words]
    run = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if run.returncode < 0:
        raise HeadwaterError(f"'{found}' was killed by signal {-run.returncode}")
    if run.returncode != 0:
        raise of_exit_code(run.returncode, run.stderr.strip().removeprefix(f"{_PROGRAM}: "))


def results_of(folder: FilePath, shard: tuple[int, int] | None) -> FilePath:
    """File of the results of a shard, or of all runs."""
    return folder / ("results.jsonl" if shard is None else f"results.{shard[0]}-of-{shard[1]}.jsonl")


def _read(results: FilePath) -> list[dict[str, Any]]:
    # A shard of a short plan may have no run.
    lines = results.read_text().splitlines() if results.exists() else []
    rows: list[dict[str, Any]] = [json.loads(line) for line in lines if line.strip()]
    return sorted(rows, key=lambda row: str(row.get("key", "")))


def _find() -> str:
    beside = FilePath(sys.executable).with_name(_PROGRAM)
    if beside.exists():
        return str(beside)
    if found := shutil.which(_PROGRAM):
        return found
    raise UsageError(
        f"program: '{_PROGRAM}' is not installed; in a checkout: cargo install --locked --path lab/cli, or name it"
    )
