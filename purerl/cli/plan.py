"""`purerl plan`: what training would take, here or on a GPU that is not here."""

import dataclasses
from collections.abc import Sequence
from typing import Annotated

from purerl.cli import absent, flags, settings
from purerl.cli.options import ConfigSource, Lanes, SegmentUpdates, option
from purerl.cli.train import base_config
from purerl.execution import dry_run
from purerl.execution.memory import require_number
from purerl.scale.devices import check_count, make_workers
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
