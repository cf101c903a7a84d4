"""`--device`: what training would take on a GPU that is not here, an estimate."""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any

from rich.console import Console

from purerl.cli.flags import option
from purerl.config import ConfigError
from purerl.contrib.hardware.estimate import (
    Device,
    Estimate,
    allow_without_gpu,
    estimate,
    how,
    is_installed,
    lines,
    load_device,
    names,
)
from purerl.execution.format import format_duration, with_noun
from purerl.execution.programs import segment_length
from purerl.scale.devices import as_count
from purerl.train import Bound


@dataclasses.dataclass(kw_only=True)
class Absent:
    """Options of commands that plan for a device that is not here."""

    device: Annotated[
        str | None,
        option(
            f"Device to estimate for, without running anything: {', '.join(names())}, "
            "or a YAML file that describes one."
        ),
    ] = None
    compile: Annotated[
        bool,
        option(
            "Compile for the device of --device where its compiler is installed, which "
            "takes a minute."
        ),
    ] = True


def device_of(parsed: Any) -> Device | None:
    """Return the device that the flags name, if any; before the first computation.

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
    device = load_device(parsed.device)
    if parsed.compile and is_installed():
        allow_without_gpu()
    return device


def show(
    device: Device,
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
    console = Console(highlight=False, soft_wrap=True)
    costs: list[Estimate] = []
    for bound in bounds:
        length = segment_length(bound, segment_updates)
        costs.append(
            estimate(
                bound,
                agents,
                length,
                device,
                lanes=lanes,
                is_compiled=parsed.compile,
            )
        )
        text = lines(bound.env.name, costs[-1])
        console.print("\n".join(text), markup=False)
    if generations is not None:
        seconds = generations * sum(cost.seconds for cost in costs)
        console.print(
            f"{with_noun(generations, 'generation')} of these: about "
            f"{format_duration(seconds)}"
        )
    console.print("\n".join(how(costs[-1])), markup=False)
