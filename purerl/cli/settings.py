"""Settings that the command line makes before the first computation."""

import hashlib
import os
from importlib import metadata
from pathlib import Path

import jax

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
    """Return why JAX cannot compute on the devices asked for; None where it can.

    Args:
        error: The error that a command failed with; JAX says a failed platform once
            only where another one of `JAX_PLATFORMS` works.
    """
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
