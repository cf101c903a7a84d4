"""Record what rliable gives for fixed scores: the reference of the tests of statistics.

    python experiments/record_rliable.py tests/report/data/rliable.json

It needs an environment of its own: rliable 1.2.0 wants arch 7.2.0, which does not work
beside pandas 3 (`pip install rliable==1.2.0 "pandas<3"`). The scores are made here and
stored with the numbers, so that the tests need neither.
"""

import json
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

REPETITIONS = 20_000
THRESHOLDS = np.linspace(-0.5, 2.0, 11)
PACKAGES = ("rliable", "arch", "numpy", "scipy", "pandas")


def make_scores() -> dict[str, np.ndarray]:
    """Two algorithms on six tasks of different difficulty, 10 and 7 runs, with ties."""
    rng = np.random.default_rng(7)
    level = np.array([0.1, 0.4, 0.6, 0.9, 1.2, 1.6])
    x = rng.normal(level, 0.3, (10, 6))
    y = rng.normal(level - 0.1, 0.2, (7, 6))
    y[:3, 2] = x[:3, 2]  # Ties count half.
    x[:, 5] = np.round(x[:, 5], 1)
    y[:, 5] = np.round(y[:, 5], 1)
    single = rng.gamma(2.0, 50.0, (25, 1))  # One task in raw returns, skewed.
    return {"x": x, "y": y, "single": single}


def main() -> None:
    # Only this program's own environment has it.
    from rliable import library, metrics  # pyright: ignore[reportMissingImports]

    functions: dict[str, Callable[..., Any]] = {
        "iqm": metrics.aggregate_iqm,
        "mean": metrics.aggregate_mean,
        "median": metrics.aggregate_median,
        "optimality_gap": metrics.aggregate_optimality_gap,
    }
    np.random.seed(0)
    scores = make_scores()
    record: dict[str, Any] = {
        "versions": {name: metadata.version(name) for name in PACKAGES},
        "repetitions": REPETITIONS,
        "scores": {name: values.tolist() for name, values in scores.items()},
        "thresholds": THRESHOLDS.tolist(),
        "estimates": {},
    }
    for name, values in scores.items():
        points, ends = library.get_interval_estimates(
            {name: values},
            lambda s: np.array([function(s) for function in functions.values()]),
            reps=REPETITIONS,
        )
        record["estimates"][name] = {
            statistic: [points[name][i], *ends[name][:, i]]
            for i, statistic in enumerate(functions)
        }
    pair = {"x,y": [scores["x"], scores["y"]]}
    points, ends = library.get_interval_estimates(
        pair,
        lambda x, y: np.array([metrics.probability_of_improvement(x, y)]),
        reps=REPETITIONS // 10,
    )
    record["improvement"] = [points["x,y"][0], *ends["x,y"][:, 0]]
    points, ends = library.create_performance_profile(
        {"x": scores["x"]}, THRESHOLDS, reps=REPETITIONS
    )
    record["profile"] = [points["x"].tolist(), *ends["x"].tolist()]
    Path(sys.argv[1]).write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
