"""Modules of the user's own that a command imports first: `--import`, PURERL_IMPORT."""

import importlib
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from purerl.config import ConfigError


def load(sources: Mapping[str, str]) -> None:
    """Import modules, which register what the command then knows by name.

    The working directory is looked through too, after all that is installed.

    Args:
        sources: The flag or variable that names each module, by the module's name.

    Raises:
        ConfigError: a module that is not there, has the name of another, or fails.
    """
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    importlib.invalidate_caches()  # A notebook may have written the file just now.
    for name, source in sources.items():
        _check_name(name, source)
        _check_found(name, source, _imported(name, source))


def _check_name(name: str, source: str) -> None:
    """Refuse what is no name of a module, such as the name of its file."""
    path = name.removesuffix(".py")
    if path == name and all(part.isidentifier() for part in name.split(".")):
        return
    meant = ".".join(part for part in path.split("/") if part not in ("", "."))
    is_name = all(part.isidentifier() for part in meant.split("."))
    hint = f" Did you mean {meant!r}?" if is_name else ""
    raise ConfigError(
        f"{source} takes the name of a module as Python imports it, such as mine for "
        f"mine.py in the working directory, got {name!r}.{hint}"
    )


def _imported(name: str, source: str) -> Any:
    """The module; what is wrong inside of it is shown with its place."""
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and f"{name}.".startswith(f"{missing}."):
            raise ConfigError(
                f"{source}: there is no module {name!r}; it must be installed, or lie "
                f"in the working directory ({Path.cwd()}) or in a folder of PYTHONPATH."
            ) from None
        traceback.print_exception(error.with_traceback(_inside(error.__traceback__)))
        what = f"{type(error).__name__}: {error}".partition("\n")[0].rstrip(": .")
        raise ConfigError(
            f"{source}: the module {name!r} failed while it was imported ({what})."
        ) from None


def _inside(trace: TracebackType | None) -> TracebackType | None:
    """The part of a traceback that lies inside of the module."""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if file != __file__ and "importlib" not in file:
            break
        trace = trace.tb_next
    return trace


def _check_found(name: str, source: str, module: Any) -> None:
    """Refuse another module than the one in the working directory of that name."""
    path = Path(*name.split("."))
    mine = [file for file in (path.with_suffix(".py"), path / "__init__.py")]
    mine = [file for file in mine if file.exists()]
    found = getattr(module, "__file__", None)
    if not mine or any(found and file.samefile(found) for file in mine):
        return
    raise ConfigError(
        f"{source}: Python takes {found or 'a module of its own'} for {name!r}, and "
        f"not {mine[0]} in the working directory; give this file another name."
    )
