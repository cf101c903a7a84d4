"""A cohort: members of one program, trained in step. The only training loop.

Nothing here chooses. What a member becomes depends on its key, its hyperparameters, the
width of a block and the length of a segment, and on the states that it was handed: not
on who else is there, or was, nor on its lane.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from purerl.execution.curves import Segment
from purerl.execution.memory import num_bytes, require_together
from purerl.execution.programs import (
    Block,
    Members,
    Program,
    ProgramCache,
    current_cache,
    cut,
    fill,
    rekey,
)
from purerl.scale.devices import Worker, make_workers, run_blocks
from purerl.scale.host import to_device, to_host
from purerl.train import Bound
from purerl.types import Array, Overrides, PyTree

# Called after every segment: members, updates done, mean episode return.
OnSegment = Callable[[int, int, float], None]


class Reducer(Protocol):
    """A reducer: it turns the segments of some members into what is kept of them."""

    def add(self, segment: Segment) -> float:
        """Take a segment; return its members' mean episode return, for a person."""
        ...


class FreshReturns(NamedTuple):
    """Fresh episodes of members, `[N]` each.

    Attributes:
        episode_return: Mean return of the episodes.
        env_steps: Environment steps that they took.
    """

    episode_return: np.ndarray
    env_steps: np.ndarray


class Cohort:
    """Members with their states on the devices, in blocks of lanes.

    Args:
        program: The program that trains the members.
        members: The members; they may become fewer, never more.
        workers: Threads to which blocks are handed, on devices of the program.

    Attributes:
        program: The program that trains the members.
        update: Updates that have been dispatched.
        block_calls: Calls of `advance` so far, each of a block and a segment.
        compile_seconds: Seconds spent compiling for this cohort.
    """

    def __init__(
        self, program: Program, members: Members, workers: Sequence[Worker]
    ) -> None:
        self.program, self.workers = program, workers
        self.members = members
        self._blocks = cut(members.size, program.lanes, workers)
        self._states: list[PyTree] = []
        # Hyperparameters on the devices by number of the block, once they were needed.
        self._placed_overrides: dict[int, Overrides] = {}
        self.update = self.block_calls = 0
        self.compile_seconds = 0.0

    @property
    def size(self) -> int:
        """Members that go on, N."""
        return self.members.size

    @property
    def num_blocks(self) -> int:
        """Blocks that are advanced."""
        return len(self._blocks)

    @property
    def next_update(self) -> int:
        """The update that another segment would end at."""
        total = self.program.bound.plan.num_updates
        return min(self.update + self.program.length, total)

    def state_bytes(self) -> int:
        """Return the bytes of all members' states, as shapes say."""
        leaves = jax.tree.leaves(self.program.member_shapes())
        return self.size * sum(map(num_bytes, leaves))

    def init(self) -> None:
        """Give every member its initial state."""

        def start(worker: Worker, block: Block) -> PyTree:
            del worker
            members = self.members.lanes(block.rows, self.program.lanes)
            state = self.program.init(block.worker.device, members)
            return jax.block_until_ready(state)

        self._states = run_blocks(self.workers, self._blocks, start)

    def restore(
        self, states: PyTree, update: int, members: Members | None = None
    ) -> None:
        """Go on with states from the host.

        Args:
            states: States on the host as of `gather`, leaves `[N, ...]`.
            update: Updates that they have seen.
            members: The members whose states they are, at most as many as there were;
                those of the cohort where not given.
        """
        self.members = self.members if members is None else members
        self._blocks = cut(self.size, self.program.lanes, self.workers)
        self._placed_overrides.clear()
        self._states = []  # Their memory is needed for the new ones.
        for block in self._blocks:
            index = fill(block.rows, self.program.lanes)
            host = to_device(jax.tree.map(lambda x, i=index: x[i], states))
            self._states.append(self.program.placed(block.worker.device, host))
        self.update = update

    def segments(
        self, until: int, is_stopped: Callable[[], bool] = lambda: False
    ) -> Iterator[Segment]:
        """Train up to an update, segment by segment.

        Where a device works by itself, its next segment is dispatched before the last
        one is read, so that `update` runs ahead of what has been yielded.

        Args:
            until: A multiple of K, or the end of the run.
            is_stopped: A function that is asked before every segment whether to train
                no further; what was dispatched by then is still yielded.
        """
        return (segment for (segment,) in advance([self], [until], is_stopped))

    def evaluate(self, keys: Array) -> FreshReturns:
        """Play fresh episodes of every member with its key, `[N]`."""
        before = self.program.compile_seconds

        def play(worker: Worker, number: int) -> list[np.ndarray]:
            del worker
            block = self._blocks[number]
            index = fill(block.rows, self.program.lanes)
            results = self.program.evaluate(
                block.worker.device,
                self._states[number],
                self._overrides(number),
                keys[index],
            )
            return [x[: block.size] for x in results]

        played = run_blocks(self.workers, range(self.num_blocks), play)
        parts = zip(*played, strict=True)
        evaluation = FreshReturns(*(np.concatenate(part) for part in parts))
        self.compile_seconds += self.program.compile_seconds - before
        return evaluation

    def set_overrides(self, overrides: Overrides) -> None:
        """Train the members with other hyperparameters, `[N, ...]`, from now on."""
        self.members = Members(self.members.keys, overrides)
        self._placed_overrides.clear()

    def copy(
        self, parents: np.ndarray, keys: Array, is_copy: np.ndarray | None = None
    ) -> None:
        """Let every member go on with its parent's state; copies get their own keys.

        The states pass through the host: a parent may lie on another device, a
        checkpoint needs them there anyway, and a copy of whole blocks on the device
        would need twice the memory.

        Args:
            parents: Numbers of members `[N]`, the own one where nothing is copied.
            keys: Fresh keys `[N]`, of which those of copies are used: with its parent's
                key a copy would repeat what the parent does.
            is_copy: Whether each member gets its key, `[N]` bool; the members with
                another parent than themselves where not given.
        """
        is_own = parents == np.arange(len(parents))
        fresh = ~is_own if is_copy is None else is_copy
        if is_own.all() and not fresh.any():
            return
        states = jax.tree.map(lambda x: x[parents], self.gather())
        self.restore(rekey(states, fresh, keys), self.update)

    def keep(self, survivors: np.ndarray) -> None:
        """Let only some members go on, in as few blocks as hold them.

        Args:
            survivors: Numbers of these members among those that went on so far,
                ascending.
        """
        if len(survivors) < self.size:
            states = jax.tree.map(lambda x: x[survivors], self.gather())
            self.restore(states, self.update, self.members.take(survivors))

    def close(self) -> None:
        """Give back what the members hold beside arrays, which is nothing here."""

    def gather(self) -> PyTree:
        """Return the members' states on the host, leaves `[N, ...]`.

        Random keys among them are `HostKey`s.
        """
        hosts = [to_host(state) for state in self._states]
        sizes = [block.size for block in self._blocks]

        def join(*leaves: np.ndarray) -> np.ndarray:
            cut_off = [x[:size] for x, size in zip(leaves, sizes, strict=True)]
            return _joined(cut_off)

        return jax.tree.map(join, *hosts)

    def key_data(self) -> np.ndarray:
        """Return the data `[N, words]` of the keys that the members draw from."""
        blocks = zip(self._blocks, self._states, strict=True)
        data = [np.asarray(jax.random.key_data(s.key))[: b.size] for b, s in blocks]
        return _joined(data)

    def _dispatch(self, number: int, first: int) -> Any:
        """Begin a block's segment; its records are on the device."""
        device = self._blocks[number].worker.device
        self._states[number], records = self.program.dispatch(
            device, self._states[number], self._overrides(number), first
        )
        return records

    def _overrides(self, number: int) -> Overrides:
        """Return the hyperparameters of a block's lanes, on its device."""
        if number not in self._placed_overrides:
            block, lanes = self._blocks[number], self.program.lanes
            overrides = self.members.lanes(block.rows, lanes).overrides
            placed = jax.device_put(overrides, block.worker.device)
            self._placed_overrides[number] = placed
        return self._placed_overrides[number]

    def _segment(self, first: int, records: Sequence[Any]) -> Segment:
        """Return the records of all blocks as one segment of the members that go on."""
        ran = min(self.program.length, self.program.bound.plan.num_updates - first)
        sizes = [block.size for block in self._blocks]
        cut_off = [
            jax.tree.map(lambda x, n=size: x[:n], to_host(record))
            for size, record in zip(sizes, records, strict=True)
        ]
        metrics, evaluation = jax.tree.map(lambda *x: _joined(x), *cut_off)
        metrics = {name: values[:, :ran] for name, values in metrics.items()}
        return Segment(first, ran, metrics, evaluation)


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Arrays of the blocks `[size, ...]` as one of the members `[N, ...]`."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def advance(
    cohorts: Sequence[Cohort],
    until: Sequence[int],
    is_stopped: Callable[[], bool] = lambda: False,
) -> Iterator[list[Segment]]:
    """Train several cohorts side by side, a segment of each at a time.

    Args:
        cohorts: The cohorts, which share their workers.
        until: The update to reach, for every cohort; see `Cohort.segments`.
        is_stopped: A function that is asked whether to stop; see `Cohort.segments`.

    Yields:
        The segments of the cohorts that have not reached their update, in their order.
    """
    sent: list[tuple[Cohort, int, list[Any]]] = []
    while not is_stopped():
        due = [c for c, end in zip(cohorts, until, strict=True) if c.update < end]
        if not due:
            break
        before, sent = sent, _dispatch_all(due)
        if before:
            yield [cohort._segment(first, records) for cohort, first, records in before]
        if not _works_alone(due[0]):
            yield [cohort._segment(first, records) for cohort, first, records in sent]
            sent = []
    if sent:
        yield [cohort._segment(first, records) for cohort, first, records in sent]


def _works_alone(cohort: Cohort) -> bool:
    """Return whether the devices compute while the host does something else."""
    return cohort.workers[0].device.platform != "cpu"


def _dispatch_all(cohorts: Sequence[Cohort]) -> list[tuple[Cohort, int, list[Any]]]:
    """Begin a segment of every cohort; on a CPU, train it."""
    workers = cohorts[0].workers
    # A CPU's cores are kept busy by threads that wait for what they have begun.
    finish = (lambda x: x) if _works_alone(cohorts[0]) else to_host

    def begin(worker: Worker, item: tuple[Cohort, int]) -> Any:
        del worker
        cohort, number = item
        return finish(cohort._dispatch(number, cohort.update))

    items = [(c, number) for c in cohorts for number in range(c.num_blocks)]
    records = iter(run_blocks(workers, items, begin))
    dispatched = []
    for cohort in cohorts:
        of_cohort = [next(records) for _ in range(cohort.num_blocks)]
        dispatched.append((cohort, cohort.update, of_cohort))
        cohort.update = cohort.next_update
        cohort.block_calls += cohort.num_blocks
    return dispatched


def make_cohort(
    bound: Bound,
    members: Members,
    lanes: int,
    length: int,
    *,
    cache: ProgramCache | None = None,
    data_parallel: bool = False,
) -> Cohort:
    """Make a cohort on all workers of this process, whose states are all held at once.

    Args:
        bound: Config, environment and plan of all members.
        members: The members.
        lanes: Width of a block, W.
        length: Updates of one compiled call, K.
        cache: The cache that may have the program already.
        data_parallel: Whether to spread every agent over all local devices.

    Raises:
        ConfigError: the members do not fit the memory.
    """
    began = time.perf_counter()
    # One program over all devices needs one caller; else see `make_workers`.
    whole = [Worker(jax.local_devices()[0], 0)]
    workers = whole if data_parallel else make_workers()
    cache = current_cache() if cache is None else cache
    example = members.block(0, lanes)
    num_blocks = -(-members.size // lanes)
    program = cache.get(bound, example, length, workers[:num_blocks], data_parallel)
    if not data_parallel:
        require_together(program.memory(), lanes, num_blocks, workers)
    cohort = Cohort(program, members, workers)
    cohort.compile_seconds = time.perf_counter() - began
    return cohort


def train_until(
    cohort: Cohort,
    until: int,
    reducer: Reducer,
    on_segment: OnSegment = lambda *_: None,
) -> None:
    """Train a cohort up to an update.

    Args:
        cohort: The cohort.
        until: The update to reach; see `Cohort.segments`.
        reducer: The reducer that is given every segment.
        on_segment: A function that is called after every segment with its progress.
    """
    for segment in cohort.segments(until):
        mean = reducer.add(segment)
        on_segment(cohort.size, segment.ran, mean)


class Job(NamedTuple):
    """Members that a worker trains at a time, from the beginning of a run to its end.

    Attributes:
        program: The program that trains them.
        members: Makes them, in the thread of the worker.
        key: What the caller knows them by.
        changes: Updates at which their overrides change, ascending, and what makes the
            overrides from then on.
    """

    program: Program
    members: Callable[[], Members]
    key: Any
    changes: Sequence[tuple[int, Callable[[], Overrides]]] = ()


def rows_of(number: int, size: int) -> list[np.ndarray]:
    """Return the numbers below `number` in parts of `size`, the last one shorter."""
    starts = range(0, number, size)
    return [np.arange(start, min(start + size, number)) for start in starts]


def stream(
    jobs: Sequence[Job],
    workers: Sequence[Worker],
    reducer: Callable[[Job], Reducer],
    keep: Callable[[Job, Any, Cohort], None],
    is_stopped: Callable[[], bool] = lambda: False,
    on_segment: Callable[[Job, int, int, float], None] = lambda *_: None,
) -> None:
    """Train jobs, each worker taking the next one.

    Args:
        jobs: The jobs, in the order in which they are begun.
        workers: The workers of this process, from whose threads the others are called.
        reducer: Makes the reducer of a job, which is given every segment.
        keep: Keeps what came of a job: its reducer, and its final states.
        is_stopped: Says whether somebody asked to stop; then no job is begun.
        on_segment: Called after every segment with the job, its number of members, the
            updates, and the mean return of the segment.
    """

    def train(worker: Worker, job: Job) -> None:
        if is_stopped():
            return
        reduced = reducer(job)
        cohort = Cohort(job.program, job.members(), [worker])
        cohort.init()
        told = partial(on_segment, job)
        for first, overrides in job.changes:
            train_until(cohort, first, reduced, told)
            cohort.set_overrides(overrides())
        train_until(cohort, job.program.bound.plan.num_updates, reduced, told)
        keep(job, reduced, cohort)

    run_blocks(workers, jobs, train)
