"""Signals that end a process, as a wish to stop soon and not in the middle of a file.

Ctrl-C (SIGINT), SIGTERM (a scheduler) and SIGHUP (a terminal that was closed) first ask
to stop, as a tracker may do too. Whoever sends the last two does not wait for long, so
that a tool has `PURERL_GRACE_SECONDS` then. Python hears a signal between two compiled
calls.
"""

import contextlib
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Self

from purerl.config import ConfigError
from purerl.execution.format import say

GRACE = "PURERL_GRACE_SECONDS"
GRACE_SECONDS = 25.0  # Slurm and Kubernetes kill after 30.
# A closed terminal signals once by the shell and once by the kernel; srun forwards what
# its job gets as well. What comes so soon after the first is the same wish.
REPEAT_SECONDS = 1.0
# How long the end at once may take, before the process goes without it.
END_SECONDS = 5.0
ENDING = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)
)


class _Last:
    """The last of these signals in this process, and when it came."""

    number, when = signal.SIGINT, -math.inf


class Interrupt:
    """While active, the first signal asks to stop; the second stops at once.

    Handlers are set in the main thread only. SIGTERM and SIGHUP are left alone where
    they are ignored, as by `nohup`, or where the program has a handler of its own.

    Args:
        is_told: A function that says whether something else asks to stop, such as a
            tracker; then the first Ctrl-C stops at once.

    Attributes:
        insisted: Whether to stop at once; threads look here, as the exception is raised
            in the main one only.

    Raises:
        ConfigError: PURERL_GRACE_SECONDS is no number of seconds.
    """

    def __init__(self, is_told: Callable[[], bool] = lambda: False) -> None:
        self._is_told, self._was_asked, self.insisted = is_told, False, False
        self._old: dict[int, Any] = {}
        self._is_over, self._grace, self._process = threading.Event(), 0.0, os.getpid()

    @property
    def asked(self) -> bool:
        """True if there was a first signal, or something else asks to stop."""
        return self._was_asked or self._is_told()

    def __enter__(self) -> Self:
        self._grace = _grace_seconds()
        if threading.current_thread() is threading.main_thread():
            self._old[signal.SIGINT] = signal.signal(signal.SIGINT, self._ask)
            for number in _ours():
                self._old[number] = signal.signal(number, self._ask_to_end)
        return self

    def _ask(self, number: int, frame: FrameType | None) -> None:
        del frame
        _Last.number = signal.Signals(number)
        if self.asked:
            self.insisted = True
            raise KeyboardInterrupt
        self._was_asked = True
        # In a thread: the signal may have come in the middle of another sentence.
        words = "finishing what is under way; another Ctrl-C stops at once and loses it"
        threading.Thread(target=say, args=(words,), daemon=True).start()

    def _ask_to_end(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # A forked child, which trains nothing.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif not self._was_asked:
            _Last.number, _Last.when = signal.Signals(number), time.monotonic()
            self._was_asked = True
            threading.Thread(target=self._end, args=(number,), daemon=True).start()
        elif not _is_repeated():
            self._ask(number, frame)

    def _end(self, number: int) -> None:
        """Say what happens, and see to it that the process ends in time."""
        say(
            f"{signal.Signals(number).name}: finishing what is under way, for at most "
            f"{self._grace:g} s ({GRACE}), and saving; a second one ends at once"
        )
        if not self._is_over.wait(self._grace):
            _Last.when = -math.inf  # so that it counts as a second one
            os.kill(os.getpid(), number)
            if not self._is_over.wait(END_SECONDS):
                os._exit(128 + number)

    def __exit__(self, *error: Any) -> None:
        self._is_over.set()
        for number, old in self._old.items():
            signal.signal(number, old)


def _ours() -> list[int]:
    """The signals of `ENDING` that nobody else takes."""
    return [n for n in ENDING if signal.getsignal(n) in (signal.SIG_DFL, _raise)]


def _is_repeated() -> bool:
    return time.monotonic() - _Last.when < REPEAT_SECONDS


def _grace_seconds() -> float:
    text = os.environ.get(GRACE, "") or str(GRACE_SECONDS)
    with contextlib.suppress(ValueError):
        if float(text) >= 0:
            return min(float(text), threading.TIMEOUT_MAX)
    raise ConfigError(
        f"{GRACE} must be a number of seconds, 0 or more, got {text!r}; for example 25."
    )


def _raise(number: int, frame: FrameType | None) -> None:
    del frame
    if not _is_repeated():
        _Last.number, _Last.when = signal.Signals(number), time.monotonic()
        raise KeyboardInterrupt


@contextlib.contextmanager
def commanded() -> Iterator[Callable[[], int]]:
    """Let SIGTERM and SIGHUP end a command as Ctrl-C does.

    Yields:
        A function that returns the status of a command that a signal has stopped.
    """
    _Last.number, _Last.when = signal.SIGINT, -math.inf
    old = (
        {number: signal.signal(number, _raise) for number in _ours()}
        if (threading.current_thread() is threading.main_thread())
        else {}
    )
    try:
        yield lambda: 128 + _Last.number
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
