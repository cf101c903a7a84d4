"""Statistics over seeds and tasks: estimates, intervals, the seeds that they need.

Scores are `[S, M]`: S runs (seeds) on each of M tasks, or `[S]` for one task.

**A run without a score.** A run that diverged has a NaN (infinities count as NaN too).
No function guesses what it is worth; `nan` says it: `"raise"` (default), a
`ConfigError` with their number; `"worst"`, the lowest finite score of its task over all
groups that are compared, which is what a failure deserves; a number, such as the lowest
return the task can give; `"drop"`, left out and counted in `Estimate.missing`. Beware
of the last: an algorithm whose bad runs die looks better than it is. Sweeps, studies
and comparisons also know what their runs returned on their way, and share `worst_of`.

**Intervals.** The interval of a mean of n runs of one task is `mean_interval`'s, in
every table, picture and page: from ten runs a 95% interval by the studentised
bootstrap; below ten, the range of the runs; of one run, nothing. Scores of
reinforcement learning are often skewed, or those of two kinds of runs, some that solved
the task and some that got stuck. Ten is the fewest runs from which an interval of such
a mean can hold its level: if one run in five gets stuck, five runs of three samples out
of ten show none that did, and no method can know of what it has not seen.
`experiments/interval_coverage.py` prints the coverage of this and of other methods,
which docs/sweeps.md quotes.

Intervals of other statistics, and over several tasks, are percentile intervals of the
stratified bootstrap (runs are drawn with replacement, each task by itself), as
recommended by Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the
Statistical Precipice". A resample is kept as how often each run is drawn, its *counts*;
every statistic is a function of the counts `[R, M, S]` of R resamples. The percentiles
lie further out where runs are few (Hesterberg 2015), because resamples of n runs spread
less than samples do. There are intervals from ten runs of each task, or from five where
there are at least forty of all tasks together. Of fewer runs of one task the ends are
their range; of fewer runs of several tasks, or of two groups that are compared, there
are no ends (NaN).

**Seeds that are needed.** `power_curve` and `seeds_needed` take the power of Welch's
t-test between n seeds of one configuration and n of another, as in Colas, Sigaud &
Oudeyer 2018, "How Many Random Seeds? Statistical Power Analysis in Deep Reinforcement
Learning Experiments".
"""

import bisect
import math
from collections.abc import Callable, Iterator, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from purerl.config import ConfigError, shown

STATISTICS = ("iqm", "mean", "median", "optimality_gap")
CURVES = ("iqm", "mean")
CUT = 4  # An interquartile mean leaves out one n-th at either end.
BLOCK = 250_000  # Numbers of a block of resamples, at most: they stay in the cache.
RESAMPLES = 2_000
INTERVAL = "95% interval"
FEWEST = 10  # With fewer runs than this the range is given.
# With so many runs of each of several tasks, and so many of all of them together, the
# interval of a pooled statistic holds its level (`interval_coverage.py --pooled`).
FEWEST_OF_MANY, POOLED = 5, 40
# A resample of equal runs has no standard error, and its t is infinite: no end of an
# interval lies further from the mean than so many standard errors, or beyond all runs.
# Neither costs coverage.
REACH = 4.5
# With so many runs the mean is as good as normal, and it is faster to count draws than
# to draw counts.
MANY = 1_000
DEFAULT_SEEDS = (2, 3, 5, 8, 10, 15, 20, 30, 50, 75, 100)

Missing = str | float
POLICIES = ("raise", "worst", "drop")
Counts = np.ndarray
Statistic = Callable[[Counts], np.ndarray]


# Runs without a score.


def resolve(
    *groups: Any, nan: Missing, gaps: bool = False
) -> tuple[list[np.ndarray], int]:
    """Apply a policy for missing scores to groups that are compared.

    Args:
        *groups: Scores of each group, `[S, M]` or `[S]`, of the same tasks.
        nan: The policy, see the module.
        gaps: Whether a task (here a point in time) may have no score at all.

    Returns:
        The groups `[S, M]` in double precision, NaN where a run is to be left out; and
        how many scores were missing.

    Raises:
        ConfigError: see the module; or shapes that do not fit.
    """
    tables = [_table(group) for group in groups]
    if len({table.shape[1] for table in tables}) > 1:
        shapes = " and ".join(str(table.shape) for table in tables)
        raise ConfigError(f"scores must be of the same tasks, got shapes {shapes}.")
    tables = [np.where(np.isfinite(table), table, np.nan) for table in tables]
    everything = np.concatenate(tables)
    missing = int(np.isnan(everything).sum())
    if not isinstance(nan, str):
        if not np.isfinite(nan):
            raise ConfigError(f"nan must be a finite score, got {nan!r}.")
        return [np.where(np.isnan(table), nan, table) for table in tables], missing
    check_choice("nan", nan, POLICIES)
    if nan == "raise" and missing:
        raise ConfigError(
            f"scores: {missing} of {everything.size} are not finite. Say what such a "
            'run is worth: nan="worst", nan="drop", or a number.'
        )
    kept = tables if nan == "drop" else [everything]
    if not gaps and any(np.isnan(table).all(0).any() for table in kept):
        raise ConfigError("scores: a task has no finite score; give nan a number.")
    if nan == "worst":
        worst = worst_of(everything)
        tables = [np.where(np.isnan(table), worst, table) for table in tables]
    return tables, missing


def worst_of(scores: np.ndarray, lowest: Any = np.nan) -> np.ndarray:
    """Return what a run is worth in its task that has no score, `[M]`.

    That is the lowest score, or a lower return that a run with a score has had on its
    way. By the scores alone a run that failed would be worth as much as the others
    where these have all reached the most that can be.

    Args:
        scores: Scores of all runs that are compared, `[..., M]`.
        lowest: The lowest return on the way, from `lowest_of`, `[M]` or one number; NaN
            where it is not known.

    Returns:
        Numbers `[M]`; NaN where a task has no score.
    """
    flat = scores.reshape(-1, scores.shape[-1])
    low = np.min(np.where(np.isfinite(flat), flat, np.inf), axis=0)
    return np.where(np.isfinite(low), np.fmin(low, lowest), np.nan)


def lowest_of(returns: Any, failed: Any = False) -> float:
    """Return the lowest of some returns; NaN where none is a finite number.

    Args:
        returns: Returns of runs on their way, an array `[..., T]`.
        failed: Whether each run has failed, `[...]`. The returns of such a run are left
            out: they may be any number before they are none.
    """
    values = np.asarray(returns, float)
    counts = np.isfinite(values) & ~np.asarray(failed, bool)[..., None]
    low = np.min(values, initial=np.inf, where=counts)
    return float(low) if np.isfinite(low) else np.nan


def as_numbers(name: str, values: Any) -> np.ndarray:
    """Read numbers in double precision, or refuse them with one sentence."""
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise ConfigError(
            f"{name} must be numbers, equally many of each run, got {shown(values)}."
        ) from None


def _table(scores: Any) -> np.ndarray:
    """Scores as `[S, M]`."""
    table = as_numbers("scores", scores)
    if table.ndim not in (1, 2) or not table.size:
        shape = table.shape
        raise ConfigError(f"scores must be [runs] or [runs, tasks], got shape {shape}.")
    return table.reshape(len(table), -1)


def check_share(name: str, value: float) -> None:
    """Refuse what is not between 0 and 1, such as a confidence of 95."""
    if not 0 < value < 1:
        raise ConfigError(f"{name} must be between 0 and 1, got {value!r}.")


def check_choice(field: str, value: Any, choices: Sequence[str]) -> None:
    """Refuse a value that is not among the choices."""
    if value not in choices:
        names = ", ".join(choices)
        raise ConfigError(f"{field} must be one of {names}, got {value!r}.")


# Statistics of resamples.


def draw_counts(known: np.ndarray, resamples: int, seed: int) -> Iterator[Counts]:
    """Draw the counts of resamples in blocks `[R, M, S]`.

    Each task has a stream of its own, so that what is drawn does not depend on the
    blocks, and fewer resamples are the first ones of more.

    Args:
        known: Whether each run has a score, `[S, M]`; in each task, those that have one
            come first.
        resamples: Number of resamples.
        seed: Seed of the resamples.
    """
    sizes = known.sum(0).astype(int)
    streams = [np.random.default_rng([seed, task]) for task in range(len(sizes))]
    width = max(1, BLOCK // int(sizes.sum()))
    for first in range(0, resamples, width):
        rows = min(width, resamples - first)
        counts = np.zeros((rows, *known.T.shape))
        for task, (stream, size) in enumerate(zip(streams, sizes, strict=True)):
            if size < MANY:
                drawn = stream.multinomial(size, np.full(size, 1 / size), rows)
            else:
                places = stream.integers(size, size=(rows, size))
                drawn = [np.bincount(row, minlength=size) for row in places]
            counts[:, task, :size] = drawn
        yield counts


def bootstrap(
    statistic: Statistic, known: np.ndarray, resamples: int, seed: int
) -> np.ndarray:
    """Return a statistic of every resample, `[resamples, ...]`; see `draw_counts`."""
    return np.concatenate([*map(statistic, draw_counts(known, resamples, seed))])


def aggregate(scores: np.ndarray, statistic: str, target: float = 1.0) -> float:
    """Return one of `STATISTICS` by name; NaN in the scores is left out.

    Args:
        scores: Scores, `[S, M]` or `[S]`.
        statistic: Interquartile mean (all runs of all tasks pooled; as a 25% trimmed
            mean, `n // 4` runs are left out at either end), mean or median over tasks
            of each task's mean over runs, or optimality gap: how far runs fall short of
            `target` on average, where better ones count as `target`.
        target: Target of the optimality gap.
    """
    scores = np.reshape(scores, (len(scores), -1))
    scores = scores[:, np.isfinite(scores).any(0)]
    once = np.isfinite(scores.T)[None].astype(float)
    return float(statistic_of(scores, statistic, target)(once)[0])


def statistic_of(scores: np.ndarray, name: str, target: float = 1.0) -> Statistic:
    """Return one of `STATISTICS` of scores `[S, M]` as a function of counts."""
    scores = scores.T
    values = np.where(np.isfinite(scores), scores, 0.0)
    if name == "iqm":
        order = np.argsort(scores, axis=None, kind="stable")
        pooled = values.ravel()[order]
        return lambda counts: middle(counts.reshape(len(counts), -1)[:, order]) @ pooled
    if name == "optimality_gap":
        values = np.maximum(target - values, 0.0)
    centre = np.median if name == "median" else np.mean
    return lambda counts: centre((counts * values).sum(2) / counts.sum(2), axis=1)


def middle(counts: Counts) -> np.ndarray:
    """Return the weights of sorted runs in the mean of the middle half, `[R, N]`."""
    total = int(counts[0].sum())
    cut = total // CUT
    drawn = np.clip(np.cumsum(counts, axis=1), cut, total - cut)
    return np.diff(drawn, axis=1, prepend=cut) / (total - 2 * cut)


# Estimates.


class Estimate(NamedTuple):
    """A statistic of runs, with the interval or the range that stands beside it.

    Attributes:
        value: The point estimate: a number, or one per threshold or point of a curve.
        low: Lower end, shaped like `value`; NaN where there is none.
        high: Upper end.
        missing: The number of runs that had no score, whatever then became of them; for
            a curve one number per point.
        kind: The kind of the ends: `"interval"`, `"range"` (few runs, or runs that are
            all equal) or `"none"`.
        runs: Number of runs of each task, at least; for a curve, of its best known
            point.
        confidence: Confidence level of the interval.
    """

    value: Any
    low: Any
    high: Any
    missing: Any = 0
    kind: str = "interval"
    runs: int = 0
    confidence: float = 0.95

    @property
    def words(self) -> str:
        """The name of the ends, for a heading, a legend or a caption."""
        return name_of(self.kind, self.runs, self.confidence)

    def text(self, digits: int = 1, heading: str = INTERVAL) -> str:
        """Return the ends of a number in words; see `text_of`."""
        return text_of(self.low, self.high, self.words, digits, heading)


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
    return name_of(_kind_of(runs), runs)


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


def nanmean(values: np.ndarray, axis: int = 0) -> np.ndarray:
    """Return the mean of what is known; NaN, without a warning, where nothing is."""
    known = np.isfinite(values)
    count = known.sum(axis)
    total = np.where(known, values, 0.0).sum(axis)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def mean_interval(
    values: np.ndarray,
    *,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """Estimate the mean over the first axis (runs), with its interval or their range.

    Args:
        values: Values of S runs, `[S, ...]`; a value that is not finite counts as
            missing.
        confidence: Share of samples of whose intervals the mean is to be in.
        resamples: Number of resamples of the bootstrap.
        seed: Number that the resamples are drawn from.

    Returns:
        Means and ends `[...]`. Of a curve with ten known runs somewhere, points at
        which fewer are known have no ends.

    Raises:
        ConfigError: values that are no numbers of runs, a confidence that is no share,
            or that resamples cannot reach.

    Source: the studentised bootstrap (bootstrap-t) of Efron and Tibshirani 1993, "An
    Introduction to the Bootstrap", chapter 12.
    """
    check_share("confidence", confidence)
    array = as_numbers("values", values)
    if not array.ndim or not len(array):
        raise ConfigError(f"values must have a row for each run, got {shown(values)}.")
    table = array.reshape(len(array), -1)
    known = np.isfinite(table)
    counts = known.sum(0)
    runs = int(counts.max(initial=0))
    kind = _kind_of(runs)
    ordered = np.sort(np.where(known, table, np.nan), axis=0)  # NaN sorts last
    low, high = np.full((2, table.shape[1]), np.nan)
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
    parts = (nanmean(table), low, high, len(table) - counts)
    value, low, high, missing = (x.reshape(array.shape[1:])[()] for x in parts)
    return Estimate(value, low, high, missing, kind, runs, confidence)


def _studentised(
    values: np.ndarray, confidence: float, resamples: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Ends `[K]` of the intervals of means of `values` `[n, K]`, all of them known."""
    runs = len(values)
    tail = (1 - confidence) / 2
    mean = np.clip(values.mean(0), values.min(0), values.max(0))  # They may be equal.
    centred = values - mean
    error = np.sqrt((centred**2).sum(0) / (runs - 1) / runs)
    if runs >= MANY:
        half = NormalDist().inv_cdf(1 - tail) * error
        return mean - half, mean + half
    if tail * (resamples + 1) < 1:
        raise ConfigError(
            f"confidence {confidence!r} is more than {resamples:,} resamples can say."
        )
    drawn = np.concatenate([*draw_counts(np.ones((runs, 1)), resamples, seed)])
    weights = drawn[:, 0] / runs
    width = max(1, BLOCK // resamples)
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


def estimate(scores: Any, statistic: str = "iqm", **options: Any) -> Estimate:
    """Estimate one statistic of scores, with its interval.

    Args:
        scores: Scores, `[S, M]` or `[S]`.
        statistic: Name of the statistic, see `estimates`.
        **options: Options of `estimates`.
    """
    return estimates(scores, (statistic,), **options)[statistic]


def estimates(
    scores: Any,
    statistics: Sequence[str] = STATISTICS,
    *,
    nan: Missing = "raise",
    target: float = 1.0,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> dict[str, Estimate]:
    """Estimate statistics with bootstrap intervals, all from the same resamples.

    Args:
        scores: Scores of S runs of M tasks, `[S, M]` or `[S]`.
        statistics: Names of statistics: iqm, mean, median (of task means),
            optimality_gap.
        nan: The policy for runs without a score; see `missing`.
        target: Target of the optimality gap.
        confidence: Confidence level of the intervals.
        resamples: Number of resamples of the bootstrap.
        seed: Seed of the resamples.

    Returns:
        An `Estimate` by name.

    Raises:
        ConfigError: an unknown statistic or policy, scores of another shape or kind,
            or NaN with `nan="raise"`.
    """
    for name in statistics:
        check_choice("statistics", name, STATISTICS)
    options = {"confidence": confidence, "resamples": resamples, "seed": seed}
    (scores,), missing = resolve(scores, nan=nan)
    scores = np.sort(scores, axis=0)
    each = [statistic_of(scores, name, target) for name in statistics]

    def together(counts: Counts) -> np.ndarray:
        return np.stack([compute(counts) for compute in each], axis=1)

    whole = _estimate_of(together, [scores], missing, **options)
    found = {}
    for number, name in enumerate(statistics):
        value, low, high = (float(part[number]) for part in whole[:3])
        one = whole._replace(value=value, low=low, high=high)
        if scores.shape[1] == 1 and name == "mean":
            own = mean_interval(scores[:, 0], **options)
            one = one._replace(low=float(own.low), high=float(own.high), kind=own.kind)
        elif scores.shape[1] == 1 and one.kind == "none" and one.runs > 1:
            is_gap = name == "optimality_gap"
            of = np.maximum(target - scores, 0.0) if is_gap else scores
            low, high = float(np.nanmin(of)), float(np.nanmax(of))
            one = one._replace(low=low, high=high, kind="range")
        found[name] = one
    return found


def probability_of_improvement(
    x: Any,
    y: Any,
    *,
    nan: Missing = "raise",
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """Estimate the probability that a run of X scores higher than one of Y, ties half.

    It is the Mann-Whitney statistic U over the number of pairs, averaged over tasks.

    Args:
        x: Scores of X, `[S, M]` or `[S]`.
        y: Scores of Y, `[R, M]` or `[R]`: the same tasks, any number of runs.
        nan: The policy for runs without a score; the worst is that of both.
        confidence: Confidence level of the interval.
        resamples: Number of resamples of the bootstrap, which draws runs of X and of Y.
        seed: Seed of the resamples.

    Raises:
        ConfigError: see `estimates`; different numbers of tasks.
    """
    tables, missing = resolve(x, y, nan=nan)
    first, second = tables = [np.sort(table, axis=0) for table in tables]
    # What each run of X is worth against each run of Y, `[S, R, M]`.
    above, below = first[:, None] > second, first[:, None] < second
    wins = np.moveaxis(0.5 + 0.5 * above - 0.5 * below, 2, 0)

    def shares(counts: Counts) -> np.ndarray:
        mine, theirs = np.split(np.moveaxis(counts, 1, 0), 2)
        mine, theirs = mine[..., : len(first)], theirs[..., : len(second)]
        won = (mine @ wins * theirs).sum(2) / (mine.sum(2) * theirs.sum(2))
        return won.mean(0)

    return _estimate_of(shares, tables, missing, confidence, resamples, seed)


def performance_profile(
    scores: Any,
    thresholds: Any,
    *,
    nan: Missing = "raise",
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """Estimate the share of runs above each threshold (the run-score distribution).

    Args:
        scores: Scores of S runs of M tasks, `[S, M]` or `[S]`.
        thresholds: Thresholds, `[K]`.
        nan: The policy for runs without a score.
        confidence: Confidence level of the intervals, each threshold by itself.
        resamples: Number of resamples of the bootstrap.
        seed: Seed of the resamples.

    Returns:
        Arrays `[K]`.

    Raises:
        ConfigError: see `estimates`; no thresholds.
    """
    levels = np.atleast_1d(np.asarray(thresholds, np.float64))
    if levels.ndim != 1 or not np.isfinite(levels).all() or not levels.size:
        raise ConfigError(f"thresholds must be a list of numbers, got {thresholds!r}.")
    (scores,), missing = resolve(scores, nan=nan)
    scores = np.sort(scores, axis=0)
    above = (scores.T[:, :, None] > levels).astype(float)

    def shares(counts: Counts) -> np.ndarray:
        by_task = np.moveaxis(counts, 1, 0)
        return (by_task @ above / by_task.sum(2, keepdims=True)).mean(0)

    return _estimate_of(shares, [scores], missing, confidence, resamples, seed)


def _estimate_of(
    statistic: Statistic,
    tables: Sequence[np.ndarray],
    missing: int,
    confidence: float,
    resamples: int,
    seed: int,
) -> Estimate:
    """Estimate a statistic of the counts of all runs, whose groups stand side by side.

    Args:
        tables: Scores of each group, `[S, M]`, in the order of `ordered`.
    """
    check_share("confidence", confidence)
    longest = max(map(len, tables))
    each = [np.isfinite(table) for table in tables]
    each = [np.pad(of, ((0, longest - len(of)), (0, 0))) for of in each]
    known = np.concatenate(each, axis=1)
    value = statistic(known.T[None].astype(float))[0]
    low, high = np.full((2, *np.shape(value)), np.nan)
    kinds, numbers = zip(*map(_kind_of_table, tables), strict=True)
    kind, runs = "none", min(numbers)
    if set(kinds) == {"interval"}:
        kind = "interval"
        draws = bootstrap(statistic, known, resamples, seed)
        low, high = _percentiles(draws, confidence, runs, known.shape[1])
    return Estimate(value, low, high, missing, kind, runs, confidence)


def curve(
    values: Any,
    statistic: str = "iqm",
    *,
    nan: Missing = "drop",
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """Estimate IQM or mean over runs at every point of a curve, with intervals.

    Args:
        values: Curves, `[S, T]`, a row per run, or `[S, M, T]` with runs of M tasks (or
            configurations), which are resampled each by itself.
        statistic: Name of the statistic, iqm or mean.
        nan: The policy for missing points. Here the default drops them, as unfinished
            and shorter runs have gaps that say nothing bad of them; points that no run
            has are NaN.
        confidence: Confidence level of the interval at each point.
        resamples: Number of resamples of the bootstrap; all points share them.
        seed: Seed of the resamples.

    Returns:
        Arrays `[T]`. Where a curve has intervals, points of too few known runs have no
        ends; a curve of few runs has their range.

    Raises:
        ConfigError: see `estimates`.
    """
    check_choice("statistic", statistic, CURVES)
    check_share("confidence", confidence)
    raw = as_numbers("values", values)
    raw = raw if raw.ndim == 3 else raw.reshape(len(raw), 1, -1)
    (flat,), _ = resolve(raw.reshape(len(raw), -1), nan=nan, gaps=True)
    table = np.sort(flat.reshape(raw.shape), axis=0)
    _, tasks, points = table.shape
    missing = (~np.isfinite(raw)).sum((0, 1))
    kinds = [_kind_of_table(table[:, :, t]) for t in range(points)]
    # The kind of a curve's ends is that of the point of which most is known.
    order = ("none", "range", "interval")
    kind, runs = max(kinds, key=lambda of: (order.index(of[0]), of[1]))
    value, low, high = np.full((3, points), np.nan)
    for t in np.flatnonzero(np.isfinite(table).any((0, 1))):
        value[t] = aggregate(table[:, :, t], statistic)
    if tasks == 1 and (statistic == "mean" or kind != "interval"):
        # The range of few runs is the same for both statistics.
        options = {"confidence": confidence, "resamples": resamples, "seed": seed}
        low, high = mean_interval(table[:, 0], **options)[1:3]
        return Estimate(value, low, high, missing, kind, runs, confidence)
    sizes = np.isfinite(table).sum(0)
    has_ends = np.array([of == "interval" for of, _ in kinds])
    for size in np.unique(sizes[:, has_ends], axis=1).T:
        at = np.flatnonzero(has_ends & (sizes == size[:, None]).all(0))
        draw, known = _curve_statistic(table[:, :, at], statistic), table[:, :, at[0]]
        draws = bootstrap(draw, np.isfinite(known), resamples, seed)
        low[at], high[at] = _percentiles(draws, confidence, int(size.min()), tasks)
    return Estimate(value, low, high, missing, kind, runs, confidence)


def _curve_statistic(table: np.ndarray, name: str) -> Statistic:
    """A statistic of a sorted curve `[S, M, T]` as a function of counts, `[R, T]`."""
    if table.shape[1] == 1:  # One set of weights serves the sorted runs of all points.
        values = np.where(np.isfinite(table[:, 0]), table[:, 0], 0.0)
        return lambda counts: middle(counts[:, 0]) @ values
    points = range(table.shape[2])
    each = [statistic_of(table[:, :, t], name) for t in points]
    return lambda counts: np.stack([compute(counts) for compute in each], axis=1)


def _kind_of(runs: int) -> str:
    """The kind of the ends for so many runs of one task."""
    return "none" if runs < 2 else "range" if runs < FEWEST else "interval"


def _kind_of_table(known: np.ndarray) -> tuple[str, int]:
    """The kind of the ends of statistics of `[S, M]`, and the fewest runs of a task."""
    counts = np.isfinite(known).sum(0)
    runs = int(counts.min(initial=len(known)))
    if runs >= FEWEST or (runs >= FEWEST_OF_MANY and counts.sum() >= POOLED):
        return "interval", runs
    return (_kind_of(runs) if known.shape[1] == 1 else "none"), runs


def has_interval(known: np.ndarray) -> bool:
    """Return whether runs are enough for an interval of their mean, `[S, M]`, `[S]`."""
    return _kind_of_table(known.reshape(len(known), -1))[0] == "interval"


def _percentiles(
    draws: np.ndarray, confidence: float, runs: int, samples: int
) -> np.ndarray:
    """The percentile interval over the first axis, `[2, ...]`; see `tail_of`."""
    tail = tail_of(confidence, runs, samples)
    return np.quantile(draws, (tail, 1 - tail), axis=0)


def tail_of(confidence: float, runs: int, samples: int) -> float:
    """Return the share of resamples beyond each end of an interval.

    It is that of a normal distribution beyond the ends of Student's interval, as the
    variance of a sample lacks a share of `1 / runs`, and is itself an estimate.

    Args:
        confidence: Confidence level.
        runs: Number of runs of each sample, at least.
        samples: Number of samples that are resampled by themselves: of each task, and
            of each group that is compared.

    Source: Hesterberg 2015, "What Teachers Should Know About the Bootstrap", section
    4.4, the expanded percentile interval.
    """
    from scipy.special import ndtr, stdtrit

    t = stdtrit(samples * (runs - 1), (1 + confidence) / 2)
    return float(ndtr(-t * math.sqrt(runs / (runs - 1))))


# Power.


class PowerCurve(NamedTuple):
    """The chance to detect a difference, by number of seeds.

    Attributes:
        seeds: Numbers of seeds of each of the two configurations, `[N]`.
        power: The chance that the test finds the difference, `[N]`.
        difference: Difference of the means, in units of the score.
        std: Standard deviation of the scores of either configuration.
    """

    seeds: np.ndarray
    power: np.ndarray
    difference: float
    std: tuple[float, float]


def power_curve(
    pilot: Any = None,
    other: Any = None,
    *,
    difference: float | None = None,
    std: float | tuple[float, float] | None = None,
    seeds: Sequence[int] = DEFAULT_SEEDS,
    significance: float = 0.05,
    nan: Missing = "raise",
) -> PowerCurve:
    """Compute the power of Welch's t-test of two means with n seeds each.

    Means of n scores are taken as normal, as the test does.

    Args:
        pilot: Scores of one configuration, `[S]`, whose spread is taken.
        other: Scores of the other configuration, `[R]`; without them, it is spread like
            `pilot`.
        difference: Difference of the means to detect; without it, that of the two
            pilots.
        std: Standard deviation of both, or a pair; in place of pilots.
        seeds: Numbers n to look at, each at least 2.
        significance: Level of the test.
        nan: The policy for pilot runs without a score; see `missing`.

    Raises:
        ConfigError: not enough is given, or it is out of range.
    """
    from scipy.special import nctdtr, stdtrit

    if (pilot is None) == (std is None) or (difference is None and other is None):
        raise ConfigError(
            "give pilot scores of both, or pilot scores or std and a difference."
        )
    check_share("significance", significance)
    number = np.asarray(seeds)
    if not number.size or number.min() < 2:
        raise ConfigError(f"seeds must be numbers of at least 2, got {seeds!r}.")
    if pilot is None:
        first, second = (float(x) for x in np.broadcast_to(np.asarray(std), 2))
    else:
        groups, _ = resolve(pilot, pilot if other is None else other, nan=nan)
        pools = [group[np.isfinite(group)] for group in groups]
        if min(map(len, pools)) < 2:
            raise ConfigError("pilot must hold at least 2 runs to show a spread.")
        first, second = (float(pool.std(ddof=1)) for pool in pools)
        if difference is None:
            difference = float(pools[1].mean() - pools[0].mean())
    assert difference is not None
    if not (np.isfinite(difference) and min(first, second) >= 0):
        raise ConfigError("difference must be finite, and std at least 0.")
    spread = float(difference), (first, second)
    both = first**2 + second**2
    if both == 0:  # A difference of scores that never vary is always found.
        return PowerCurve(
            number, np.full(number.shape, 1.0 * bool(difference)), *spread
        )
    # Welch-Satterthwaite degrees of freedom.
    freedom = (number - 1) * both**2 / (first**4 + second**4)
    shift = abs(difference) / np.sqrt(both / number)
    edge = stdtrit(freedom, 1 - significance / 2)
    missed = nctdtr(freedom, shift, edge) - nctdtr(freedom, shift, -edge)
    power = 1 - np.nan_to_num(missed)  # NaN where next to none is missed.
    return PowerCurve(number, power, *spread)


def seeds_needed(
    pilot: Any = None,
    other: Any = None,
    *,
    power: float = 0.8,
    limit: int = 4096,
    **options: Any,
) -> int:
    """Find the least number of seeds of each configuration to detect the difference.

    Args:
        pilot: Scores of one configuration, see `power_curve`.
        other: Scores of the other configuration, see `power_curve`.
        power: Least probability with which the difference is to be found.
        limit: Largest number of seeds that is looked at.
        **options: Options of `power_curve`, except `seeds`.

    Raises:
        ConfigError: see `power_curve`; or the limit is not enough.
    """
    check_share("power", power)
    found = power_curve(pilot, other, seeds=range(2, limit + 1), **options)
    number = 2 + bisect.bisect_left(found.power, power)
    if number > limit:
        raise ConfigError(
            f"limit: {limit} seeds of each do not detect it with probability {power:g}."
        )
    return number
