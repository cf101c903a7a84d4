"""The trackers of one call: opened, told, closed, and remembered in `trackers.json`.

A run, a search or an evolution tells rows while it goes on (`log`, `flush`); a sweep, a
study or a comparison tells each member whole when it has ended (`add`). Each tracker is
called by a thread of its own (`purerl.runner.trackers.writer`), and a failure of one
stops neither training nor the others. What a tracker has missed is sent by the call
that goes on, or by `purerl track`.

`trackers.json` holds, by the tracker's name: `id`, under which it goes on; `options`,
which make it again; `status`, with which it was closed (empty before); `rows`, how many
rows it has taken, in their order. Of members told whole, `rows` is how many it has and
`members` which, as ranges, so that none is told twice in whatever order they end. Where
rows that it was told no longer hold, `rewound` says so until it has begun again.
"""

import contextlib
import itertools
import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from purerl.execution.format import program, quoted
from purerl.runner.trackers import writer as writers
from purerl.runner.trackers.base import TRACKERS, Load, Row, TrackedRun, Tracker
from purerl.runner.trackers.writer import LoggedRow, Notify, Writer, members_of
from purerl.storage import folders
from purerl.storage.files import read_json, write_json
from purerl.storage.folders import TRACKERS_FILE

# How long the end of a run waits for its trackers, and that of what was stopped.
END_SECONDS, STOP_SECONDS = 60.0, 10.0
# After so long a sentence says that the end is waiting.
QUIET_SECONDS = 2.0
REWOUND = "rewound"
# How long a tracker's thread waits for another one that writes `trackers.json`. A disk
# that does not answer must not stop the end of a run.
LOCK_SECONDS = 10.0
_lock = threading.Lock()
# Makes the files to keep by name; it may draw into the folder that it is given, which
# stays until all trackers are closed.
Files = Callable[[Path], Mapping[str, Path]]


class Group:
    """The trackers of one call.

    As a context it closes them when the call fails; else `close` is for it to call.

    Args:
        trackers: Trackers that have not begun.
        in_threads: Whether training must not wait for them. Else they are called at
            once, and the end takes as long as it takes.

    Attributes:
        notify: Function that prints a sentence for people.
    """

    def __init__(self, trackers: Sequence[Tracker], in_threads: bool = True) -> None:
        self._writers = [Writer(t, in_threads, self._remember) for t in trackers]
        self.notify: Notify = print
        self._run = TrackedRun("", {}, {})
        self._has_begun = False
        self._pending: list[LoggedRow] = []
        self._ended: set[int] = set()  # Numbers of the members that were told whole.
        self._total: int | None = None

    def __bool__(self) -> bool:
        return bool(self._writers)

    @property
    def stop(self) -> bool:
        """True if any of the trackers asks to stop."""
        return any(getattr(w.tracker, "stop", False) for w in self._writers)

    @property
    def lacks_nothing(self) -> bool:
        """True if every tracker has all that it was told, and the files."""
        return all(w.status and not self._count(w)[0] for w in self._writers)

    def begin(
        self,
        run: TrackedRun,
        notify: Notify,
        total: int | None = None,
        is_fixed: bool = True,
    ) -> None:
        """Open a new run, or the same one again.

        Args:
            run: Description of what begins. Of a sweep, members that are not known yet
                are told when they end.
            notify: Function that prints a sentence for people.
            total: Number of rows that there are, of a sweep members. Where it is given,
                trackers that have everything are left out, and the others say where to
                look at what they write.
            is_fixed: Whether another number of members makes it another sweep, whose
                members have other numbers.

        Raises:
            ConfigError: a tracker cannot begin a new run, or `trackers.json` is
                damaged. One that cannot go on with an earlier call's is left out, with
                a sentence: that training has time to lose.
        """
        self._run, self.notify, self._total = run, notify, total
        if not self._writers:
            return
        stored = load_stored(run.folder)
        entries = []
        for writer in list(self._writers):
            known = _stored_for(writer.tracker, stored)
            if total is not None and known.get("status") and known["rows"] >= total:
                name = writer.tracker.name
                notify(f"tracker {name!r} has everything of {run.folder} already.")
                self._writers.remove(writer)
                continue
            if known and not known["status"] and writer.tracker.knows_rows:
                # It can tell better what it has than a file that a kill left behind.
                known = {**known, "rows": 0}
                if run.is_sweep:
                    known = {**known, "members": []}
                if run.is_sweep and run.folder:
                    _store(run.folder, {writer.tracker.name: known})
            if run.is_sweep and is_fixed and known.get("total", total) != total:
                known = {}
            entries.append(known)
        try:
            for writer, known in zip(self._writers, entries, strict=True):
                writer.begin(run, known, notify)
        except BaseException:
            self._end("failed")
            raise
        self._has_begun = True
        self._remember()
        for sentence in self.where() if total is not None else ():
            notify(sentence)

    def where(self) -> list[str]:
        """Return sentences about how to look at what the trackers write."""
        working = [w.tracker for w in self._writers if not w.failed]
        return [text for tracker in working if (text := tracker.where())]

    def log(self, kind: str, seed: int, row: Row) -> None:
        """Take a row for all.

        Args:
            kind: Kind of the row: `train`, `evaluation` or `evolution`.
            seed: Number of the member, see `TrackedRun.members`.
            row: Names and numbers.
        """
        if self._writers:
            self._pending.append(LoggedRow(kind, seed, row))

    def flush(self) -> None:
        """Hand over the rows of a segment that has ended."""
        # In the order of updates: an evaluation comes before the end of its segment.
        rows = sorted(self._pending, key=_update)
        self._pending = []  # Before the rest: Ctrl-C must not bring them back.
        for _, same in itertools.groupby(rows, key=_update):
            together = list(same)
            for writer in self._writers:
                writer.offer(together)
        for writer in self._writers:
            writer.work()

    def add(self, numbers: Iterable[int], load: Load) -> None:
        """Tell all of some members that have ended, if any was not told before.

        Args:
            numbers: Numbers of the members.
            load: Function that reads them. It may be called later, in other threads, so
                that a tracker that is far behind costs no memory.
        """
        told = set(numbers)
        if told <= self._ended:
            return
        self._ended |= told
        for writer in self._writers:
            writer.call("tell", load)

    def close(self, status: str, files: Files = lambda folder: {}) -> None:
        """Wait for what is left to be written, and say what was missed.

        Args:
            status: The status to close with: `finished`, `interrupted` or `failed`.
            files: Makes the files to keep, if any tracker takes files.
        """
        self.flush()
        kinds = [type(writer.tracker) for writer in self._writers]
        with contextlib.ExitStack() as stack:
            if any(kind.artifact is not Tracker.artifact for kind in kinds):
                drawn = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
                for name, path in files(Path(stack.enter_context(drawn))).items():
                    for writer in self._writers:
                        writer.call("artifact", path, name)
            self._end(status)
        for writer in self._writers:
            self._say_what_is_missed(writer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            stopped = issubclass(kind, KeyboardInterrupt)
            self.close("interrupted" if stopped else "failed")

    def _end(self, status: str) -> None:
        """Close all of them, as far as they answer in time; Ctrl-C ends the waiting."""
        for writer in self._writers:
            writer.close(status)
        try:
            self._wait(is_finished=status == "finished")
        except KeyboardInterrupt:
            self.notify(f"not waiting for {_names(self._late())} any longer.")
        late = self._late()
        for writer in late:
            writer.give_up()
        if late:
            self._remember()

    def _wait(self, is_finished: bool) -> None:
        """Wait for all: a run for a limited time, a sweep as long as one gets on."""
        seconds = END_SECONDS if is_finished else STOP_SECONDS
        works_on = is_finished and self._run.is_sweep
        if works_on:
            seconds = writers.BEGIN_SECONDS
        began = time.monotonic()
        if self._wait_until(began + min(QUIET_SECONDS, seconds)):
            return
        words = f"at most {seconds:g} s"
        if works_on:
            has = min(len(writer.told) for writer in self._late())
            words = f"which has {has:,} of {len(self._ended):,} members"
        self.notify(
            f"waiting for {_names(self._late())}, {words}; Ctrl-C ends the waiting."
        )
        known = -1
        while not self._wait_until(min(began + seconds, time.monotonic() + 1.0)):
            told = sum(len(writer.told) for writer in self._writers)
            if works_on and told > known:
                began, known = time.monotonic(), told
            if time.monotonic() >= began + seconds:
                if works_on:
                    self.notify(
                        f"{_names(self._late())}: no answer within {seconds:g} s; left "
                        "alone from here on."
                    )
                return

    def _wait_until(self, until: float) -> bool:
        """Wait for all, and return whether they are done by a monotonic time."""
        return all([w.wait(until - time.monotonic()) for w in self._writers])

    def _late(self) -> list[Writer]:
        return [writer for writer in self._writers if not writer.wait(0.0)]

    def _count(self, writer: Writer) -> tuple[int, int]:
        """Return how many rows or members a tracker lacks, and of how many."""
        if self._run.is_sweep:
            return len(self._ended - writer.told), len(self._ended | writer.told)
        return writer.missing, writer.offered

    def _say_what_is_missed(self, writer: Writer) -> None:
        """Say what a tracker lacks, and how it gets it."""
        missing, total = self._count(writer)
        if writer.status and not missing:
            return
        noun = "members" if self._run.is_sweep else "rows"
        what = (
            f"lacks {missing:,} of {total:,} {noun}"
            if missing
            else f"has all {noun}, but perhaps not all files"
        )
        remedy = "There is no out folder from which they could be sent later."
        folder, kind = self._run.folder, self._run.kind
        if folder is not None and kind and not folders.is_tracked(kind):
            again = f"Repeat the call with out={str(folder)!r}"
            remedy = f"{again}: what is missing is sent then."
        elif folder is not None:
            name = writer.tracker.name
            command = f"{program()} track {quoted(folder)} --track {name}"
            if name not in TRACKERS:
                own = type(writer.tracker).__name__
                command = f"purerl.track({str(folder)!r}, [{own}(...)])"
            remedy = f"Send what is missing with: {command}"
        self.notify(f"tracker {writer.tracker.name!r} {what}. {remedy}")

    def _remember(self) -> None:
        """Write what is known of all; from any of their threads."""
        if self._run.folder is None or not self._has_begun:
            return
        stored = load_stored(self._run.folder) if self._run.is_sweep else {}
        entries = {}
        for writer in self._writers:
            tracker = writer.tracker
            if not tracker.id:
                continue
            entry = {
                "id": tracker.id,
                "rows": writer.taken,
                "status": writer.status,
                "options": plain_options(tracker),
            }
            if writer.rewound:
                entry[REWOUND] = writer.rewound
            if self._run.is_sweep:
                known = _stored_for(tracker, stored)
                if (known.get("id"), known.get("total")) == (tracker.id, self._total):
                    # Another worker of the same study may have told it more meanwhile.
                    writer.told.update(members_of(known))
                numbers = sorted(writer.told.copy())
                entry |= {"rows": len(numbers), "total": self._total}
                entry["members"] = list(_ranges(numbers))
            entries[tracker.name] = entry
        _store(self._run.folder, entries)


class Told(NamedTuple):
    """What a folder holds for trackers; see `send`.

    Attributes:
        run: The description of what the folder holds.
        total: Number of its rows, of a sweep members.
        tell: Tells a group all of them.
        files: Makes the files to keep.
        is_finished: Whether nothing more will come.
        is_fixed: See `Group.begin`.
    """

    run: TrackedRun
    total: int
    tell: Callable[[Group], None]
    files: Files
    is_finished: bool
    is_fixed: bool = True


def send(told: Told, trackers: Sequence[Tracker], notify: Notify) -> bool:
    """Send what trackers lack of a folder; return whether they have all of it now.

    Raises:
        ConfigError: a tracker cannot begin.
    """
    group = Group(trackers, in_threads=False)
    with group:
        group.begin(told.run, notify, told.total, told.is_fixed)
        told.tell(group)
        group.close("finished" if told.is_finished else "interrupted", told.files)
    return group.lacks_nothing


def _update(logged: LoggedRow) -> int:
    return logged.row["update"]


def _names(late: Sequence[Writer]) -> str:
    names = ", ".join(repr(writer.tracker.name) for writer in late)
    return f"tracker{'s' if len(late) > 1 else ''} {names}"


def load_stored(folder: Path | None) -> dict[str, Any]:
    """Read `trackers.json`; nothing where there is none.

    Raises:
        ConfigError: it is damaged.
    """
    path = folder / TRACKERS_FILE if folder else None
    if path is None or not path.exists():
        return {}
    return read_json(
        path, "Delete it: trackers then begin new runs, with all rows so far."
    )


def _stored_for(tracker: Tracker, stored: Mapping[str, Any]) -> Mapping[str, Any]:
    """What is stored of a tracker; nothing where it writes elsewhere now."""
    entry = stored.get(tracker.name, {})
    return entry if entry.get("options") == plain_options(tracker) else {}


def plain_options(tracker: Tracker) -> dict[str, Any]:
    """Return the tracker's options as a JSON file gives them back."""
    return json.loads(json.dumps(tracker.options))


def _store(folder: Path, entries: Mapping[str, Mapping[str, Any]]) -> None:
    """Write what is known of some trackers; what is stored of others stays."""
    if not entries or not _lock.acquire(timeout=LOCK_SECONDS):
        return
    try:
        merged = {**load_stored(folder), **entries}
        write_json(folder / TRACKERS_FILE, merged)
    finally:
        _lock.release()


def rewind(folder: Path, rows: int, step: int) -> None:
    """Count only the first rows as told: what follows is trained anew, and otherwise.

    Every tracker of the folder is meant, also one that this call does not have. It is
    told of it when it begins next (`TrackedRun.rewound`).

    Args:
        folder: Folder of a run or search.
        rows: Number of rows that still hold.
        step: Number of the last one of them on the axis of the charts; -1 for none.
    """
    entries = {}
    for name, entry in load_stored(folder).items():
        # A tracker may not have begun since it was rewound before.
        before = entry.get(REWOUND, {"step": step, "rows": 0})
        entries[name] = {
            **entry,
            "rows": min(rows, entry["rows"]),
            REWOUND: {
                "step": min(step, before["step"]),
                "rows": before["rows"] + max(0, entry["rows"] - rows),
            },
        }
    _store(folder, entries)


def _ranges(numbers: Sequence[int]) -> Iterator[list[int]]:
    """First and last of each run of ascending numbers without a gap."""
    pairs = enumerate(numbers)
    for _, same in itertools.groupby(pairs, key=lambda pair: pair[1] - pair[0]):
        run = [number for _, number in same]
        yield [run[0], run[-1]]
