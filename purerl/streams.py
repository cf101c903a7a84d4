"""Output that ends nothing: a log on a full disk only describes what is computed."""

import sys
from collections.abc import Callable
from typing import Any


class Unfailing:
    """A text stream where what cannot be written is dropped.

    Args:
        stream: Function that returns the stream, or None where there is none.
        is_log: Whether it goes on where nobody reads it any more; else a
            `BrokenPipeError` is raised.

    Attributes:
        error: The last error of writing, None where all could be written.
    """

    def __init__(self, stream: Callable[[], Any], is_log: bool = True) -> None:
        self._stream, self._is_log = stream, is_log
        self.error: OSError | None = None

    def write(self, text: str) -> int:
        """Write a text, or drop it."""
        self._attempt("write", text)
        return len(text)

    def flush(self) -> None:
        """Write what is buffered, or leave it."""
        self._attempt("flush")

    def _attempt(self, method: str, *args: Any) -> None:
        try:
            if (stream := self._stream()) is not None:
                getattr(stream, method)(*args)
        except OSError as error:
            if isinstance(error, BrokenPipeError) and not self._is_log:
                raise
            self.error = error
        except ValueError:
            pass  # It has been closed.

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream(), name)


STDERR: Any = Unfailing(lambda: sys.stderr)


def say(text: str) -> None:
    """Print a sentence for people to standard error."""
    print(text, file=STDERR)
