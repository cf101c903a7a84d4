"""The commands that purerl prints, and the one that runs here."""

import contextlib
import re
import shlex
import sys
from collections.abc import Iterator, Sequence

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
