"""The coverage of 95% intervals of statistics of few runs of several tasks.

    python experiments/pooled_coverage.py [--repeats 2000]

Samples of n runs of each of M tasks are drawn from distributions whose mean and
interquartile mean are known, and the share of samples is counted whose interval holds
the number. The distributions are those of `interval_coverage.py`, the same in every
task. *Percentile* is the stratified percentile bootstrap; *printed* is what
`purerl.report.statistics.estimates` returns, whose percentiles lie further out.
"""

import numpy as np
from frame import markdown, options
from interval_coverage import DISTRIBUTIONS

from purerl.report import statistics

NAMES = ("normal", "exponential", "lognormal 1", "halves", "stuck 1 in 5")
SHAPES = (  # Statistic, runs of each task, tasks.
    ("iqm", 10, 1),
    ("iqm", 16, 1),
    ("mean", 10, 2),
    ("iqm", 10, 5),
    ("iqm", 5, 8),
)
RESAMPLES = 2_000
POPULATION = 4_000_000  # Runs from which the interquartile mean is known.


def truth(name: str, statistic: str) -> float:
    """Return the statistic of the distribution itself."""
    draw, mean, _ = DISTRIBUTIONS[name]
    if statistic == "mean":
        return mean
    runs = draw(np.random.default_rng(1), (POPULATION, 1))
    return statistics.aggregate(runs, statistic)


def coverage(
    name: str, statistic: str, runs: int, tasks: int, repeats: int
) -> tuple[float, float]:
    """Return the share of samples whose interval holds the truth, by both methods."""
    known, rng = truth(name, statistic), np.random.default_rng(0)
    inside = np.zeros(2)
    for number in range(repeats):
        scores = DISTRIBUTIONS[name][0](rng, (runs, tasks))
        scores = np.sort(scores, axis=0)
        draw = statistics.statistic_of(scores, statistic)
        draws = statistics.bootstrap(draw, np.isfinite(scores), RESAMPLES, number)
        plain = np.quantile(draws, (0.025, 0.975))
        printed = statistics.estimate(
            scores, statistic, resamples=RESAMPLES, seed=number
        )
        for method, (low, high) in enumerate((plain, (printed.low, printed.high))):
            inside[method] += low <= known <= high
    percentile, shown = inside / repeats
    return float(percentile), float(shown)


def main() -> None:
    """Print the table."""
    repeats = options(__doc__, repeats=(2_000, "samples per row")).repeats
    rows = [
        [*(name, *shape), *(f"{x:.3f}" for x in coverage(name, *shape, repeats))]
        for name in NAMES
        for shape in SHAPES
    ]
    heads = ["scores", "statistic", "runs", "tasks", "percentile", "printed"]
    print("\n".join(markdown(heads, rows)))


if __name__ == "__main__":
    main()
