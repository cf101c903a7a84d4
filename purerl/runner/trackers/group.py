"""The trackers of one call: opened, told, closed, and remembered in `trackers.json`.

What is told comes in pieces, each of which a tracker has or lacks: in a run, a search
or an evolution the rows of an update (`tell`), in a sweep, a study or a
comparison a member that has ended (`add`). All pieces stand in one list. A thread for
each tracker reads it at its own pace, so training waits for none, and a failure of one
stops neither training nor the others. What a tracker has missed is sent by the call
that goes on, or by `purerl track`.

`trackers.json` holds, by the tracker's name: `id`, under which it goes on; `options`,
which make it again; `status`, with which it was closed (empty before); `told`, which
pieces it has, as ranges; `total`, how many there are, where that is known; `members`,
the checksum of what a sweep's numbers stand for; `folder`, which tells a copy of a
folder that is still there: what both tell would mix. A copy begins anew, and so does a
tracker with pieces that no longer hold, where `replaces` stands in place of `id`.
"""

import contextlib
import copy
import itertools
import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from purerl.config import ConfigError
from purerl.execution.format import program, quoted
from purerl.runner import interrupt
from purerl.runner.trackers.base import TRACKERS, Piece, Row, TrackedRun, Tracker
from purerl.storage import folders
from purerl.storage.files import read_json, write_json
from purerl.storage.folders import TRACKERS_FILE

# How long a tracker may take to begin.
BEGIN_SECONDS = 120.0
# How long the end of a call waits for trackers that do not get on, and how long that of
# a call which was stopped waits in all.
END_SECONDS, STOP_SECONDS = 60.0, 10.0
# After so long a sentence says that the end is waiting.
QUIET_SECONDS = 2.0
# Rows between two calls of `flush`, where more wait. MLflow makes 300 bytes of every
# number: 6 MB of a thousand rows of twenty.
BATCH_ROWS = 1_000
# A thread rests for so many times what its last rows took: a tracker gets at most a
# tenth of a core's time while there is training.
REST = 9.0

Notify = Callable[[str], None]
# Makes the files to keep by name; it may draw into the folder that it is given, which
# stays until all trackers are closed.
Files = Callable[[Path], Mapping[str, Path]]


# Reads pieces. It may be called later, in other threads, so that a tracker that is far
# behind costs no memory.
Load = Callable[[], Iterable[Piece]]


class Writer:
    """A tracker, and how far it has come along what its group tells.

    Attributes:
        told: Numbers of the pieces that the tracker has.
        status: Status with which it was closed, empty before.
        failed: Whether it is called no more, because it raised or was given up.
        has_begun: Whether it is open, or was.
        is_late: Whether there is still something to be done.
    """

    def __init__(self, tracker: Tracker, group: "Group") -> None:
        self.tracker, self._group = tracker, group
        self.in_thread = group.in_threads and tracker.background
        self.status, self.told = "", set[int]()
        self.failed = self.has_begun = self._is_cut = False
        self.is_late = True
        self._place = 0  # The place among the group's items.
        self._error: BaseException | None = None
        # A row counts when `flush` returns. Without one, when `log` does.
        has_flush = type(tracker).flush is not Tracker.flush
        self._batch = BATCH_ROWS if has_flush else 1

    def begin(self, run: TrackedRun, stored: Mapping[str, Any]) -> None:
        """Open the tracker, and wait until it is open.

        Args:
            run: Run that begins.
            stored: The entry of `trackers.json`, or nothing.

        Raises:
            ConfigError: it cannot begin, and there is no earlier call.
        """
        self._is_new, self.told = not stored, told_in(stored)
        # A tracker may go through them in its thread while others get to know more.
        self._members = copy.copy(run.members)
        identity = {"id": stored.get("id"), "replaces": stored.get("replaces")}
        run = run._replace(members=self._members, **identity)
        if self.in_thread:
            name = f"tracker {self.tracker.name}"
            threading.Thread(
                target=self._loop, args=(run,), name=name, daemon=True
            ).start()
        else:
            self._attempt(self._begin, run)
        if not self._group.wait(lambda: self.has_begun or self.failed, BEGIN_SECONDS):
            self._fail(TimeoutError(f"no answer within {BEGIN_SECONDS:g} s"))
        if self._error is not None and self._is_new:
            raise ConfigError(
                f"tracker {self.tracker.name!r} cannot begin ({reason(self._error)}); "
                "check its address and options, or leave it out."
            ) from self._error

    def work(self) -> None:
        """Write all that waits; close the tracker where the call has ended."""
        while self.is_late:
            if self._waits():
                self._attempt(self._write)
            elif self._group.ending:
                self._attempt(self._end, *self._group.ending)
            else:
                return

    def _loop(self, run: TrackedRun) -> None:
        """The tracker's thread."""
        self._attempt(self._begin, run)
        while self.is_late:
            began = time.monotonic()
            self.work()
            rest = REST * (time.monotonic() - began)
            self._group.wait(lambda: bool(self._group.ending or self.failed), rest)
            self._group.wait(
                lambda: bool(self._waits() or self._group.ending or self.failed)
            )

    def _waits(self) -> bool:
        return not self._is_cut and self._place < len(self._group.items)

    def _attempt(self, call: Callable[..., None], *args: Any) -> None:
        try:
            call(*args)
            self.is_late = not (self.status or self.failed)
        except BaseException as error:
            if not (self.in_thread or isinstance(error, Exception)):
                self._is_cut = True  # Ctrl-C: what is left is sent another time.
                raise
            if self._fail(error) and call != self._end:
                with contextlib.suppress(Exception):
                    self.tracker.close("failed")
        self._group.notify_all()

    def _begin(self, run: TrackedRun) -> None:
        self.tracker.begin(run)
        self.has_begun = True

    def _write(self) -> None:
        """Log what waits, up to a batch; members that have ended one by one."""
        logged, axis, num_rows = list[int](), self._group.run.axis, 0
        try:
            while self._waits() and num_rows < self._batch:
                for piece in self._group.items[self._place]():
                    if piece.number in self.told:
                        continue
                    if piece.ended is not None:
                        self._members[piece.number] = piece.ended
                    for member, row in piece.rows:
                        if self.failed:  # It was given up in the meantime.
                            return
                        self.tracker.log(member, row[axis], row)
                    num_rows += len(piece.rows)
                    logged.append(piece.number)
                    if piece.ended is not None:
                        self.tracker.flush()
                        self.tracker.end_member(piece.number)
                        self._count(logged)
                self._place += 1
        finally:
            # What it took before it failed must not be sent to it again.
            if logged and not self.failed:
                self.tracker.flush()
                self._count(logged)

    def _count(self, numbers: list[int]) -> None:
        self.told.update(numbers)
        numbers.clear()
        self._group.remember()
        self._group.notify_all()

    def _end(self, status: str, files: Mapping[str, Path]) -> None:
        for name, path in files.items():
            self.tracker.artifact(path, name)
        self.tracker.close(status)
        self.status = status
        self._group.remember()

    def _fail(self, error: BaseException) -> bool:
        """Leave the tracker out; return whether it was not left out before."""
        if self.failed:
            return False
        self._error, self.failed, self.is_late = error, True, False
        self._group.notify_all()
        if self.has_begun or not self._is_new:
            self._group.notify(
                f"tracker {self.tracker.name!r} failed ({reason(error)}) and is left "
                "out from here on."
            )
        return True


class Group:
    """The trackers of one call.

    As a context it closes them when the call fails; else `close` is for it to call.

    Args:
        trackers: Trackers that have not begun.
        in_threads: Whether training must not wait for them. Else they are called at
            once, and the end takes as long as it takes.

    Attributes:
        run: Description of what is told.
        notify: Function that prints a sentence for people.
        items: What reads all that was told in this call, in its order.
        ending: Status and files of the end, None before it.
    """

    def __init__(self, trackers: Sequence[Tracker], in_threads: bool = True) -> None:
        self.in_threads, self.run = in_threads, TrackedRun("", {}, {})
        self.notify: Notify = print
        self.items: list[Load] = []
        self.ending: tuple[str, Mapping[str, Path]] | None = None
        self._changed = threading.Condition()
        self._writers = [Writer(tracker, self) for tracker in trackers]
        self._has_begun = False
        self._offered: set[int] = set()  # Numbers of the pieces.
        self._total: int | None = None
        self._members = 0

    def __bool__(self) -> bool:
        return bool(self._writers)

    @property
    def stop(self) -> bool:
        """True if any of the trackers asks to stop."""
        return any(writer.tracker.stop for writer in self._writers)

    @property
    def lacks_nothing(self) -> bool:
        """True if every tracker has all that it was told, and the files."""
        return all(w.status and self._offered <= w.told for w in self._writers)

    def begin(
        self,
        run: TrackedRun,
        notify: Notify,
        total: int | None = None,
        members: int = 0,
    ) -> None:
        """Open a new run, or the same one again.

        Args:
            run: Description of what begins. Of a sweep, members that are not known yet
                are told when they end.
            notify: Function that prints a sentence for people.
            total: Number of pieces that there are. Where it is given, trackers that
                have everything are left out. The others say where to look at what they
                write.
            members: Checksum of what the numbers of a sweep's members stand for. Where
                it is another one, trackers begin anew.

        Raises:
            ConfigError: a tracker cannot begin a new run, or `trackers.json` is
                damaged. One that cannot go on with an earlier call's is left out, with
                a sentence: that training has time to lose.
        """
        self.run, self.notify, self._total = run, notify, total
        self._members = members
        stored = load_stored(run.folder) if self._writers else {}
        entries = []
        for writer in list(self._writers):
            name = writer.tracker.name
            known = stored.get(name, {})
            if known.get("options") != plain_options(writer.tracker):
                known = {}  # It writes elsewhere now.
            if known and run.is_sweep and known.get("members") != members:
                known = _anew(known, name, run.folder)
            is_whole = total is not None and len(told_in(known)) >= total
            if is_whole and known.get("status"):
                notify(f"tracker {name!r} has everything of {run.folder} already.")
                self._writers.remove(writer)
                continue
            if original := _original(known, name, run.folder):
                notify(
                    f"tracker {name!r} begins anew: {run.folder} is a copy of "
                    f"{original}, whose run stays as it is."
                )
                known = _anew(known, name, run.folder)
            entries.append(known)
        try:
            for writer, known in zip(self._writers, entries, strict=True):
                writer.begin(run, known)
        except BaseException:
            self._writers = [writer for writer in self._writers if writer.has_begun]
            self._end("failed", {})
            raise
        self._has_begun = True
        self.remember()
        for writer in self._writers:
            if not writer.failed and (sentence := writer.tracker.where()):
                notify(sentence)

    def tell(self, rows: Iterable[tuple[int, Row]]) -> None:
        """Hand over the rows of a segment that has ended, those of an update together.

        They are numbered as they come: a call that goes on tells all rows again.

        Args:
            rows: The number of a member, see `TrackedRun.members`, and a row with its
                `kind`, `train`, `evaluation` or `evolution`.
        """
        if not self._writers:
            return

        def update(told: tuple[int, Row]) -> int:
            return told[1]["update"]

        # In the order of updates: an evaluation comes before the end of its segment.
        for _, some in itertools.groupby(sorted(rows, key=update), key=update):
            piece = Piece(len(self._offered), list(some))
            self._offered.add(piece.number)
            self.items.append(lambda piece=piece: [piece])
        self._go_on()

    def add(self, numbers: Iterable[int], load: Load) -> None:
        """Tell all of some members that have ended, if any was not told before.

        Args:
            numbers: Numbers of the members.
            load: Function that reads them.
        """
        told = set(numbers)
        if self._writers and not told <= self._offered:
            self._offered |= told
            self.items.append(load)
            self._go_on()

    def close(self, status: str, files: Files = lambda folder: {}) -> None:
        """Wait for what is left to be written, and say what was missed.

        Args:
            status: The status to close with: `finished`, `interrupted` or `failed`.
            files: Makes the files to keep, if any tracker takes files.
        """
        kinds = [type(writer.tracker) for writer in self._writers]
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as drawn:
            takes_files = any(kind.artifact is not Tracker.artifact for kind in kinds)
            self._end(status, files(Path(drawn)) if takes_files else {})
        for writer in self._writers:
            self._say_what_is_missed(writer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: Any) -> None:
        if kind is not None and self._has_begun:
            stopped = issubclass(kind, KeyboardInterrupt)
            self.close("interrupted" if stopped else "failed")

    def wait(self, until: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait until something holds; return whether it did in time."""
        with self._changed:
            return self._changed.wait_for(until, seconds)

    def notify_all(self) -> None:
        """Let everybody look again who waits for something."""
        with self._changed:
            self._changed.notify_all()

    def _go_on(self) -> None:
        """Let trackers read on: threads of their own, and the others here."""
        self.notify_all()
        for writer in self._writers:
            if not writer.in_thread:
                writer.work()

    def _end(self, status: str, files: Mapping[str, Path]) -> None:
        """Close all of them, as far as they answer in time; Ctrl-C ends the waiting."""
        self.ending = status, files
        self._go_on()
        try:
            self._wait(is_finished=status == "finished")
        except KeyboardInterrupt:
            interrupt.answer()
            self.notify("not waiting for trackers any longer.")
        for writer in self._writers:
            # A call that goes on is left to itself.
            writer.failed, writer.is_late = writer.failed or writer.is_late, False
        self.notify_all()

    def _wait(self, is_finished: bool) -> None:
        """Wait for all while one gets on; where a call was stopped, not so long."""
        seconds = END_SECONDS if is_finished else STOP_SECONDS

        def late() -> list[str]:
            return [repr(w.tracker.name) for w in self._writers if w.is_late]

        until, known = time.monotonic() + seconds, 0
        if self.wait(lambda: not late(), min(QUIET_SECONDS, seconds)):
            return
        self.notify(
            f"waiting for tracker {', '.join(late())}, {seconds:g} s for an answer; "
            "Ctrl-C ends the waiting."
        )
        while (left := until - time.monotonic()) > 0:
            if self.wait(lambda: not late(), min(1.0, left)):
                return
            has = sum(len(writer.told) for writer in self._writers)
            if is_finished and has > known:
                known, until = has, time.monotonic() + seconds

    def _say_what_is_missed(self, writer: Writer) -> None:
        """Say what a tracker lacks, and how it gets it."""
        missing, total = len(self._offered - writer.told), len(self._offered)
        if writer.status and not missing:
            return
        noun = "members" if self.run.is_sweep else "updates"
        what = f"lacks {missing:,} of {total:,} {noun}"
        if not missing:
            what = f"has all {noun}, but perhaps not all files"
        folder, kind, name = self.run.folder, self.run.kind, writer.tracker.name
        remedy = f"Send what is missing with: {program()} track "
        if folder is None:
            remedy = "There is no out folder from which it could be sent later."
        elif kind and not folders.is_tracked(kind):
            remedy = f"Repeat the call with out={str(folder)!r}: it is sent then."
        elif name in TRACKERS:
            remedy += f"{quoted(folder)} --track {name}"
        else:
            own = f"[{type(writer.tracker).__name__}(...)]"
            remedy = f"Send what is missing with: purerl.track({str(folder)!r}, {own})"
        self.notify(f"tracker {name!r} {what}. {remedy}")

    def remember(self) -> None:
        """Write what is known of all; from any of their threads.

        What is stored of others stays. Another worker of the same study may have told
        a tracker more meanwhile.
        """
        named = {w.tracker.name: w for w in self._writers if w.tracker.id}
        folder = self.run.folder
        if folder is None or not (self._has_begun and named):
            return
        with _lock:
            stored = load_stored(folder)
            for name, writer in named.items():
                tracker, told = writer.tracker, writer.told
                entry = {
                    "id": tracker.id,
                    "options": plain_options(tracker),
                    "total": self._total,
                    "members": self._members,
                    "status": writer.status,
                    "folder": str(folder.resolve()),
                }
                known = stored.get(name, {})
                same = ("id", "options", "total", "members", "folder")
                if all(known.get(n) == entry[n] for n in same):
                    told |= told_in(known)
                entry["told"] = list(_ranges(sorted(told)))
                stored[name] = entry
            write_json(folder / TRACKERS_FILE, stored)


def no_files(folder: Path) -> Mapping[str, Path]:
    """Return no files to keep."""
    del folder
    return {}


class Told(NamedTuple):
    """What trackers are told of what a call trains, or of what a folder holds.

    Attributes:
        run: The description of it.
        total: Number of the pieces that there will be: updates that have rows, of a
            sweep members; None where that is not known.
        tell: Tells a group all that there are.
        files: Makes the files to keep.
        is_finished: Whether nothing more will come.
        members: See `Group.begin`.
    """

    run: TrackedRun
    total: int | None
    tell: Callable[[Group], None]
    files: Files = no_files
    is_finished: bool = False
    members: int = 0


def send(told: Told, trackers: Sequence[Tracker], notify: Notify) -> bool:
    """Send what trackers lack of a folder; return whether they have all of it now.

    Raises:
        ConfigError: a tracker cannot begin.
    """
    group = Group(trackers, in_threads=False)
    with group:
        group.begin(told.run, notify, told.total, told.members)
        told.tell(group)
        group.close("finished" if told.is_finished else "interrupted", told.files)
    return group.lacks_nothing


def reason(error: BaseException) -> str:
    """Return the kind of an error and its first line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else repr(error)


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


def plain_options(tracker: Tracker) -> dict[str, Any]:
    """Return the tracker's options as a JSON file gives them back."""
    return json.loads(json.dumps(tracker.options))


_lock = threading.Lock()


def begin_anew(folder: Path, updates: int) -> None:
    """Let trackers begin anew that were told more updates than still hold.

    Args:
        folder: Folder of a run or search, which goes on otherwise than it went.
        updates: Number of the updates with rows that still hold.
    """
    stored = load_stored(folder)
    for name, entry in stored.items():
        if len(told_in(entry)) > updates:
            stored[name] = _anew(entry, name, folder)
    if stored:
        write_json(folder / TRACKERS_FILE, stored)


def _anew(entry: Mapping[str, Any], name: str, folder: Path | None) -> dict[str, Any]:
    """The entry of `trackers.json` with which a tracker begins anew."""
    if _original(entry, name, folder):  # Whose run nothing replaces.
        return {"options": entry["options"]}
    replaces = entry.get("id") or entry.get("replaces")
    return {"options": entry["options"], "replaces": replaces}


def _original(entry: Mapping[str, Any], name: str, folder: Path | None) -> Path | None:
    """The folder of which one is a copy, if it is still there with the same entry."""
    if folder is None or "folder" not in entry:
        return None
    there = Path(entry["folder"])
    with contextlib.suppress(ConfigError, OSError):
        is_same = load_stored(there).get(name, {}).get("id") == entry["id"]
        return there if is_same and not there.samefile(folder) else None
    return None


def told_in(entry: Mapping[str, Any]) -> set[int]:
    """Return the pieces that an entry of `trackers.json` says were told."""
    ranges = entry.get("told", ())
    return {number for first, last in ranges for number in range(first, last + 1)}


def _ranges(numbers: Sequence[int]) -> Iterator[list[int]]:
    """First and last of each run of ascending numbers without a gap."""
    pairs = enumerate(numbers)
    for _, same in itertools.groupby(pairs, key=lambda pair: pair[1] - pair[0]):
        run = [number for _, number in same]
        yield [run[0], run[-1]]
