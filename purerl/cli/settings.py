"""Preparations of the command line: settings of JAX, modules of the user's own."""

import hashlib
import importlib
import os
import sys
import traceback
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from types import TracebackType
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
    if os.environ.get("PURERL_COMPILE_CACHE", "").lower() in ("off", "0", "no"):
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
        except (
            Exception
        ) as found:  # JAX raises an AssertionError where no GPU is visible.
            error = found
        else:
            return None
    reason = str(error).partition(" (")[0].removeprefix(_FAILED).strip()
    platforms = jax.config.jax_platforms  # type: ignore[attr-defined]
    if not platforms:
        return f"JAX cannot use the devices of this machine: {reason}."
    remedies = [_remedy(name) for name in platforms.split(",") if name != "cpu"]
    return (
        f"JAX_PLATFORMS={platforms} asks for devices that JAX cannot use here: "
        f"{'; '.join(remedies)}. To take the devices that there are, unset "
        "JAX_PLATFORMS."
    )


_FAILED = "Unable to initialize backend"


def _remedy(platform: str) -> str:
    """Return the needs of a platform, which of them is missing, and how to get it."""
    if platform in ("cuda", "gpu"):
        gpu = "" if has_nvidia_gpu() else " (none is visible)"
        build = _missing("jax-cuda12-plugin", "jax-cuda13-plugin")
        install = "pip install 'purerl[cuda12]' or 'purerl[cuda13]'"
        return (
            f"{platform} needs an NVIDIA GPU{gpu} and a CUDA build of JAX"
            f"{f' ({install})' if build else ''}"
        )
    if platform == "tpu":
        install = " (pip install 'jax[tpu]')" if _missing("libtpu") else ""
        return f"tpu needs a TPU and libtpu{install}"
    if platform == "rocm":
        return "rocm needs an AMD GPU and a ROCm build of JAX"
    return f"JAX knows no platform {platform!r}; it may be cpu, cuda, tpu or rocm"


def _missing(*packages: str) -> bool:
    """Return whether none of some packages is installed."""
    return all(not list(metadata.distributions(name=name)) for name in packages)


def has_nvidia_gpu() -> bool:
    """Return whether the driver of an NVIDIA GPU is there."""
    return Path("/dev/nvidia0").exists() or Path("/dev/nvidiactl").exists()


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
