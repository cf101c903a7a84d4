"""`purerl doctor`: what this machine has and what purerl will use."""

import dataclasses
import os
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from rich.console import Console
from rich.table import Table

from purerl.cli import flags, settings
from purerl.envs.registry import SUITES
from purerl.scale.devices import default_lanes, make_workers, num_cores
from purerl.storage.folders import versions

OPTIONAL = (
    *("gymnax", "brax", "distrax", "evosax"),
    *SUITES,
)


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
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in (*_software(), *_asked(platforms), *_devices(), *_cache()):
        table.add_row(name, value)
    console = Console(highlight=False)
    console.print(table)
    problems = [*([lacking] if lacking else []), *_problems()]
    for problem in problems:
        console.print(f"! {problem}", style="yellow", markup=False)
    console.print("no problems found" if not problems else "")
    return 1 if lacking else 0


def _software() -> list[tuple[str, str]]:
    packages = [f"{name} {version}" for name, version in versions().items()]
    optional = []
    for name in OPTIONAL:
        try:
            optional.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            optional.append(f"{name} (not installed)")
    return [
        ("versions", ", ".join(packages)),
        ("loaded when used", ", ".join(optional)),
    ]


def _asked(platforms: str | None) -> list[tuple[str, str]]:
    return [("asked for", f"JAX_PLATFORMS={platforms}")] if platforms else []


def _devices() -> list[tuple[str, str]]:
    workers = make_workers()
    names = ", ".join(
        f"{d.platform}:{d.id} {d.device_kind}{_memory(d)}" for d in jax.local_devices()
    )
    examples = ", ".join(
        f"{default_lanes(num, workers)} for {num} agents" for num in (1, 16, 1024)
    )
    started = time.perf_counter()
    jax.jit(lambda x: jnp.tanh(x @ x).sum())(jnp.ones((64, 64))).block_until_ready()
    small = time.perf_counter() - started
    return [
        ("devices", names),
        ("CPU cores", f"{num_cores()} usable of {os.cpu_count()}"),
        ("workers", f"{len(workers)} (blocks of agents that run side by side)"),
        ("lanes by default", examples),
        ("first small program", f"{small:.2f} s to compile and run"),
    ]


def _memory(device: Any) -> str:
    stats = device.memory_stats() or {}
    limit = stats.get("bytes_limit")
    return f" ({limit / 2**30:.0f} GiB for JAX)" if limit else ""


def _cache() -> list[tuple[str, str]]:
    folder = settings.compile_cache_dir()
    if folder is None:
        return [("compile cache", "off (PURERL_COMPILE_CACHE)")]
    files = [p for p in Path(folder).glob("*") if p.is_file()]
    size = sum(p.stat().st_size for p in files) / 2**20
    return [("compile cache", f"{folder}: {len(files)} files, {size:.0f} MiB")]


def _problems() -> list[str]:
    problems = []
    if settings.has_nvidia_gpu() and jax.default_backend() == "cpu":
        problems.append(
            "there is an NVIDIA GPU, but JAX runs on the CPU: install purerl[cuda12] "
            "or purerl[cuda13]."
        )
    folder = settings.compile_cache_dir()
    if folder is not None:
        parent = next(p for p in (folder, *folder.parents) if p.exists())
        if not os.access(parent, os.W_OK):
            problems.append(f"the compile cache {folder} cannot be written.")
    return problems
