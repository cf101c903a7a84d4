"""Curves of members while they train: a row per segment, and when they diverged."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Protocol

import numpy as np

from purerl.execution.cohort import Cohort, Segment
from purerl.execution.members import Members
from purerl.execution.programs import Program
from purerl.execution.reduce import first_bad_update, reduce_segment
from purerl.scale.devices import Worker
from purerl.train import Plan
from purerl.types import HostMetrics

# Called after every segment: members, updates done, mean episode return.
OnSegment = Callable[[int, int, float], None]


class Reducer(Protocol):
    """A reducer: it turns the segments of some members into what is kept of them."""

    def add(self, segment: Segment) -> float:
        """Take a segment; return its members' mean episode return, for a person."""
        ...


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


def train_until(
    cohort: Cohort,
    until: int,
    reducer: Reducer,
    on_segment: OnSegment = lambda *_: None,
) -> None:
    """Train a cohort up to an update.

    Args:
        cohort: The cohort.
        until: The update to reach; see `Cohort.segments`.
        reducer: The reducer that is given every segment.
        on_segment: A function that is called after every segment with its progress.
    """
    for segment in cohort.segments(until):
        mean = reducer.add(segment)
        on_segment(cohort.size, segment.ran, mean)


def train_through(
    program: Program,
    members: Members,
    worker: Worker,
    reducer: Reducer,
    on_segment: OnSegment = lambda *_: None,
) -> Cohort:
    """Train members of one worker from beginning to end.

    Any number of members is trained so, a few at a time: only these are held.

    Args:
        program: The program that trains the members.
        members: The members, as many as the worker is to hold.
        worker: The worker that the caller is.
        reducer: The reducer that is given every segment.
        on_segment: A function that is called after every segment with its progress.

    Returns:
        The members with their final states.
    """
    cohort = Cohort(program, members, [worker])
    cohort.init()
    train_until(cohort, program.bound.plan.num_updates, reducer, on_segment)
    return cohort
