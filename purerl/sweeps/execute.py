"""Chunks of members: what one worker holds at a time, and what one file keeps.

What a member becomes depends on its key, overrides, lanes and segment length only, so
that chunks may be cut in any way.
"""

from collections.abc import Sequence

import numpy as np

from purerl.execution.cohort import OnSegment, train_through
from purerl.execution.curves import Curves
from purerl.execution.members import Members
from purerl.execution.programs import Program
from purerl.scale.devices import Worker
from purerl.storage import checkpoint
from purerl.types import HostMetrics


def train_chunk(
    program: Program,
    worker: Worker,
    members: Members,
    on_segment: OnSegment,
    *,
    keep_states: bool = False,
) -> HostMetrics:
    """Train some members from beginning to end.

    Args:
        program: The program of their group.
        worker: The worker that trains them.
        members: The members, `[M]`.
        on_segment: A function that is called after every segment with its progress.
        keep_states: Whether to return the final states as well.

    Returns:
        The arrays of `Curves`, and `state/<path>` `[M, ...]`.
    """
    curves = Curves(program.bound.plan, members.size)
    cohort = train_through(program, members, worker, curves, on_segment)
    if not keep_states:
        return curves.arrays
    states = checkpoint.flatten(cohort.gather())
    return curves.arrays | {f"state/{path}": leaf for path, leaf in states.items()}


def cut(
    members: Members, ids: Sequence[str], size: int
) -> list[tuple[tuple[str, ...], Members]]:
    """Return members in chunks of `size`, the last one shorter, each with its ids.

    Args:
        members: The members, `[M]`.
        ids: The id of each member, M of them.
        size: The number of members of a full chunk.
    """
    chunks = []
    for start in range(0, members.size, size):
        index = np.arange(start, min(start + size, members.size))
        part = members.take(index)
        chunks.append((tuple(ids[start : start + len(index)]), part))
    return chunks
