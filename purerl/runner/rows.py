"""The rows of a run: in memory, in its folder, told to trackers; and who diverged.

A row is a segment of one member: means over its updates, episode statistics weighted by
the number of episodes; where none ended, the last known ones stand again
(`purerl.metrics`). All rows of a folder are lines of `metrics/rows.jsonl`, however many
members there are: `kind` and `seed` say whose each is. Its last entry, `crc`, is the
CRC-32 of its line and of all lines before it.
"""

import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from purerl.atomic import write_atomic
from purerl.config import ConfigError
from purerl.execution.curves import (
    CHECKS,
    Segment,
    bad_numbers,
    first_bad_update,
    mean_of_known,
    reduce_segment,
)
from purerl.execution.format import say, with_noun
from purerl.metrics import HELD
from purerl.runner.arguments import seeds_named
from purerl.runner.trackers.base import Row
from purerl.runner.trackers.group import Group, begin_anew
from purerl.storage import checkpoint, folders
from purerl.storage.files import jsonable
from purerl.train import Plan
from purerl.types import HostMetrics

KINDS = ("train", "evaluation")
FILE, CRC = "rows.jsonl", "crc"
# What a row of an evaluation holds.
EVALUATED = ("env_steps", "episode_return", "episode_length", "cut_episodes")


def rows_at(update: int, columns: HostMetrics) -> list[Row]:
    """Return a row per member of columns `[S, ...]` that are known after an update."""
    lists = [np.asarray(column).tolist() for column in columns.values()]
    return [
        {"update": update, **dict(zip(columns, values, strict=True))}
        for values in zip(*lists, strict=True)
    ]


class RowFile:
    """`rows.jsonl` in a folder, which is appended to; NaN is written as null.

    Args:
        folder: The folder `metrics` of a run or an evolution.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self._pending: list[str] = []
        self._crc: int | None = None  # Of the last row; None: not known yet.

    def log(self, kind: str, seed: int, row: Row) -> None:
        """Keep a row of a member until `flush`."""
        if self._crc is None:
            lines = _lines(self.path)
            self._crc = lines[-1].crc if lines else 0
        line = json.dumps({"kind": kind, "seed": seed, **jsonable(row)})
        self._crc = zlib.crc32(line.encode(), self._crc)
        self._pending.append(f"{line[:-1]}{_crc_text(self._crc)}\n")

    def flush(self) -> None:
        """Append what was logged."""
        if self._pending:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a") as file:
                file.write("".join(self._pending))
            self._pending.clear()

    def rewind(self, update: int) -> None:
        """Drop rows after `update`: what a killed run wrote past its checkpoint."""
        if self.path.exists():
            kept = [x.text for x in _lines(self.path) if x.row["update"] <= update]
            write_atomic(self.path, "".join(f"{text}\n" for text in kept))
            self._crc = None


class _Line(NamedTuple):
    row: Row
    text: str
    crc: int


def _lines(path: Path) -> list[_Line]:
    text = path.read_text(errors="replace") if path.exists() else ""
    found, lines, crc = [], text.splitlines(), 0
    for number, line in enumerate(lines, start=1):
        start = line.rfind(f', "{CRC}": ')
        plain = f"{line[:start]}}}"
        crc = zlib.crc32(plain.encode(), crc)
        if start > 0 and line[start:] == _crc_text(crc):
            found.append(_Line(json.loads(plain), line, crc))
        elif number < len(lines) or text.endswith("\n"):
            raise ConfigError(
                f"{path} is damaged in line {number} of {len(lines)}, or a line before "
                "it is missing; put back a copy of the file, or of the whole folder."
            )
    return found


def _crc_text(crc: int) -> str:
    return f', "{CRC}": {crc}}}'


def read_rows(folder: Path) -> dict[str, list[Row]]:
    """Read the rows of a folder `metrics` by kind, each with its `seed`.

    A last line that a kill cut short is left out.

    Raises:
        ConfigError: another line is damaged, or one is missing between others.
    """
    rows: dict[str, list[Row]] = {kind: [] for kind in KINDS}
    for line in _lines(folder / FILE):
        rows.setdefault(line.row.pop("kind"), []).append(line.row)
    return rows


def by_member(rows: Sequence[Row], seeds: Sequence[int]) -> list[list[Row]]:
    """Return the rows of each member, without their seeds."""
    members: dict[int, list[Row]] = {seed: [] for seed in seeds}
    for row in rows:
        if row["seed"] in members:
            rest = {name: value for name, value in row.items() if name != "seed"}
            members[row["seed"]].append(rest)
    return list(members.values())


def read_members(
    folder: Path, seeds: Sequence[int], update: int
) -> dict[str, list[list[Row]]]:
    """Read the rows of a run by kind and member, also while it goes on.

    As every row's checksum follows from those before, and a segment's last rows are
    those of its training, all rows up to these are there.

    Args:
        folder: The folder `metrics` of the run.
        seeds: Seeds of the members.
        update: The number of finished updates of the last checkpoint; 0 for none.

    Raises:
        ConfigError: the file is damaged, or ends before the last checkpoint.
    """
    found = {kind: by_member(rows, seeds) for kind, rows in read_rows(folder).items()}
    known = min(rows[-1]["update"] if rows else 0 for rows in found["train"])
    if known < update:
        has = f"ends with update {known:,}" if known else "has no rows"
        raise ConfigError(
            f"{folder / FILE} {has}, and there is a checkpoint of update {update:,}: "
            "rows are missing; put back a copy of the file, or of the whole folder."
        )
    return found


def stack_rows(members: Sequence[Sequence[Row]]) -> HostMetrics:
    """Return as many rows as every member has as arrays `[S, R, ...]`; null is NaN."""
    count = min(map(len, members))
    stacked = {}
    for name in members[0][0] if count else ():
        values = [[row[name] for row in rows[:count]] for rows in members]
        array = np.asarray(values)
        stacked[name] = np.asarray(values, float) if array.dtype == object else array
    return stacked


class Records:
    """Rows of every member of a run, growing segment by segment, and who diverged.

    Args:
        seeds: Seeds of the members.
        folder: Folder of the run; JSON lines are written under it.
        trackers: Trackers that are told every row too.

    Attributes:
        rows: Rows of every member, by kind (`train` or `evaluation`).
        diverged_at: The first update `[S]` with a number that is not finite, or -1.
    """

    def __init__(
        self, seeds: Sequence[int], folder: Path | None, trackers: Group
    ) -> None:
        self.rows: dict[str, list[list[Row]]]
        self.rows = {kind: [[] for _ in seeds] for kind in KINDS}
        self.diverged_at = np.full(len(seeds), -1)
        self._seeds, self._trackers, self._folder = seeds, trackers, folder
        self._file = RowFile(folder / "metrics") if folder else None

    def add(self, plan: Plan, segment: Segment) -> float:
        """Log a segment.

        Returns:
            The mean of the members' last known episode returns, for the progress bar;
            NaN where no episode has ended yet.
        """
        # Training comes last: where its rows are there, all are (`read_members`).
        told = list[tuple[int, Row]]()
        for slot, at in enumerate(segment.evaluated(plan)):
            found = {name: segment.evaluation[name][:, slot] for name in EVALUATED}
            told += self._log("evaluation", rows_at(at, found))
        row = reduce_segment(segment.metrics, self._last())
        told += self._log("train", rows_at(segment.end, row))
        if self._file:
            self._file.flush()
        self._trackers.tell(told)
        return mean_of_known(row["episode_return"])

    def _last(self) -> dict[str, np.ndarray]:
        """The numbers of the last row that the next one may hold."""
        rows = [member[-1] for member in self.rows["train"] if member]
        held = [name for name in HELD if rows and name in rows[0]]
        return {name: np.array([row[name] for row in rows], float) for name in held}

    def _log(self, kind: str, rows: list[Row]) -> list[tuple[int, Row]]:
        """Take a row of each member; return what trackers are told of them."""
        for member, (seed, row) in enumerate(zip(self._seeds, rows, strict=True)):
            self.rows[kind][member].append(row)
            if self._file:
                self._file.log(kind, seed, row)
        told = ({"kind": kind, **row} for row in rows)
        return list(zip(self._seeds, told, strict=True))

    def newly_diverged(self, segment: Segment) -> str:
        """Mark who diverges in a segment, in the manifest too; return a sentence.

        It is empty where nobody does who had not before.
        """
        first = first_bad_update(segment.metrics)
        new = (first >= 0) & (self.diverged_at < 0)
        if not new.any():
            return ""
        self.diverged_at[new] = segment.first + first[new]
        self._write_diverged()
        update = first[new].min()
        names = [
            CHECKS.get(name, name)
            for name, is_bad in bad_numbers(segment.metrics).items()
            if is_bad[new & (first == update), update].any()
        ]
        seeds = np.asarray(self._seeds)[new].tolist()
        return (
            f"{with_noun(len(seeds), 'agent')} of {len(self._seeds)} diverged "
            f"({seeds_named(seeds)}): {', '.join(sorted(names))} not finite in update "
            f"{segment.first + update + 1:,}. {WORTHLESS} {REMEDY}"
        )

    def _write_diverged(self) -> None:
        if self._folder is not None:
            entry = diverged_entry(self._seeds, self.diverged_at)
            if entry != folders.load(self._folder).get(DIVERGED):
                folders.update(self._folder, {DIVERGED: entry})

    @property
    def num_updates(self) -> int:
        """Number of the updates that have rows, which trackers are told together."""
        members = [rows for kind in self.rows.values() for rows in kind]
        return len({row["update"] for rows in members for row in rows})

    def rewind(self, update: int) -> None:
        """Go on from the folder's rows, without what was logged after an update."""
        assert self._folder is not None and self._file is not None
        # Before anything is written: damaged files stay as they are.
        found = read_members(self._folder / "metrics", self._seeds, update)
        self._take(found, update)
        self._file.rewind(update)
        stored = folders.load(self._folder)
        self.diverged_at = read_diverged_at(stored, self._seeds, update)
        self._write_diverged()

    def _take(self, found: Mapping[str, list[list[Row]]], update: int) -> None:
        self.rows = {
            kind: [[row for row in rows if row["update"] <= update] for rows in members]
            for kind, members in found.items()
        }

    def begin_trackers_anew(self) -> None:
        """Let trackers that know more than these rows begin anew: others follow."""
        assert self._folder is not None
        begin_anew(self._folder, self.num_updates)

    def send_missing(self, trackers: Group) -> None:
        """Tell trackers all rows; they know which of them they lack."""
        trackers.tell(
            (seed, {"kind": kind, **row})
            for kind in reversed(KINDS)  # As `add` does.
            for seed, rows in zip(self._seeds, self.rows[kind], strict=True)
            for row in rows
        )


def saved_records(folder: Path, seeds: Sequence[int]) -> Records:
    """Return the rows of a run's folder up to its last checkpoint; none without one.

    Raises:
        ConfigError: see `read_members`.
    """
    records = Records(seeds, folder, Group(()))
    saved = checkpoint.steps(folder / "checkpoints")
    if saved:
        records._take(read_members(folder / "metrics", seeds, saved[-1]), saved[-1])
    return records


DIVERGED = "diverged"  # The entry of a run's manifest.
WORTHLESS = "What is learned from there on is worth nothing."
REMEDY = (
    "Lower learning_rate, or look for observations and rewards of the environment that "
    "are not finite."
)


def diverged_entry(seeds: Sequence[int], diverged_at: np.ndarray) -> dict[str, int]:
    """Return the first bad update of the agents that diverged, by seed, for JSON."""
    pairs = zip(seeds, diverged_at, strict=True)
    return {str(seed): int(update) for seed, update in pairs if update >= 0}


def read_diverged_at(
    stored: Mapping[str, Any], seeds: Sequence[int], until: int
) -> np.ndarray:
    """Return the first bad update `[S]` below `until` of a stored run's agents, or -1.

    Args:
        stored: The manifest of the run.
    """
    named = stored[DIVERGED]
    found = np.array([named.get(str(seed), -1) for seed in seeds])
    return np.where(found < until, found, -1)


def diverged_words(seeds: Sequence[int], diverged_at: np.ndarray) -> str:
    """Say which agents diverged, and when: `seed 3 diverged in update 4`.

    It is the beginning of a sentence; empty where no agent diverged.
    """
    is_lost = diverged_at >= 0
    if not is_lost.any():
        return ""
    names = np.asarray(seeds)[is_lost].tolist()
    which = ", the first" if len(names) > 1 else ""
    update = diverged_at[is_lost].min() + 1
    return f"{seeds_named(names)} diverged{which} in update {update:,}"


def warn(seeds: Sequence[int], diverged_at: np.ndarray) -> None:
    """Say in a line, on the standard error, which agents diverged, if any did."""
    words = diverged_words(seeds, diverged_at)
    if words:
        say(f"{words}. {WORTHLESS}")
