"""`--device`: what training would take on a GPU that is not here, an estimate."""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any

from rich.console import Console

from purerl.cli.flags import option
from purerl.config import ConfigError
from purerl.contrib.hardware import estimate as estimates
from purerl.execution.format import format_duration, with_noun
from purerl.execution.programs import segment_length
from purerl.scale.devices import as_count
from purerl.train import Bound


@dataclasses.dataclass(kw_only=True)
class Absent:
    """The option of commands that plan for a device that is not here."""

    device: Annotated[
        str | None,
        option(
            "Device to estimate for, without running anything: "
            f"{', '.join(estimates.names())}, or a YAML file that describes one."
        ),
    ] = None


def device_of(parsed: Any) -> estimates.Device | None:
    """Return the device that the flags name, if any.

    Raises:
        ConfigError: there is no such device, or nothing is planned.
    """
    if parsed.device is None:
        return None
    if not getattr(parsed, "dry_run", True):
        raise ConfigError(
            f"--device {parsed.device} is for a plan: add --dry-run, or leave it out "
            "to train on the devices that are here."
        )
    return estimates.load_device(parsed.device)


def show(
    device: estimates.Device,
    bounds: Sequence[Bound],
    agents: int,
    parsed: Any,
    generations: int | None = None,
) -> None:
    """Print the estimates of agents in some environments, and how they are made.

    Raises:
        ConfigError: `lanes` or `segment_updates` is no positive whole number.
    """
    lanes = as_count("lanes", parsed.lanes)
    segment_updates = as_count("segment_updates", parsed.segment_updates)
    console = Console(highlight=False, soft_wrap=True, markup=False)
    costs = []
    for bound in bounds:
        length = segment_length(bound, segment_updates)
        costs.append(estimates.estimate(bound, agents, length, device, lanes))
        console.print("\n".join(estimates.lines(bound.env.name, costs[-1])))
    if generations is not None:
        seconds = format_duration(generations * sum(cost.seconds for cost in costs))
        count = with_noun(generations, "generation")
        console.print(f"{count} of these: about {seconds}")
    console.print("\n".join(estimates.how(device)))
