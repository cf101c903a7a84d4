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
from purerl.runner.trackers.base_group import QUIET_SECONDS, STOP_SECONDS, BaseGroup
from purerl.runner.trackers.stored import (
    certain,
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
