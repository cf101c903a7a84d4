"""All trackers of a run: a failure of one neither stops the run nor the others.

Each is called by a thread of its own (`purerl.runner.trackers.writer`). A resumed run
computes the same rows again; those that a tracker has taken (`trackers.json`, see
`purerl.runner.trackers.stored`) are not told twice. One that comes out otherwise tells
what comes after its checkpoint anew. What a tracker has missed (it failed, or is new)
is told from the JSON lines, by a resumed run or by `purerl track`.
"""

import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from purerl.runner.trackers.base import Row, TrackedRun, Tracker
from purerl.runner.trackers.closing import ClosesOnFailure
from purerl.runner.trackers.stored import (
    REWOUND,
    how_to_send,
    load_stored,
    store,
    stored_for,
)
from purerl.runner.trackers.writer import LoggedRow, Notify, Writer

# How long the end of a run waits for its trackers, and of one that was stopped.
END_SECONDS, STOP_SECONDS = 60.0, 10.0
# After so long a sentence says that the end is waiting.
QUIET_SECONDS = 2.0


class Group(ClosesOnFailure):
    """The trackers of one call of `run`.

    As a context it closes them when the run fails; else `close` is for the run to call.

    Args:
        trackers: Trackers of the group.
        in_threads: Whether training must not wait for them. Else they are called at
            once, and the end takes as long as it takes.
    """

    def __init__(self, trackers: Sequence[Tracker], in_threads: bool = True) -> None:
        self._writers = [Writer(t, in_threads, self._remember) for t in trackers]
        self.notify: Notify = print
        self._pending: list[LoggedRow] = []
        self._folder: Path | None = None
        self._kind = ""
        self._has_begun = False

    def __bool__(self) -> bool:
        return bool(self._writers)

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
        self._folder, self._kind, self.notify = run.folder, run.kind, notify
        stored = load_stored(run.folder)
        try:
            for writer in self._writers:
                writer.begin(run, stored_for(writer.tracker, stored), notify)
        except BaseException:
            self._end("failed", STOP_SECONDS)
            raise
        self._has_begun = True
        self._remember()

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
        self._end(status, END_SECONDS if status == "finished" else STOP_SECONDS)
        for writer in self._writers:
            if sentence := self._missed(writer):
                self.notify(sentence)

    @property
    def stop(self) -> bool:
        """True if any of the trackers asks to stop."""
        return any(getattr(w.tracker, "stop", False) for w in self._writers)

    @property
    def lacks_nothing(self) -> bool:
        """True if every tracker has all rows and files."""
        return all(w.status and not w.missing for w in self._writers)

    def where(self) -> list[str]:
        """Return sentences about how to look at what the trackers write."""
        working = [w.tracker for w in self._writers if not w.failed]
        return [text for tracker in working if (text := tracker.where())]

    def _end(self, status: str, limit: float) -> None:
        """Close all of them, as far as they answer in time."""
        for writer in self._writers:
            writer.close(status)
        began = time.monotonic()
        try:
            if not self._wait(began + min(QUIET_SECONDS, limit)):
                self.notify(
                    f"waiting for {self._unfinished()}, at most {limit:g} s; Ctrl-C "
                    "ends the waiting."
                )
                self._wait(began + limit)
        except KeyboardInterrupt:
            self.notify(f"not waiting for {self._unfinished()} any longer.")
        late = [w for w in self._writers if not w.wait(0.0)]
        for writer in late:
            writer.give_up()
        if late:
            self._remember()

    def _wait(self, until: float) -> bool:
        """Wait for all, and return whether they are done by a monotonic time."""
        return all([w.wait(until - time.monotonic()) for w in self._writers])

    def _unfinished(self) -> str:
        names = [repr(w.tracker.name) for w in self._writers if not w.wait(0.0)]
        return f"tracker{'s' if len(names) > 1 else ''} {', '.join(names)}"

    def _missed(self, writer: Writer) -> str:
        """Return what a tracker lacks, and how it gets it; empty if it has all."""
        if writer.status and not writer.missing:
            return ""
        what = (
            f"lacks {writer.missing:,} of {writer.offered:,} rows"
            if writer.missing
            else "has all rows, but perhaps not all files"
        )
        if self._folder is None:
            remedy = "There is no out folder from which they could be sent later."
        else:
            remedy = how_to_send(writer.tracker, self._folder, self._kind)
        return f"tracker {writer.tracker.name!r} {what}. {remedy}"

    def _remember(self) -> None:
        """Write what is known of all; from any of their threads."""
        if self._folder is None or not self._has_begun:
            return
        known = {w.tracker.name: _entry(w) for w in self._writers if w.tracker.id}
        store(self._folder, known)


def _entry(writer: Writer) -> dict[str, Any]:
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
