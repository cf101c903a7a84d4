"""A generation: every member's training runs, in blocks of lanes over the workers.

A run's bits depend on its key, its overrides, W and K only, so they may be spread over
chunks, devices and processes in any way. All members of a generation have the same keys
(common random numbers): what tells them apart is what is evolved. The next generation
has others.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from purerl.meta.fitness import Accumulator
from purerl.runner.programs import Executables, Members
from purerl.scale import hosts
from purerl.scale.devices import Worker, run_blocks
from purerl.scale.host import to_host
from purerl.train import Bound
from purerl.types import Array, Overrides

# What to fold into a key: streams of random numbers that never meet.
_STRATEGY, _ROLLOUTS, _BASELINE = 0, 1, 2
# Called after every chunk with the number of runs that it held.
OnRuns = Callable[[int], None]


class Stopped(Exception):  # noqa: N818  (no error: somebody asked to stop)
    """A generation was left unfinished."""


class Task(NamedTuple):
    """An environment in which members are trained.

    Attributes:
        name: of it.
        bound: config, environment and plan.
        executables: compiled once, for all generations.
    """

    name: str
    bound: Bound
    executables: Executables

    @property
    def steps_each(self) -> int:
        """Environment steps of one run."""
        return self.bound.plan.num_updates * self.bound.plan.steps_per_update


class Chunk(NamedTuple):
    """Blocks that a worker holds at a time.

    Attributes:
        task: number of the environment.
        starts: first run of each block.
    """

    task: int
    starts: tuple[int, ...]


def strategy_keys(key: Array, generation: int) -> tuple[Array, Array]:
    """The keys of ask and tell."""
    both = jax.random.fold_in(jax.random.fold_in(key, _STRATEGY), generation)
    ask, tell = jax.random.split(both)
    return ask, tell


def rollout_keys(key: Array, generation: int, rollouts: int) -> Array:
    """Keys `[R]` of a generation's runs, the same for every member."""
    own = jax.random.fold_in(jax.random.fold_in(key, _ROLLOUTS), generation)
    return jax.random.split(own, rollouts)


def baseline_keys(key: Array, rollouts: int) -> Array:
    """Keys `[R]` of the runs that a baseline is measured with."""
    return jax.random.split(jax.random.fold_in(key, _BASELINE), rollouts)


def block_of(keys: Array, overrides: Overrides, start: int, lanes: int) -> Members:
    """Runs `start` to `start + lanes` of a population, the last one repeated.

    Args:
        keys: `[R]`.
        overrides: leaves `[P, ...]`, on the host.
        start: run number `p * R + r`: a member's rollouts lie side by side.
        lanes: W.
    """
    rollouts = keys.shape[0]
    members = max((x.shape[0] for x in jax.tree.leaves(overrides)), default=1)
    runs = np.minimum(np.arange(start, start + lanes), members * rollouts - 1)
    part = jax.tree.map(lambda x: np.asarray(x)[runs // rollouts], overrides)
    return Members(keys[runs % rollouts], part)


def evaluate(
    tasks: Sequence[Task],
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
        tasks: E environments.
        keys: `[R]`.
        overrides: leaves `[P, ...]`, on the host.
        num_members: P.
        kind: of fitness.
        workers: of this process.
        chunk_blocks: blocks that a worker holds at a time.
        on_runs: is told of progress.
        is_stopped: whether somebody asked to stop.
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
    chunks = _cut(tasks, num_runs, chunk_blocks)
    mine = chunks[hosts.index() :: hosts.count()]
    host_keys = jax.device_put(keys, jax.local_devices()[0])
    found = np.zeros((len(tasks), num_runs), np.float32)

    def one(worker: Worker, chunk: Chunk) -> None:
        if is_stopped():
            return
        task = tasks[chunk.task]
        lanes = task.executables.lanes
        blocks = [block_of(host_keys, overrides, s, lanes) for s in chunk.starts]
        totals = _train(task, worker.device, blocks, kind)
        for start, total in zip(chunk.starts, totals, strict=True):
            size = min(lanes, num_runs - start)
            found[chunk.task, start : start + size] = total.result()[:size]
            if reasons is not None:
                reasons.update(filter(None, total.reasons[:size]))
            on_runs(size)

    hosts.together(lambda: run_blocks(workers, mine, one))
    if hosts.any_of(np.array([is_stopped()]))[0]:
        raise Stopped
    return hosts.sum_of(found).reshape(len(tasks), num_members, rollouts)


def _cut(tasks: Sequence[Task], num_runs: int, chunk_blocks: int) -> list[Chunk]:
    """All blocks in chunks, the environments with the longest runs first."""
    order = np.argsort([-task.steps_each for task in tasks], kind="stable")
    chunks = []
    for number in order.tolist():
        starts = range(0, num_runs, tasks[number].executables.lanes)
        for first in range(0, len(starts), chunk_blocks):
            part = tuple(starts[first : first + chunk_blocks])
            chunks.append(Chunk(number, part))
    return chunks


def _train(
    task: Task, device: Any, blocks: Sequence[Members], kind: str
) -> list[Accumulator]:
    """The fitness of every block.

    Everything is dispatched before anything is read, so that a device which works by
    itself always has its next call.
    """
    programs, plan = task.executables, task.bound.plan
    totals = [Accumulator(kind, programs.lanes, plan.num_updates) for _ in blocks]
    states = [programs.init(device, block) for block in blocks]
    unread: list[tuple[int, int, Any]] = []
    for first in range(0, plan.num_updates, programs.length):
        sent = []
        for number, block in enumerate(blocks):
            states[number], records = programs.dispatch(
                device, states[number], block.overrides, first
            )
            sent.append((number, first, records))
        _read(totals, unread)
        unread = sent
    states.clear()
    _read(totals, unread)
    return totals


def _read(totals: list[Accumulator], sent: list[tuple[int, int, Any]]) -> None:
    for number, first, records in sent:
        metrics, evaluation = to_host(records)
        totals[number].add(metrics, evaluation, first)
