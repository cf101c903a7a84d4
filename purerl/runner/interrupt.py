"""Signals that end a process, as a wish to stop soon and not in the middle of a file.

Ctrl-C (SIGINT), SIGTERM (a scheduler) and SIGHUP (a terminal that was closed) first ask
to stop, as a tracker may do too. Python hears a signal between two compiled calls.
"""

import contextlib
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NoReturn, Self

from purerl.execution.format import say

# A closed terminal signals once by the shell and once by the kernel; srun forwards what
# its job gets as well. What comes so soon after the first is the same wish.
REPEAT_SECONDS = 1.0
ENDING = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)
)


class _Last:
    """The last signal of this process, when it came, and whether it has raised."""

    number, when, is_raised = signal.SIGINT, -math.inf, False


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
    """

    def __init__(self, is_told: Callable[[], bool] = lambda: False) -> None:
        self._is_told, self._was_asked, self.insisted = is_told, False, False
        self._old: dict[int, Any] = {}
        self._process = os.getpid()

    @property
    def asked(self) -> bool:
        """True if there was a first signal, or something else asks to stop."""
        return self._was_asked or self._is_told()

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, *_ours()):
                self._old[number] = signal.signal(number, self._ask)
        return self

    def _ask(self, number: int, frame: FrameType | None) -> None:
        del frame
        is_ending = number in ENDING
        if os.getpid() != self._process:  # A forked child, which trains nothing.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif self._was_asked or (self.asked and not is_ending):
            if not (is_ending and _is_repeated()):
                self.insisted = True
                _interrupt(number)
        else:
            _Last.number, self._was_asked = signal.Signals(number), True
            if is_ending:
                _Last.when = time.monotonic()
            # In a thread: the signal may have come in the middle of another sentence.
            words = "finishing what is under way; another signal stops at once"
            threading.Thread(target=say, args=(words,), daemon=True).start()

    def __exit__(self, *error: Any) -> None:
        for number, old in self._old.items():
            signal.signal(number, old)


def _ours() -> list[int]:
    """The signals of `ENDING` that nobody else takes."""
    return [n for n in ENDING if signal.getsignal(n) in (signal.SIG_DFL, _raise)]


def _is_repeated() -> bool:
    return time.monotonic() - _Last.when < REPEAT_SECONDS


def _raise(number: int, frame: FrameType | None) -> None:
    del frame
    if number == signal.SIGINT:
        _interrupt(number)
    if not _is_repeated():
        _Last.when = time.monotonic()
        _interrupt(number)


def _interrupt(number: int) -> NoReturn:
    _Last.number, _Last.is_raised = signal.Signals(number), True
    raise KeyboardInterrupt


@contextlib.contextmanager
def commanded() -> Iterator[Callable[[], int]]:
    """Let SIGTERM and SIGHUP end a command as Ctrl-C does.

    A finaliser or the callback of a weak reference swallows an exception. Where a
    signal's is swallowed, the signal comes again.

    Yields:
        A function that returns the status of a command that a signal has stopped.
    """
    _Last.number, _Last.when, _Last.is_raised = signal.SIGINT, -math.inf, False
    old = {}
    if threading.current_thread() is threading.main_thread():
        is_pythons = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        for number in [signal.SIGINT] * is_pythons + _ours():
            old[number] = signal.signal(number, _raise)
    hook = sys.unraisablehook

    def repeat(swallowed: Any) -> None:
        if not isinstance(swallowed.exc_value, KeyboardInterrupt):
            return hook(swallowed)
        _Last.when = -math.inf  # It is no repetition that goes unheard.
        # Later, as it would be swallowed here too.
        threading.Timer(0.05, os.kill, (os.getpid(), _Last.number)).start()

    sys.unraisablehook = repeat
    try:
        yield lambda: 128 + _Last.number
    finally:
        sys.unraisablehook = hook
        for number, handler in old.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def heard() -> Iterator[None]:
    """Raise KeyboardInterrupt where a library turned a signal's into its own error.

    Compiled libraries, such as matplotlib's, answer any exception in a conversion with
    one of their own.
    """
    try:
        yield
    except Exception as error:
        if _Last.is_raised:
            raise KeyboardInterrupt from error
        raise


def answer() -> None:
    """Note that a signal's KeyboardInterrupt was caught: a later error is real."""
    _Last.is_raised = False
