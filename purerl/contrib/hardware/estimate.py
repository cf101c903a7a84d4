"""Estimates of the time and memory of training on a device that is not here.

Nothing is measured. The time of a block of W lanes is taken to be

    kernels * t + W * (FLOP / (share * peak FLOP/s) + bytes / (share * peak bytes/s))

where `t` is the device's time from one dependent kernel to the next, whatever W is.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import yaml

from purerl import serialise
from purerl.accelerator.kernels import traced_for
from purerl.config import ConfigError
from purerl.contrib.hardware.work import Work, work_of
from purerl.execution.format import (
    format_bytes,
    format_count,
    format_duration,
    with_noun,
)
from purerl.execution.memory import (
    SHARE,
    UNSEEN,
    MemoryModel,
    fit_lanes,
    lanes_by_shapes,
    traced_memory,
)
from purerl.scale.devices import accelerator_lanes
from purerl.train import Bound, bind, make_segment

FOLDER = Path(__file__).with_name("devices")
NUMBERS = ("memory", "bandwidth", "flops", "microseconds_per_kernel")


class Device(NamedTuple):
    """A device that need not be here.

    Attributes:
        name: Name of the device.
        memory: Bytes of its memory.
        bandwidth: Bytes per second to and from that memory, at its peak.
        flops: Floating-point operations per second in float32, at its peak.
        microseconds_per_kernel: Time from one kernel to the next one, which waits for
            it, in microseconds.
        sources: Source of each of the four numbers, by its name.
    """

    name: str
    memory: float
    bandwidth: float
    flops: float
    microseconds_per_kernel: float
    sources: Mapping[str, str]


def names() -> list[str]:
    """Return the names of the devices that come with purerl."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load_device(name: str | Path) -> Device:
    """Read a device by its name, or from a YAML file.

    Args:
        name: A name of `names()`, or the path of a file with the fields of those in
            `purerl/contrib/hardware/devices`.

    Raises:
        ConfigError: there is no such device, or the file lacks a number or its source.
    """
    path = FOLDER / f"{name}.yaml" if str(name) in names() else Path(name)
    if not path.is_file():
        raise ConfigError(
            f"device must be one of {', '.join(names())} or a YAML file that describes "
            f"one, got {str(name)!r}."
        )
    try:
        fields = serialise.read_yaml(path.read_text())
        numbers = [float(fields[each]) for each in NUMBERS]
        sources = {each: str(fields["sources"][each]) for each in NUMBERS}
    except (yaml.YAMLError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"device: {path} must hold a number for each of {', '.join(NUMBERS)}, and "
            "under sources where each is from, such as 'measured by gpu_day.py' "
            f"({type(error).__name__}: {error})."
        ) from None
    if not all(0 < number < math.inf for number in numbers):
        raise ConfigError(
            f"device: {', '.join(NUMBERS)} in {path} must be positive numbers, got "
            f"{numbers}."
        )
    return Device(str(fields.get("name", path.stem)), *numbers, sources=sources)


# The share of a device's peaks at which the arithmetic and the bytes of a program's
# shapes give its time. Fused kernels move fewer bytes than shapes say, so it is high:
# the times of PPO with 64 to 2,048 agents on an H200 ask for 0.8 to 1.1, those of five
# other algorithms for 1.0 to 1.5 (experiments/results/gpu-day, docs/results/speed.md).
PEAK_SHARE = 0.9
# What JAX reserves of a GPU's memory when it starts.
RESERVED = 0.75


class Estimate(NamedTuple):
    """The estimated costs of training some agents on a device.

    Attributes:
        device: The device.
        agents: Number of agents.
        env_steps: Environment steps of all agents.
        lanes: The width of a block, W.
        work: Kernels of a block's whole training, arithmetic and bytes of one agent's.
        memory: Bytes on the device as a function of lanes.
        limit: Bytes that training may take there.
    """

    device: Device
    agents: int
    env_steps: int
    lanes: int
    work: Work
    memory: MemoryModel
    limit: float

    @property
    def blocks(self) -> int:
        """Blocks, one after the other."""
        return -(-self.agents // self.lanes)

    @property
    def kernel_seconds(self) -> float:
        """Seconds that kernels wait for one another."""
        one = self.device.microseconds_per_kernel * 1e-6
        return self.blocks * self.work.kernels * one

    @property
    def flop_seconds(self) -> float:
        """Seconds of arithmetic; lanes that only fill a block count."""
        all_lanes = self.blocks * self.lanes
        return all_lanes * self.work.flops / (PEAK_SHARE * self.device.flops)

    @property
    def byte_seconds(self) -> float:
        """Seconds in which bytes are read and written, also of lanes that fill."""
        all_lanes = self.blocks * self.lanes
        return all_lanes * self.work.bytes / (PEAK_SHARE * self.device.bandwidth)

    @property
    def seconds(self) -> float:
        """Seconds of training, without compilation and evaluations."""
        return self.kernel_seconds + self.flop_seconds + self.byte_seconds


def estimate(
    bound: Bound, agents: int, length: int, device: Device, lanes: int | None = None
) -> Estimate:
    """Estimate what training would take on a device that is not here.

    Args:
        bound: Config, environment and plan of every agent.
        agents: Number of agents, which train in as few blocks as fit the memory.
        length: Updates of one call, K.
        device: The device.
        lanes: The width of a block, W; as wide as fits where not given.

    Raises:
        ConfigError: not even one lane fits the memory, or not the lanes asked for.
    """
    # Of a branch the larger side counts, and evaluations are branches of every update.
    plain = bind(bound.asked.replace(num_evaluations=0))
    updates, limit = plain.plan.num_updates, SHARE * RESERVED * device.memory
    with traced_for("cuda"):
        one = traced_memory(plain, length)
        segment = make_segment(plain)
        state = jax.eval_shape(segment.init, jax.random.key(0))
        first = jax.ShapeDtypeStruct((), jnp.int32)
        program = jax.make_jaxpr(lambda s, n: segment.advance(s, n, length))
        work = work_of(program(state, first).jaxpr).times(updates / length)
    memory = MemoryModel(one.state, UNSEEN * one.working, 0.0)
    if memory.state > limit:
        raise ConfigError(
            f"memory: one agent's state has {format_bytes(memory.state)}, and training "
            f"may take {format_bytes(limit)} of {device.name}. Use smaller "
            "hidden_sizes, buffer_size or num_envs."
        )
    width = lanes or lanes_by_shapes(memory, accelerator_lanes(agents), 1, limit)
    width = fit_lanes(memory, width, limit, is_fixed=lanes is not None)
    steps = agents * updates * plain.plan.steps_per_update
    return Estimate(device, agents, steps, width, work, memory, limit)


def lines(env: str, cost: Estimate) -> list[str]:
    """Return an estimate as lines of text.

    Args:
        env: The name of the environment.
    """
    device, all_lanes = cost.device, cost.blocks * cost.lanes
    rate = format_count(cost.env_steps / cost.seconds)
    return [
        f"{with_noun(cost.agents, 'agent')}, {env}, on {device.name}: an estimate, "
        "nothing ran",
        f"  blocks      {with_noun(cost.blocks, 'block')} of "
        f"{with_noun(cost.lanes, 'lane')}",
        f"  memory      {format_bytes(cost.memory.block(cost.lanes))} for a block, of "
        f"{format_bytes(cost.limit)} that training may take",
        f"  kernels     {format_count(cost.blocks * cost.work.kernels)} that follow "
        f"one another, {device.microseconds_per_kernel:g} µs each: "
        f"{cost.kernel_seconds:,.1f} s",
        f"  arithmetic  {format_count(all_lanes * cost.work.flops)}FLOP at "
        f"{PEAK_SHARE:.0%} of {format_count(device.flops)}FLOP/s: "
        f"{cost.flop_seconds:,.1f} s",
        f"  bytes       {format_bytes(all_lanes * cost.work.bytes)} at "
        f"{PEAK_SHARE:.0%} of {format_bytes(device.bandwidth)}/s: "
        f"{cost.byte_seconds:,.1f} s",
        f"about {format_duration(cost.seconds)} of training there: "
        f"{format_count(cost.env_steps)} environment steps at {rate} steps/s, "
        "compilation and evaluations apart",
    ]


def how(device: Device) -> list[str]:
    """Return how an estimate was made, as lines of text."""
    return [
        "all of it is counted in the traced program; kernels were 0.95 to 4.6 times "
        "those of ten GPU programs, the share of the peak is fitted to PPO on an H200",
        *(f"{name}: {device.sources[name]}" for name in NUMBERS),
    ]
