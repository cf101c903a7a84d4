"""The interval of a mean of n runs: one function, for every table, picture and page.

From ten runs it is a 95% interval, by the studentised bootstrap; below ten, the range
of the runs; of one run, nothing. Scores of reinforcement learning are often skewed, or
those of two kinds of runs, some that solved the task and some that got stuck. Ten is
the fewest runs from which an interval of such a mean can hold its level: if one run in
five gets stuck, five runs of three samples out of ten show none that did, and no method
can know of what it has not seen. `experiments/interval_coverage.py` prints the coverage
of this and of other methods, which docs/sweeps.md quotes.
"""

import math
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from purerl.config import ConfigError, shown
from purerl.report.statistics.missing import as_numbers, check_numbers

INTERVAL = "95% interval"
FEWEST = 10  # With fewer runs than this the range is given.
RESAMPLES = 2_000
# A resample of equal runs has no standard error, and its t is infinite: no end of an
# interval lies further from the mean than so many standard errors, or beyond all runs.
# Neither costs coverage.
REACH = 4.5
MANY = 1_000  # With so many runs the mean is as good as normal, and needs no resamples.
WORDS = 4_000_000  # Numbers of a block of resamples by columns, at most.


class Interval(NamedTuple):
    """The interval or range that stands beside a mean over runs.

    Attributes:
        low: Lower ends, shaped like the mean; NaN where there is none.
        high: Upper ends.
        kind: The kind of the ends: `"interval"`, `"range"` (fewer than ten runs, or
            runs that are all equal) or `"none"` (one run, or none).
        runs: Number of runs that the mean is of; for a curve, of its best known point.
        confidence: Confidence level of the interval.
    """

    low: Any
    high: Any
    kind: str
    runs: int
    confidence: float = 0.95

    @property
    def words(self) -> str:
        """The name of the two ends, for a heading, a legend or a caption."""
        return name_of(self.kind, self.runs, self.confidence)

    def text(self, digits: int = 1, heading: str = INTERVAL) -> str:
        """Return the two ends of a single mean in words; see `text_of`."""
        return text_of(self.low, self.high, self.words, digits, heading)


def mean_interval(
    values: np.ndarray,
    *,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Return the interval of the mean over the first axis (runs), or their range.

    Args:
        values: Values of S runs, `[S, ...]`; a value that is not finite counts as
            missing.
        confidence: Share of samples of whose intervals the mean is to be in.
        resamples: Number of resamples of the bootstrap.
        seed: Number that the resamples are drawn from.

    Returns:
        Ends `[...]`. Of a curve with ten known runs somewhere, points at which fewer
        are known have no ends.

    Raises:
        ConfigError: values that are no numbers of runs, a confidence that is no share,
            or that resamples cannot reach.

    Source: the studentised bootstrap (bootstrap-t) of Efron and Tibshirani 1993, "An
    Introduction to the Bootstrap", chapter 12.
    """
    check_numbers(confidence, resamples, seed)
    values = _runs_of(values)
    table = values.reshape(len(values), -1)
    known = np.isfinite(table)
    counts = known.sum(0)
    runs = int(counts.max(initial=0))
    ordered = np.sort(np.where(known, table, np.nan), axis=0)  # NaN sorts last
    low, high = np.full((2, table.shape[1]), np.nan)
    kind = "none" if runs < 2 else "range" if runs < FEWEST else "interval"
    for count in np.unique(counts):
        at = np.flatnonzero(counts == count)
        if kind == "range" and count > 1:
            low[at], high[at] = ordered[0, at], ordered[count - 1, at]
        elif count >= FEWEST:
            low[at], high[at] = _studentised(
                ordered[:count, at], confidence, resamples, seed
            )
    if kind == "interval" and not (high > low).any():
        kind = "range"
    shape = values.shape[1:]
    ends = low.reshape(shape)[()], high.reshape(shape)[()]
    return Interval(*ends, kind, runs, confidence)


def _runs_of(values: Any) -> np.ndarray:
    """Read values of runs `[S, ...]` in double precision.

    Raises:
        ConfigError: no numbers, rows of several lengths, a single number, or no run.
    """
    array = as_numbers("values", values)
    if not array.ndim or not len(array):
        raise ConfigError(
            f"values must have a row for each run, got {shown(values)}; give at least "
            "one run, such as [1.0]."
        )
    return array


def kind_of(runs: int) -> str:
    """Return what is said of so many runs: `"none"`, `"range"` or `"interval"`."""
    return "none" if runs < 2 else "range" if runs < FEWEST else "interval"


def name_of(kind: str, runs: int, confidence: float = 0.95) -> str:
    """Return what the two ends beside a mean are, in words.

    Args:
        kind: The kind of the ends: `"interval"`, `"range"` or `"none"`.
        runs: Number of runs that the mean is of.
        confidence: Confidence level of an interval.
    """
    if kind == "interval":
        return f"{100 * confidence:g}% interval"
    if kind == "range":
        return f"range of {runs}"
    return "one run" if runs == 1 else "no interval"


def heading_of(runs: int) -> str:
    """Return the heading of a column or legend for means of so many runs each."""
    return name_of(kind_of(runs), runs)


def text_of(
    low: float,
    high: float,
    words: str,
    digits: int = 1,
    heading: str = INTERVAL,
    sign: str = "",
) -> str:
    """Write two ends: `1.0 to 2.0`; `no spread` if equal; `-` without ends.

    Args:
        low: Lower end.
        high: Upper end.
        words: What the ends are, in words: `name_of`, or `heading_of` for a mean.
        digits: Number of decimal places.
        heading: The words with which the reader has been told what the ends are; where
            they are something else, it is said behind them.
        sign: Sign before positive numbers: `"+"`, or nothing.
    """
    if not (math.isfinite(low) and math.isfinite(high)):
        return "-"
    if low == high:
        return "no spread"
    ends = f"{low:{sign},.{digits}f} to {high:{sign},.{digits}f}"
    return ends if words == heading else f"{ends}, {words}"


def _studentised(
    values: np.ndarray, confidence: float, resamples: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Ends `[K]` of the intervals of means of `values` `[n, K]`, all of them known."""
    runs = len(values)
    tail = (1 - confidence) / 2
    mean = values.mean(0)
    centred = values - mean
    error = np.sqrt((centred**2).sum(0) / (runs - 1) / runs)
    if runs >= MANY:
        half = NormalDist().inv_cdf(1 - tail) * error
        return mean - half, mean + half
    if tail * (resamples + 1) < 1:
        most = math.floor((1 - 2 / (resamples + 1)) * 1_000) / 1_000
        raise ConfigError(
            f"confidence must be at most {most:g}, got {confidence!r}: an interval of "
            f"fewer than {MANY:,} runs is of {resamples:,} resamples, of which none "
            "lies further out. Give a smaller confidence, more resamples, or more runs."
        )
    rng = np.random.default_rng(seed)
    weights = rng.multinomial(runs, np.full(runs, 1 / runs), resamples) / runs
    width = max(1, WORDS // resamples)
    parts = range(0, values.shape[1], width)
    ends = [_quantiles(weights, centred[:, at : at + width], tail) for at in parts]
    below, above = np.concatenate(ends, axis=1) if ends else np.zeros((2, 0))
    # A high t of a resample stands for a mean that lies low, and the other way.
    low = mean - np.clip(above, 0, REACH) * error
    high = mean + np.clip(-below, 0, REACH) * error
    return np.maximum(low, values.min(0)), np.minimum(high, values.max(0))


def _quantiles(weights: np.ndarray, centred: np.ndarray, tail: float) -> np.ndarray:
    """Lower and upper quantile `[2, K]` of Student's t of every resample."""
    runs = len(centred)
    means = weights @ centred
    squares = weights @ centred**2
    spread = np.maximum(squares - means**2, 0.0)
    # If all runs are equal, only rounding is left.
    equal = spread <= 1e-12 * (centred**2).sum(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(
            equal,
            np.where(means == 0, 0.0, np.sign(means) * np.inf),
            means / np.sqrt(spread / (runs - 1)),
        )
    tail_rank = round(tail * (len(t) + 1)) - 1
    ranks = (tail_rank, len(t) - 1 - tail_rank)
    return np.partition(t, ranks, axis=0)[list(ranks)]


def nanmean(values: np.ndarray, axis: int = 0) -> np.ndarray:
    """Return the mean of what is known; NaN, without a warning, where nothing is."""
    known = np.isfinite(values)
    count = known.sum(axis)
    total = np.where(known, values, 0.0).sum(axis)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
