"""The runs of a plan on local processes, Dask or Ray, with the same results.

    results = headwater.sweep.run("plan.toml", backend="dask", client="tcp://scheduler:8786", shards=64)

Workers need the package and `headwater-lab`, and no shared folder: a task has the plan's text, and returns the
results of its part of the runs.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, Literal

from ._errors import HeadwaterError, UsageError
from ._session import Path
from ._simulate import Results, call, results_of, simulate

if TYPE_CHECKING:
    import distributed

__all__ = ["Backend", "run"]

#: Place of the runs.
Backend = Literal["local", "dask", "ray"]
#: Attempts of a part after the first, if its process or worker ends.
RETRIES = 2
_SHARDS_PER_CORE = 4


def run(
    plan: Path,
    *,
    backend: Backend = "local",
    shards: int | None = None,
    out: Path | None = None,
    seed: int | None = None,
    program: Path | None = None,
    client: distributed.Client | str | None = None,
) -> Results:
    """Runs a plan in `shards` parts and returns the results of all runs, as `headwater.simulate` returns them.

    By default there are 4 parts for each core of this machine. Parts with results in the folder `out` are not done
    again. A part whose worker ends is done again, up to twice. `client` is a client of Dask or the address of its
    scheduler, by default a cluster of local processes; Ray is the one of `ray.init`. Each part uses one core.
    `program` is the simulator on the workers, by default `headwater-lab` in their search path.

    Raises `UsageError` for a faulty plan or argument before any run, else the exception of the first part that
    failed three times.
    """
    count = (os.cpu_count() or 1) * _SHARDS_PER_CORE if shards is None else shards
    if count < 1:
        raise UsageError(f"shards: {count}; at least 1 part is needed")
    if backend not in ("local", "dask", "ray"):
        raise UsageError(f"backend: there is no '{backend}'; choose local, dask or ray")
    if client is not None and backend != "dask":
        raise UsageError(f"client: for the backend dask alone, not for {backend}")
    call(["--dry-run", os.fspath(plan)], seed, program)
    with tempfile.TemporaryDirectory() as scratch:
        folder = FilePath(out if out is not None else scratch)
        folder.mkdir(parents=True, exist_ok=True)
        missing = [number for number in range(count) if not results_of(folder, (number, count)).exists()]
        task = _Task(FilePath(plan).read_bytes(), count, seed, None if program is None else os.fspath(program))
        for number, lines in _parts(backend, task, missing, client):
            partial = results_of(folder, (number, count)).with_suffix(".part")
            partial.write_bytes(lines)
            partial.replace(partial.with_suffix(".jsonl"))
        # All runs have results: this merges the parts, in the order of the plan.
        return simulate(plan, out=folder, seed=seed, program=program)


class _Task:
    """A part of a plan's runs, for any process on any machine."""

    def __init__(self, plan: bytes, count: int, seed: int | None, program: str | None) -> None:
        self.plan, self.count, self.seed, self.program = plan, count, seed, program

    def __call__(self, number: int) -> bytes:
        with tempfile.TemporaryDirectory() as scratch:
            folder, shard = FilePath(scratch), (number, self.count)
            plan = folder / "plan.toml"
            plan.write_bytes(self.plan)
            call(["--jobs", "1", "--out", scratch, "--shard", f"{number}/{self.count}", str(plan)], self.seed, self.program)
            results = results_of(folder, shard)
            # A plan may have fewer runs than parts.
            return results.read_bytes() if results.exists() else b""


def _parts(
    backend: Backend, task: _Task, numbers: list[int], client: distributed.Client | str | None
) -> Iterator[tuple[int, bytes]]:
    if not numbers:
        return iter(())
    if backend == "local":
        return _local(task, numbers)
    if backend == "dask":
        return _dask(task, numbers, client)
    return _ray(task, numbers)


def _local(task: _Task, numbers: list[int]) -> Iterator[tuple[int, bytes]]:
    def persistent(number: int) -> bytes:
        for _ in range(RETRIES):
            try:
                return task(number)
            except UsageError:
                raise
            except (HeadwaterError, OSError, subprocess.SubprocessError):
                continue
        return task(number)

    # Each part is a process of the simulator; the threads wait.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield from zip(numbers, pool.map(persistent, numbers), strict=True)


def _dask(task: _Task, numbers: list[int], client: distributed.Client | str | None) -> Iterator[tuple[int, bytes]]:
    try:
        import distributed
    except ImportError as error:
        raise UsageError("backend: dask is not installed; pip install 'headwater[dask]'") from error
    # Without the dashboard, which takes a port.
    options: dict[str, Any] = {} if client else {"threads_per_worker": 1, "dashboard_address": None}
    own = None if isinstance(client, distributed.Client) else distributed.Client(client, **options)
    connected: Any = own or client
    try:
        futures = connected.map(task, numbers, retries=RETRIES, pure=False)
        by_key = dict(zip((future.key for future in futures), numbers, strict=True))
        for future in distributed.as_completed(futures):
            yield by_key[future.key], future.result()
    finally:
        if own is not None:
            own.close()


def _ray(task: _Task, numbers: list[int]) -> Iterator[tuple[int, bytes]]:
    try:
        import ray
    except ImportError as error:
        raise UsageError("backend: ray is not installed; pip install 'headwater[ray]'") from error
    if not ray.is_initialized():
        ray.init(include_dashboard=False, log_to_driver=False)
    remote = ray.remote(max_retries=RETRIES, retry_exceptions=True)(_in_ray)
    shared = ray.put(task)
    waiting = {remote.remote(shared, number): number for number in numbers}
    while waiting:
        done, _ = ray.wait(list(waiting), num_returns=1)
        for part in done:
            try:
                lines = ray.get(part)
            except ray.exceptions.RayTaskError as error:
                raise error.cause if isinstance(error.cause, HeadwaterError) else error from None
            yield waiting.pop(part), lines


def _in_ray(task: _Task, number: int) -> bytes:
    return task(number)
