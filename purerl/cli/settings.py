"""What the command line sets up before the first computation."""

import hashlib
import os
from pathlib import Path

import jax


def compile_cache_dir() -> Path | None:
    """Where compiled programs are kept, or None if that is switched off.

    `JAX_COMPILATION_CACHE_DIR` wins; `PURERL_COMPILE_CACHE=off` switches it off. The
    folder's name holds the processor's features, because a program compiled for one
    machine may not run on another that shares the home folder.
    """
    given = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    if given:
        return Path(given)
    if os.environ.get("PURERL_COMPILE_CACHE", "").lower() in ("off", "0", "no"):
        return None
    base = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return base / "purerl" / f"xla-{_processor()}"


def enable_compile_cache() -> Path | None:
    """Keep compiled programs between processes; returns the folder."""
    folder = compile_cache_dir()
    if folder is not None:
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 1.0)
    return folder


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        features = next(x for x in lines if x.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        import platform

        features = platform.processor() + platform.machine()
    return hashlib.sha256(features.encode()).hexdigest()[:12]
