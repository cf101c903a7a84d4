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
from purerl.runner.trackers.base_group import QUIET_SECONDS, STOP_SECONDS, BaseGroup
from purerl.runner.trackers.stored import REWOUND, certain, load_stored, stored_for
from purerl.runner.trackers.writer import LoggedRow, Notify, Writer

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
