"""A plan that sweeps, and a plot of throughput over what it sweeps (needs pandas and matplotlib).

    python examples/sweep.py PLAN COLUMN plot.png [--backend dask]      COLUMN: a key of the plan's cells, as cell.loss
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import get_args

import headwater as hw


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plan", type=Path)
    parser.add_argument("column")
    parser.add_argument("plot", type=Path)
    parser.add_argument("--backend", choices=get_args(hw.sweep.Backend), default="local")
    options = parser.parse_args()
    rows = hw.sweep.run(options.plan, backend=options.backend).to_pandas()
    if options.column not in rows:
        parser.error(f"no column '{options.column}'; there are {', '.join(sorted(rows.columns))}")
    mean = rows.groupby([options.column, "flow.name"])["flow.throughput"].mean().unstack() / 1e6
    axes = mean.plot(marker="o", xlabel=options.column, ylabel="throughput in Mbit/s", title=options.plan.stem)
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.savefig(options.plot)
    print(mean)


if __name__ == "__main__":
    main()
