"""Any number of agents trained by a few workers, a few agents at a time.

What a member becomes depends on its key, overrides, lanes and segment length only, so
that jobs may be cut and spread in any way, and trained again after a kill.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from purerl.execution.cohort import Cohort, Reducer, train_until
from purerl.execution.members import Members
from purerl.execution.programs import Program
from purerl.scale.devices import Worker, run_blocks
from purerl.types import Overrides


class Job(NamedTuple):
    """Members that a worker trains at a time, from the beginning of a run to its end.

    Attributes:
        program: The program that trains them.
        members: Makes them, in the thread of the worker.
        key: What the caller knows them by.
        changes: Updates at which their overrides change, ascending, and what makes the
            overrides from then on.
    """

    program: Program
    members: Callable[[], Members]
    key: Any
    changes: Sequence[tuple[int, Callable[[], Overrides]]] = ()


def rows_of(number: int, size: int) -> list[np.ndarray]:
    """Return the numbers below `number` in parts of `size`, the last one shorter."""
    starts = range(0, number, size)
    return [np.arange(start, min(start + size, number)) for start in starts]


def stream(
    jobs: Sequence[Job],
    workers: Sequence[Worker],
    reducer: Callable[[Job], Reducer],
    keep: Callable[[Job, Any, Cohort], None],
    is_stopped: Callable[[], bool] = lambda: False,
    on_segment: Callable[[Job, int, int, float], None] = lambda *_: None,
) -> None:
    """Train jobs, each worker taking the next one.

    Args:
        jobs: The jobs, in the order in which they are begun.
        workers: The workers of this process, from whose threads the others are called.
        reducer: Makes the reducer of a job, which is given every segment.
        keep: Keeps what came of a job: its reducer, and its final states.
        is_stopped: Says whether somebody asked to stop; then no job is begun.
        on_segment: Called after every segment with the job, its number of members, the
            updates, and the mean return of the segment.
    """

    def train(worker: Worker, job: Job) -> None:
        if is_stopped():
            return
        reduced = reducer(job)
        cohort = Cohort(job.program, job.members(), [worker])
        cohort.init()

        def told(members: int, updates: int, mean: float) -> None:
            on_segment(job, members, updates, mean)

        for first, overrides in job.changes:
            train_until(cohort, first, reduced, told)
            cohort.set_overrides(overrides())
        train_until(cohort, job.program.bound.plan.num_updates, reduced, told)
        keep(job, reduced, cohort)

    run_blocks(workers, jobs, train)
