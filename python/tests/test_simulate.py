"""Experiments."""

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
