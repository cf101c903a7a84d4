"""What training up to the next milestone gave: what a search decides by."""

from typing import NamedTuple

import numpy as np

from purerl.execution.cohort import Cohort, Evaluation
from purerl.execution.curves import Curves, OnSegment
from purerl.types import Array, HostMetrics


class Outcome(NamedTuple):
    """What happened between two milestones.

    Attributes:
        train: Metrics by name, rows `[N, R]`, one per segment.
        evaluation: Evaluations that the config planned by name, rows `[N, K, ...]`;
            empty where there were none.
        diverged: Whether a number was not finite, `[N]` bool.
        diverged_at: The first update at which, `[N]`, or -1.
        fresh: The members' fresh evaluation at the end, if one was asked for.
    """

    train: HostMetrics
    evaluation: HostMetrics
    diverged: np.ndarray
    diverged_at: np.ndarray
    fresh: Evaluation | None


def train_until(
    cohort: Cohort,
    until: int,
    on_segment: OnSegment = lambda *_: None,
    evaluation_keys: Array | None = None,
) -> Outcome:
    """Train up to a milestone, then evaluate the members.

    Args:
        cohort: The members.
        until: A multiple of K, or the end of the run.
        on_segment: Is told of progress.
        evaluation_keys: Keys `[N]` of fresh evaluations; none are made without them.
    """
    curves = Curves(cohort.program.bound.plan, cohort.size)
    for segment in cohort.segments(until):
        mean = curves.add(segment)
        on_segment(cohort.size, segment.ran, mean)
    fresh = None if evaluation_keys is None else cohort.evaluate(evaluation_keys)
    at = curves.diverged_at
    return Outcome(curves.train, curves.evaluation, at >= 0, at, fresh)
