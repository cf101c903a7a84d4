"""The coverage of 95% intervals of a mean of few runs: four methods compared.

    python experiments/interval_coverage.py [--repeats 2000] [--pooled]

Samples of n runs are drawn from distributions whose mean is known, and the share of
samples is counted whose interval holds that mean. The distributions stand for scores
over seeds:

* normal;
* exponential, and lognormal with sigma 0.5 and 1: a few runs far better than the rest
  (or, mirrored, far worse);
* halves: each run solves the task or is stuck, with even chances;
* stuck 1 in 5: so, with one chance in five to be stuck. The two kinds lie ten of their
  own standard deviations apart. *Seen* is the share of samples with a run of each
  kind; others do not show where the mean lies, so no method can cover much more often;
* stuck 1 in 10: the same, harsher;
* capped 1 in 5: those that solve the task score exactly its highest return. Runs that
  are all equal get no interval from any method here, and are not counted.

The last column is what `purerl` prints, `purerl.report.statistics.mean_interval`: the
studentised bootstrap from ten runs, below them the range of the runs and no interval.

With `--pooled` it is of statistics of several tasks: samples of n runs of each of M
tasks, with one of these distributions in every task. *Percentile* is the stratified
percentile bootstrap; *printed* is what `purerl.report.statistics.estimates` returns,
whose percentiles lie further out.
"""

from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np
from frame import markdown, mean_interval, options
from scipy import stats

from purerl.report import statistics
from purerl.report.statistics import REACH

RUNS = (2, 3, 4, 5, 8, 10, 12, 16, 32)
RESAMPLES = 1_000
BATCH = 100  # Samples that are resampled side by side.
NORMAL = NormalDist()
Ends = tuple[np.ndarray, np.ndarray]
Draw = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]


def two_kinds(share: float, spread: float = 1.0) -> Draw:
    """Runs at 10, a `share` of them at 0 instead; `spread` of those at 10."""

    def draw(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        stuck, noise = rng.random(shape) < share, rng.normal(size=shape)
        return np.where(stuck, noise, 10.0 + spread * noise)

    return draw


def lognormal(sigma: float) -> Draw:
    """Runs whose logarithms are normal."""
    return lambda rng, shape: np.exp(sigma * rng.normal(size=shape))


DISTRIBUTIONS: dict[str, tuple[Draw, float, float]] = {
    # Name -> what draws, its mean, the share of runs that are stuck.
    "normal": (lambda rng, shape: rng.normal(size=shape), 0.0, 0.0),
    "exponential": (lambda rng, shape: rng.exponential(size=shape), 1.0, 0.0),
    "lognormal 0.5": (lognormal(0.5), float(np.exp(0.125)), 0.0),
    "lognormal 1": (lognormal(1.0), float(np.exp(0.5)), 0.0),
    "halves": (two_kinds(0.5), 5.0, 0.5),
    "stuck 1 in 5": (two_kinds(0.2), 8.0, 0.2),
    "stuck 1 in 10": (two_kinds(0.1), 9.0, 0.1),
    "capped 1 in 5": (two_kinds(0.2, 0.0), 8.0, 0.2),
}


def percentile(x: np.ndarray, means: np.ndarray, t: np.ndarray) -> Ends:
    """Quantiles of resampled means."""
    low, high = np.quantile(means, (0.025, 0.975), axis=1)
    return x.mean(1) + low, x.mean(1) + high


def student(x: np.ndarray, means: np.ndarray, t: np.ndarray) -> Ends:
    """Student's t."""
    half = stats.t.ppf(0.975, x.shape[1] - 1) * _error(x)
    return x.mean(1) - half, x.mean(1) + half


def bca(x: np.ndarray, means: np.ndarray, t: np.ndarray) -> Ends:
    """Bias-corrected and accelerated percentiles (Efron 1987)."""
    count = means.shape[1]
    below = (means < 0).mean(1) + 0.5 * (means == 0).mean(1)
    bias = stats.norm.ppf(np.clip(below, 1 / count, 1 - 1 / count))
    # Leaving out a run shifts the mean against that run's deviation.
    shifts = x - x.mean(1, keepdims=True)
    squares = (shifts**2).sum(1)
    speed = (shifts**3).sum(1) / (6 * np.where(squares > 0, squares, 1.0) ** 1.5)
    ordered, ends = np.sort(means, axis=1), []
    for level in (0.025, 0.975):
        z = bias + NORMAL.inv_cdf(level)
        place = stats.norm.cdf(bias + z / (1 - speed * z)) * count
        place = np.clip(place.astype(int), 0, count - 1)[:, None]
        ends.append(x.mean(1) + np.take_along_axis(ordered, place, axis=1)[:, 0])
    return ends[0], ends[1]


def studentised(x: np.ndarray, means: np.ndarray, t: np.ndarray) -> Ends:
    """Quantiles of resampled t (Efron and Tibshirani 1993, chapter 12)."""
    ordered, place = np.sort(t, axis=1), round(0.025 * (t.shape[1] + 1)) - 1
    error = _error(x)
    low = x.mean(1) - np.minimum(ordered[:, -1 - place], REACH) * error
    high = x.mean(1) + np.minimum(-ordered[:, place], REACH) * error
    return np.maximum(low, x.min(1)), np.minimum(high, x.max(1))


METHODS = {
    "percentile": percentile,
    "t": student,
    "BCa": bca,
    "studentised": studentised,
}


def _error(x: np.ndarray) -> np.ndarray:
    return x.std(1, ddof=1) / np.sqrt(x.shape[1])


def _resample(rng: np.random.Generator, x: np.ndarray) -> Ends:
    """Deviations of resampled means `[R, B]` from the sample's, and their t."""
    runs = x.shape[1]
    centred = x - x.mean(1, keepdims=True)
    weights = rng.multinomial(runs, np.full(runs, 1 / runs), RESAMPLES).T / runs
    means = centred @ weights
    spread = np.maximum(centred**2 @ weights - means**2, 0.0)
    equal = spread <= 1e-12 * (centred**2).sum(1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = means / np.sqrt(spread / (runs - 1))
    infinite = np.where(means > 1e-12, np.inf, np.where(means < -1e-12, -np.inf, 0.0))
    return means, np.where(equal, infinite, t)


def coverage(name: str, runs: int, repeats: int) -> dict[str, str]:
    """Share of intervals that hold the mean, of every method, in words."""
    draw, mean, stuck = DISTRIBUTIONS[name]
    rng = np.random.default_rng(runs)
    x = draw(rng, (repeats, runs))
    x = x[x.std(1) > 0]
    held = dict.fromkeys(METHODS, 0)
    for start in range(0, len(x), BATCH):
        part = x[start : start + BATCH]
        resampled = _resample(rng, part)
        for method, ends in METHODS.items():
            low, high = ends(part, *resampled)
            held[method] += int(((low <= mean) & (mean <= high)).sum())
    found = {method: f"{count / len(x):.2f}" for method, count in held.items()}
    blind = (1 - stuck) ** runs + stuck**runs if stuck else 0.0
    is_counted = not name.startswith("capped")  # Its equal runs are left out.
    found["seen"] = f"{1 - blind:.2f}" if stuck and is_counted else ""
    printed = mean_interval(x.T)
    inside = ((printed.low <= mean) & (mean <= printed.high)).mean()
    shown = f"{inside:.2f}" if printed.kind == "interval" else "range"
    return {**found, "printed": shown}


POOLED = ("normal", "exponential", "lognormal 1", "halves", "stuck 1 in 5")
SHAPES = (  # Statistic, runs of each task, tasks.
    ("iqm", 10, 1),
    ("iqm", 16, 1),
    ("mean", 10, 2),
    ("iqm", 10, 5),
    ("iqm", 5, 8),
)
POPULATION = 4_000_000  # Runs from which the interquartile mean is known.


def truth(name: str, statistic: str) -> float:
    """Return the statistic of the distribution itself."""
    draw, mean, _ = DISTRIBUTIONS[name]
    if statistic == "mean":
        return mean
    runs = draw(np.random.default_rng(1), (POPULATION, 1))
    return statistics.aggregate(runs, statistic)


def pooled_coverage(
    name: str, statistic: str, runs: int, tasks: int, repeats: int
) -> tuple[float, float]:
    """Return the share of samples whose interval holds the truth, by both methods."""
    known, rng = truth(name, statistic), np.random.default_rng(0)
    inside = np.zeros(2)
    for number in range(repeats):
        scores = DISTRIBUTIONS[name][0](rng, (runs, tasks))
        scores = np.sort(scores, axis=0)
        draw = statistics.statistic_of(scores, statistic)
        draws = statistics.bootstrap(
            draw, np.isfinite(scores), statistics.RESAMPLES, number
        )
        plain = np.quantile(draws, (0.025, 0.975))
        printed = statistics.estimate(
            scores, statistic, resamples=statistics.RESAMPLES, seed=number
        )
        for method, (low, high) in enumerate((plain, (printed.low, printed.high))):
            inside[method] += low <= known <= high
    percentile, shown = inside / repeats
    return float(percentile), float(shown)


def main() -> None:
    """Print the table."""
    asked = options(
        __doc__,
        repeats=(2_000, "samples of each"),
        pooled=(False, "statistics of several tasks"),
    )
    if asked.pooled:
        heads = ["scores", "statistic", "runs", "tasks", "percentile", "printed"]
        rows: list[list[Any]] = [
            [*(name, *shape), *(f"{x:.3f}" for x in found)]
            for name in POOLED
            for shape in SHAPES
            for found in [pooled_coverage(name, *shape, asked.repeats)]
        ]
    else:
        heads = ["scores", "runs", *METHODS, "seen", "printed"]
        rows = [
            [name, runs, *map(coverage(name, runs, asked.repeats).get, heads[2:])]
            for name in DISTRIBUTIONS
            for runs in RUNS
        ]
    print("\n".join(markdown(heads, rows)))


if __name__ == "__main__":
    main()
