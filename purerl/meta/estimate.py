"""The estimated cost of an evolution, measured without running it."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from purerl.execution.cache import BlockCompiler
from purerl.execution.dry_run import rate
from purerl.execution.members import crossed
from purerl.execution.programs import segment_length
from purerl.meta.population import rollout_keys
from purerl.meta.setup import EvolutionSetup
from purerl.scale import hosts
from purerl.scale.devices import Worker, as_count, default_lanes


class Estimate(NamedTuple):
    """The cost of an evolution on this machine.

    Attributes:
        agents: The number of training runs of all generations.
        env_steps: Environment steps of all these runs.
        steps_per_second: Environment steps per second as measured, all workers busy,
            over the environments.
        hours: Hours of training; compiling comes on top.
        lanes: The width of a block, W.
        generations: The number of generations of the whole evolution.
        numbers: The count of numbers that are evolved.
    """

    agents: int
    env_steps: int
    steps_per_second: float
    hours: float
    lanes: int
    generations: int
    numbers: int


def estimate(
    setup: EvolutionSetup,
    generations: int,
    workers: Sequence[Worker],
    memory_limit: float,
    lanes: int | None = None,
) -> Estimate:
    """Time a segment of one block on every worker, in every environment.

    Args:
        setup: The evolution.
        generations: The number of generations of the whole evolution.
        workers: Workers of this process; other processes are taken to have the same.
        memory_limit: Bytes that a worker may use.
        lanes: The width of a block, W; chosen where not given.

    Raises:
        ConfigError: a number that is not positive, or a block that does not fit the
            memory.
    """
    lanes = as_count("lanes", lanes)
    generations = as_count("generations", generations)
    per_environment = setup.population * setup.rollouts
    everyone = list(workers) * hosts.count()
    width = lanes or default_lanes(per_environment, everyone)
    genome = setup.optimiser.genome
    keys = rollout_keys(jax.random.key(0), 0, setup.rollouts)
    start = jax.jit(genome.decode)(genome.start()[None])
    overrides = jax.tree.map(np.asarray, start)
    runs = crossed(keys, overrides, np.arange(len(keys)))
    compiler = BlockCompiler(workers, memory_limit)
    seconds = 0.0
    for bound in setup.bounds:
        length = segment_length(bound)  # One segment is timed.
        is_fixed = lanes is not None
        program = compiler.compile(bound, runs, width, length, is_fixed)
        width = program.lanes
        block = runs.block(0, width)
        # There are never more busy workers than blocks.
        busy = min(len(everyone), -(-per_environment // width))
        worker_rate = rate(program, block, workers, 0.5) / len(workers)
        # Whole rounds of blocks: the last round takes as long as the others.
        rounds = -(-per_environment // width) / busy
        steps = setup.updates(bound) * bound.plan.steps_per_update
        steps = steps * width * np.ceil(rounds)
        seconds += generations * steps / worker_rate
    total = setup.steps * generations
    return Estimate(
        setup.runs * -(-generations // setup.per_run),
        total,
        total / seconds,
        seconds / 3600.0,
        width,
        generations,
        genome.size,
    )
