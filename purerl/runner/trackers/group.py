"""All trackers of a call: a failure of one neither stops it nor the others."""

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

from purerl.execution.format import program, quoted
from purerl.runner.trackers import writer as writers
from purerl.runner.trackers.base import TRACKERS, Member, Row, TrackedRun, Tracker
from purerl.runner.trackers.writer import LoggedRow, Notify, Writer
from purerl.storage import folders
from purerl.storage.files import read_json, write_json
from purerl.storage.folders import TRACKERS_FILE


class ClosesOnFailure:
    """A context that is closed with a status when its body raises.

    Where the body ends well, `close` is for the caller, who knows the status.
    """

    def close(self, status: str) -> None:
        """Close with a status: `finished`, `interrupted` or `failed`."""
        raise NotImplementedError

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


REWOUND = "rewound"
# How long a tracker's thread waits for another one that writes the file. A disk that
# does not answer must not stop the end of a run.
LOCK_SECONDS = 10.0
_lock = threading.Lock()


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


def stored_for(tracker: Tracker, stored: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what is stored of a tracker; nothing where it writes elsewhere now."""
    entry = stored.get(tracker.name, {})
    return entry if entry.get("options") == plain_options(tracker) else {}


def certain(tracker: Tracker, entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an entry without what it counts as told and the tracker can tell better.

    Args:
        tracker: The tracker.
        entry: The entry of the tracker, see `stored_for`.
    """
    if not entry or entry["status"] or not tracker.knows_rows:
        return entry
    nothing = {"members": []} if "members" in entry else {}
    return {**entry, "rows": 0, **nothing}


def lacking(
    trackers: Sequence[Tracker], folder: Path, total: int, notify: Notify
) -> list[Tracker]:
    """Choose the trackers that lack something of a folder; name the others.

    Args:
        trackers: Trackers to be looked at.
        folder: Folder of a run, sweep or evolution.
        total: Number of rows that a tracker should have, of a sweep members.
        notify: Function that prints a sentence for people.

    Raises:
        ConfigError: see `load_stored`.
    """
    stored, missing = load_stored(folder), []
    for tracker in trackers:
        entry = stored_for(tracker, stored)
        if entry.get("status") and entry["rows"] >= total:
            notify(f"tracker {tracker.name!r} has everything of {folder} already.")
        else:
            missing.append(tracker)
    return missing


def plain_options(tracker: Tracker) -> dict[str, Any]:
    """Return the tracker's options as a JSON file gives them back."""
    return json.loads(json.dumps(tracker.options))


def how_to_send(tracker: Tracker, folder: Path, kind: str) -> str:
    """Return the sentence that says how a tracker gets what it lacks of a folder.

    Args:
        tracker: Tracker that lacks something.
        folder: Folder of what it was told.
        kind: Kind of what it was told, see `TrackedRun.kind`.
    """
    if kind and not folders.is_tracked(kind):
        return (
            f"Repeat the call with out={str(folder)!r}: what is missing is sent then."
        )
    if tracker.name in TRACKERS:
        command = f"{program()} track {quoted(folder)} --track {tracker.name}"
    else:
        command = f"purerl.track({str(folder)!r}, [{type(tracker).__name__}(...)])"
    return f"Send what is missing with: {command}"


def store(folder: Path, entries: Mapping[str, Mapping[str, Any]]) -> None:
    """Write what is known of some trackers; what is stored of others stays.

    Args:
        folder: The folder of what is tracked.
        entries: The entries by name of the tracker.
    """
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
    store(folder, entries)


# How long the end of what was stopped waits for its trackers.
STOP_SECONDS = 10.0
# After so long a sentence says that the end is waiting.
QUIET_SECONDS = 2.0

W = TypeVar("W", bound=Writer)


class BaseGroup(ClosesOnFailure, Generic[W]):
    """The trackers of one call, each behind a writer.

    As a context it closes them when the call fails; else `close` is for it to call.

    Args:
        writers: Writers of the group.

    Attributes:
        noun: Plural of what a tracker is told.
        notify: Function that prints a sentence for people.
    """

    noun: ClassVar[str]

    def __init__(self, writers: Sequence[W]) -> None:
        self._writers = list(writers)
        self.notify: Notify = print
        self._folder: Path | None = None
        self._kind = ""
        self._has_begun = False

    def __bool__(self) -> bool:
        return bool(self._writers)

    @property
    def stop(self) -> bool:
        """True if any of the trackers asks to stop."""
        return any(getattr(self._tracker(w), "stop", False) for w in self._writers)

    @property
    def lacks_nothing(self) -> bool:
        """True if every tracker has all that it was told, and the files."""
        return all(w.status and not self._count(w)[0] for w in self._writers)

    def where(self) -> list[str]:
        """Return sentences about how to look at what the trackers write."""
        working = [self._tracker(w) for w in self._writers if not w.failed]
        return [text for tracker in working if (text := tracker.where())]

    def _tracker(self, writer: W) -> Tracker:
        """The user's tracker, which a writer may call through another one."""
        return writer.tracker

    def _count(self, writer: W) -> tuple[int, int]:
        """Return the number of things that a tracker lacks, and of how many."""
        raise NotImplementedError

    def _entry(self, writer: W) -> dict[str, Any]:
        """Return the entry of a tracker in `trackers.json`."""
        raise NotImplementedError

    def _wait_for_all(self, limit: float | None) -> None:
        """Wait until the writers are done, at most `limit` seconds; say so."""
        raise NotImplementedError

    def _open(
        self, run: TrackedRun, stored: Sequence[Mapping[str, Any]], notify: Notify
    ) -> None:
        """Open all; where one cannot be opened, close the others.

        Args:
            run: Run that begins.
            stored: What is stored of an earlier call, an entry for each writer.
            notify: Function that prints a sentence for people.
        """
        self._folder, self._kind, self.notify = run.folder, run.kind, notify
        try:
            for writer, known in zip(self._writers, stored, strict=True):
                writer.begin(run, known, notify)
        except BaseException:
            self._end("failed", STOP_SECONDS)
            raise
        self._has_begun = True
        self._remember()

    def _end(self, status: str, limit: float | None) -> None:
        """Close all of them, as far as they answer in time; Ctrl-C ends the waiting."""
        for writer in self._writers:
            writer.close(status)
        try:
            self._wait_for_all(limit)
        except KeyboardInterrupt:
            self.notify(f"not waiting for {self._unfinished()} any longer.")
        late = [w for w in self._writers if not w.wait(0.0)]
        for writer in late:
            writer.give_up()
        if late:
            self._remember()

    def _unfinished(self) -> str:
        names = [repr(w.tracker.name) for w in self._writers if not w.wait(0.0)]
        return f"tracker{'s' if len(names) > 1 else ''} {', '.join(names)}"

    def _say_what_is_missed(self) -> None:
        for writer in self._writers:
            if sentence := self._missed(writer):
                self.notify(sentence)

    def _missed(self, writer: W) -> str:
        """Return what a tracker lacks, and how it gets it; empty if it has all."""
        missing, total = self._count(writer)
        if writer.status and not missing:
            return ""
        what = (
            f"lacks {missing:,} of {total:,} {self.noun}"
            if missing
            else f"has all {self.noun}, but perhaps not all files"
        )
        if self._folder is None:
            remedy = "There is no out folder from which they could be sent later."
        else:
            remedy = how_to_send(self._tracker(writer), self._folder, self._kind)
        return f"tracker {writer.tracker.name!r} {what}. {remedy}"

    def _remember(self) -> None:
        """Write what is known of all; from any of their threads."""
        if self._folder is None or not self._has_begun:
            return
        known = {
            writer.tracker.name: self._entry(writer)
            for writer in self._writers
            if self._tracker(writer).id
        }
        store(self._folder, known)


# How long the end of a run waits for its trackers.
END_SECONDS = 60.0


class Group(BaseGroup[Writer]):
    """The trackers of one call of `run`.

    As a context it closes them when the run fails; else `close` is for the run to call.

    Args:
        trackers: Trackers of the group.
        in_threads: Whether training must not wait for them. Else they are called at
            once, and the end takes as long as it takes.
    """

    noun = "rows"

    def __init__(self, trackers: Sequence[Tracker], in_threads: bool = True) -> None:
        super().__init__([Writer(t, in_threads, self._remember) for t in trackers])
        self._pending: list[LoggedRow] = []

    @property
    def takes_files(self) -> bool:
        """True if any of the trackers does something with files."""
        return any(
            type(writer.tracker).artifact is not Tracker.artifact
            for writer in self._writers
        )

    def begin(self, run: TrackedRun, notify: Notify) -> None:
        """Open a new run, or the same one again.

        Args:
            run: Run that begins.
            notify: Function that prints a sentence for people.

        Raises:
            ConfigError: a tracker cannot begin a new run. One that cannot go on with a
                resumed run is left out, with a sentence: that run has time to lose.
        """
        stored = load_stored(run.folder)
        trackers = [writer.tracker for writer in self._writers]
        known = [certain(t, stored_for(t, stored)) for t in trackers]
        self._open(run, known, notify)

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

    def artifact(self, path: Path, name: str) -> None:
        """Keep a file or folder with every tracker; it must stay until `close`."""
        for writer in self._writers:
            writer.call("artifact", path, name)

    def close(self, status: str) -> None:
        """Wait for what is left to be written, and say what was missed.

        Args:
            status: The status to close with: `finished` waits at most `END_SECONDS`,
                another `STOP_SECONDS`; Ctrl-C ends the waiting.
        """
        self.flush()
        self._end(status, None if status == "finished" else STOP_SECONDS)
        self._say_what_is_missed()

    def _wait_for_all(self, limit: float | None) -> None:
        limit = END_SECONDS if limit is None else limit
        began = time.monotonic()
        if not self._wait(began + min(QUIET_SECONDS, limit)):
            self.notify(
                f"waiting for {self._unfinished()}, at most {limit:g} s; Ctrl-C ends "
                "the waiting."
            )
            self._wait(began + limit)

    def _wait(self, until: float) -> bool:
        """Wait for all, and return whether they are done by a monotonic time."""
        return all([w.wait(until - time.monotonic()) for w in self._writers])

    def _count(self, writer: Writer) -> tuple[int, int]:
        return writer.missing, writer.offered

    def _entry(self, writer: Writer) -> dict[str, Any]:
        rewound = {REWOUND: writer.rewound} if writer.rewound else {}
        return {
            "id": writer.tracker.id,
            "rows": writer.taken,
            "status": writer.status,
            "options": writer.tracker.options,
            **rewound,
        }


def _update(logged: LoggedRow) -> int:
    return logged.row["update"]


class Ended(NamedTuple):
    """A member that has ended.

    Attributes:
        number: Number of the member, which `Tracker.log` names it with.
        member: The member as people see it.
        rows: Kind and numbers of its rows, in the order of their steps.
    """

    number: int
    member: Member
    rows: Sequence[tuple[str, Row]]


Load = Callable[[], Iterable[Ended]]


class _Adapter(Tracker):
    """A tracker that is sent whole members, and knows which ones it has."""

    def __init__(self, tracker: Tracker, on_member: Callable[[], None]) -> None:
        self.tracker, self.on_member = tracker, on_member
        self.name, self.background = tracker.name, tracker.background
        self.time_share = tracker.time_share
        self.sent: set[int] = set()
        self.is_left = False
        self._members: dict[int, Member] = {}

    def begin(self, run: TrackedRun) -> None:
        self._members = dict(run.members)
        self.tracker.begin(run._replace(members=self._members))

    def tell(self, load: Load) -> None:
        for number, member, rows in load():
            if self.is_left:
                return
            if number in self.sent:
                continue
            self._members[number] = member
            for kind, row in rows:
                self.tracker.log(kind, number, row)
            self.tracker.flush()
            self.tracker.end_member(number)
            self.sent.add(number)
            self.on_member()

    def artifact(self, path: Path, name: str) -> None:
        self.tracker.artifact(path, name)

    def close(self, status: str = "finished") -> None:
        self.tracker.close(status)


class _MemberWriter(Writer):
    """The writer of a tracker that is sent whole members.

    Args:
        tracker: Tracker of the user.
        in_thread: Whether a thread of its own calls the tracker.
        remember: Function that is called after the tracker has taken something.

    Attributes:
        adapter: Tracker that the writer calls.
    """

    def __init__(
        self, tracker: Tracker, in_thread: bool, remember: Callable[[], None]
    ) -> None:
        self.adapter = _Adapter(tracker, remember)
        super().__init__(self.adapter, in_thread, remember)

    def give_up(self) -> None:
        self.adapter.is_left = True
        super().give_up()


class MemberGroup(BaseGroup[_MemberWriter]):
    """The trackers of one call of `sweep`, `tune` or `compare`.

    As a context it closes them when the call fails; else `close` is for it to call.

    Args:
        trackers: Trackers of the group.
        in_threads: Whether training must not wait for them. Else they are called at
            once, and the end takes as long as it takes.
    """

    noun = "members"

    def __init__(self, trackers: Sequence[Tracker], in_threads: bool = True) -> None:
        super().__init__(())
        self._trackers, self._in_threads = list(trackers), in_threads
        self._offered: set[int] = set()
        self._total: int | None = None

    def begin(
        self, run: TrackedRun, total: int, notify: Notify, is_fixed: bool
    ) -> None:
        """Open a new outer run, or the same one again, of those that lack something.

        Args:
            run: Description of the whole; members that are not known yet are told
                when they end.
            total: Number of members that there are to be.
            notify: Function that prints a sentence for people.
            is_fixed: Whether another total makes it another whole, whose members have
                other numbers.

        Raises:
            ConfigError: a tracker cannot begin a new run, or `trackers.json` is
                damaged.
        """
        self._total = total
        trackers = self._trackers
        if trackers and run.folder is not None:
            trackers = lacking(trackers, run.folder, total, notify)
        stored = load_stored(run.folder) if trackers else {}
        entries = []
        for tracker in trackers:
            known = stored_for(tracker, stored)
            if (sure := certain(tracker, known)) is not known and run.folder:
                known = sure
                store(run.folder, {tracker.name: known})
            if is_fixed and known.get("total", total) != total:
                known = {}
            writer = _MemberWriter(tracker, self._in_threads, self._remember)
            writer.adapter.sent = set(_numbers(known))
            self._writers.append(writer)
            entries.append(known)
        self._open(run, entries, notify)
        for sentence in self.where():
            notify(sentence)

    def add(self, numbers: Iterable[int], load: Load) -> None:
        """Tell all of some members that have ended.

        Args:
            numbers: Numbers of the members.
            load: Function that reads them; it may be called later, in other threads.
        """
        self._offered.update(numbers)
        for writer in self._writers:
            writer.call("tell", load)

    def close(self, status: str, files: Mapping[str, Path] | None = None) -> None:
        """Wait for what is left to be written, and say what was missed.

        Args:
            status: Status to close with. With `finished` the end waits as long as a
                tracker gets on, else `STOP_SECONDS`; Ctrl-C ends the waiting.
            files: Files to keep with the whole, by the name under which.
        """
        for name, path in (files or {}).items():
            for writer in self._writers:
                writer.call("artifact", path, name)
        self._end(status, None if status == "finished" else STOP_SECONDS)
        self._say_what_is_missed()

    def _wait_for_all(self, limit: float | None) -> None:
        for writer in self._writers:
            self._wait(writer, limit)

    def _wait(self, writer: _MemberWriter, limit: float | None) -> None:
        """Wait for a tracker, as long as it gets on, or at most `limit` seconds."""
        if writer.wait(min(QUIET_SECONDS, limit or QUIET_SECONDS)):
            return
        name, sent = writer.tracker.name, writer.adapter.sent
        self.notify(
            f"waiting for tracker {name!r}, which has {len(sent):,} of "
            f"{len(self._offered | sent):,} members; Ctrl-C ends the waiting."
        )
        began, known = time.monotonic(), len(sent)
        patience = writers.BEGIN_SECONDS if limit is None else limit
        while not writer.wait(min(1.0, patience)):
            if limit is None and len(sent) > known:
                began, known = time.monotonic(), len(sent)
            if time.monotonic() - began >= patience:
                self.notify(
                    f"tracker {name!r}: no answer within {patience:g} s; it is left to "
                    "itself."
                )
                return

    def _tracker(self, writer: _MemberWriter) -> Tracker:
        return writer.adapter.tracker

    def _count(self, writer: _MemberWriter) -> tuple[int, int]:
        sent = writer.adapter.sent
        return len(self._offered - sent), len(self._offered | sent)

    def _entry(self, writer: _MemberWriter) -> dict[str, Any]:
        tracker, sent = writer.adapter.tracker, writer.adapter.sent
        known = stored_for(tracker, load_stored(self._folder))
        if known.get("id") == tracker.id and known.get("total") == self._total:
            # Another worker of the same study may have sent it more in the meantime.
            sent.update(_numbers(known))
        numbers = sorted(sent.copy())
        return {
            "id": tracker.id,
            "rows": len(numbers),
            "members": list(_ranges(numbers)),
            "total": self._total,
            "status": writer.status,
            "options": plain_options(tracker),
        }


def _ranges(numbers: Sequence[int]) -> Iterator[list[int]]:
    """First and last of each run of ascending numbers without a gap."""
    pairs = enumerate(numbers)
    for _, same in itertools.groupby(pairs, key=lambda pair: pair[1] - pair[0]):
        run = [number for _, number in same]
        yield [run[0], run[-1]]


def _numbers(entry: Mapping[str, Any]) -> Iterator[int]:
    """The members that an entry of `trackers.json` says were told."""
    for first, last in entry.get("members", ()):
        yield from range(int(first), int(last) + 1)


def ended(
    number: int,
    params: Mapping[str, Any],
    seed: int,
    rows: Mapping[str, Iterable[Row]],
) -> Ended:
    """Return a member of a sweep as trackers are told it.

    Args:
        number: Number of the member.
        params: Values by which the member's point differs, by name.
        seed: Seed of the member.
        rows: Rows by their kind, `train` and `evaluation`; none are known of a member
            that has not been trained yet.
    """
    values = ", ".join(f"{k}={_brief(v)}" for k, v in params.items())
    text = f"{values}, seed={seed}" if values else f"seed={seed}"
    told = [(kind, row) for kind, some in rows.items() for row in some]
    told.sort(key=lambda kind_and_row: kind_and_row[1]["env_steps"])
    return Ended(number, Member(text, seed, dict(params)), told)


def _brief(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def files_of(folder: Path | None) -> dict[str, Path]:
    """Return the files of a folder that trackers keep, by the name under which."""
    if folder is None:
        return {}
    pictures = sorted(folder.glob("*.png"))
    figures = {f"figures/{path.name}": path for path in pictures}
    plain = [folder / name for name in ("config.yaml", "manifest.json")]
    return figures | {f"sweep/{path.name}": path for path in plain if path.exists()}
