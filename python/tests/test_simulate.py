"""Experiments."""

import os
import shutil
import signal
import sys
import threading
from pathlib import Path

import headwater as hw
import pytest

PLANS = Path(__file__).resolve().parents[2] / "lab/experiments/examples"


def test_a_plan_has_rows(tmp_path):
    results = hw.simulate(PLANS / "partition.toml", out=tmp_path)
    assert results.rows and results.rows == hw.simulate(PLANS / "partition.toml").rows
    halves = [hw.simulate(PLANS / "bernoulli.toml", shard=(number, 2), jobs=1).rows for number in range(2)]
    whole = hw.simulate(PLANS / "bernoulli.toml").rows
    assert sorted(halves[0] + halves[1], key=lambda row: row["key"]) == whole
    flows = results.flat()
    assert {"seed", "flow.name", "flow.throughput"} <= flows[0].keys()


def test_frames(tmp_path):
    results = hw.simulate(PLANS / "partition.toml", out=tmp_path)
    pandas = pytest.importorskip("pandas")
    assert isinstance(results.to_pandas(), pandas.DataFrame) and len(results.to_pandas()) == len(results.flat())


def test_a_faulty_plan_is_named(tmp_path):
    plan = tmp_path / "plan.toml"
    plan.write_text('name = "a"\nsedd = 1\n')
    with pytest.raises(hw.HeadwaterError, match="sedd"):
        hw.simulate(plan)


PLAN = PLANS / "bernoulli.toml"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    hw.simulate(PLAN, out=folder)
    return (folder / "results.jsonl").read_bytes()


def test_a_sweep_has_the_same_bytes(tmp_path, whole):
    results = hw.sweep.run(PLAN, shards=5, out=tmp_path)
    assert (tmp_path / "results.jsonl").read_bytes() == whole
    assert results.rows == hw.simulate(PLAN, out=tmp_path).rows
    # Parts that are there are not done again.
    assert hw.sweep.run(PLAN, shards=5, out=tmp_path, backend="dask", client="tcp://127.0.0.1:1").rows == results.rows


def mortal(tmp_path):
    """A simulator that is killed at its first run."""
    found, mark = shutil.which("headwater-lab", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}"), tmp_path / "killed"
    program = tmp_path / "mortal"
    program.write_text(
        f'#!/bin/sh\ncase "$*" in *--dry-run*) ;; *--shard*) mkdir {mark} 2>/dev/null && kill -9 $$ ;; esac\nexec {found} "$@"\n'
    )
    program.chmod(0o755)
    return program, mark


@pytest.mark.parametrize("backend", ["local", "dask", "ray"])
def test_a_killed_run_is_done_again(tmp_path, whole, backend):
    if backend != "local":
        pytest.importorskip({"dask": "distributed"}.get(backend, backend))
    program, mark = mortal(tmp_path)
    hw.sweep.run(PLAN, shards=4, out=tmp_path / "out", program=program, backend=backend)
    assert mark.exists() and (tmp_path / "out/results.jsonl").read_bytes() == whole


def test_a_worker_of_dask_that_is_killed_costs_nothing(tmp_path, whole):
    distributed = pytest.importorskip("distributed")
    program = tmp_path / "slow"
    found = shutil.which("headwater-lab", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    program.write_text(f'#!/bin/sh\ncase "$*" in *--shard*) sleep 0.3 ;; esac\nexec {found} "$@"\n')
    program.chmod(0o755)
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        victim = next(iter(client.run(os.getpid).values()))
        timer = threading.Timer(0.5, os.kill, (victim, signal.SIGKILL))
        timer.start()
        hw.sweep.run(PLAN, shards=8, out=tmp_path / "out", backend="dask", client=client, program=program)
        timer.join()
    assert (tmp_path / "out/results.jsonl").read_bytes() == whole


def test_what_is_wrong_with_a_sweep_is_named(tmp_path):
    plan = tmp_path / "plan.toml"
    plan.write_text('name = "a"\nsedd = 1\n')
    for arguments, named in (
        ({"plan": plan}, "sedd"), ({"plan": PLAN, "shards": 0}, "shards"), ({"plan": PLAN, "backend": "slurm"}, "slurm"),
        ({"plan": PLAN, "client": "tcp://127.0.0.1:1"}, "client"),
    ):
        with pytest.raises(hw.UsageError, match=named):
            hw.sweep.run(**arguments)
    # A simulator that always fails: its words, after three attempts.
    program = tmp_path / "broken"
    program.write_text('#!/bin/sh\ncase "$*" in *--dry-run*) exit 0 ;; esac\necho x >> ' + str(tmp_path / "calls") + "\necho no luck >&2\nexit 7\n")
    program.chmod(0o755)
    with pytest.raises(hw.StoreError, match="no luck"):
        hw.sweep.run(PLAN, shards=1, program=program)
    assert (tmp_path / "calls").read_text() == "x\n" * 3
