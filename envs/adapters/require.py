"""The import of an adapter's package, and the modules that a config may name."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator
from types import ModuleType


def require_package(package: str, extra: str = "") -> None:
    """Say what to install where a package is missing.

    Args:
        package: Name of the package.
        extra: Name of purerl's extra that installs it; the package's where not given.

    Raises:
        ValueError: it cannot be imported.
    """
    try:
        importlib.import_module(package)
    except (ImportError, OSError) as error:  # OSError: its files are not all there.
        why = "" if getattr(error, "name", None) == package else f" ({error})"
        raise ValueError(
            f"this needs the package {package}{why}; install "
            f"purerl[{extra or package}]."
        ) from None


def imported(module: str) -> ModuleType:
    """Return a module that has been imported already.

    Configs name modules, and may come from somebody else: to import one runs its code.

    Args:
        module: Name of the module, such as `mypackage.nets`.

    Raises:
        ValueError: it has not been imported.
    """
    found = sys.modules.get(module)
    if found is None:
        raise ValueError(
            f"the module {module!r} has not been imported, and a config imports none, "
            f"as that runs its code. If you trust it, import it first (import {module}"
            f"; on the command line --import {module})."
        )
    return found


@contextlib.contextmanager
def with_opengl_as_asked() -> Iterator[None]:
    """Say what is wrong where `MUJOCO_GL` keeps MuJoCo from being imported.

    MuJoCo looks for the OpenGL that the variable names as soon as it is imported, and
    brax imports it whether anything is drawn or not.

    Raises:
        ValueError: the variable is set, and what is imported inside fails.
    """
    try:
        yield
    except (AttributeError, ImportError, RuntimeError) as error:
        asked = os.environ.get("MUJOCO_GL")
        if not asked:
            raise
        raise ValueError(
            f"MuJoCo, which brax needs, cannot be imported with MUJOCO_GL={asked!r} "
            f"({type(error).__name__}: {error}): this machine lacks that OpenGL; unset "
            "the variable, or install it, such as libosmesa6 for osmesa."
        ) from None
