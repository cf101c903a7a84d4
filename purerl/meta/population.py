"""A generation: every member's training runs, in blocks of lanes over the workers.

A run's bits depend on its key, its overrides, W and K only, so they may be spread over
chunks, devices and processes in any way. All members of a generation have the same keys
(common random numbers): what tells them apart is what is evolved. The next generation
has others.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np

from purerl.execution.curves import train_through
from purerl.execution.members import crossed
from purerl.execution.programs import Program
from purerl.meta.fitness import Accumulator
from purerl.scale import hosts
from purerl.scale.devices import Worker, run_blocks
from purerl.types import Array, Overrides

# What to fold into a key: streams of random numbers that never meet.
_STRATEGY, _ROLLOUTS, _BASELINE = 0, 1, 2
# Called after every chunk with the number of runs that it held.
OnRuns = Callable[[int], None]


class Stopped(Exception):  # noqa: N818  (no error: somebody asked to stop)
    """A generation was left unfinished."""


class Chunk(NamedTuple):
    """Runs that a worker trains at a time.

    Attributes:
        program: The number of the program, and so of the environment.
        rows: Numbers of the runs.
    """

    program: int
    rows: np.ndarray


def strategy_keys(key: Array, generation: int) -> tuple[Array, Array]:
    """Return the keys of ask and tell."""
    both = jax.random.fold_in(jax.random.fold_in(key, _STRATEGY), generation)
    ask, tell = jax.random.split(both)
    return ask, tell


def rollout_keys(key: Array, generation: int, rollouts: int) -> Array:
    """Return keys `[R]` of a generation's runs, the same for every member.

    Args:
        key: The key of the evolution.
        generation: The number of the generation.
        rollouts: The number of runs of a member in an environment, R.
    """
    own = jax.random.fold_in(jax.random.fold_in(key, _ROLLOUTS), generation)
    return jax.random.split(own, rollouts)


def baseline_keys(key: Array, rollouts: int) -> Array:
    """Return keys `[R]` of the runs that a baseline is measured with."""
    return jax.random.split(jax.random.fold_in(key, _BASELINE), rollouts)


def evaluate(
    programs: Sequence[Program],
    keys: Array,
    overrides: Overrides,
    num_members: int,
    kind: str,
    workers: Sequence[Worker],
    chunk_blocks: int,
    on_runs: OnRuns,
    is_stopped: Callable[[], bool],
    reasons: Counter[str] | None = None,
) -> np.ndarray:
    """Train every member with every key in every environment.

    Under `jax.distributed` each process trains its share.

    Args:
        programs: The programs, one per environment, E.
        keys: Keys of the runs of each member, `[R]`.
        overrides: Values that are evolved, leaves `[P, ...]`, on the host.
        num_members: The number of members, P.
        kind: The kind of fitness, see `purerl.meta.fitness`.
        workers: Workers of this process.
        chunk_blocks: The number of blocks that a worker holds at a time.
        on_runs: A function that is called after every chunk with its number of runs.
        is_stopped: A function that says whether somebody asked to stop.
        reasons: Counts of the metrics that were not finite first in the runs of this
            process that failed; they are added to.

    Returns:
        Fitness of every run `[E, P, R]`, float32, NaN where it failed; the same in
        every process.

    Raises:
        Stopped: `is_stopped` said so, in any process.
    """
    rollouts = keys.shape[0]
    num_runs = num_members * rollouts
    chunks = _cut(programs, num_runs, chunk_blocks)
    mine = chunks[hosts.index() :: hosts.count()]
    host_keys = jax.device_put(keys, jax.local_devices()[0])
    found = np.zeros((len(programs), num_runs), np.float32)

    def one(worker: Worker, chunk: Chunk) -> None:
        if is_stopped():
            return
        program = programs[chunk.program]
        members = crossed(host_keys, overrides, chunk.rows)
        total = Accumulator(kind, members.size, program.bound.plan.num_updates)
        train_through(program, members, worker, total)
        found[chunk.program, chunk.rows] = total.result()
        if reasons is not None:
            reasons.update(filter(None, total.reasons))
        on_runs(members.size)

    hosts.run_on_all(lambda: run_blocks(workers, mine, one))
    if hosts.all_any(np.array([is_stopped()]))[0]:
        raise Stopped
    return hosts.all_sum(found).reshape(len(programs), num_members, rollouts)


def _cut(programs: Sequence[Program], num_runs: int, chunk_blocks: int) -> list[Chunk]:
    """All runs in chunks, the environments with the longest runs first."""
    order = np.argsort([-program.steps_each for program in programs], kind="stable")
    chunks = []
    for number in order.tolist():
        size = programs[number].lanes * chunk_blocks
        for start in range(0, num_runs, size):
            rows = np.arange(start, min(start + size, num_runs))
            chunks.append(Chunk(number, rows))
    return chunks
