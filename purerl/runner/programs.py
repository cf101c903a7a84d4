"""The two executables of a run, `init` and `advance`, over blocks of lanes.

Only these two are ever called, whatever is interrupted or resumed, and the same
executable maps the same state to the same bits. So a resumed run is the uninterrupted
one.
"""

import copy
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl.learning.diagnostics import parameters_finite
from purerl.runner.memory import (
    BlockMemory,
    num_bytes,
    require_agent,
    require_together,
)
from purerl.runner.reduce import PARAMETERS_FINITE
from purerl.scale import parallel
from purerl.scale.devices import Worker, compile_for, make_workers, run_blocks
from purerl.scale.host import to_device, to_host
from purerl.train import Bound, make_segment
from purerl.types import Array, HostMetrics, Overrides, PyTree


class Members(NamedTuple):
    """Agents that one program trains.

    Attributes:
        keys: `[N]`, one per agent.
        overrides: name of a dynamic field -> values, leaves `[N, ...]`.
    """

    keys: Array
    overrides: Overrides

    @property
    def size(self) -> int:
        """How many there are."""
        return self.keys.shape[0]

    def block(self, start: int, lanes: int) -> "Members":
        """`lanes` of them from number `start` on; past the end the last one again."""
        index = np.minimum(np.arange(start, start + lanes), self.size - 1)
        return jax.tree.map(lambda x: jnp.asarray(x)[index], self)


class Executables:
    """Compiled `init` and `advance` for blocks of W lanes, on the workers' devices.

    Attributes:
        lanes: W.
        length: updates of one call of `advance`.
        compile_seconds: time spent tracing and compiling.
    """

    def __init__(
        self,
        bound: Bound,
        example: Members,
        length: int,
        workers: Sequence[Worker],
        data_parallel: bool = False,
    ) -> None:
        self.lanes, self.length = example.size, length
        started = time.perf_counter()
        init, advance = _functions(bound, example, length, data_parallel)
        if not data_parallel:  # each device holds a part of an agent
            shapes = jax.eval_shape(init, *example)
            require_agent(shapes, self.lanes, workers[0])
        self._init_function = init
        self._example, self._data_parallel = example, data_parallel

        def members_on(device: Any) -> Members:
            return example if data_parallel else jax.device_put(example, device)

        self._init = compile_for(jax.jit(init), workers, members_on)

        def state_on(device: Any) -> tuple:
            # Shapes with the placement that `init` gives, so that no call moves data.
            members = members_on(device)
            shapes = jax.eval_shape(init, *members)
            places = self._init[device].output_shardings
            placed = jax.tree.map(
                lambda s, p: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=p),
                shapes,
                places,
            )
            first = jax.ShapeDtypeStruct((), jnp.int32)
            return placed, members.overrides, first

        # The old state's memory is the new one's.
        jitted = jax.jit(advance, donate_argnums=0)
        self._advance = compile_for(jitted, workers, state_on)
        self.compile_seconds = time.perf_counter() - started

    def init(self, device: Any, members: Members) -> PyTree:
        """Initial states of a block on a device, `[W, ...]`."""
        if not self._data_parallel:
            members = jax.device_put(members, device)
        return self._init[device](*members)

    def advance(
        self, device: Any, state: PyTree, overrides: Overrides, first_update: int
    ) -> tuple[PyTree, Any]:
        """New states, and on the host (which waits) the metrics and evaluations.

        The old state is consumed.
        """
        state, records = self.dispatch(device, state, overrides, first_update)
        return state, to_host(records)

    def dispatch(
        self, device: Any, state: PyTree, overrides: Overrides, first_update: int
    ) -> tuple[PyTree, Any]:
        """As `advance`, but nothing waits: the records are on the device.

        So a device can be given its next block before the last one's records are read.
        """
        overrides = jax.device_put(overrides, device)
        first = jnp.int32(first_update)
        state, *records = self._advance[device](state, overrides, first)
        return state, records

    def placed(self, device: Any, state: PyTree) -> PyTree:
        """A block's states where `advance` wants them."""
        return jax.device_put(state, self._advance[device].input_shardings[0][0])

    def member_shapes(self) -> PyTree:
        """Shapes of one member's state."""
        shapes = jax.eval_shape(self._init_function, *self._example)
        return jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), shapes
        )

    def memory(self) -> BlockMemory:
        """Bytes of one block, as the compiler counts them."""
        shapes = jax.eval_shape(self._init_function, *self._example)
        state = sum(num_bytes(leaf) for leaf in jax.tree.leaves(shapes))
        program = next(iter(self._advance.values()))
        found = program.memory_analysis()
        if found is None:  # a backend that does not count
            return BlockMemory(state, state, 0)
        records = found.output_size_in_bytes - found.alias_size_in_bytes
        code = found.generated_code_size_in_bytes
        return BlockMemory(state, found.temp_size_in_bytes + max(records, 0), code)


class Block(NamedTuple):
    """The lanes that one call advances.

    Attributes:
        start: number of the first member in it.
        size: members in it; lanes beyond are copies of the last one.
        worker: whose device holds its state.
    """

    start: int
    size: int
    worker: Worker


class Programs:
    """A population in blocks over all workers, advanced in step.

    Attributes:
        members: the agents; `overrides` may be replaced by others of the same shapes.
        blocks: of `lanes` lanes each.
        compile_seconds: time spent tracing and compiling.
        num_devices: devices used.
    """

    def __init__(
        self,
        bound: Bound,
        members: Members,
        lanes: int,
        length: int,
        data_parallel: bool = False,
    ) -> None:
        self.members, self.lanes, self.length = members, lanes, length
        devices = jax.local_devices()
        # One program over all devices needs one caller; else see `make_workers`.
        self._workers = [Worker(devices[0], 0)] if data_parallel else make_workers()
        self.num_devices = (
            len(devices) if data_parallel else len({w.device for w in self._workers})
        )
        self.blocks = _cut(members.size, lanes, self._workers)
        used = [block.worker for block in self.blocks]
        example = members.block(0, lanes)
        self.executables = Executables(bound, example, length, used, data_parallel)
        self.compile_seconds = self.executables.compile_seconds
        if not data_parallel:
            memory = self.executables.memory()
            require_together(memory, lanes, len(self.blocks), self._workers)

    def with_members(self, members: Members) -> "Programs":
        """The same executables for at most as many other members of the same shapes.

        Their blocks are as wide: a member's bits are the same in both.
        """
        other = copy.copy(self)
        other.members = members
        other.blocks = _cut(members.size, self.lanes, self._workers)
        return other

    @property
    def workers(self) -> list[Worker]:
        """Threads that the blocks are handed to."""
        return self._workers

    def _block_members(self, block: Block) -> Members:
        return self.members.block(block.start, self.lanes)

    def init(self) -> list[PyTree]:
        """Initial state of every block."""

        def one(worker: Worker, block: Block) -> PyTree:
            del worker
            members = self._block_members(block)
            state = self.executables.init(block.worker.device, members)
            return jax.block_until_ready(state)

        return run_blocks(self._workers, self.blocks, one)

    def advance(
        self, states: list[PyTree], first_update: int
    ) -> tuple[list[PyTree], HostMetrics, HostMetrics]:
        """Advance every block by `length` updates.

        Returns:
            New states, metrics `[S, length]` (with `PARAMETERS_FINITE` among them),
            and evaluations `[S, slots, ...]`, both on the host. The old states are
            consumed.
        """

        def one(worker: Worker, item: tuple[Block, PyTree]) -> Any:
            del worker
            block, state = item
            overrides = self._block_members(block).overrides
            state, host = self.executables.advance(
                block.worker.device, state, overrides, first_update
            )
            return state, jax.tree.map(lambda x: x[: block.size], host)

        items = list(zip(self.blocks, states, strict=True))
        results = run_blocks(self._workers, items, one)
        records = [record for _, record in results]
        metrics, evaluation = jax.tree.map(lambda *x: np.concatenate(x), *records)
        return [state for state, _ in results], metrics, evaluation

    def member_shapes(self) -> PyTree:
        """Shapes of one member's state."""
        return self.executables.member_shapes()

    def gather(self, states: list[PyTree]) -> PyTree:
        """All members' states on the host, leaves `[S, ...]` (keys as `HostKey`)."""
        hosts = [to_host(state) for state in states]
        sizes = [block.size for block in self.blocks]

        def join(*leaves: Any) -> np.ndarray:
            return np.concatenate(
                [leaf[:size] for leaf, size in zip(leaves, sizes, strict=True)]
            )

        return jax.tree.map(join, *hosts)

    def scatter(self, members: PyTree) -> list[PyTree]:
        """The inverse of `gather`: states of the blocks on their devices."""
        states = []
        num = self.members.size
        for block in self.blocks:
            index = np.arange(block.start, block.start + self.lanes)
            index = np.minimum(index, num - 1)
            host = jax.tree.map(lambda x, i=index: x[i], members)
            device = block.worker.device
            states.append(self.executables.placed(device, to_device(host)))
        return states


def _cut(num: int, lanes: int, workers: Sequence[Worker]) -> list[Block]:
    """Blocks of a population, handed to the workers in turn."""
    return [
        Block(start, min(lanes, num - start), workers[i % len(workers)])
        for i, start in enumerate(range(0, num, lanes))
    ]


def _functions(
    bound: Bound, example: Members, length: int, data_parallel: bool
) -> tuple[Any, Any]:
    """`init(keys, overrides)` and `advance(states, overrides, first_update)`, `[W]`."""
    whole = _batched(bound, length, None)
    if not data_parallel:
        return whole
    devices = jax.local_devices()
    parallel.check_split(bound.config, len(devices))
    part = _batched(bound, length, parallel.AXIS)
    local_state = parallel.part_shapes(part[0], tuple(example), len(devices))
    first = jax.ShapeDtypeStruct((), jnp.int32)
    return (
        parallel.spread(whole[0], part[0], devices),
        parallel.spread(
            whole[1], part[1], devices, (local_state, example.overrides, first)
        ),
    )


def _batched(bound: Bound, length: int, axis_name: str | None) -> tuple[Any, Any]:
    def init(key: Array, overrides: Overrides) -> PyTree:
        return make_segment(bound, overrides, axis_name).init(key)

    def advance(state: PyTree, overrides: Overrides, first_update: Array) -> Any:
        segment = make_segment(bound, overrides, axis_name)
        state, metrics, evaluation = segment.advance(state, first_update, length)
        last = jnp.minimum(length, bound.plan.num_updates - first_update) - 1
        finite = jnp.ones(length, bool).at[last].set(parameters_finite(state))
        return state, metrics | {PARAMETERS_FINITE: finite}, evaluation

    # `first_update` is shared, so the branch "evaluate now?" stays one branch.
    return jax.vmap(init), jax.vmap(advance, in_axes=(0, 0, None))
