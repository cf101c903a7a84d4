"""Preparations of the command line: settings of JAX, modules of the user's own."""

import hashlib
import importlib
import os
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from purerl.config import ConfigError
from purerl.storage.files import cache_base


def compile_cache_dir() -> Path | None:
    """Return where compiled programs are kept, or None if that is switched off.

    There is no such folder either where the user has no home (`cache_base`).

    `JAX_COMPILATION_CACHE_DIR` wins; `PURERL_COMPILE_CACHE=off` switches it off. The
    folder's name holds the processor's features, because a program compiled for one
    machine may not run on another that shares the home folder.
    """
    given = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    if given:
        return Path(given)
    switch = os.environ.get("PURERL_COMPILE_CACHE", "")
    if switch.lower() in ("off", "0", "no", "false"):
        return None
    base = cache_base()
    return None if base is None else base / "purerl" / f"xla-{_processor()}"


def enable_compile_cache() -> Path | None:
    """Keep compiled programs between processes; returns the folder."""
    folder = compile_cache_dir()
    if folder is not None:
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 1.0)
    return folder


def backend_problem(error: BaseException | None = None) -> str | None:
    """Return why JAX cannot compute on the devices asked for; None where it can."""
    if not str(error).startswith(_FAILED):
        try:
            jax.devices()
            return None
        except Exception as found:  # An AssertionError where no GPU is visible.
            error = found
    reason = str(error).partition(" (")[0].removeprefix(_FAILED).strip()
    platforms = jax.config.jax_platforms  # type: ignore[attr-defined]
    if not platforms:
        return f"JAX cannot use the devices of this machine: {reason}."
    return (
        f"JAX_PLATFORMS={platforms} asks for devices that JAX cannot use: {reason}."
        " An NVIDIA GPU takes pip install 'purerl[cuda12]' or 'purerl[cuda13]', a TPU "
        "'jax[tpu]'. To take the devices that there are, unset JAX_PLATFORMS."
    )


_FAILED = "Unable to initialize backend"


def take_what_there_is() -> None:
    """Let JAX choose its devices, whatever `JAX_PLATFORMS` asks for."""
    for platforms in (None, "cpu"):
        jax.config.update("jax_platforms", platforms)
        if backend_problem() is None:
            return


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        features = next(x for x in lines if x.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        import platform

        features = platform.processor() + platform.machine()
    return hashlib.sha256(features.encode()).hexdigest()[:12]


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
        parts = name.split(".")
        if not all(map(str.isidentifier, parts)) or parts[-1] == "py":
            what = "the name of a module as Python imports it"
            raise ConfigError(f"{source} takes {what}, got {name!r}.")
        found, path = getattr(_imported(name, source), "__file__", None), Path(*parts)
        mine = [
            x for x in (path.with_suffix(".py"), path / "__init__.py") if x.exists()
        ]
        if mine and not (found and mine[0].samefile(found)):
            raise ConfigError(
                f"{source}: Python takes {found or 'its own module'} for {name!r}, and "
                f"not {mine[0]} in the working directory; give this file another name."
            )


def _imported(name: str, source: str) -> Any:
    """The module; what is wrong inside of it is shown with its place."""
    try:
        return importlib.import_module(name)
    except Exception as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and f"{name}.".startswith(f"{missing}."):
            raise ConfigError(
                f"{source}: there is no module {name!r}; it must be installed, or lie "
                f"in the working directory ({Path.cwd()})."
            ) from None
        traceback.print_exception(error)
        what = f"{type(error).__name__}: {error}".partition("\n")[0].rstrip(": .")
        raise ConfigError(
            f"{source}: the module {name!r} failed while it was imported ({what})."
        ) from None
