"""Fitness: the worth of a training run, and of a member of a population.

A run's *curve* has a value per update: the mean return of the episodes that ended in
it; where none ended, the last value that was known; before the run's first episode has
ended, that episode's. The published evolution of value losses counted zeros there,
which is the best that can be where returns are negative: whoever never ended an episode
of Acrobot would have won. A run in which no episode ends at all is worth zero.

* `training_curve`: the mean of the curve over the whole run, its area by its length.
* `final_return`: the mean of the curve over the last tenth of the updates.
* `evaluation`: the mean return of the config's evaluation episodes after training.
* `lab.objectives:area`: a function of one's own; see `purerl.search.fitness`. The
  `episode_return` that it is given is the curve, and the config's evaluations are kept.

`negative_` before any of them turns its sign: what is evolved is then to harm whoever
trains with it, as an adversary does. A run that failed is the worst for both signs.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from purerl.config import ConfigError, TrainConfig
from purerl.execution import curves
from purerl.search import fitness as kinds
from purerl.train import Plan

KINDS = (*kinds.MEASURES, *(f"{kinds.NEGATIVE}{measure}" for measure in kinds.MEASURES))
FINAL_SHARE = 0.1
# A generation may fail as a whole by bad luck, but hardly a few in a row. The first may
# not: an evolution that begins so has nothing to go back to.
FAILED_GENERATIONS = 3


def inner_config(config: TrainConfig, kind: str) -> TrainConfig:
    """Return the config as a member trains it: without evaluations nobody looks at."""
    if kinds.is_own(kind):
        return config
    needs_evaluation = kind.removeprefix(kinds.NEGATIVE) == kinds.EVALUATION
    return config.replace(num_evaluations=int(needs_evaluation))


class Accumulator:
    """The fitness of runs, growing segment by segment.

    Args:
        kind: The kind of fitness, in `KINDS`.
        num_runs: The number of runs, N.
        num_updates: Updates of the whole run, U.

    Attributes:
        curve: The values of the curves so far, `[N, U]`; 0 before an episode has ended.
        ends: The first update `[N]` with a number that was not finite; U of a run that
            has none.
    """

    def __init__(self, kind: str, num_runs: int, num_updates: int) -> None:
        self.measure, self.num_updates = kind.removeprefix(kinds.NEGATIVE), num_updates
        self.sign = kinds.sign_of(kind)
        self.curve = np.zeros((num_runs, num_updates))
        self._is_known = np.zeros(num_runs, bool)
        self.evaluated = np.full(num_runs, np.nan)
        self.ends = np.full(num_runs, num_updates)

    @property
    def failed(self) -> np.ndarray:
        """Whether a number of the run was not finite, `[N]` bool."""
        return self.ends < self.num_updates

    def add(self, segment: curves.Segment) -> float:
        """Take a segment; at most one slot of evaluations is filled in a run.

        Returns:
            The mean over runs of the curve's last value, for a person.
        """
        first, returns = segment.first, segment.metrics["episode_return"]
        bad = curves.first_bad_update(segment.metrics)
        self.ends = np.where(bad < 0, self.ends, np.minimum(self.ends, first + bad))
        known = segment.metrics["episodes"] > 0
        # The first episode's return counts for the updates before its end.
        start = first_known(returns, known)
        last = self.curve[:, first - 1] if first else 0.0
        values = hold(returns, known, np.where(self._is_known, last, start))
        self.curve[~self._is_known, :first] = start[~self._is_known, None]
        self._is_known |= known.any(1)
        self.curve[:, first : segment.end] = values
        if self.measure == kinds.EVALUATION and segment.end == self.num_updates:
            returns = segment.evaluation["episode_return"]
            self.evaluated = returns[:, 0].mean(-1, dtype=float)
        return curves.mean_of_known(values[:, -1])

    def result(self) -> np.ndarray:
        """Return fitness `[N]` float32; NaN for a run with a number not finite."""
        if self.measure == kinds.TRAINING_CURVE:
            value = self.curve.mean(1)
        elif self.measure == kinds.FINAL_RETURN:
            value = self.curve[:, -math.ceil(FINAL_SHARE * self.num_updates) :].mean(1)
        else:
            value = self.evaluated
        failed = self.failed | ~np.isfinite(value)
        return np.where(failed, np.nan, self.sign * value).astype(np.float32)


class MetricMean(Accumulator):
    """The mean of an own metric over runs, of the updates in which it is finite."""

    def __init__(self, name: str, num_runs: int, num_updates: int) -> None:
        super().__init__(kinds.TRAINING_CURVE, num_runs, num_updates)
        self.name, self.total = f"{curves.OWN}{name}", np.zeros((2, num_runs))

    def add(self, segment: curves.Segment) -> float:
        """Take a segment; return the mean of the curve's last value, for a person."""
        values = segment.metrics[self.name].astype(float)
        known = np.isfinite(values)
        self.total += np.where(known, values, 0.0).sum(1), known.sum(1)
        return super().add(segment)

    def result(self) -> np.ndarray:
        """Return means `[N]` float32; NaN for a run with a number not finite."""
        total, count = self.total
        failed = self.failed | (count == 0)
        return np.where(failed, np.nan, total / np.maximum(count, 1)).astype(np.float32)


class OwnFitness(Accumulator):
    """The fitness of runs by a function of one's own, which is given whole curves.

    Args:
        kind: The import path of the function.
        num_runs: The number of runs, N.
        plan: The plan of a run.
    """

    def __init__(self, kind: str, num_runs: int, plan: Plan) -> None:
        super().__init__(kind, num_runs, plan.num_updates)
        self.kind, self.plan, self.segments = kind, plan, list[curves.Segment]()

    def add(self, segment: curves.Segment) -> float:
        """Take a segment; return the mean of the curve's last value, for a person."""
        self.segments.append(segment)
        return super().add(segment)

    def result(self) -> np.ndarray:
        """Return fitness `[N]` float32; NaN for a run with a number not finite."""

        def joined(rows: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
            return {n: np.concatenate([row[n] for row in rows], 1) for n in rows[0]}

        whole = joined([segment.metrics for segment in self.segments])
        train = {
            name.removeprefix(curves.OWN): values
            for name, values in whole.items()
            if name not in curves.CHECKS
        }
        filled = [(s.evaluation, len(s.evaluated(self.plan))) for s in self.segments]
        evaluation = joined(
            [{n: x[:, :count] for n, x in rows.items()} for rows, count in filled]
        )
        train["episode_return"] = self.curve
        scores = kinds.own_scores(self.kind, train, evaluation)
        return np.where(self.failed, np.nan, scores).astype(np.float32)


def hold(values: np.ndarray, known: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Return `values` where known, else the last one known, `before` at first.

    Args:
        values: Values of W runs over K updates, `[W, K]`.
        known: Whether each value is known, `[W, K]` bool.
        before: Values to begin with, `[W]`.
    """
    columns = np.arange(values.shape[1])
    last = np.maximum.accumulate(np.where(known, columns, -1), axis=1)
    taken = np.take_along_axis(values, np.maximum(last, 0), axis=1)
    return np.where(last >= 0, taken.astype(np.float64), before[:, None])


def first_known(values: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return the first of `values` `[W, K]` that is known, `[W]`; 0 where none is."""
    first = values[np.arange(len(values)), known.argmax(1)]
    return np.where(known.any(1), first.astype(np.float64), 0.0)


def member_scores(returns: np.ndarray, anchors: np.ndarray, kind: str) -> np.ndarray:
    """Return the members' mean normalised return over environments.

    Args:
        returns: Returns `[E, P, R]`, over environments, members and rollouts, with the
            sign of the kind of fitness; NaN where a run failed.
        anchors: The returns of each environment that count 0 and 1, `[E, 2]`; for a
            negative kind, 0 and -1.
        kind: The kind of fitness, in `KINDS`.

    Returns:
        `[P]` float32, greater is better; NaN for a member of whom any run failed.
    """
    low, high = anchors[:, :1].astype(float), anchors[:, 1:].astype(float)
    zero = low * kinds.sign_of(kind)
    by_environment = returns.mean(-1, dtype=float)
    return ((by_environment - zero) / (high - low)).mean(0).astype(np.float32)


def best_of_runs(fitness: np.ndarray, per_run: int) -> np.ndarray:
    """Return the worth of the members in the best part of each run, `[runs, P]`.

    Args:
        fitness: The worth of the members of all generations so far, `[G, P]`; NaN where
            they failed.
        per_run: The number of generations that a training run takes part in.
    """
    starts = np.arange(0, len(fitness), per_run)
    return np.fmax.reduceat(fitness, starts, axis=0)


def check_progress(fitness: np.ndarray) -> None:
    """Refuse to go on with an evolution in which all members fail.

    Args:
        fitness: The worth of the members of all generations so far, `[G, P]`; NaN where
            they failed.

    Raises:
        ConfigError: every member failed, in the first generation or in
            `FAILED_GENERATIONS` in a row.
    """
    if np.isfinite(fitness[-FAILED_GENERATIONS:]).any():
        return
    raise ConfigError(
        f"every member of generation {len(fitness)} failed, and of those before, so "
        "there is nothing to learn from. Check that the config trains by itself "
        "(purerl train), then evolve with a smaller sigma or from another start."
    )


def read_baselines(
    baselines: Mapping[str, Any] | Sequence[Any] | None, names: Sequence[str]
) -> np.ndarray | None:
    """Return anchors `[E, 2]` from what was asked for; None if they must be measured.

    A number `b` counts as 1 (with its sign), zero return as 0; a pair is
    `(return that counts 0, return that counts 1)`.

    Args:
        baselines: Baselines by name of the environment, or in their order; None takes
            raw returns where there is one environment, and measures where there are
            more.
        names: Names of the environments.

    Raises:
        ConfigError: a wrong number of them, or one that cannot be divided by.
    """
    if baselines is None:
        return np.array([[0.0, 1.0]], np.float32) if len(names) == 1 else None
    if isinstance(baselines, Mapping):
        given, fits = [baselines.get(n) for n in names], set(baselines) == set(names)
    else:
        given, fits = baselines, isinstance(baselines, Sequence | np.ndarray)
    if not fits or len(given) != len(names):
        raise ConfigError(
            "baselines must be a return (or a pair) for each environment "
            f"({', '.join(names)}), by name or in their order, got {baselines!r}."
        )
    anchors = []
    for name, value in zip(names, given, strict=True):
        try:
            is_number = np.ndim(value) == 0
            low, high = (0.0, abs(float(value))) if is_number else map(float, value)
        except (TypeError, ValueError):
            low = high = math.nan
        if not -math.inf < low < high < math.inf:
            raise ConfigError(
                f"baselines: {name} takes a return other than 0, or the returns that "
                f"count 0 and 1, the lower one first, got {value!r}."
            )
        anchors.append((low, high))
    return np.array(anchors, np.float32)


def measured_anchors(returns: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """Return anchors `[E, 2]` from the returns `[E, R]` of a baseline.

    Raises:
        ConfigError: a baseline that diverged, that earned nothing to divide by, or
            whose mean is not clear of zero: nearer to it than one standard deviation of
            its runs.
    """
    anchors = read_baselines([float(mean) for mean in returns.mean(1)], names)
    assert anchors is not None
    if returns.shape[1] < 2:
        return anchors
    for name, runs in zip(names, returns.astype(float), strict=True):
        mean, spread = runs.mean(), runs.std(ddof=1)
        if abs(mean) <= spread:
            raise ConfigError(
                f"baselines: the own loss of {name} returned {mean:.3g} on average, "
                f"which is not clear of zero beside its spread, {spread:.3g}, and "
                "would be no unit; give baselines= for each environment."
            )
    return anchors
