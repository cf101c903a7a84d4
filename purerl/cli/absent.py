"""`--device`: what training would take on a GPU that is not here, an estimate."""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any

import tyro
from rich.console import Console

from purerl.config import ConfigError
from purerl.execution.dry_run import segment_length
from purerl.execution.format import (
    format_bytes,
    format_count,
    format_duration,
    with_noun,
)
from purerl.hardware import compiler
from purerl.hardware.device import NUMBERS, Device, load_device, names
from purerl.hardware.estimate import PEAK_SHARE, RESERVED, Estimate, estimate
from purerl.train import Bound


def _arg(text: str) -> object:
    return tyro.conf.arg(help=text)


@dataclasses.dataclass(kw_only=True)
class Absent:
    """Options of commands that plan for a device that is not here."""

    device: Annotated[
        str | None,
        _arg(
            f"Estimate it for another device: {', '.join(names())}, or a YAML file "
            "that describes one. Nothing runs."
        ),
    ] = None
    compile: Annotated[
        bool,
        _arg(
            "With --device: compile for it where its compiler is installed, a minute."
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

    Args:
        device: The device.
        bounds: Config, environment and plan of the agents of each environment.
        agents: Number of agents in each environment.
        parsed: The flags: `lanes`, `segment_updates` and `compile` count.
        generations: Number of times that all agents are trained; once where not given.
    """
    console = Console(highlight=False, soft_wrap=True)
    found: list[Estimate] = []
    for bound in bounds:
        length = segment_length(bound, parsed.segment_updates)
        found.append(
            estimate(
                bound,
                agents,
                length,
                device,
                lanes=parsed.lanes,
                is_compiled=parsed.compile,
            )
        )
        text = lines(bound.env.name, found[-1])
        console.print("\n".join(text), markup=False)
    if generations is not None:
        seconds = generations * sum(each.seconds for each in found)
        console.print(
            f"{with_noun(generations, 'generation')} of these: about "
            f"{format_duration(seconds)}"
        )
    console.print("\n".join(how(found[-1])), markup=False)


def lines(env: str, found: Estimate) -> list[str]:
    """Return an estimate as lines of text.

    Args:
        env: The name of the environment.
        found: The estimate.
    """
    device, blocks = found.device, with_noun(found.blocks, "block")
    rate = found.env_steps / found.seconds
    return [
        f"{with_noun(found.agents, 'agent')}, {env}, on {device.name}: an estimate, "
        "nothing ran",
        f"  blocks      {blocks} of {with_noun(found.lanes, 'lane')}",
        *_memory(found),
        f"  kernels     {format_count(found.blocks * found.kernels)} that follow one "
        f"another, {device.microseconds_per_kernel:g} µs each: "
        f"{found.kernel_seconds:,.1f} s",
        f"  arithmetic  {format_count(found.flops)}FLOP at "
        f"{PEAK_SHARE:.0%} of {format_count(device.flops)}FLOP/s: "
        f"{found.flop_seconds:,.1f} s",
        f"  bytes       {format_bytes(found.bytes)} at "
        f"{PEAK_SHARE:.0%} of {format_bytes(device.bandwidth)}/s: "
        f"{found.byte_seconds:,.1f} s",
        f"about {format_duration(found.seconds)} of training there: "
        f"{format_count(found.env_steps)} environment steps at "
        f"{format_count(rate)} steps/s, compilation and evaluations apart",
    ]


def _memory(found: Estimate) -> list[str]:
    together = found.needs_together
    fits = "fit too" if together <= found.limit else "do not fit: use purerl sweep"
    held = f"; all states at once ({format_bytes(together)}) {fits}"
    return [
        f"  memory      {format_bytes(found.needs)} for a block, of "
        f"{format_bytes(found.limit)} that training may take"
        f"{held if found.blocks > 1 else ''}"
    ]


def how(found: Estimate) -> list[str]:
    """Return how an estimate was made, as lines of text.

    Args:
        found: The estimate.
    """
    device = found.device
    if found.is_compiled:
        own = "" if device.is_own_target else ", as it would be for an H200"
        how = f"kernels and memory: counted in the compiled GPU program{own}"
    else:
        why = found.remark or "no GPU compiler is installed or asked for"
        how = (
            f"kernels and memory: from shapes ({why}), so kernels within about a "
            "factor of two"
        )
    return [
        how,
        "arithmetic and bytes: counted in the traced program; the share of the peak is "
        "assumed",
        f"memory that training may take: 0.8 of the {RESERVED:.0%} that JAX reserves",
        *(f"{name.replace('_', ' ')}: {device.sources[name]}" for name in NUMBERS),
    ]
