"""`purerl plan`: what training would take, here or on a GPU that is not here."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from purerl import presets
from purerl.algorithms import ALGORITHMS
from purerl.cli import absent, flags, settings
from purerl.cli.train import base_config
from purerl.execution import dry_run
from purerl.execution.memory import require_number
from purerl.scale.devices import check_count, make_workers
from purerl.train import bind


def _arg(text: str) -> object:
    return tyro.conf.arg(help=text)


@dataclasses.dataclass(kw_only=True)
class Plan:
    """Say what training would take: measured here, or estimated for another device.

    Without --device it is what purerl train --dry-run prints.
    """

    algorithm: Annotated[str, _arg(f"One of {', '.join(ALGORITHMS)}.")] = "ppo"
    preset: Annotated[
        str | None, _arg(f"Start from a preset: {', '.join(presets.names())}.")
    ] = None
    config: Annotated[Path | None, _arg("Start from a YAML file.")] = None
    seeds: Annotated[int, _arg("Number of agents.")] = 1
    lanes: Annotated[int | None, _arg("Agents per block of the compiled call.")] = None
    segment_updates: Annotated[int | None, _arg("Updates per compiled call.")] = None


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    base = base_config(argv)
    parsed = flags.parse(flags.parser_class(base, Plan, absent.Absent), argv, "plan")
    for name in ("seeds", "lanes", "segment_updates"):
        check_count(name, getattr(parsed, name))
    device = absent.device_of(parsed)
    bound = bind(flags.read_config(parsed, base))
    if device is not None:
        absent.show(device, [bound], parsed.seeds, parsed)
        return 0
    settings.enable_compile_cache()
    require_number(bound, parsed.seeds, make_workers())
    parts = [dry_run.whole_runs(bound, parsed.seeds)]
    dry_run.show(parts, parsed.lanes, parsed.segment_updates)
    return 0
