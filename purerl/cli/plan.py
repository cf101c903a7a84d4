"""`purerl plan` and `purerl lanes`: what training takes, here or on an absent GPU."""

import dataclasses
from collections.abc import Sequence
from typing import Annotated

from rich.console import Console

from purerl.cli import absent, flags, settings
from purerl.cli.flags import (
    ConfigSource,
    Lanes,
    MemoryLimit,
    SegmentUpdates,
    option,
)
from purerl.cli.train import base_config
from purerl.execution import dry_run
from purerl.execution.memory import require_number
from purerl.scale.devices import as_count, make_workers
from purerl.sweeps import plan
from purerl.sweeps.loop import lanes_table
from purerl.train import bind


@dataclasses.dataclass(kw_only=True)
class Plan:
    """Say what training would take: measured here, or estimated for another device.

    Without --device it is what purerl train --dry-run prints.
    """

    seeds: Annotated[int, option("Number of agents.")] = 1
    lanes: Lanes = None
    segment_updates: SegmentUpdates = None


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    base = base_config(argv)
    parsed = flags.parse(
        flags.parser_class(base, Plan, ConfigSource, absent.Absent), argv, "plan"
    )
    for name in ("seeds", "lanes", "segment_updates"):
        as_count(name, getattr(parsed, name))
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


@dataclasses.dataclass(kw_only=True)
class FindLanes:
    """Measure training throughput over lane widths, as `sweep --lanes auto` does."""

    widths: Annotated[
        tuple[int, ...], option("Widths to measure; powers of two if not given.")
    ] = ()
    seconds: Annotated[float, option("Seconds of measurement per width.")] = 2.0
    memory_limit: MemoryLimit = None


def main_lanes(argv: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    base = base_config(argv)
    parsed = flags.parse(
        flags.parser_class(base, FindLanes, ConfigSource), argv, "lanes"
    )
    settings.enable_compile_cache()
    rates = plan.find_lanes(
        flags.read_config(parsed, base),
        widths=sorted(parsed.widths) or None,
        memory_limit=parsed.memory_limit,
        seconds=parsed.seconds,
    )
    console = Console()
    console.print(lanes_table(rates))
    console.print(f"fastest: --lanes {plan.best_of(rates)}", highlight=False)
    return 0
