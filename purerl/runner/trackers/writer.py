"""One tracker behind a queue: training hands rows over and never waits for it.

A thread of the tracker's own makes all calls to it, one after the other, in the order
of the run. What waits is bounded by `MAX_ROWS`. They are the rows that the run keeps
anyway, and a place in the queue takes at most 150 bytes, so a tracker that is far
behind costs 15 MB at most, beside what it makes itself of `BATCH_ROWS` rows. When the
queue is full, or the tracker fails, it is told no further rows: what it has is the
beginning of the run, and the rest can be sent later. A tracker that fails is closed, so
that it gives back what it holds; nobody waits for that.
"""

import contextlib
import copy
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from purerl.config import ConfigError
from purerl.execution.format import with_noun
from purerl.runner.trackers.base import Load, Member, Row, TrackedRun, Tracker

# Rows that may wait for one tracker.
MAX_ROWS = 100_000
# Rows between two calls of `flush`, where more wait. MLflow makes 300 bytes of every
# number: 6 MB of a thousand rows of twenty.
BATCH_ROWS = 1_000
# How long a tracker may take to begin.
BEGIN_SECONDS = 120.0

Notify = Callable[[str], None]


class LoggedRow(NamedTuple):
    """A row, and whose it is.

    Attributes:
        kind: The kind of the row: `train`, `evaluation` or `evolution`.
        member: Number of the member, in a run its seed.
        row: The numbers, by name.
    """

    kind: str
    member: int
    row: Row


class _Call(NamedTuple):
    method: str
    args: tuple[Any, ...]


_Job = Sequence[LoggedRow] | _Call


class Writer:
    """A tracker, what waits for it, and what it has taken.

    Args:
        tracker: Tracker to write to.
        in_thread: Whether a thread of its own calls the tracker. Else `work` and
            `close` do, in the thread that calls them, and nothing is bounded.
        remember: Function that is called after the tracker has taken something.

    Attributes:
        offered: Number of rows that the run has had for the tracker.
        taken: Number of these that the tracker has written, first to last.
        told: Numbers of the members that were told whole.
        status: Status with which it was closed, empty before.
        failed: Whether it is called no more, but for closing it where it raised: it
            raised, or was given up.
        rewound: What is stored of rows that no longer hold, until the tracker has been
            told.
    """

    def __init__(
        self,
        tracker: Tracker,
        in_thread: bool = True,
        remember: Callable[[], None] = lambda: None,
    ) -> None:
        self.tracker, self.remember = tracker, remember
        self.in_thread = in_thread and tracker.background
        self.offered = self.taken = 0
        self.told: set[int] = set()
        self._members: dict[int, Member] = {}
        self.status = ""
        self.failed = False
        self.rewound: Mapping[str, int] | None = None
        self._error: BaseException | None = None
        self._known = 0  # Rows that it has taken in earlier calls of the run.
        self._jobs: deque[_Job] = deque()
        self._waiting = 0  # Rows in these jobs.
        self._is_busy = self._is_behind = self._is_ending = False
        self._free_at = 0.0
        self._changed = threading.Condition()
        self._notify: Notify = lambda text: None

    def begin(self, run: TrackedRun, stored: Mapping[str, Any], notify: Notify) -> None:
        """Open the tracker, and wait until it is open.

        Args:
            run: Run that begins.
            stored: The values that are stored of an earlier call of the same run: `id`,
                `rows` and perhaps `rewound`, or nothing.
            notify: Function that prints a sentence for people.

        Raises:
            ConfigError: it cannot begin, and there is no earlier call.
        """
        self._known = self.taken = int(stored.get("rows", 0))
        self.told = members_of(stored)
        # A tracker may go through them in its thread while others get to know more.
        self._members = copy.copy(run.members)
        self.rewound = stored.get("rewound")
        step = self.rewound["step"] if self.rewound else None
        if self.in_thread:
            name = f"tracker {self.tracker.name}"
            threading.Thread(target=self._loop, name=name, daemon=True).start()
        told = run._replace(id=stored.get("id"), rewound=step, members=self._members)
        self.call("begin", told)
        if not self.wait(BEGIN_SECONDS):
            self._fail(TimeoutError(f"no answer within {BEGIN_SECONDS:g} s"))
        self._notify = notify
        if self._error is None:
            self._say_what_stays()
            self.rewound = None
            return
        if stored:
            notify(self._sentence(self._error))
            return
        raise ConfigError(
            f"tracker {self.tracker.name!r} cannot begin ({reason(self._error)}); "
            "check its address and options, or leave it out."
        ) from self._error

    def offer(self, rows: Sequence[LoggedRow]) -> None:
        """Hand rows over that belong together: all that ended with the same update."""
        before = self.offered
        self.offered += len(rows)
        rows = rows[max(0, self._known - before) :]
        if not rows or self.failed or self._is_behind:
            return
        if self.in_thread and self._waiting and self._waiting + len(rows) > MAX_ROWS:
            self._is_behind = True
            self._notify(
                f"tracker {self.tracker.name!r} is {self._waiting:,} rows behind and "
                "is told no further ones."
            )
            return
        self._put(rows)

    def call(self, method: str, *args: Any) -> None:
        """Call a method of the tracker after what waits already."""
        if not self.failed:
            self._put(_Call(method, args))
            self.work()

    def work(self) -> None:
        """Do what waits, in this thread, unless the tracker has its own."""
        while not self.in_thread and self._jobs:
            self._do(self._next())

    def close(self, status: str) -> None:
        """Close the tracker after what waits already; without a pause from here on."""
        with self._changed:
            self._is_ending = True
        self.call("close", status)

    def wait(self, seconds: float) -> bool:
        """Wait until nothing is left to be done; return whether that came in time."""
        with self._changed:
            return self._changed.wait_for(self._is_idle, max(0.0, seconds))

    def give_up(self) -> None:
        """Call the tracker no more; a call that goes on is left to itself."""
        with self._changed:
            self.failed = True
            self._jobs.clear()
            self._changed.notify_all()

    @property
    def missing(self) -> int:
        """Rows that the tracker has not."""
        return max(0, self.offered - self.taken)

    def _is_idle(self) -> bool:
        return self.failed or not (self._jobs or self._is_busy)

    def _put(self, job: _Job) -> None:
        with self._changed:
            self._jobs.append(job)
            self._waiting += 0 if isinstance(job, _Call) else len(job)
            self._changed.notify_all()

    def _loop(self) -> None:
        """The tracker's thread: until it is closed, or has failed."""
        while not self.failed and not self.status:
            with self._changed:
                while not self.failed and not self._is_due():
                    rest = self._free_at - time.monotonic()
                    self._changed.wait(rest if self._jobs else None)
                if self.failed:
                    return
                job = self._next()
            self._do(job)

    def _is_due(self) -> bool:
        in_time = time.monotonic() >= self._free_at
        is_full = self._waiting > MAX_ROWS // 2
        return bool(self._jobs) and (in_time or is_full or self._is_ending)

    def _next(self) -> _Job:
        """The next call, or as many of the next rows as are written at once."""
        self._is_busy = True
        job = self._jobs.popleft()
        if isinstance(job, _Call):
            return job
        rows = list(job)
        while self._jobs and not isinstance(more := self._jobs[0], _Call):
            if len(rows) + len(more) > BATCH_ROWS:
                break
            rows += more
            self._jobs.popleft()
        self._waiting -= len(rows)
        return rows

    def _do(self, job: _Job) -> None:
        began = time.monotonic()
        try:
            if isinstance(job, _Call):
                if job.method == "tell":
                    self._tell(*job.args)
                else:
                    getattr(self.tracker, job.method)(*job.args)
                if job.method == "close":
                    self.status = job.args[0]
            else:
                self._write(job)
            if not self.failed:
                self.remember()
            if not isinstance(job, _Call) or job.method == "tell":
                ended, share = time.monotonic(), self.tracker.time_share
                self._free_at = ended + (ended - began) * (1.0 / share - 1.0)
        except BaseException as error:
            if not self.failed:
                with contextlib.suppress(OSError):  # It may be what has failed.
                    self.remember()
            if not self.in_thread and not isinstance(error, Exception):
                self._jobs.clear()  # Ctrl-C, in the thread that it is for
                self._is_behind = True
                raise
            self._fail(error)
            if not isinstance(job, _Call) or job.method != "close":
                with contextlib.suppress(Exception):  # It has failed already.
                    self.tracker.close("failed")
        finally:
            with self._changed:
                self._is_busy = False
                self._changed.notify_all()

    def _write(self, rows: Sequence[LoggedRow]) -> None:
        # One that has no `flush` of its own has taken a row when `log` returns.
        is_direct = type(self.tracker).flush is Tracker.flush
        logged = 0
        try:
            for kind, member, row in rows:
                if self.failed:  # It was given up in the meantime.
                    return
                self.tracker.log(kind, member, row)
                logged += 1
                self.taken += is_direct
        except Exception:
            # Rows that it took before it failed must not be sent to it again.
            with contextlib.suppress(Exception):
                self._flush(0 if is_direct else logged)
            raise
        self._flush(0 if is_direct else logged)

    def _tell(self, load: Load) -> None:
        """Tell members whole, but for those that the tracker has."""
        for number, member, rows in load():
            if self.failed:  # It was given up in the meantime.
                return
            if number in self.told:
                continue
            self._members[number] = member
            for kind, row in rows:
                self.tracker.log(kind, number, row)
            self.tracker.flush()
            self.tracker.end_member(number)
            self.told.add(number)
            self.remember()

    def _flush(self, rows: int) -> None:
        """Count rows as taken when they are where they belong."""
        self.tracker.flush()
        if not self.failed:
            self.taken += rows

    def _fail(self, error: BaseException) -> None:
        if self.failed:  # It was given up before: nobody waits for what it says.
            return
        self._error = error
        self.give_up()
        self._notify(self._sentence(error))

    def _say_what_stays(self) -> None:
        """Say how many rows that no longer hold the tracker goes on to show."""
        stays = self.rewound["rows"] if self.rewound else 0
        if stays and not self.tracker.takes_back:
            self._notify(
                f"tracker {self.tracker.name!r} cannot take rows back: it keeps "
                f"{with_noun(stays, 'row')} of updates after the last checkpoint, "
                "although what is trained anew from there comes out otherwise."
            )

    def _sentence(self, error: BaseException) -> str:
        return (
            f"tracker {self.tracker.name!r} failed ({reason(error)}) and is left out "
            "from here on."
        )


def members_of(entry: Mapping[str, Any]) -> set[int]:
    """Return the members that an entry of `trackers.json` says were told whole."""
    return {
        number
        for first, last in entry.get("members", ())
        for number in range(int(first), int(last) + 1)
    }


def reason(error: BaseException) -> str:
    """Return the kind of an error and its first line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else repr(error)
