"""The commands that purerl prints, with the modules that this one has imported."""

import contextlib
import shlex
from collections.abc import Iterator, Sequence

# The modules of the command that runs in this process: one at a time, see `importing`.
_modules: list[str] = []


@contextlib.contextmanager
def importing(modules: Sequence[str]) -> Iterator[None]:
    """Let printed commands import what a command has imported, while it runs.

    Args:
        modules: Names of the modules.
    """
    before = list(_modules)
    _modules[:] = modules
    try:
        yield
    finally:
        _modules[:] = before


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
