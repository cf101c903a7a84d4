"""What to say where a package that an adapter is named after is not installed."""

from __future__ import annotations

import importlib


def require_package(package: str) -> None:
    """Say what to install where a package is missing.

    Args:
        package: Name of the package, which is the name of purerl's extra, too.

    Raises:
        ValueError: it cannot be imported.
    """
    try:
        importlib.import_module(package)
    except (ImportError, OSError) as error:  # OSError: its files are not all there.
        why = "" if getattr(error, "name", None) == package else f" ({error})"
        raise ValueError(
            f"this needs the package {package}{why}; install purerl[{package}]."
        ) from None
