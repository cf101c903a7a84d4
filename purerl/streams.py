"""Output that ends nothing: a log on a full disk only describes what is computed."""

import contextlib
import sys
from typing import Any


class _Log:
    """Standard error, where what cannot be written is dropped."""

    def write(self, text: str) -> int:
        """Write a text, or drop it."""
        self._attempt("write", text)
        return len(text)

    def flush(self) -> None:
        """Write what is buffered, or leave it."""
        self._attempt("flush")

    def _attempt(self, method: str, *args: Any) -> None:
        # It may be None, closed, or a file on a full disk.
        with contextlib.suppress(AttributeError, OSError, ValueError):
            getattr(sys.stderr, method)(*args)

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr, name)


STDERR: Any = _Log()


def in_notebook() -> bool:
    """Return whether the kernel of a notebook runs this, whose cells show HTML."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def say(text: str) -> None:
    """Print a sentence for people to standard error."""
    print(text, file=STDERR)
