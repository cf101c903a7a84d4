"""Estimates of the time and memory of training on a device that is not here.

Nothing is measured. The time of a block of W lanes is taken to be

    kernels * t + W * (FLOP / (share * peak FLOP/s) + bytes / (share * peak bytes/s))

where `t` is the device's time from one dependent kernel to the next, whatever W is.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from purerl.config import ConfigError
from purerl.execution.format import format_bytes
from purerl.execution.memory import (
    SHARE,
    UNSEEN,
    MemoryModel,
    fit_lanes,
    lanes_by_shapes,
    model_of,
    traced_memory,
)
from purerl.hardware import compiler
from purerl.hardware.device import Device
from purerl.hardware.work import Work, work_of
from purerl.scale.devices import accelerator_lanes
from purerl.tracing import traced_for
from purerl.train import Bound, bind, make_segment

# The share of a device's peaks at which the arithmetic and the bytes of a program's
# shapes give its time. Fused kernels move fewer bytes than shapes say, so it is high:
# the times of PPO with 64 to 2,048 agents on an H200 ask for 0.8 to 1.1, those of five
# other algorithms for 1.0 to 1.5 (experiments/results/gpu-day, docs/performance.md).
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
        kernels: Kernels of a block's whole training.
        work: Arithmetic and bytes of one agent's whole training; its kernels are those
            that shapes say.
        memory: Bytes on the device as a function of lanes.
        limit: Bytes that training may take there.
        is_compiled: Whether kernels and memory are from the compiled GPU program.
        remark: Why they are not, where the compiler is installed.
    """

    device: Device
    agents: int
    env_steps: int
    lanes: int
    kernels: float
    work: Work
    memory: MemoryModel
    limit: float
    is_compiled: bool
    remark: str = ""

    @property
    def blocks(self) -> int:
        """Blocks, one after the other."""
        return -(-self.agents // self.lanes)

    @property
    def kernel_seconds(self) -> float:
        """Seconds that kernels wait for one another."""
        return self.blocks * self.kernels * self.device.microseconds_per_kernel * 1e-6

    @property
    def flops(self) -> float:
        """Floating-point operations in all; lanes that only fill a block count."""
        return self.blocks * self.lanes * self.work.flops

    @property
    def bytes(self) -> float:
        """Bytes that are read and written in all, also of lanes that fill a block."""
        return self.blocks * self.lanes * self.work.bytes

    @property
    def flop_seconds(self) -> float:
        """Seconds of arithmetic."""
        return self.flops / (PEAK_SHARE * self.device.flops)

    @property
    def byte_seconds(self) -> float:
        """Seconds in which bytes are read and written."""
        return self.bytes / (PEAK_SHARE * self.device.bandwidth)

    @property
    def seconds(self) -> float:
        """Seconds of training, without compilation and evaluations."""
        return self.kernel_seconds + self.flop_seconds + self.byte_seconds

    @property
    def needs(self) -> float:
        """Bytes while one block is trained alone."""
        return self.memory.block(self.lanes)

    @property
    def needs_together(self) -> float:
        """Bytes while the states of all agents are held, as a run does."""
        return self.memory.chunk(self.lanes, self.blocks)


def estimate(
    bound: Bound,
    agents: int,
    length: int,
    device: Device,
    *,
    lanes: int | None = None,
    is_compiled: bool = True,
) -> Estimate:
    """Estimate what training would take on a device that is not here.

    Args:
        bound: Config, environment and plan of every agent.
        agents: Number of agents, which train in as few blocks as fit the memory.
        length: Updates of one call, K.
        device: The device.
        lanes: The width of a block, W; as wide as fits where not given.
        is_compiled: Whether to compile the program for the device where its compiler
            is installed, which takes about a minute.

    Raises:
        ConfigError: not even one lane fits the memory, or not the lanes asked for.
    """
    # Of a branch the larger side counts, and evaluations are branches of every update.
    plain = bind(bound.asked.replace(num_evaluations=0))
    updates, limit = plain.plan.num_updates, SHARE * RESERVED * device.memory
    with traced_for("cuda"):
        one = traced_memory(plain, length)
        work = traced_work(plain, length).times(updates / length)
    memory = MemoryModel(one.state, UNSEEN * one.working, 0.0)
    _require_agent(memory, device, limit)
    width = lanes or lanes_by_shapes(memory, accelerator_lanes(agents), 1, limit)
    kernels, remark = work.kernels, ""
    is_compiled = is_compiled and compiler.is_installed()
    if is_compiled:
        try:
            found = compiler.compile_segment(plain, width, length, device)
        except Exception as error:  # Of a plugin that is not of this JAX, say.
            is_compiled, remark = False, f"{type(error).__name__}: {str(error)[:200]}"
        else:
            kernels = found.kernels * updates / length
            memory = model_of(found.memory, width)
    width = fit_lanes(memory, width, limit, is_fixed=lanes is not None)
    steps = agents * updates * plain.plan.steps_per_update
    return Estimate(
        device,
        agents,
        steps,
        width,
        kernels,
        work,
        memory,
        limit,
        is_compiled,
        remark,
    )


def traced_work(bound: Bound, length: int) -> Work:
    """Return what a segment of one agent's training does.

    Args:
        bound: Config, environment and plan of the agent.
        length: Updates of the segment, K.
    """
    segment = make_segment(bound)
    state = jax.eval_shape(segment.init, jax.random.key(0))
    first = jax.ShapeDtypeStruct((), jnp.int32)
    closed = jax.make_jaxpr(lambda s, n: segment.advance(s, n, length))(state, first)
    return work_of(closed.jaxpr)


def _require_agent(memory: MemoryModel, device: Device, limit: float) -> None:
    if memory.state > limit:
        raise ConfigError(
            f"memory: one agent's state has {format_bytes(memory.state)}, and training "
            f"may take {format_bytes(limit)} of {device.name}. Use a smaller network "
            "(hidden_sizes), a smaller replay buffer (buffer_size) or fewer "
            "environments (num_envs)."
        )
