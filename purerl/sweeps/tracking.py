"""A sweep in trackers: every member is told whole, as soon as its chunk has ended."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from purerl.config import ConfigError, TrainConfig
from purerl.runner.trackers.base import (
    Ended,
    TrackedRun,
    Tracker,
    ended,
    files_of,
    name_of,
)
from purerl.runner.trackers.group import Group
from purerl.runner.trackers.writer import Notify
from purerl.space.design import Design
from purerl.space.labels import column
from purerl.sweeps import store
from purerl.sweeps.groups import member_id
from purerl.sweeps.result import load_sweep
from purerl.sweeps.store import Chunk

# Members that are read at once for a tracker.
PIECE = 64


class TrackedMembers(NamedTuple):
    """The members of a sweep as trackers number them: in the order of the results.

    Attributes:
        config: The base config of every point.
        design: The axes and points.
        seeds: Seeds of every point.
        written: The points as the manifest holds them.
        folder: The folder of the sweep, if any.
    """

    config: TrainConfig
    design: Design
    seeds: tuple[int, ...]
    written: Sequence[Mapping[str, Any]]
    folder: Path | None

    @property
    def total(self) -> int:
        """Number of members."""
        return len(self.written) * len(self.seeds)

    def columns(self) -> dict[str, list[Any]]:
        """Return the axes' values at every point, as results name them."""
        return {name: column(self.design.points, name) for name in self.design.names}

    def numbers(self) -> dict[str, list[int]]:
        """Return the numbers of each id: equal draws of a random design share one."""
        numbers: dict[str, list[int]] = {}
        for number in range(self.total):
            row, seed = divmod(number, len(self.seeds))
            id = member_id(self.written[row], self.seeds[seed])
            numbers.setdefault(id, []).append(number)
        return numbers


class Tracking:
    """The trackers of one call of `sweep`, and which chunks they were told.

    Args:
        members: The members of the sweep.
        trackers: Trackers that have not begun.
        in_threads: Whether training must not wait for them.
    """

    def __init__(
        self,
        members: TrackedMembers,
        trackers: Sequence[Tracker],
        in_threads: bool = True,
    ) -> None:
        self.members = members
        self.group = Group(trackers, in_threads)
        self._left: dict[str, list[int]] = {}

    def begin(self, notify: Notify) -> None:
        """Open the trackers.

        Raises:
            ConfigError: one of them cannot begin.
        """
        if not self.group:
            return
        members = self.members
        self._columns = members.columns()
        # The others are told when they end; a tracker may open the first one at once.
        first = {0: self._ended({}, 0, 0).member}
        config = store.described(members.config, members.folder)
        name = name_of(members.folder, "sweep")
        run = TrackedRun(name, config, first, members.folder, is_sweep=True)
        self.group.begin(run, notify, members.total)
        self._left = members.numbers() if self.group else {}

    def add(self, ids: Sequence[str], chunk: Chunk | Path) -> None:
        """Tell of a chunk that has ended.

        Args:
            ids: Ids of its members.
            chunk: The chunk, or its file, which is read when a tracker comes to it.
        """
        news = [(row, id) for row, id in enumerate(ids) if id in self._left]
        numbers = {id: self._left.pop(id) for _, id in news}
        for start in range(0, len(news), PIECE):
            piece = news[start : start + PIECE]

            def load(piece: list[tuple[int, str]] = piece) -> Iterator[Ended]:
                known = store.read_chunk(chunk) if isinstance(chunk, Path) else chunk
                for row, id in piece:
                    for number in numbers[id]:
                        yield self._ended(known.arrays, row, number)

            self.group.add((n for _, id in piece for n in numbers[id]), load)

    def close(self, is_finished: bool) -> None:
        """Tell what other processes or earlier calls have trained, and end."""
        folder = self.members.folder
        if folder is not None and self._left:
            for path in store.chunk_paths(folder):
                self.add(store.chunk_ids(path), path)
        files = files_of(folder, "figures", "*.png")
        files |= files_of(folder, "sweep", "config.yaml", "manifest.json")
        status = "finished" if is_finished else "interrupted"
        self.group.close(status, files if is_finished else None)

    def _ended(self, arrays: Mapping[str, np.ndarray], row: int, number: int) -> Ended:
        place, seed = divmod(number, len(self.members.seeds))
        values = {name: values[place] for name, values in self._columns.items()}
        rows = {
            kind: _rows(arrays, f"{kind}/", row) for kind in ("train", "evaluation")
        }
        return ended(number, values, self.members.seeds[seed], rows)


def _rows(
    arrays: Mapping[str, np.ndarray], kind: str, member: int
) -> Iterator[dict[str, Any]]:
    """A dict per segment or evaluation of a member, as far as it came to them."""
    columns = {
        name.removeprefix(kind): array[member]
        for name, array in arrays.items()
        if name.startswith(kind)
    }
    for index, steps in enumerate(columns.get("env_steps", ())):
        if math.isnan(steps):
            return
        row = {name: column[index].tolist() for name, column in columns.items()}
        yield {**row, "env_steps": int(steps)}


def track_sweep(folder: Path, trackers: Sequence[Tracker], notify: Notify) -> bool:
    """Send what trackers lack of a sweep's folder; see `purerl.track`.

    Raises:
        ConfigError: no member has finished, or a tracker cannot begin.
    """
    result = load_sweep(folder)
    if not store.chunk_paths(folder):
        raise ConfigError(
            f"no member of the sweep in {folder} has finished. Run its command "
            "again first."
        )
    members = TrackedMembers(
        result.config, result.design, result.seeds, result.written, folder
    )
    tracking = Tracking(members, trackers, in_threads=False)
    with tracking.group:
        tracking.begin(notify)
        tracking.close(result.finished)
    return tracking.group.lacks_nothing
