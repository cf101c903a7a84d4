"""All trackers of a run: a failure of one neither stops the run nor the others.

trackers.json, in the run's folder, holds per tracker what makes it again, the `id`
under which it goes on, and `logged`: the last update whose rows it has taken. A
resumed run computes the same rows again, so rows up to `logged` are not told twice;
rows that a tracker has missed (it failed, or is new) are told from the JSON lines.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from purerl.config import ConfigError
from purerl.runner.trackers.base import Row, TrackedRun, Tracker
from purerl.serialise import write_atomic

FILE = "trackers.json"
Say = Callable[[str], None]


def load_stored(folder: Path | None) -> dict[str, Any]:
    """What `trackers.json` holds; nothing where there is none.

    Raises:
        ConfigError: it is damaged.
    """
    path = folder / FILE if folder else None
    if path is None or not path.exists():
        return {}
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path} is damaged ({error}). Delete it: trackers then begin new runs, "
            "with all rows so far."
        ) from None


class Group:
    """The trackers of one call of `run`.

    As a context it closes them when the run fails; else `close` is for the run to call.
    """

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        self._guards = [_Guard(tracker) for tracker in trackers]
        self.say: Say = print
        self._folder: Path | None = None
        self._stored: dict[str, Any] = {}

    def __bool__(self) -> bool:
        return bool(self._guards)

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

    @property
    def takes_files(self) -> bool:
        """Whether any of them does something with files."""
        return any(
            type(guard.tracker).artifact is not Tracker.artifact
            for guard in self._guards
        )

    def begin(self, run: TrackedRun, say: Say) -> None:
        """Open a new run, or the same one again.

        Args:
            run: that begins.
            say: prints a sentence for people.

        Raises:
            ConfigError: a tracker cannot begin a new run. One that cannot go on with a
                resumed run is left out, with a sentence: that run has time to lose.
        """
        self._folder, self.say = run.folder, say
        self._stored = load_stored(run.folder)
        for guard in self._guards:
            guard.begin(run, self._stored.get(guard.tracker.name, {}), say)
        self._remember()

    def log(self, kind: str, seed: int, row: Row) -> None:
        """Take a row for all."""
        for guard in self._guards:
            guard.log(kind, seed, row)

    def flush(self, last: bool = False) -> None:
        """A segment has ended; `last` also for those that have had their time."""
        for guard in self._guards:
            before = guard.logged
            guard.flush(last)
            if guard.logged != before:
                self._remember()

    def artifact(self, path: Path, name: str) -> None:
        """Keep a file or folder with every tracker."""
        for guard in self._guards:
            guard.call("artifact", path, name)

    def close(self, status: str) -> None:
        """Write what is left; say where it is."""
        self.flush(last=True)
        for guard in self._guards:
            guard.call("close", status)

    def where(self) -> list[str]:
        """Sentences that say how to look at what the trackers write."""
        working = [g.tracker for g in self._guards if not g.failed]
        return [text for tracker in working if (text := tracker.where())]

    def _remember(self) -> None:
        if self._folder is None:
            return
        known = {g.tracker.name: g.entry() for g in self._guards if g.tracker.id}
        merged = {**self._stored, **known}
        if merged:
            write_atomic(self._folder / FILE, json.dumps(merged, indent=2))


class _Guard:
    """One tracker: its pending rows, and whether it still works."""

    def __init__(self, tracker: Tracker) -> None:
        self.tracker = tracker
        self.say: Say = print
        self.logged = 0
        self.failed = False
        self._pending: list[tuple[int, str, int, Row]] = []
        self._free_at = 0.0
        self._folder: Path | None = None

    def entry(self) -> dict[str, Any]:
        return {
            "id": self.tracker.id,
            "logged": self.logged,
            "options": self.tracker.options,
        }

    def begin(self, run: TrackedRun, stored: Mapping[str, Any], say: Say) -> None:
        self._folder, self.say = run.folder, say
        self.logged = int(stored.get("logged", 0))
        try:
            self.tracker.begin(run._replace(id=stored.get("id")))
        except Exception as error:
            if stored:
                self._fail(error)
                return
            raise ConfigError(
                f"tracker {self.tracker.name!r} cannot begin ({_reason(error)}); check "
                "its address and options, or leave it out."
            ) from error

    def log(self, kind: str, seed: int, row: Row) -> None:
        if not self.failed and row["update"] > self.logged:
            self._pending.append((row["update"], kind, seed, row))

    def flush(self, last: bool) -> None:
        if not self._pending or not (last or time.monotonic() >= self._free_at):
            return
        began = time.monotonic()
        # In the order of updates: an evaluation comes before the end of its segment.
        rows = sorted(self._pending, key=lambda item: item[0])
        self._pending = []  # first: Ctrl-C in a tracker must not bring them back
        ok = all(self.call("log", kind, seed, row) for _, kind, seed, row in rows)
        if ok and self.call("flush"):
            self.logged = rows[-1][0]
        ended = time.monotonic()
        share = self.tracker.time_share
        self._free_at = ended + (ended - began) * (1.0 / share - 1.0)

    def call(self, method: str, *args: Any) -> bool:
        """Call a method of the tracker; False when it has failed, now or before."""
        if self.failed:
            return False
        try:
            getattr(self.tracker, method)(*args)
        except Exception as error:
            self._fail(error)
        return not self.failed

    def _fail(self, error: Exception) -> None:
        self.failed = True
        self._pending.clear()
        rest = (
            f"; its metrics are in {self._folder / 'metrics'}, and resuming "
            f"{self._folder} logs what is missing"
            if self._folder
            else ""
        )
        self.say(
            f"tracker {self.tracker.name!r} failed ({_reason(error)}) and is left out "
            f"from here on. The run goes on{rest}."
        )


def _reason(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else repr(error)
