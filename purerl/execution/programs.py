"""Members, and compiled programs that train and evaluate them in blocks of lanes."""

import contextlib
import gc
import math
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import SingleDeviceSharding

from purerl.config import ConfigError
from purerl.execution.curves import FEW_BAD, PARAMETERS_FINITE, with_marks
from purerl.execution.memory import MemoryModel, fit_lanes, num_bytes, require_agent
from purerl.scale import parallel
from purerl.scale.devices import Worker, begin_to_compile, compile_for
from purerl.scale.host import HostKey, is_host_key, to_host
from purerl.serialise import env_text
from purerl.train import Bound, evaluate_afresh, make_segment, parameters_finite
from purerl.types import Array, HostMetrics, Metrics, Overrides, PyTree

Compiled = TypeVar("Compiled")


class Members(NamedTuple):
    """Agents that one program trains.

    Attributes:
        keys: Random keys `[N]`, one per agent.
        overrides: Values of dynamic fields by name, leaves `[N, ...]`.
    """

    keys: Array
    overrides: Overrides

    @property
    def size(self) -> int:
        """The number of members, N."""
        return self.keys.shape[0]

    def take(self, index: np.ndarray) -> "Members":
        """Return the members of some numbers, in their order."""
        return jax.tree.map(lambda x: x[index], self)

    def block(self, start: int, lanes: int) -> "Members":
        """Return `lanes` members from number `start` on, padded with the last one."""
        return self.lanes(np.arange(start, min(start + lanes, self.size)), lanes)

    def lanes(self, numbers: np.ndarray, lanes: int) -> "Members":
        """Return at most `lanes` members as a block, filled up with the last one."""
        index = fill(numbers, lanes)
        return jax.tree.map(lambda x: _rows(x, index), self)


def every(overrides: Overrides, num_points: int, seeds: Sequence[int]) -> Members:
    """Return every point with every seed, the seeds fastest.

    Args:
        overrides: Values of the points, leaves `[P, ...]`.
        num_points: The number of points, P.
        seeds: Seeds of the agents of each point; the key of a seed is `key(seed)`.
    """
    keys = jax.vmap(jax.random.key)(jnp.asarray(seeds, jnp.uint32))
    return crossed(keys, overrides, np.arange(num_points * len(seeds)))


def crossed(keys: Array, overrides: Overrides, rows: np.ndarray) -> Members:
    """Return some rows of every point with every key, the keys fastest.

    Args:
        keys: Keys `[R]`.
        overrides: Values of the points on the host, leaves `[P, ...]`.
        rows: Numbers of members: number `p * R + r` is point `p` with key `r`.
    """
    points, repeats = np.divmod(rows, keys.shape[0])
    return Members(
        _rows(keys, repeats), jax.tree.map(lambda x: np.asarray(x)[points], overrides)
    )


@jax.jit  # Otherwise it compiles five small programs.
def _rows(array: Array, index: np.ndarray) -> Array:
    return array[index]


def fill(numbers: np.ndarray, lanes: int) -> np.ndarray:
    """Return numbers `[lanes]`: those given, then the last of them again."""
    return numbers[np.minimum(np.arange(lanes), len(numbers) - 1)]


class Block(NamedTuple):
    """The lanes that one call advances.

    Attributes:
        rows: Numbers of the members in it, ascending; lanes beyond them are copies of
            the last one.
        worker: The worker whose device holds its states.
    """

    rows: np.ndarray
    worker: Worker

    @property
    def size(self) -> int:
        """Members in it."""
        return len(self.rows)


def cut(num_members: int, lanes: int, workers: Sequence[Worker]) -> list[Block]:
    """Cut a population into blocks, handed to the workers in turn.

    Args:
        num_members: The number of members of the population.
        lanes: The width of a block, W.
        workers: The workers that hold the blocks.
    """
    return [
        Block(
            np.arange(start, min(start + lanes, num_members)),
            workers[number % len(workers)],
        )
        for number, start in enumerate(range(0, num_members, lanes))
    ]


# What to fold into a key for those inside an environment's state: the number of the
# leaf is subtracted. No number of a member is as large.
_INSIDE = 2**32 - 5


def rekey(states: PyTree, is_copy: np.ndarray, keys: Array) -> PyTree:
    """Return states on the host with fresh keys for members that are copies of others.

    Everything an agent draws comes from `state.key`. An environment of somebody else's
    may keep keys in its own state: typed ones are replaced as well. (Plain numbers that
    such an environment uses as a key cannot be told from others. Parent and child then
    share the environment's noise, but act differently from the first step on.)

    Args:
        states: States of all members, leaves `[N, ...]`, with keys as `HostKey`.
        is_copy: Whether each member gets a fresh key, `[N]` bool.
        keys: Fresh keys `[N]`; those of other members are not used.
    """
    leaves, structure = jax.tree.flatten(states, is_leaf=is_host_key)
    agent_key = jax.tree.leaves(states.key, is_leaf=is_host_key)[0]

    def fresh(number: int, leaf: Any) -> Any:
        if not is_host_key(leaf):
            return leaf

        def inner(key: Array) -> Array:
            """Keys of a leaf `[N, ..., words]` inside the environments' states."""
            key = jax.random.fold_in(key, jnp.uint32(_INSIDE - number))
            return jax.random.split(key, leaf.data.shape[1:-1])

        made = keys if leaf is agent_key else jax.vmap(inner)(keys)
        mask = is_copy.reshape(-1, *[1] * (leaf.data.ndim - 1))
        data = np.asarray(jax.random.key_data(made))
        return HostKey(np.where(mask, data, leaf.data), leaf.impl)

    new = [fresh(number, leaf) for number, leaf in enumerate(leaves)]
    return jax.tree.unflatten(structure, new)


# Segments of a run where their length is not given: fine enough for curves and a
# progress bar, coarse enough that the host costs nothing.
SEGMENTS = 100


def segment_length(
    bound: Bound, asked: int | None = None, segments: int = SEGMENTS
) -> int:
    """Return the updates of a segment, K, at most those of the whole run.

    Args:
        bound: What is trained.
        asked: The updates that were asked for, if any were.
        segments: The number of segments that a run has where none were.
    """
    updates = bound.plan.num_updates
    return min(asked or max(1, math.ceil(updates / segments)), updates)


def check_divides(asked: int | None, updates: int, name: str, reason: str) -> None:
    """Refuse segments that do not divide a number of updates.

    Args:
        updates: The number of updates that is to be whole segments.
        name: The name of that number; empty where it has none.
        reason: The reason, after "so that".

    Raises:
        ConfigError: naming the number, and why.
    """
    if asked is not None and updates % asked:
        number = f"{name} = {updates:,}" if name else f"{updates:,}"
        raise ConfigError(
            f"segment_updates must divide {number}, so that {reason}, got {asked:,}. "
            "Leave it out, or give a divisor."
        )


def length_of_pieces(starts: Sequence[int], asked: int | None) -> int | None:
    """Return the updates of a segment with which each piece of a schedule begins one.

    Args:
        starts: Updates at which the pieces begin, ascending from 0.

    Returns:
        The largest number where none was asked for; None where any number would do.

    Raises:
        ConfigError: a piece that would not begin with a segment.
    """
    common = math.gcd(*starts)  # 0 where there is one piece
    reason = "every piece of a schedule begins with a segment"
    check_divides(asked, common, "", reason)
    return asked or common or None


class Program:
    """Compiled `init`, `advance` and `evaluate` of blocks, on the workers' devices.

    Whatever is interrupted or resumed, only these are called, and the same executable
    maps the same state to the same bits. So a resumed run is the uninterrupted one.

    Args:
        bound: Config, environment and plan of all members.
        example: A block of members; its width is W.
        length: Updates of one call of `advance`, K.
        workers: The workers to whose devices blocks will be given.
        data_parallel: Whether to spread every agent over all local devices.

    Attributes:
        bound: Config, environment and plan of all members.
        lanes: Width of a block, W.
        length: Updates of one call, K.
        compile_seconds: Seconds spent tracing and compiling so far.

    Raises:
        ConfigError: one agent does not fit the memory.
    """

    def __init__(
        self,
        bound: Bound,
        example: Members,
        length: int,
        workers: Sequence[Worker],
        data_parallel: bool = False,
    ) -> None:
        self.bound, self.lanes, self.length = bound, example.size, length
        started = time.perf_counter()
        if jax.config.jax_debug_key_reuse:  # type: ignore[attr-defined]
            _check_keys(bound, length)
        init, advance = _functions(bound, example, length, data_parallel)
        self._shapes = jax.eval_shape(init, *example)
        if not data_parallel:  # each device holds a part of an agent
            require_agent(self._shapes, self.lanes, workers[0])
        self._example, self._data_parallel = example, data_parallel
        self._workers = tuple(workers)
        self._evaluate: dict[Any, Any] = {}
        self._lock = threading.Lock()

        def members_on(device: Any) -> Members:
            return example if data_parallel else jax.device_put(example, device)

        initial = begin_to_compile(jax.jit(init), workers, members_on)

        def state_on(device: Any) -> tuple:
            # Shapes with the placement that `init` gives, so that no call moves data.
            shardings = jax.tree.map(
                lambda _: SingleDeviceSharding(device), self._shapes
            )
            if data_parallel:  # only the compiler says which parts lie where
                shardings = initial()[device].output_shardings
            placed = jax.tree.map(_placed, self._shapes, shardings)
            first = jax.ShapeDtypeStruct((), jnp.int32)
            return placed, members_on(device).overrides, first

        # The old state's memory is the new one's.
        jitted = jax.jit(advance, donate_argnums=0)
        # `init` is compiled while `advance` is traced.
        self._advance = compile_for(jitted, workers, state_on)
        self._init = initial()
        self.compile_seconds = time.perf_counter() - started

    @property
    def steps_each(self) -> int:
        """Environment steps of one member's whole run."""
        return self.bound.plan.num_updates * self.bound.plan.steps_per_update

    def init(self, device: Any, members: Members) -> PyTree:
        """Return the initial states of a block on a device, `[W, ...]`."""
        if not self._data_parallel:
            members = jax.device_put(members, device)
        return self._init[device](*members)

    def advance(
        self, device: Any, state: PyTree, overrides: Overrides, first_update: int
    ) -> tuple[PyTree, Any]:
        """Return new states, and on the host (which waits) the metrics and evaluations.

        The old state is consumed.

        Args:
            state: States of the block, `[W, ...]`; they are consumed.
            overrides: Values of the members' dynamic fields, leaves `[W, ...]`.
        """
        state, records = self.dispatch(device, state, overrides, first_update)
        return state, to_host(records)

    def dispatch(
        self, device: Any, state: PyTree, overrides: Overrides, first_update: int
    ) -> tuple[PyTree, Any]:
        """Begin what `advance` does, and do not wait: the records are on the device.

        So a device can be given its next block before the last one's records are read.

        Args:
            state: States of the block, `[W, ...]`; they are consumed.
            overrides: Values of the members' dynamic fields, leaves `[W, ...]`.
        """
        overrides = jax.device_put(overrides, device)
        first = np.int32(first_update)
        state, *records = self._advance[device](state, overrides, first)
        return state, records

    def evaluate(
        self, device: Any, state: PyTree, overrides: Overrides, keys: Array
    ) -> tuple[np.ndarray, np.ndarray]:
        """Play fresh episodes of a block's agents; compiled when it is first asked for.

        Args:
            state: States of the block; they are not consumed.
            overrides: Values `[W, ...]` of the members.
            keys: Keys `[W]` of the episodes.

        Returns:
            Mean return `[W]` of `eval_episodes` episodes of the deterministic policy,
            and the environment steps `[W]` that they took.
        """
        with self._lock:
            if not self._evaluate:
                self._compile_evaluation()
        arguments = jax.device_put((overrides, keys), device)
        returns, steps = self._evaluate[device](state, *arguments)
        return np.asarray(returns), np.asarray(steps)

    def _compile_evaluation(self) -> None:
        started = time.perf_counter()

        def arguments_for(device: Any) -> tuple:
            here = SingleDeviceSharding(device)
            state = jax.tree.map(lambda x: _placed(x, here), self._shapes)
            members = jax.device_put(self._example, device)
            return state, members.overrides, members.keys

        function = jax.jit(jax.vmap(partial(_evaluate, self.bound)))
        self._evaluate = compile_for(function, self._workers, arguments_for)
        self.compile_seconds += time.perf_counter() - started

    def placed(self, device: Any, state: PyTree) -> PyTree:
        """Return a block's states where `advance` wants them."""
        return jax.device_put(state, self._advance[device].input_shardings[0][0])

    def member_shapes(self) -> PyTree:
        """Return the shapes of one member's state."""
        return jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), self._shapes
        )

    def memory(self) -> MemoryModel:
        """Return the bytes of blocks of this width, as the compiler counts them."""
        state = sum(num_bytes(leaf) for leaf in jax.tree.leaves(self._shapes))
        program = next(iter(self._advance.values()))
        sizes = program.memory_analysis()
        if sizes is None:  # a backend that does not count
            return MemoryModel(state / self.lanes, state / self.lanes, 0)
        records = sizes.output_size_in_bytes - sizes.alias_size_in_bytes
        working = sizes.temp_size_in_bytes + max(records, 0)
        code = sizes.generated_code_size_in_bytes
        return MemoryModel(state / self.lanes, working / self.lanes, code)


def _placed(shape: Any, sharding: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=sharding)


def _check_keys(bound: Bound, length: int) -> None:
    """Let JAX look for reused keys in the program of one agent."""
    segment, key = make_segment(bound), jax.random.key(0)
    jax.jit(segment.init).trace(key)
    state, first = jax.eval_shape(segment.init, key), jnp.int32(0)
    jax.jit(lambda s, n: segment.advance(s, n, length)).trace(state, first)


def _functions(
    bound: Bound, example: Members, length: int, data_parallel: bool
) -> tuple[Any, Any]:
    """`init(keys, overrides)` and `advance(states, overrides, first_update)`, `[W]`."""
    functions = batched(bound, length, None)
    if not data_parallel:
        return functions
    devices = jax.local_devices()
    parallel.check_split(bound.config, len(devices))
    part = batched(bound, length, parallel.AXIS)
    local_state = parallel.part_shapes(part[0], tuple(example), len(devices))
    first = jax.ShapeDtypeStruct((), jnp.int32)
    return (
        parallel.spread(functions[0], part[0], devices),
        parallel.spread(
            functions[1], part[1], devices, (local_state, example.overrides, first)
        ),
    )


def batched(bound: Bound, length: int, axis_name: str | None) -> tuple[Any, Any]:
    """Return what a program compiles, over a leading axis of W members.

    Args:
        bound: Config, environment and plan of all members.
        length: Updates of one call, K.
        axis_name: The axis over which an agent is spread, if it is.

    Returns:
        `init(keys, overrides)` and `advance(states, overrides, first_update)`.
    """

    def init(key: Array, overrides: Overrides) -> PyTree:
        return make_segment(bound, overrides, axis_name).init(key)

    def advance(state: PyTree, overrides: Overrides, first_update: Array) -> Any:
        segment = make_segment(bound, overrides, axis_name)
        state, metrics, evaluation = segment.advance(state, first_update, length)
        last = jnp.minimum(length, bound.plan.num_updates - first_update) - 1
        finite = jnp.ones(length, bool).at[last].set(parameters_finite(state))
        checks = {PARAMETERS_FINITE: finite, FEW_BAD: has_few_bad(bound, metrics)}
        return state, with_marks(bound.config, metrics) | checks, evaluation

    # `first_update` is shared, so the branch "evaluate now?" stays one branch.
    return jax.vmap(init), jax.vmap(advance, in_axes=(0, 0, None))


def has_few_bad(bound: Bound, metrics: Metrics | HostMetrics) -> Any:
    """Return whether bad transitions are as few as the config allows, bool `[K]`.

    Args:
        bound: Config of the agent, with `max_bad_transitions`.
        metrics: Metrics of K updates; an algorithm may count none.
    """
    most = bound.config.max_bad_transitions * bound.config.total_timesteps
    counted = metrics.get("bad_transitions", metrics["env_steps"] * 0)
    return counted <= most


def _evaluate(
    bound: Bound, state: PyTree, overrides: Overrides, key: Array
) -> tuple[Array, Array]:
    """Mean return of fresh episodes of the deterministic policy, and their steps."""
    result = evaluate_afresh(bound, bound.at(overrides), state, key)
    return result.episode_return.mean(), result.episode_length.sum()


# Equal programs are compiled once: within a search, and within `share_programs`.

_MAPPINGS = Path("/proc/self/maps")
_LIMIT = Path("/proc/sys/vm/max_map_count")
# Of the other half, programs that are compiled side by side take their mappings.
SHARE = 0.5


def is_nearly_full() -> bool:
    """Return whether this process has used up half of the mappings that it may have.

    It is False on systems other than Linux, which do not count them.
    """
    try:
        limit = int(_LIMIT.read_text())
        with _MAPPINGS.open("rb") as file:
            return sum(1 for _ in file) > SHARE * limit
    except (OSError, ValueError):
        return False


class ProgramCache:
    """Programs by what they were compiled from; safe to use from several threads.

    Attributes:
        compilations: Number of programs that were compiled so far.
    """

    def __init__(self) -> None:
        self.compilations = 0
        # In the order in which they were asked for last.
        self._programs: dict[Hashable, Any] = {}
        self._locks: dict[Hashable, threading.Lock] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return the number of programs that it holds."""
        return len(self._programs)

    def get(
        self,
        bound: Bound,
        example: Members,
        length: int,
        workers: Sequence[Worker],
        data_parallel: bool = False,
    ) -> Program:
        """Return the program of these arguments, see `Program`; compiled if it is new.

        Args:
            example: A block of members; its width is W.
            length: Updates of one call of `advance`, K.
            workers: The workers to whose devices blocks will be given.
            data_parallel: Whether to spread every agent over all local devices.

        Raises:
            ConfigError: one agent does not fit the memory.
        """
        shapes = tuple((x.shape, str(x.dtype)) for x in jax.tree.leaves(example))
        devices = tuple(dict.fromkeys(worker.device for worker in workers))
        key = (jax.tree.structure(example), shapes, length, data_parallel, devices)
        return self.share(
            bound, key, lambda: Program(bound, example, length, workers, data_parallel)
        )

    def share(self, bound: Bound, key: tuple, make: Callable[[], Compiled]) -> Compiled:
        """Return what `make` returns, which is called once for equal arguments.

        Args:
            bound: Config, environment and plan.
            key: All else that the program depends on, and what tells it from other
                programs of the same config; hashable.
            make: Function that compiles, or wraps a function in `jax.jit`.
        """
        name = _name(bound, key)
        if name is None:
            return self._make(make)
        with self._lock:
            lock = self._locks.setdefault(name, threading.Lock())
        with lock:
            program = self._programs.pop(name, None) or self._make(make)
            with self._lock:
                self._programs[name] = program
            return program

    def make_room(self) -> None:
        """Forget the older half of the programs while the process has no room for more.

        A program that somebody still holds stays compiled, and keeps its room.
        """
        with self._lock:
            while self._programs and is_nearly_full():
                names = list(self._programs)
                for name in names[: -(-len(names) // 2)]:
                    self._programs.pop(name, None)
                gc.collect()  # A program may be held by a circle of references.

    def forget(self, programs: Sequence[Program]) -> None:
        """Hold these programs no longer."""
        with self._lock:
            for name, program in list(self._programs.items()):
                if any(program is other for other in programs):
                    del self._programs[name]

    def _make(self, make: Callable[[], Compiled]) -> Compiled:
        self.make_room()
        program = make()
        with self._lock:
            self.compilations += 1
        return program


_shared: list[ProgramCache] = []


def current_cache() -> ProgramCache:
    """Return the cache of the innermost `share_programs`, or else a new one."""
    return _shared[-1] if _shared else ProgramCache()


@contextlib.contextmanager
def share_programs() -> Iterator[ProgramCache]:
    """Compile equal programs once in all calls of the library inside.

    A run and the run that resumes it, or a sweep that is repeated with other numbers,
    need no second compilation. Inside, functions and environments are taken for what
    they were when they were first compiled: a definition that is changed meanwhile, as
    in a notebook, goes unnoticed.

    Examples:
        with purerl.share_programs():
            first = purerl.run(config, seeds=4)
            second = purerl.run(config, seeds=[4, 5, 6, 7])  # compiles nothing
    """
    cache = ProgramCache()
    _shared.append(cache)
    try:
        yield cache
    finally:
        _shared.remove(cache)


def _name(bound: Bound, key: tuple) -> Hashable | None:
    """Return the key of a program in the cache; None if the config is not hashable.

    The config's numbers are constants of the program, the values of overrides are not.
    """
    # What was asked for, too: what is `auto` in it follows the overrides.
    numbers, structure = jax.tree.flatten((bound.config, bound.asked))
    constants = tuple(
        (type(x).__name__, np.shape(x), np.asarray(x).tobytes()) for x in numbers
    )
    # An id, which is in the structure, makes equal environments; objects of adapters
    # are equal to nothing but themselves. Equal is not alike: a class that inherits
    # from a dataclass may have attributes that its comparison does not look at.
    own = bound.config.env
    env = None if isinstance(own, str) else (bound.env, env_text(own))
    name = (
        structure,
        constants,
        env,
        repr(bound.plan),
        key,
        # Options of JAX with which the same arguments would make another program.
        jax.config.jax_default_device,  # type: ignore[attr-defined]
        jax.config.read("jax_disable_most_optimizations"),
        jax.config.jax_default_matmul_precision,  # type: ignore[attr-defined]
        jax.config.jax_threefry_partitionable,  # type: ignore[attr-defined]
    )
    try:
        hash(name)
    except TypeError:  # an environment object or a config that no dictionary can hold
        return None
    return name


class BlockCompiler(NamedTuple):
    """Compiles programs of which a block fits the memory.

    Attributes:
        workers: The workers to compile for.
        limit: Bytes that a block may take.
        cache: The cache that may have a program already; that of the process where not
            given.
    """

    workers: Sequence[Worker]
    limit: float
    cache: ProgramCache | None = None

    def compile(
        self, bound: Bound, members: Members, lanes: int, length: int, is_fixed: bool
    ) -> Program:
        """Compile a program, narrower again and again until a block of it fits.

        Args:
            members: An example of the members, at least one.
            lanes: The width of a block to begin with, W.
            length: Updates of one call, K.
            is_fixed: Whether to refuse a width that does not fit instead of narrowing
                it.

        Raises:
            ConfigError: no width fits, or not the fixed one.
        """
        cache = current_cache() if self.cache is None else self.cache
        while True:
            block = members.block(0, lanes)
            program = cache.get(bound, block, length, self.workers)
            width = fit_lanes(program.memory(), lanes, self.limit, is_fixed)
            if width == lanes:
                return program
            lanes = width
