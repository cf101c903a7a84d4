"""The identity of the process that works on a trial, and whether it still runs.

On one machine a process is looked up; of another machine's one knows only that its
beat, a number that it keeps raising in the study, has not stopped.
"""

import os
import platform
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

BEAT_SECONDS = 15.0
# A worker elsewhere whose beat stood still for so long is taken for dead.
GRACE_SECONDS = 120.0


# Workers of this process that have not left.
_here: set[str] = set()


def home() -> str:
    """Return the scope of unique process ids: host, boot and PID namespace."""
    parts = [platform.node()]
    for read in (
        lambda: Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        lambda: os.readlink("/proc/self/ns/pid"),
    ):
        try:
            parts.append(read())
        except OSError:  # Not Linux: the name has to do.
            continue
    return "/".join(parts)


def identity() -> dict[str, Any]:
    """Return a name of the caller, unique among processes and calls, until `leave`."""
    pid, name = os.getpid(), uuid.uuid4().hex[:12]
    _here.add(name)
    return {
        "id": name,
        "home": home(),
        "pid": pid,
        "started": _started(pid),
    }


def leave(worker: dict[str, Any]) -> None:
    """Note that the worker has stopped, though its process may go on."""
    _here.discard(worker["id"])


def _started(pid: int) -> str | None:
    """Return when a process began, in ticks; None if there is none.

    Process ids are used again, but not with the same start.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    # A killed child that nobody has waited for is dead too.
    return None if fields[0] in "ZX" else fields[19]


def is_running(worker: dict[str, Any]) -> bool | None:
    """Return whether a worker's process is there; None where nobody here can know."""
    if worker["home"] != home():
        return None
    if worker["pid"] == os.getpid() and worker["started"] == _started(os.getpid()):
        return worker["id"] in _here
    if worker["started"] is not None:
        return _started(worker["pid"]) == worker["started"]
    try:
        os.kill(worker["pid"], 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


class Watch:
    """Remembers when each worker's beat was last seen to change."""

    def __init__(self, grace: float = GRACE_SECONDS) -> None:
        self.grace = grace
        self._seen: dict[str, tuple[Any, float]] = {}

    def is_dead(self, worker: dict[str, Any], beat: Any) -> bool:
        """Return whether a worker has certainly or very probably stopped."""
        running = is_running(worker)
        if running is not None:
            return not running
        now = time.monotonic()
        last, since = self._seen.get(worker["id"], (None, now))
        if worker["id"] not in self._seen or last != beat:
            self._seen[worker["id"]] = (beat, now)
            return False
        return now - since > self.grace


class Heart:
    """Calls `beat(number)` every few seconds from a thread while active."""

    def __init__(self, beat: Callable[[int], None]) -> None:
        self._beat = beat
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(BEAT_SECONDS):
            number += 1
            try:
                self._beat(number)
            except Exception:  # A busy storage: the next beat says as much.
                continue

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stop.set()
        self._thread.join()
