"""The rows of a run: kept in memory, as JSON lines, and told to the trackers."""

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from purerl.execution.cohort import Segment
from purerl.execution.curves import mean_of_known
from purerl.metrics import HELD
from purerl.runner.jsonl import (
    JsonlFiles,
    check_complete,
    evaluation_rows,
    read_rows,
    rows_are_missing,
    segment_rows,
)
from purerl.runner.trackers import stored
from purerl.runner.trackers.group import Group
from purerl.storage import checkpoint
from purerl.streams import say
from purerl.train import Plan

KINDS = ("train", "evaluation")


class Records:
    """Rows of every member of a run, growing segment by segment.

    Args:
        seeds: Seeds of the members.
        folder: Folder of the run; JSON lines are written under it.
        trackers: Trackers that are told every row too.

    Attributes:
        rows: Rows of every member, by kind (`train` or `evaluation`).
    """

    def __init__(
        self, seeds: Sequence[int], folder: Path | None, trackers: Group
    ) -> None:
        self.rows: dict[str, list[list[dict]]] = {
            kind: [[] for _ in seeds] for kind in KINDS
        }
        self._seeds, self._trackers = seeds, trackers
        self._jsonl = JsonlFiles(folder / "metrics") if folder else None

    def add(self, plan: Plan, segment: Segment) -> float:
        """Log a segment.

        Args:
            plan: Plan that says which slots of the evaluation were filled.
            segment: The segment: what the members did in it.

        Returns:
            The mean of the members' last known episode returns, for the progress bar;
            NaN where no episode has ended yet.
        """
        self._log("train", segment_rows(segment.metrics, segment.end, self._last()))
        for slot, at in enumerate(segment.evaluated(plan)):
            self._log("evaluation", evaluation_rows(segment.evaluation, slot, at))
        self._trackers.flush()
        return mean_of_known(self._last()["episode_return"])

    def _last(self) -> dict[str, np.ndarray]:
        """The numbers of the last row that the next one may hold."""
        rows = [member[-1] for member in self.rows["train"] if member]
        named = {name: [row[name] for row in rows] for name in HELD if rows}
        return {name: np.array(values, float) for name, values in named.items()}

    def _log(self, kind: str, rows: list[dict]) -> None:
        for member, (seed, row) in enumerate(zip(self._seeds, rows, strict=True)):
            self.rows[kind][member].append(row)
            self._trackers.log(kind, seed, row)
            if self._jsonl:
                self._jsonl.log(kind, seed, row)
        if self._jsonl:
            self._jsonl.flush()

    def rewind_trackers(self) -> None:
        """Let trackers take what comes after these rows anew: it will be otherwise."""
        assert self._jsonl is not None
        members = [rows for kind in KINDS for rows in self.rows[kind]]
        last = max((rows[-1]["env_steps"] for rows in members if rows), default=-1)
        stored.rewind(self._jsonl.folder.parent, self.num_rows, last)

    @property
    def num_rows(self) -> int:
        """Number of rows of all members and kinds."""
        return sum(len(rows) for members in self.rows.values() for rows in members)

    def rewind(self, update: int) -> None:
        """Go on from the JSON lines, without what was logged after an update."""
        assert self._jsonl is not None
        self.read(update)  # Before anything is written: damaged files stay as they are.
        self._jsonl.rewind(KINDS, self._seeds, update)

    def read(self, update: int) -> None:
        """Take over the JSON lines up to an update.

        Raises:
            ConfigError: a file is damaged, lacks rows that another seed's file has, or
                all are missing.
        """
        assert self._jsonl is not None
        for kind in KINDS:
            paths = [self._jsonl.path(kind, seed) for seed in self._seeds]
            found = {path: read_rows(path) if path.exists() else [] for path in paths}
            kept = {
                path: [row for row in rows if row["update"] <= update]
                for path, rows in found.items()
            }
            check_complete(kept, update if kind == "train" else None)
            if kind == "train" and not any(kept.values()):
                raise rows_are_missing(self._jsonl.folder, kind, update)
            self.rows[kind] = list(kept.values())

    def back_up(self) -> None:
        """Start again, as there is nothing to go on from, but lose no measurement."""
        assert self._jsonl is not None
        metrics = self._jsonl.folder
        if metrics.exists():
            name = f"metrics-before-{int(time.time())}"
            backup, number = metrics.with_name(name), 1
            while backup.exists():  # Two within a second, or a clock that was put back.
                number += 1
                backup = metrics.with_name(f"{name}-{number}")
            metrics.rename(backup)
            say(
                f"no checkpoint in {metrics.parent}: starting again; what was logged "
                f"is in {backup.name}"
            )

    def send_missing(self, trackers: Group) -> None:
        """Tell trackers all rows; they know which of them they lack."""
        for kind in KINDS:
            for seed, rows in zip(self._seeds, self.rows[kind], strict=True):
                for row in rows:
                    trackers.log(kind, seed, row)
        trackers.flush()


def saved_records(folder: Path, seeds: Sequence[int]) -> Records:
    """Return the rows of a run's folder up to its last checkpoint; none without one.

    Args:
        folder: Folder of the run.
        seeds: Seeds of its members.

    Raises:
        ConfigError: see `Records.read`.
    """
    records = Records(seeds, folder, Group(()))
    saved = checkpoint.steps(folder / "checkpoints")
    if saved:
        records.read(saved[-1])
    return records
