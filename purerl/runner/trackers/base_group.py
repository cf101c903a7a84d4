"""The trackers of one call, whatever they are told: opened, closed and remembered.

What they are told, and how long the end waits for it, is for the subclasses: rows of a
run (`purerl.runner.trackers.group`), or members that have ended
(`purerl.runner.trackers.members`).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from purerl.runner.trackers.base import TrackedRun, Tracker
from purerl.runner.trackers.closing import ClosesOnFailure
from purerl.runner.trackers.stored import how_to_send, store
from purerl.runner.trackers.writer import Notify, Writer

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
