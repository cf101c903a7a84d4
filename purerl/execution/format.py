"""Text for people: numbers, paths, commands as a shell takes them, and the log."""

import contextlib
import math
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from typing import Any


def format_count(number: float) -> str:
    """Return a number with three digits and k, M, G or T."""
    return _with_unit(number, 1000.0, ("", "k", "M", "G", "T"))


def _with_unit(number: float, base: float, units: Sequence[str]) -> str:
    """A number in the largest unit of which it has at least one, to three digits."""
    if not math.isfinite(number):
        return f"{number}{units[0]}"
    power = 0
    # What would be written as a whole unit is one: 999,999 is 1M, and not 1000k.
    while power < len(units) - 1 and abs(number) >= base - 0.5:
        number, power = number / base, power + 1
    digits = f"{number:,.0f}" if abs(number) >= 999.5 else f"{number:.3g}"
    return f"{digits}{units[power]}"


def quoted(path: object) -> str:
    """Return a path as it stands in a command for a shell, in quotes where it must."""
    return shlex.quote(str(path))


def with_noun(number: int, noun: str, nouns: str = "") -> str:
    """Return a number and its noun: `1 agent`, `2 agents`, `3 losses`.

    Args:
        number: The number.
        noun: The noun in the singular.
        nouns: The noun in the plural; with an added `s` where not given.
    """
    return f"{number:,} {noun if number == 1 else nouns or f'{noun}s'}"


def format_duration(seconds: float) -> str:
    """Return seconds as `m:ss` or `h:mm:ss`."""
    if not math.isfinite(seconds):
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def format_bytes(number: float) -> str:
    """Return bytes with KiB, MiB, GiB, TiB or PiB."""
    return _with_unit(number, 1024.0, (" B", " KiB", " MiB", " GiB", " TiB", " PiB"))


# The modules of the command that runs in this process: one at a time, see `importing`.
_modules: list[str] = []
_words: list[str] = []  # That command's name and all that follows it.


@contextlib.contextmanager
def running(modules: Sequence[str], words: Sequence[str]) -> Iterator[None]:
    """Let printed commands import what a command has imported, while it runs.

    Args:
        modules: Names of the modules.
        words: The command's name and all that follows it.
    """
    before = list(_modules), list(_words)
    _modules[:], _words[:] = modules, words
    try:
        yield
    finally:
        _modules[:], _words[:] = before


def this_command() -> str:
    """Return the command that runs here, or the Python program; empty in a notebook."""
    program = sys.argv[0] if sys.argv else ""
    if _words:
        command = command_line(*_words)
    elif program.endswith(".py") and "ipykernel" not in program:
        command = shlex.join(["python", *sys.argv])
    else:
        return ""
    # A store's address may have a password in it, and manifests are passed on.
    return re.sub(r"(://[^:/@\s]*):[^@/\s]*@", r"\1:***@", command)


def has_imported() -> bool:
    """Return whether a command runs here that has imported modules of the user's."""
    return bool(_modules)


def program() -> str:
    """Return how a printed command begins: `purerl`, with `--import` where needed."""
    return " ".join(["purerl", *(f"--import {name}" for name in _modules)])


def command_line(*words: str) -> str:
    """Return a whole command as a shell takes it.

    Args:
        *words: The command's name and all that follows it.
    """
    return f"{program()} {shlex.join(words)}"


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
