"""What is kept of training: the records of a segment, reduced to a row per member."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from purerl.config import TrainConfig
from purerl.hooks import reports
from purerl.metrics import HELD, PER_UPDATE, SINCE_START, count_of, is_defined
from purerl.train import Plan
from purerl.types import HostMetrics

# Names of metrics that segments report beside the algorithm's, and that are in no row:
# whether all parameters were finite after the segment's last update, and whether bad
# transitions are as few as `max_bad_transitions` allows.
PARAMETERS_FINITE = "parameters_finite"
FEW_BAD = "few_bad_transitions"
# Before the name of an own metric of `config.metrics`, between a program and its rows:
# where it is not finite it is unknown, and its agent has not diverged.
OWN = "own:"
# Health check -> what a sentence says was not finite where it fails.
CHECKS = {
    PARAMETERS_FINITE: "parameters",
    FEW_BAD: "more transitions than max_bad_transitions allows",
}


class Segment(NamedTuple):
    """The records of some updates of all members, on the host.

    Attributes:
        first: Number of the first update.
        ran: Updates that ran, K or fewer at the end of the run.
        metrics: Metrics by name, `[N, ran]`, with `reduce.CHECKS` among them.
        evaluation: Evaluations by name, `[N, slots, ...]`; the plan says which slots
            were filled.
    """

    first: int
    ran: int
    metrics: HostMetrics
    evaluation: HostMetrics

    @property
    def end(self) -> int:
        """Updates that were finished after it."""
        return self.first + self.ran

    def evaluated(self, plan: Plan) -> list[int]:
        """Return the updates of the segment that were evaluated, a slot for each."""
        return [at for at in plan.evaluate_after if self.first < at <= self.end]


def with_marks(config: TrainConfig, metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics of updates with `OWN` before the names of own metrics."""
    return {
        f"{OWN}{name}" if reports(name, config.metrics) else name: values
        for name, values in metrics.items()
    }


def reduce_segment(
    metrics: HostMetrics, before: Mapping[str, np.ndarray]
) -> HostMetrics:
    """Reduce metrics `[S, K]` of the updates that ran to a row, `[S]` each.

    Counts since the start of the run as they are at the end, counts of updates summed,
    averages weighted by their counts (see `purerl.metrics`): by episodes, by policy
    steps, and by 1 in the updates that took gradient steps. NaN where the count is 0
    in all of them; a NaN where it is positive stays one: the member has diverged. Of
    own metrics the mean over the updates in which they are finite.

    Args:
        metrics: The metrics.
        before: The row before, from which those of `purerl.metrics.HELD` are taken
            where no episode ended; empty where this is the first.
    """
    reduced: HostMetrics = {}
    for name, values in metrics.items():
        values = np.asarray(values)
        if name in CHECKS:
            continue
        if name.startswith(OWN):
            known = np.isfinite(values)
            reduced[name.removeprefix(OWN)] = weighted_mean(values, known)
        elif name in SINCE_START:
            reduced[name] = values[:, -1]
        elif name in PER_UPDATE:
            reduced[name] = values.sum(1)
        else:
            reduced[name] = weighted_mean(values, _weights(name, metrics))
    for name in set(HELD) & set(before):
        reduced[name] = np.where(reduced["episodes"] > 0, reduced[name], before[name])
    return reduced


def _weights(name: str, metrics: HostMetrics) -> np.ndarray:
    """Return the weights of the updates `[S, K]` in the average of a metric."""
    count = count_of(name, metrics)
    if count in PER_UPDATE:
        return np.asarray(metrics[count])
    return np.broadcast_to(is_defined(name, metrics), np.shape(metrics["episodes"]))


def first_bad_update(metrics: HostMetrics) -> np.ndarray:
    """Return a segment's first update `[S]` with a number that is not finite, or -1."""
    bad = np.zeros(np.shape(metrics["episodes"]), bool)
    for is_bad in bad_numbers(metrics).values():
        bad |= is_bad
    return np.where(bad.any(1), bad.argmax(1), -1)


def bad_numbers(metrics: HostMetrics) -> dict[str, np.ndarray]:
    """Return where metrics are not finite, bool `[S, K]`, of those that ever are not.

    What is undefined does not count: see `purerl.metrics`. What no metric shows yet,
    parameters that broke in the very last gradient step, does.
    """
    flags = {}
    for name, values in metrics.items():
        values = np.asarray(values)
        if name in CHECKS:
            bad = ~values
        elif np.issubdtype(values.dtype, np.floating) and not name.startswith(OWN):
            bad = np.asarray(is_defined(name, metrics)) & ~np.isfinite(values)
        else:
            continue
        if bad.any():
            flags[name] = bad
    return flags


def weighted_mean(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return means of `[S, K]` over the second axis; NaN where there is no weight.

    Values of weight zero are not looked at.
    """
    total = weights.sum(1)
    known = np.where(weights > 0, values.astype(np.float64), 0.0)
    sums = (known * weights).sum(1)
    return np.where(total > 0, sums / np.maximum(total, 1), np.nan)


class Curves:
    """Rows of members, growing segment by segment.

    After a member's first number that is not finite its rows are NaN: it is frozen, and
    what its broken parameters do does not count.

    Args:
        plan: The plan of the run, which says which evaluations a segment holds.
        num_members: The number of members, N.
        before: The members' last row before these; see `reduce_segment`.

    Attributes:
        diverged_at: The first update `[N]` with a number that is not finite, or -1.
    """

    def __init__(
        self,
        plan: Plan,
        num_members: int,
        before: Mapping[str, np.ndarray] = MappingProxyType({}),
    ) -> None:
        self._plan, self._before = plan, before
        self._train: dict[str, list[np.ndarray]] = {}
        self._evaluation: dict[str, list[np.ndarray]] = {}
        self.diverged_at = np.full(num_members, -1)

    @property
    def train(self) -> HostMetrics:
        """Metrics by name, `[N, R]`: a row per segment."""
        return {name: np.stack(rows, 1) for name, rows in self._train.items()}

    @property
    def evaluation(self) -> HostMetrics:
        """Evaluations by name, `[N, K, ...]`; none where none was planned."""
        return {name: np.stack(rows, 1) for name, rows in self._evaluation.items()}

    @property
    def arrays(self) -> HostMetrics:
        """Everything: `train/<metric>`, `evaluation/<name>` and `diverged_at`."""
        return {
            "diverged_at": self.diverged_at,
            **{f"train/{name}": rows for name, rows in self.train.items()},
            **{f"evaluation/{name}": rows for name, rows in self.evaluation.items()},
        }

    def keep(self, members: np.ndarray) -> None:
        """Go on with some members alone, by their numbers `[M]`."""
        for rows in (*self._train.values(), *self._evaluation.values()):
            rows[:] = [row[members] for row in rows]
        self._before = {name: row[members] for name, row in self._before.items()}
        self.diverged_at = self.diverged_at[members]

    def add(self, segment: Segment) -> float:
        """Add a segment's rows; return the mean of the last known episode returns."""
        frozen = self.diverged_at >= 0
        bad = first_bad_update(segment.metrics)
        newly = ~frozen & (bad >= 0)
        self.diverged_at[newly] = segment.first + bad[newly]
        row = reduce_segment(segment.metrics, self._before)
        for name, values in row.items():
            row[name] = values if name == "env_steps" else _without(values, frozen)
            self._train.setdefault(name, []).append(row[name])
        self._before = row
        for slot, update in enumerate(segment.evaluated(self._plan)):
            stopped = (self.diverged_at >= 0) & (self.diverged_at < update)
            for name, values in segment.evaluation.items():
                row = values[:, slot]
                row = row if name == "env_steps" else _without(row, stopped)
                self._evaluation.setdefault(name, []).append(row)
        return mean_of_known(self._train["episode_return"][-1])


def _without(values: np.ndarray, members: np.ndarray) -> np.ndarray:
    """`[N, ...]` with NaN for some members."""
    mask = members.reshape(-1, *[1] * (values.ndim - 1))
    # Counts stay exact: float32 has no whole numbers above 2^24.
    is_count = np.issubdtype(values.dtype, np.integer)
    return np.where(mask, np.nan, values).astype(np.float64 if is_count else np.float32)


def mean_of_known(values: np.ndarray) -> float:
    """Return the mean of the numbers that are finite; NaN where none is."""
    values = np.asarray(values, float)
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else float("nan")
