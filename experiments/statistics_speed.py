"""The time that the statistics take: 4096 seeds, 2000 bootstrap resamples.

    python experiments/statistics_speed.py [SEEDS [RESAMPLES]]

Compiling is apart: the first call against the median of the next. The programs' rows
are waited for on the device; the others are whole calls, checks and quantiles included.
"""

import statistics as standard
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl.report import statistics
from purerl.report.statistics import resampling

ROUNDS = 7
POINTS = 100


def clock(name: str, call: Callable[[], Any]) -> None:
    """Print the first call's seconds and the median milliseconds of the others."""
    times = []
    for _ in range(ROUNDS + 1):
        started = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - started)
    usual = standard.median(times[1:])
    print(f"{name:44s} {1e3 * usual:9.1f} ms   first call {times[0]:6.2f} s")


def main() -> None:
    """Time the statistics for a number of seeds and resamples."""
    seeds, resamples = [*map(int, sys.argv[1:3]), *(4096, 2000)[len(sys.argv) - 1 :]]
    device = jax.local_devices()[0]
    print(
        f"{seeds} seeds, {resamples} resamples, {device.platform} {device.device_kind}"
    )
    rng = np.random.default_rng(0)
    x, y = rng.gamma(2.0, 50.0, (2, seeds))
    key, column = jax.random.key(0), jnp.asarray(x, jnp.float32)[:, None]
    other = jnp.asarray(y, jnp.float32)[:, None]
    curves = rng.normal(size=(seeds, POINTS))
    levels = np.linspace(0, 300, POINTS)
    options: Any = {"resamples": resamples}
    for name in ("iqm", "mean"):
        clock(
            f"program: {name}",
            lambda name=name: resampling.aggregate_resamples(
                key, column, (name,), 1.0, resamples
            ),
        )
    clock(
        "program: probability of improvement",
        lambda: resampling.improvement_resamples(key, column, other, resamples),
    )
    clock("call: IQM with interval", lambda: statistics.estimate(x, **options))
    clock(
        "call: IQM, mean, median, optimality gap",
        lambda: statistics.estimates(x, **options),
    )
    clock(
        "call: probability of improvement",
        lambda: statistics.probability_of_improvement(x, y, **options),
    )
    clock(
        f"call: performance profile, {POINTS} thresholds",
        lambda: statistics.performance_profile(x, levels, **options),
    )
    clock(
        f"call: IQM of a curve of {POINTS} points",
        lambda: statistics.curve(curves, **options),
    )
    clock(
        "call: power curve, 11 sizes to 100 seeds",
        lambda: statistics.power_curve(difference=20.0, std=50.0),
    )


if __name__ == "__main__":
    main()
