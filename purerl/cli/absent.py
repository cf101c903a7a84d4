"""`--device`: what training would take on a GPU that is not here, an estimate."""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any

from rich.console import Console

from purerl.cli.flags import option
from purerl.config import ConfigError
from purerl.execution.format import (
    format_bytes,
    format_count,
    format_duration,
    with_noun,
)
from purerl.execution.programs import segment_length
from purerl.hardware import compiler
from purerl.hardware.device import NUMBERS, Device, load_device, names
from purerl.hardware.estimate import PEAK_SHARE, RESERVED, Estimate, estimate
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
    if parsed.compile and compiler.is_installed():
        compiler.allow_without_gpu()
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


def lines(env: str, cost: Estimate) -> list[str]:
    """Return an estimate as lines of text."""
    device, blocks = cost.device, with_noun(cost.blocks, "block")
    rate = cost.env_steps / cost.seconds
    return [
        f"{with_noun(cost.agents, 'agent')}, {env}, on {device.name}: an estimate, "
        "nothing ran",
        f"  blocks      {blocks} of {with_noun(cost.lanes, 'lane')}",
        *_memory(cost),
        f"  kernels     {format_count(cost.blocks * cost.kernels)} that follow one "
        f"another, {device.microseconds_per_kernel:g} µs each: "
        f"{cost.kernel_seconds:,.1f} s",
        f"  arithmetic  {format_count(cost.flops)}FLOP at "
        f"{PEAK_SHARE:.0%} of {format_count(device.flops)}FLOP/s: "
        f"{cost.flop_seconds:,.1f} s",
        f"  bytes       {format_bytes(cost.bytes)} at "
        f"{PEAK_SHARE:.0%} of {format_bytes(device.bandwidth)}/s: "
        f"{cost.byte_seconds:,.1f} s",
        f"about {format_duration(cost.seconds)} of training there: "
        f"{format_count(cost.env_steps)} environment steps at "
        f"{format_count(rate)} steps/s, compilation and evaluations apart",
    ]


def _memory(cost: Estimate) -> list[str]:
    together = cost.needs_together
    fits = "fit too" if together <= cost.limit else "do not fit: use purerl sweep"
    together_text = f"; all states at once ({format_bytes(together)}) {fits}"
    return [
        f"  memory      {format_bytes(cost.needs)} for a block, of "
        f"{format_bytes(cost.limit)} that training may take"
        f"{together_text if cost.blocks > 1 else ''}"
    ]


def how(cost: Estimate) -> list[str]:
    """Return how an estimate was made, as lines of text."""
    device = cost.device
    if cost.is_compiled:
        target = "" if device.is_own_target else ", as it would be for an H200"
        how = f"kernels and memory: counted in the compiled GPU program{target}"
    else:
        why = cost.remark or "no GPU compiler is installed or asked for"
        how = (
            f"kernels and memory: from shapes ({why}); kernels were 0.95 to 4.6 times "
            "the counted ones of ten presets"
        )
    return [
        how,
        "arithmetic and bytes: counted in the traced program; the share of the peak is "
        "fitted to what PPO took on an H200",
        f"memory that training may take: 0.8 of the {RESERVED:.0%} that JAX reserves",
        *(f"{name.replace('_', ' ')}: {device.sources[name]}" for name in NUMBERS),
    ]
