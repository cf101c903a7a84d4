"""Ctrl-C as a wish to stop soon, not as an exception in the middle of something.

The first Ctrl-C asks to stop, as a tracker may do too, and the next one raises.
"""

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Self


class Interrupt:
    """While active, the first Ctrl-C asks to stop; the second stops at once.

    Args:
        is_told: A function that says whether something else asks to stop, such as a
            tracker; then the first Ctrl-C stops at once.

    Attributes:
        insisted: Whether to stop at once; threads look here, as the exception is raised
            in the main one only.
    """

    def __init__(self, is_told: Callable[[], bool] = lambda: False) -> None:
        self._is_told, self._was_pressed, self.insisted = is_told, False, False
        self._old: Callable | int | None = None

    @property
    def asked(self) -> bool:
        """True if there was a first Ctrl-C, or something else asks to stop."""
        return self._was_pressed or self._is_told()

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._old = signal.signal(signal.SIGINT, self._ask)
        return self

    def _ask(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self.asked:
            self.insisted = True
            raise KeyboardInterrupt
        self._was_pressed = True

    def __exit__(self, *error: Any) -> None:
        if self._old is not None:
            signal.signal(signal.SIGINT, self._old)
