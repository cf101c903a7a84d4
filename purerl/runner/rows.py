"""The rows of a run: in memory, as JSON lines, told to trackers; who diverged."""

import json
import math
import time
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
from purerl.execution.format import with_noun
from purerl.metrics import HELD
from purerl.runner.arguments import seeds_named
from purerl.runner.trackers.base import Row
from purerl.runner.trackers.group import Group, rewind
from purerl.storage import checkpoint
from purerl.streams import say
from purerl.train import Plan
from purerl.types import HostMetrics

DIVERGED = "diverged"  # The entry of a run's manifest.
MAX_NAMED = 12  # Seeds that a sentence names one by one.
WORTHLESS = "What is learned from there on is worth nothing."
REMEDY = (
    "Lower learning_rate, or look for observations and rewards of the environment that "
    "are not finite."
)


class Divergence:
    """Looks for agents that have diverged, segment by segment.

    Args:
        seeds: Seeds of the agents.

    Attributes:
        diverged_at: The first update `[S]` with a number that is not finite, or -1.
    """

    def __init__(self, seeds: Sequence[int]) -> None:
        self._seeds = np.asarray(seeds)
        self.diverged_at = np.full(len(self._seeds), -1)

    def sentence(self, segment: Segment) -> str:
        """Return what there is to say of a segment; empty where no agent diverged.

        Args:
            segment: Records of the agents; those that diverged before are left out.
        """
        first = first_bad_update(segment.metrics)
        new = (first >= 0) & (self.diverged_at < 0)
        if not new.any():
            return ""
        self.diverged_at[new] = segment.first + first[new]
        update = first[new].min()
        names = [
            CHECKS.get(name, name)
            for name, is_bad in bad_numbers(segment.metrics).items()
            if is_bad[new & (first == update), update].any()
        ]
        seeds = self._seeds[new].tolist()
        return (
            f"{with_noun(len(seeds), 'agent')} of {len(self._seeds)} diverged "
            f"({seeds_named(seeds)}): {', '.join(sorted(names))} not finite in update "
            f"{segment.first + update + 1:,}. {WORTHLESS} {REMEDY}"
        )

    @property
    def entry(self) -> dict[str, int]:
        """The entry of the manifest: by seed the update of those that diverged."""
        return entry_of(self._seeds.tolist(), self.diverged_at)


def entry_of(seeds: Sequence[int], diverged_at: np.ndarray) -> dict[str, int]:
    """Return the first bad update of the agents that diverged, by seed, for JSON.

    Args:
        seeds: Seeds of the agents.
        diverged_at: The first bad update of each agent, `[S]`, or -1.
    """
    pairs = zip(seeds, diverged_at, strict=True)
    return {str(seed): int(update) for seed, update in pairs if update >= 0}


def read_diverged_at(
    stored: Mapping[str, Any], seeds: Sequence[int], until: int
) -> np.ndarray:
    """Return the first bad update `[S]` of a stored run's agents, or -1.

    Args:
        stored: The manifest of the run.
        seeds: Seeds of the agents.
        until: The number of finished updates up to which is looked.
    """
    named = stored[DIVERGED]
    found = np.array([named.get(str(seed), -1) for seed in seeds])
    return np.where(found < until, found, -1)


def diverged_words(seeds: Sequence[int], diverged_at: np.ndarray) -> str:
    """Say which agents diverged, and when: `seed 3 diverged in update 4`.

    Args:
        seeds: Seeds of the agents.
        diverged_at: The first bad update of each agent, `[S]`, or -1.

    Returns:
        No sentence but its beginning; empty where no agent diverged.
    """
    is_lost = diverged_at >= 0
    if not is_lost.any():
        return ""
    names = np.asarray(seeds)[is_lost].tolist()
    words = seeds_named(names)
    if len(names) > MAX_NAMED and "," in words:
        words = f"{seeds_named(names[:MAX_NAMED])} and {len(names) - MAX_NAMED} others"
    first = diverged_at[is_lost].min() + 1
    return f"{words} diverged{',' if len(names) > 1 else ''} " + (
        f"the first in update {first:,}" if len(names) > 1 else f"in update {first:,}"
    )


def warn(seeds: Sequence[int], diverged_at: np.ndarray) -> None:
    """Say in a line, on the standard error, which agents diverged, if any did.

    Args:
        seeds: Seeds of the agents.
        diverged_at: The first bad update of each agent, `[S]`, or -1.
    """
    words = diverged_words(seeds, diverged_at)
    if words:
        say(f"{words}. {WORTHLESS}")


def segment_rows(metrics: HostMetrics, update: int, before: HostMetrics) -> list[Row]:
    """Reduce the metrics of a segment `[S, K]` to one row per member.

    Args:
        metrics: Metrics of the updates that ran, `[S, K]`, on the host.
        update: The number of finished updates at the segment's end.
        before: The row before; see `reduce_segment`.
    """
    columns = reduce_segment(metrics, before)
    num = np.shape(columns["episodes"])[0]
    return [
        {
            "update": update,
            **{name: column[i].item() for name, column in columns.items()},
        }
        for i in range(num)
    ]


def evaluation_rows(evaluation: HostMetrics, slot: int, update: int) -> list[Row]:
    """Return one row per member of the evaluation in a slot of a segment's buffer.

    Args:
        evaluation: The segment's buffer, on the host, `[S, slots, ...]`.
        slot: The number of the slot.
        update: The number of finished updates at the evaluation.
    """
    steps = np.asarray(evaluation["env_steps"])[:, slot]
    returns = np.asarray(evaluation["episode_return"])[:, slot]
    lengths = np.asarray(evaluation["episode_length"])[:, slot]
    cut = np.asarray(evaluation["cut_episodes"])[:, slot]
    return [
        {
            "update": update,
            "env_steps": int(steps[i]),
            "episode_return": returns[i].tolist(),
            "episode_length": lengths[i].tolist(),
            "cut_episodes": int(cut[i]),
        }
        for i in range(steps.shape[0])
    ]


CRC = "crc"


class JsonlFiles:
    """Files `<kind>/seed=<n>.jsonl` under a folder; NaN is written as null."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._pending: dict[Path, list[str]] = {}
        self._crcs: dict[Path, int] = {}  # Of the last rows.

    def path(self, kind: str, seed: int) -> Path:
        """Return the path of one seed's file."""
        return self.folder / kind / f"seed={seed}.jsonl"

    def log(self, kind: str, seed: int, row: Row) -> None:
        """Keep a row until `flush`.

        Args:
            kind: The kind of the row, which names its folder.
            seed: The seed, which names its file.
            row: Names and numbers.
        """
        path = self.path(kind, seed)
        if path not in self._crcs:
            lines = _lines(path) if path.exists() else []
            self._crcs[path] = lines[-1].crc if lines else _first_crc(path)
        line = json.dumps({k: _no_nan(v) for k, v in row.items()})
        self._crcs[path] = crc = zlib.crc32(line.encode(), self._crcs[path])
        line = f"{line[:-1]}{_crc_text(crc)}"
        self._pending.setdefault(path, []).append(line)

    def flush(self) -> None:
        """Append what was logged."""
        for path, lines in self._pending.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a") as file:
                file.write("\n".join(lines) + "\n")
        self._pending.clear()

    def close(self) -> None:
        """Write what is left."""
        self.flush()

    def rewind(self, kinds: Sequence[str], seeds: Sequence[int], update: int) -> None:
        """Drop rows after `update`: what a killed run wrote past its checkpoint.

        Args:
            kinds: Kinds of rows.
            seeds: Seeds whose files are looked at.
            update: The number of finished updates of the last row that stays.
        """
        for kind in kinds:
            for seed in seeds:
                path = self.path(kind, seed)
                if path.exists():
                    kept = [x for x in _lines(path) if x.row["update"] <= update]
                    write_atomic(path, "".join(line.text + "\n" for line in kept))
                    self._crcs.pop(path, None)


class _Line(NamedTuple):
    row: Row
    text: str
    crc: int


def read_rows(path: Path) -> list[Row]:
    """Read the rows of a file; a last line that a kill cut short is left out.

    Raises:
        ConfigError: another line is damaged, or one is missing between others.
    """
    return [line.row for line in _lines(path)]


def _lines(path: Path) -> list[_Line]:
    text = path.read_text(errors="replace")
    found, lines, crc = [], text.splitlines(), _first_crc(path)
    for number, line in enumerate(lines, start=1):
        parsed = _parsed(line, crc)
        if parsed is not None:
            found.append(parsed)
            crc = parsed.crc
        elif number < len(lines) or text.endswith("\n"):
            raise ConfigError(
                f"{path} is damaged in line {number} of {len(lines)}, or a line before "
                "it is missing; put back a copy of the file, or of the whole folder."
            )
    return found


def _parsed(line: str, crc: int) -> _Line | None:
    """A line of a file; None where it is damaged. `crc`: that of the lines before."""
    start = line.rfind(f', "{CRC}": ')
    plain = f"{line[:start]}}}"
    crc = zlib.crc32(plain.encode(), crc)
    is_whole = start > 0 and line[start:] == _crc_text(crc)
    return _Line(json.loads(plain), line, crc) if is_whole else None


def _crc_text(crc: int) -> str:
    return f', "{CRC}": {crc}}}'


def _first_crc(path: Path) -> int:
    """The CRC before the first row of a file: that of its name, which no other has."""
    return zlib.crc32(f"{path.parent.name}/{path.name}".encode())


def check_complete(
    rows: Mapping[Path, Sequence[Row]], update: int | None = None
) -> None:
    """Refuse rows of members that are not of the same updates, or not all there are.

    Args:
        rows: The rows of each file up to the last checkpoint, of all members.
        update: The number of finished updates with which they must end, if any.

    Raises:
        ConfigError: naming a file with fewer rows than another has, or than it must.
    """
    whole = max(rows, key=lambda path: len(rows[path]))
    updates = [row["update"] for row in rows[whole]]
    for path, found in rows.items():
        if [row["update"] for row in found] != updates:
            raise ConfigError(
                f"{path} has {len(found):,} rows up to the last checkpoint, and "
                f"{whole} has {len(updates):,}, or others: the file is damaged or "
                "missing; put back a copy of it, or of the whole folder."
            )
    if update is not None and updates and updates[-1] != update:
        raise ConfigError(
            f"{whole} ends with update {updates[-1]:,}, and the run has a checkpoint "
            f"of update {update:,}: rows are missing; put back a copy of the file, or "
            "of the whole folder."
        )


def rows_are_missing(folder: Path, kind: str, update: int) -> ConfigError:
    """Return the error for a run that has a checkpoint, and no rows up to it.

    Args:
        folder: The folder of the files.
        kind: The kind of the rows, which names their folder.
        update: The number of finished updates of the checkpoint.
    """
    return ConfigError(
        f"{folder / kind} has no rows, and there must be some: the run has a "
        f"checkpoint of update {update:,}; put back a copy of the files, or of the "
        "whole folder."
    )


def read_members(
    folder: Path, kind: str, seeds: Sequence[int], update: int
) -> HostMetrics:
    """Read the rows of a run's members as arrays `[S, R, ...]`, also while it goes on.

    Args:
        folder: The folder of the files.
        kind: The kind of the rows, which names their folder.
        seeds: Seeds of the members.
        update: The number of finished updates up to which every member has its rows:
            that of the last checkpoint; 0 where there is none.

    Returns:
        As many rows of each as all of them have; empty where one has none.

    Raises:
        ConfigError: a file is damaged, or missing beside others with several rows, or
            with rows up to the last checkpoint.
    """
    paths = [JsonlFiles(folder).path(kind, seed) for seed in seeds]
    rows = [read_rows(path) if path.exists() else [] for path in paths]
    missing = [str(path) for path in paths if not path.exists()]
    kept = [[row for row in member if row["update"] <= update] for member in rows]
    # All are made by the first row, which a run that goes on may be writing.
    if missing and (max(map(len, rows)) > 1 or any(kept)):
        raise ConfigError(
            f"{missing[0]} is missing, and other seeds have rows; put back a copy of "
            "it, or of the whole folder."
        )
    last = update if kind == "train" else None
    check_complete(dict(zip(paths, kept, strict=True)), last)
    shortest = min(map(len, rows))
    return stack_rows([member[:shortest] for member in rows])


def stack_rows(rows: Sequence[Sequence[Row]]) -> HostMetrics:
    """Return the rows of every member as arrays `[S, R, ...]`; null is NaN.

    So is what a row lacks: another version of purerl may have written it.
    """
    if not rows or not rows[0]:
        return {}
    names = dict.fromkeys(name for member in rows for row in member for name in row)
    return {name: _column(rows, name) for name in names}


def _column(rows: Sequence[Sequence[Row]], name: str) -> np.ndarray:
    """Return one number of all rows, `[S, R, ...]`."""
    given = [
        row[name] for member in rows for row in member if row.get(name) is not None
    ]
    absent = _absent(given[0]) if given else None
    return np.asarray(
        [
            [_nan(absent if row.get(name) is None else row[name]) for row in member]
            for member in rows
        ]
    )


def _absent(like: Any) -> Any:
    """Return null in the place of each number of a value."""
    return list(map(_absent, like)) if isinstance(like, list) else None


def _nan(value: Any) -> Any:
    if isinstance(value, list):
        return [_nan(v) for v in value]
    return math.nan if value is None else value


def _no_nan(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list):
        return [_no_nan(v) for v in value]
    return value


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
        rewind(self._jsonl.folder.parent, self.num_rows, last)

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
