"""`purerl doctor`: what this machine has and what purerl will use."""

import dataclasses
import os
from collections.abc import Sequence
from importlib import metadata
from typing import Any

import jax
from rich.console import Console
from rich.table import Table

from purerl.cli import flags, settings
from purerl.envs.registry import SUITES
from purerl.scale.devices import default_lanes, make_workers, num_cores
from purerl.storage.folders import versions

OPTIONAL = ("gymnax", "brax", "distrax", "evosax", *SUITES)


@dataclasses.dataclass(kw_only=True)
class Doctor:
    """Say what this machine has and what purerl will use."""


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit status: 1 where JAX lacks what was asked."""
    flags.parse(Doctor, argv, "doctor")
    platforms = jax.config.jax_platforms  # type: ignore[attr-defined]
    lacking = settings.backend_problem()
    if lacking is not None:
        settings.take_what_there_is()
    workers, cache = make_workers(), settings.compile_cache_dir()
    lanes = (f"{default_lanes(num, workers)} for {num}" for num in (1, 16, 1024))
    rows = {
        "versions": ", ".join(f"{name} {of}" for name, of in versions().items()),
        "loaded when used": ", ".join(map(_version, OPTIONAL)),
        "asked for": f"JAX_PLATFORMS={platforms}" if platforms else "",
        "devices": ", ".join(map(_about, jax.local_devices())),
        "CPU cores": f"{num_cores()} usable of {os.cpu_count()}",
        "workers": f"{len(workers)} (blocks of agents that run side by side)",
        "lanes by default": f"{', '.join(lanes)} agents",
        "compile cache": str(cache or "off (PURERL_COMPILE_CACHE)"),
    }
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in rows.items():
        if value:
            table.add_row(name, value)
    console = Console(highlight=False)
    console.print(table)
    problems = [lacking] if lacking else []
    if settings.has_nvidia_gpu() and jax.default_backend() == "cpu":
        problems.append(
            "there is an NVIDIA GPU, but JAX runs on the CPU: install purerl[cuda12] "
            "or purerl[cuda13]."
        )
    parents = (cache, *cache.parents) if cache is not None else ()
    there = next((folder for folder in parents if folder.exists()), None)
    if there is not None and not os.access(there, os.W_OK):
        problems.append(f"the compile cache {cache} cannot be written.")
    for problem in problems:
        console.print(f"! {problem}", style="yellow", markup=False)
    console.print("no problems found" if not problems else "")
    return 1 if lacking else 0


def _version(package: str) -> str:
    try:
        return f"{package} {metadata.version(package)}"
    except metadata.PackageNotFoundError:
        return f"{package} (not installed)"


def _about(device: Any) -> str:
    """Name of a device, and its memory where it tells it."""
    limit = (device.memory_stats() or {}).get("bytes_limit")
    memory = f" ({limit / 2**30:.0f} GiB for JAX)" if limit else ""
    return f"{device.platform}:{device.id} {device.device_kind}{memory}"
