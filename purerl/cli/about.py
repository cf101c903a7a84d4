"""`purerl envs` and `doctor`: what there is, in environments and on this machine."""

import dataclasses
import inspect
import os
from pathlib import Path
from typing import Any

import jax
import tyro
from rich.console import Console
from rich.table import Table

from purerl import envs
from purerl.cli import flags, settings
from purerl.config import ConfigError
from purerl.envs.registry import SUITES, is_on_host
from purerl.scale.devices import default_lanes, make_workers, num_cores
from purerl.storage.folders import version_of, versions


@flags.command
def main_envs(id: tyro.conf.Positional[str | None] = None) -> None:
    """List every environment, or describe one.

    Args:
        id: Name of an environment to describe; all are listed if not given.
    """
    console = Console(highlight=False)
    if id is None:
        console.print(listing())
        prefixes = ", ".join(f"{name}/" for name in SUITES)
        words = f"purerl envs ID describes one; also {prefixes} with a name of theirs."
        names = ", ".join(envs.wrappers.WRAPPERS)
        console.print(f"{words}\nWrappers, for --env-wrappers: {names}.")
        return
    try:
        about = envs.describe(id)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    console.print(f"[bold]{about.id}[/bold] ({about.source}): {about.summary}")
    console.print(f"observation: {about.observation_space}")
    console.print(f"action:      {about.action_space}")
    if about.note:
        console.print(f"note:        {about.note}")
    options = f"options: --env-kwargs name=value, which {about.source}.make takes"
    console.print(options if is_on_host(about.id) else parameters(about.params))


def listing() -> Table:
    """List ids by where they come from, in columns."""
    groups: dict[str, list[str]] = {}
    for id in envs.registered():
        groups.setdefault(envs.source_of(id), []).append(id)
    table = Table("from", "environments", show_lines=True)
    for name, ids in groups.items():
        table.add_row(name, "  ".join(ids))
    return table


def parameters(params: Any) -> Table:
    """List names and defaults of parameters; each can be set and vmapped."""
    title = "parameters: --env-params name=value, or vmap env_params.name"
    table = Table("name", "default", title=title)
    if dataclasses.is_dataclass(params):
        for field in dataclasses.fields(params):
            table.add_row(field.name, _brief(getattr(params, field.name)))
    return table


def _brief(value: Any) -> str:
    if dataclasses.is_dataclass(value):  # It is a part with numbers of its own.
        inner = ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value))
        return "\n".join(f"{name}: {_brief(part)}" for name, part in inner)
    if shape := getattr(value, "shape", ()):
        return f"array {tuple(shape)}"
    return inspect.cleandoc(f"{value:g}" if isinstance(value, float) else f"{value}")


OPTIONAL = ("gymnax", "brax", "distrax", "evosax", *SUITES)


@flags.command
def main_doctor() -> int:
    """Say what this machine has and what purerl will use."""
    platforms = jax.config.jax_platforms  # type: ignore[attr-defined]
    lacking = settings.backend_problem()
    if lacking is not None:
        settings.take_what_there_is()
    workers, cache = make_workers(), settings.compile_cache_dir()
    lanes = (f"{default_lanes(num, workers)} for {num}" for num in (1, 16, 1024))
    loaded = (f"{x} {version_of(x) or '(not installed)'}" for x in OPTIONAL)
    rows = {
        "versions": ", ".join(f"{name} {of}" for name, of in versions().items()),
        "loaded when used": ", ".join(loaded),
        "asked for": f"JAX_PLATFORMS={platforms}" if platforms else "",
        "devices": ", ".join(map(_about, jax.local_devices())),
        "CPU cores": f"{num_cores()} usable of {os.cpu_count()}",
        "workers": f"{len(workers)} (blocks of agents that run side by side)",
        "lanes by default": f"{', '.join(lanes)} agents",
        "compile cache": str(cache or "off (PURERL_COMPILE_CACHE)"),
    }
    table, console = Table.grid(padding=(0, 2)), Console(highlight=False)
    for name, value in rows.items():
        if value:
            table.add_row(f"[bold]{name}[/bold]", value)
    console.print(table)
    problem, gpu = lacking, Path("/dev/nvidiactl")
    if lacking is None and gpu.exists() and jax.default_backend() == "cpu":
        problem = "there is an NVIDIA GPU, but JAX runs on the CPU: install "
        problem += "purerl[cuda12] or purerl[cuda13]."
    words = f"! {problem}" if problem else "no problems found"
    console.print(words, style="yellow" if problem else None, markup=False)
    return 1 if lacking else 0  # JAX lacks what was asked for.


def _about(device: Any) -> str:
    """Name of a device, and its memory where it tells it."""
    limit = (device.memory_stats() or {}).get("bytes_limit")
    memory = f" ({limit / 2**30:.0f} GiB for JAX)" if limit else ""
    return f"{device.platform}:{device.id} {device.device_kind}{memory}"
