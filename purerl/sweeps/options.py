"""The options of a sweep, as `purerl.sweep` was given them."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from purerl.runner.trackers import Tracker


class Options(NamedTuple):
    """The way a sweep is carried out; only lanes and segments fix the bits.

    Attributes:
        folder: The folder to write, or None.
        lanes: The width W that was asked for: a number, `"auto"`, or None where it is
            chosen.
        segment_updates: The updates per segment K that were asked for, or None.
        chunk_blocks: The number of blocks of a chunk, or None for what fits the memory.
        memory_limit: Bytes that a worker may use.
        keep_states: Whether to keep the final states.
        extend: Whether the folder may hold a sweep of fewer members.
        trackers: Trackers that are told of members as their chunks end.
    """

    folder: Path | None
    lanes: int | str | None
    segment_updates: int | None
    chunk_blocks: int | None
    memory_limit: float
    keep_states: bool
    extend: bool
    trackers: Sequence[Tracker] = ()
