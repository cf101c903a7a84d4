"""The two executables of a run, `init` and `advance`, over blocks of lanes.

Only these two are ever called, whatever is interrupted or resumed, and the same
executable maps the same state to the same bits. So a resumed run is the uninterrupted
one.
"""

import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl.scale import parallel
from purerl.scale.devices import Worker, compile_for, make_workers, run_blocks
from purerl.scale.host import to_device, to_host
from purerl.train import Bound, make_segment
from purerl.types import Array, HostMetrics, PyTree


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
    """Compiled `init` and `advance` of a run, and the blocks they work on.

    Attributes:
        blocks: of `lanes` lanes each.
        compile_seconds: time spent tracing and compiling.
        num_devices: devices used.
    """

    def __init__(
        self,
        bound: Bound,
        keys: Array,
        lanes: int,
        length: int,
        data_parallel: bool = False,
    ) -> None:
        self.keys, self.lanes, self.length = keys, lanes, length
        devices = jax.local_devices()
        # One program over all devices needs one caller; else see `make_workers`.
        self._workers = [Worker(devices[0], 0)] if data_parallel else make_workers()
        self.num_devices = (
            len(devices) if data_parallel else len({w.device for w in self._workers})
        )
        num = keys.shape[0]
        self.blocks = [
            Block(start, min(lanes, num - start), self._workers[i % len(self._workers)])
            for i, start in enumerate(range(0, num, lanes))
        ]
        started = time.perf_counter()
        init, advance = _functions(bound, lanes, length, data_parallel)
        self._init_function = init
        self._compile(init, advance, data_parallel)
        self.compile_seconds = time.perf_counter() - started

    def _compile(self, init: Any, advance: Any, data_parallel: bool) -> None:
        used = [block.worker for block in self.blocks]

        def keys_on(device: Any) -> tuple:
            keys = self._block_keys(self.blocks[0])
            return (keys if data_parallel else jax.device_put(keys, device),)

        self._init = compile_for(jax.jit(init), used, keys_on)

        def state_on(device: Any) -> tuple:
            # Shapes with the placement that `init` gives, so that no call moves data.
            shapes = jax.eval_shape(init, *keys_on(device))
            places = self._init[device].output_shardings
            placed = jax.tree.map(
                lambda s, p: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=p),
                shapes,
                places,
            )
            return placed, jax.ShapeDtypeStruct((), jnp.int32)

        # The old state's memory is the new one's.
        jitted = jax.jit(advance, donate_argnums=0)
        self._advance = compile_for(jitted, used, state_on)

    def _block_keys(self, block: Block) -> Array:
        index = np.arange(block.start, block.start + self.lanes)
        return self.keys[np.minimum(index, self.keys.shape[0] - 1)]

    def init(self) -> list[PyTree]:
        """Initial state of every block."""

        def one(worker: Worker, block: Block) -> PyTree:
            del worker
            device = block.worker.device
            return jax.block_until_ready(
                self._init[device](
                    self._placed(self._block_keys(block), "init", device)
                )
            )

        return run_blocks(self._workers, self.blocks, one)

    def advance(
        self, states: list[PyTree], first_update: int
    ) -> tuple[list[PyTree], HostMetrics, HostMetrics]:
        """Advance every block by `length` updates.

        Returns:
            New states, metrics `[S, length]`, and evaluations `[S, slots, ...]`, both
            on the host. The old states are consumed.
        """

        def one(worker: Worker, item: tuple[Block, PyTree]) -> Any:
            del worker
            block, state = item
            state, *records = self._advance[block.worker.device](
                state, jnp.int32(first_update)
            )
            host = to_host(records)  # waits for the block
            return state, jax.tree.map(lambda x: x[: block.size], host)

        items = list(zip(self.blocks, states, strict=True))
        results = run_blocks(self._workers, items, one)
        records = [record for _, record in results]
        metrics, evaluation = jax.tree.map(lambda *x: np.concatenate(x), *records)
        return [state for state, _ in results], metrics, evaluation

    def member_shapes(self) -> PyTree:
        """Shapes of one member's state."""
        shapes = jax.eval_shape(self._init_function, self._block_keys(self.blocks[0]))
        return jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), shapes
        )

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
        num = self.keys.shape[0]
        for block in self.blocks:
            index = np.arange(block.start, block.start + self.lanes)
            index = np.minimum(index, num - 1)
            host = jax.tree.map(lambda x, i=index: x[i], members)
            state = to_device(host)
            states.append(self._placed(state, "advance", block.worker.device))
        return states

    def _placed(self, tree: PyTree, program: str, device: Any) -> PyTree:
        """`tree` where the program for `device` wants its first argument."""
        compiled = (self._init if program == "init" else self._advance)[device]
        return jax.device_put(tree, compiled.input_shardings[0][0])


def _functions(
    bound: Bound, lanes: int, length: int, data_parallel: bool
) -> tuple[Any, Any]:
    """`init(keys [W])` and `advance(states [W], first_update)`."""
    whole = _batched(make_segment(bound), length)
    if not data_parallel:
        return whole
    devices = jax.local_devices()
    parallel.check_split(bound.config, len(devices))
    part = _batched(make_segment(bound, axis_name=parallel.AXIS), length)
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), lanes))
    local_state = parallel.part_shapes(part[0], (keys,), len(devices))
    first = jax.ShapeDtypeStruct((), jnp.int32)
    return (
        parallel.spread(whole[0], part[0], devices),
        parallel.spread(whole[1], part[1], devices, (local_state, first)),
    )


def _batched(segment: Any, length: int) -> tuple[Any, Any]:
    def advance(state: PyTree, first_update: Array) -> Any:
        return segment.advance(state, first_update, length)

    # `first_update` is shared, so the branch "evaluate now?" stays one branch.
    return jax.vmap(segment.init), jax.vmap(advance, in_axes=(0, None))
