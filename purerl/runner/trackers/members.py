"""Trackers of a sweep, study or comparison: a member is told whole, when it has ended.

Each tracker is called by a thread of its own, as those of a run are. What waits for it
are functions that read rows, not the rows, so that a tracker that is far behind costs
no memory; the end waits for it as long as it gets on. Which members it has stands in
`trackers.json`, so that no member is written twice, in whatever order they end.
"""

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from purerl.runner.trackers import writer as writers
from purerl.runner.trackers.base import Member, Row, TrackedRun, Tracker
from purerl.runner.trackers.closing import ClosesOnFailure
from purerl.runner.trackers.group import QUIET_SECONDS, STOP_SECONDS
from purerl.runner.trackers.stored import (
    damaged,
    how_to_send,
    lacking,
    load_stored,
    plain_options,
    store,
    stored_for,
)
from purerl.runner.trackers.writer import Notify, Writer


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


class MemberGroup(ClosesOnFailure):
    """The trackers of one call of `sweep`, `tune` or `compare`.

    As a context it closes them when the call fails; else `close` is for it to call.

    Args:
        trackers: Trackers of the group.
        in_threads: Whether training must not wait for them. Else they are called at
            once, and the end takes as long as it takes.
    """

    def __init__(self, trackers: Sequence[Tracker], in_threads: bool = True) -> None:
        self._trackers, self._in_threads = list(trackers), in_threads
        self._pairs: list[tuple[_Adapter, Writer]] = []
        self._offered: set[int] = set()
        self._folder: Path | None = None
        self._kind = ""
        self._total: int | None = None
        self._has_begun = False
        self.notify: Notify = print

    def __bool__(self) -> bool:
        return bool(self._pairs)

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
        self._folder, self._kind = run.folder, run.kind
        self._total, self.notify = total, notify
        trackers = self._trackers
        if trackers and run.folder is not None:
            trackers = lacking(trackers, run.folder, total, notify)
        stored = load_stored(run.folder) if trackers else {}
        for tracker in trackers:
            adapter = _Adapter(tracker, self._remember)
            self._pairs.append(
                (adapter, Writer(adapter, self._in_threads, self._remember))
            )
        try:
            for adapter, writer in self._pairs:
                known = stored_for(adapter.tracker, stored)
                if is_fixed and known.get("total", total) != total:
                    known = {}
                if known and "members" not in known:
                    what = f"tracker {adapter.name!r} has no members in it"
                    raise damaged(run.folder, what)
                adapter.sent = set(_numbers(known))
                writer.begin(run, known, notify)
        except BaseException:
            self._close("failed", STOP_SECONDS)
            raise
        self._has_begun = True
        self._remember()
        working = [t.tracker for t, w in self._pairs if not w.failed]
        for sentence in filter(None, (tracker.where() for tracker in working)):
            notify(sentence)

    def add(self, numbers: Iterable[int], load: Load) -> None:
        """Tell all of some members that have ended.

        Args:
            numbers: Numbers of the members.
            load: Function that reads them; it may be called later, in other threads.
        """
        self._offered.update(numbers)
        for _, writer in self._pairs:
            writer.call("tell", load)

    def close(self, status: str, files: Mapping[str, Path] | None = None) -> None:
        """Wait for what is left to be written, and say what was missed.

        Args:
            status: Status to close with. With `finished` the end waits as long as a
                tracker gets on, else `STOP_SECONDS`; Ctrl-C ends the waiting.
            files: Files to keep with the whole, by the name under which.
        """
        for name, path in (files or {}).items():
            for _, writer in self._pairs:
                writer.call("artifact", path, name)
        self._close(status, None if status == "finished" else STOP_SECONDS)
        self._remember()
        for adapter, writer in self._pairs:
            if sentence := self._missed(adapter, writer):
                self.notify(sentence)

    @property
    def stop(self) -> bool:
        """True if any of the trackers asks to stop."""
        return any(getattr(t.tracker, "stop", False) for t, _ in self._pairs)

    @property
    def lacks_nothing(self) -> bool:
        """True if every tracker has all members that were told, and the files."""
        return all(w.status and self._offered <= t.sent for t, w in self._pairs)

    def _close(self, status: str, limit: float | None) -> None:
        for _, writer in self._pairs:
            writer.close(status)
        try:
            for adapter, writer in self._pairs:
                self._wait(adapter, writer, limit)
        except KeyboardInterrupt:
            self.notify("not waiting for trackers any longer.")
        for adapter, writer in self._pairs:
            if not writer.wait(0.0):
                adapter.is_left = True
                writer.give_up()

    def _wait(self, adapter: _Adapter, writer: Writer, limit: float | None) -> None:
        """Wait for a tracker, as long as it gets on, or at most `limit` seconds."""
        if writer.wait(min(QUIET_SECONDS, limit or QUIET_SECONDS)):
            return
        self.notify(
            f"waiting for tracker {adapter.name!r}, which has {len(adapter.sent):,} of "
            f"{len(self._offered | adapter.sent):,} members; Ctrl-C ends the waiting."
        )
        began, known = time.monotonic(), len(adapter.sent)
        patience = writers.BEGIN_SECONDS if limit is None else limit
        while not writer.wait(min(1.0, patience)):
            if limit is None and len(adapter.sent) > known:
                began, known = time.monotonic(), len(adapter.sent)
            if time.monotonic() - began >= patience:
                self.notify(
                    f"tracker {adapter.name!r}: no answer within {patience:g} s; it is "
                    "left to itself."
                )
                return

    def _missed(self, adapter: _Adapter, writer: Writer) -> str:
        """Return what a tracker lacks, and how it gets it; empty if it has all."""
        missing = len(self._offered - adapter.sent)
        if writer.status and not missing:
            return ""
        what = (
            f"lacks {missing:,} of {len(self._offered | adapter.sent):,} members"
            if missing
            else "has all members, but perhaps not all files"
        )
        if self._folder is None:
            remedy = "There is no out folder from which they could be sent later."
        else:
            remedy = how_to_send(adapter.tracker, self._folder, self._kind)
        return f"tracker {adapter.name!r} {what}; the results are not touched. {remedy}"

    def _remember(self) -> None:
        """Write what is known of all; from any of their threads."""
        if self._folder is None or not self._has_begun:
            return
        known = {
            adapter.name: self._entry(adapter, writer)
            for adapter, writer in self._pairs
            if adapter.tracker.id is not None
        }
        store(self._folder, known)

    def _entry(self, adapter: _Adapter, writer: Writer) -> dict[str, Any]:
        known = stored_for(adapter.tracker, load_stored(self._folder))
        if known.get("id") == adapter.tracker.id and known.get("total") == self._total:
            # Another worker of the same study may have sent it more in the meantime.
            adapter.sent.update(_numbers(known))
        numbers = sorted(adapter.sent.copy())
        return {
            "id": adapter.tracker.id,
            "rows": len(numbers),
            "members": list(_ranges(numbers)),
            "total": self._total,
            "status": writer.status,
            "options": plain_options(adapter.tracker),
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
