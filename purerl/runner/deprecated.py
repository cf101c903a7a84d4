"""Names of before, which are still taken."""

import inspect
import warnings


def warn_renamed(old: str, new: str) -> None:
    """Warn that something has another name now, at the line that used the old one.

    The line is the nearest one that is not in this package, however deep in it the name
    is read.
    """
    level, frame = 1, inspect.currentframe()
    while frame is not None and _package(frame.f_globals) == _package(globals()):
        level, frame = level + 1, frame.f_back
    warnings.warn(f"{old} is called {new}", DeprecationWarning, stacklevel=level)


def _package(names: dict) -> str:
    """The package of a module, from its global names."""
    return str(names.get("__name__", "")).partition(".")[0]
