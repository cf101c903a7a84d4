"""Ctrl-C as a wish to stop soon, not as an exception in the middle of something.

The first Ctrl-C sets `asked`, and the second one raises.
"""

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Self


class Interrupt:
    """While active, the first Ctrl-C asks to stop; the second stops at once.

    Attributes:
        asked: Whether there was a first Ctrl-C.
        insisted: Whether there was a second one; threads look here, as the exception is
            raised in the main one only.
    """

    def __init__(self) -> None:
        self.asked = self.insisted = False
        self._old: Callable | int | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._old = signal.signal(signal.SIGINT, self._ask)
        return self

    def _ask(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self.asked:
            self.insisted = True
            raise KeyboardInterrupt
        self.asked = True

    def __exit__(self, *error: Any) -> None:
        if self._old is not None:
            signal.signal(signal.SIGINT, self._old)
