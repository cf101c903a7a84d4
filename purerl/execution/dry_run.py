"""A dry run: what would be trained and how long that takes here, measured."""

import time
from collections.abc import Sequence
from typing import NamedTuple

import jax

from purerl.execution.format import (
    format_bytes,
    format_count,
    format_duration,
    with_noun,
)
from purerl.execution.memory import least_bytes
from purerl.execution.programs import Members, Program, current_cache, segment_length
from purerl.scale.devices import (
    Worker,
    default_lanes,
    make_workers,
    run_blocks,
)
from purerl.train import Bound


def rate(
    program: Program,
    block: Members,
    workers: Sequence[Worker],
    least_seconds: float,
) -> float:
    """Measure environment steps per second with one block on every worker.

    The second half of the run is timed where there is one: a warm-up is cheap.

    Args:
        program: The compiled program, for the devices of `workers`.
        block: A block of members, `[W]`.
        workers: Workers that train the block at the same time.
        least_seconds: Seconds of measurement at the least; one call is timed in any
            case.
    """
    length, total = program.length, program.bound.plan.num_updates
    steps = length * program.bound.plan.steps_per_update * program.lanes

    def work(worker: Worker, _: int) -> float:
        state = jax.block_until_ready(program.init(worker.device, block))
        first = max(0, (total // 2) // length * length)
        state, _records = program.advance(worker.device, state, block.overrides, first)
        began, segments = time.perf_counter(), 0
        while segments == 0 or time.perf_counter() - began < least_seconds:
            state, _records = program.advance(
                worker.device, state, block.overrides, first
            )
            segments += 1
        return segments * steps / (time.perf_counter() - began)

    return float(sum(run_blocks(workers, range(len(workers)), work)))


SECONDS = 0.5  # A measurement takes so long.


class Part(NamedTuple):
    """Agents that train alike.

    Attributes:
        bound: Config, environment and plan of each agent.
        agents: Number of agents that train side by side.
        env_steps: Environment steps of all of them.
        members: The agents with their numbers, where these are known before.
    """

    bound: Bound
    agents: int
    env_steps: int
    members: Members | None = None


def whole_runs(bound: Bound, agents: int, first_update: int = 0) -> Part:
    """Describe agents of which each trains to the end of its run.

    Args:
        bound: Config, environment and plan of each agent.
        agents: Number of agents.
        first_update: Updates that each of them has done when it begins.
    """
    steps = (bound.plan.num_updates - first_update) * bound.plan.steps_per_update
    return Part(bound, agents, agents * steps)


def show(
    parts: Sequence[Part],
    lanes: int | None = None,
    segment_updates: int | None = None,
    note: str = "",
) -> None:
    """Print steps, measured rate, time and memory, a line per part and their sum.

    Args:
        parts: The parts that would be trained.
        lanes: Agents per block; chosen by their number where not given.
        segment_updates: Updates per compiled call; a hundredth of a run where not
            given.
        note: A sentence about what the numbers leave out.

    Raises:
        ConfigError: a width or length that is no positive number, or an agent that
            cannot fit the memory.
    """
    # Imported here, so that only those who ask for a dry run wait for rich.
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    seconds = 0.0
    for part in parts:
        speed, text = _measured(part, lanes, segment_updates)
        seconds += part.env_steps / speed
        console.print(text)
    console.print(
        f"about {format_duration(seconds)} of training here, compilation apart{note}"
    )


def _measured(
    part: Part, lanes: int | None, segment_updates: int | None
) -> tuple[float, str]:
    """Environment steps per second with the workers that are busy, and a line."""
    workers, bound = make_workers(), part.bound
    width = lanes or default_lanes(part.agents, workers)
    length = segment_length(bound, segment_updates)
    examples = part.members or Members(jax.random.split(jax.random.key(0), width), {})
    block = examples.block(0, width)
    program = current_cache().get(bound, block, length, workers)
    busy = min(len(workers), -(-part.agents // width))
    # The same number of blocks side by side as in the real run.
    speed = rate(program, block, workers[:busy], SECONDS)
    # Lanes beyond the last agent are copies: their steps do not count.
    turns = -(-part.agents // (busy * width))
    speed *= part.agents / (turns * busy * width)
    states = part.agents * least_bytes(program.member_shapes())
    return speed, (
        f"{with_noun(part.agents, 'agent')}, {bound.env.name}: "
        f"{format_count(part.env_steps)} environment steps at "
        f"{format_count(speed)} steps/s (measured with {with_noun(busy, 'worker')} and "
        f"{with_noun(width, 'lane')}), states of {format_bytes(states)}"
    )
