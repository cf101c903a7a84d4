"""Programs whose blocks fit the memory of a device.

The compiler says how much memory a block of W lanes needs. From it follows what other
widths need, and how many blocks a worker can hold.
"""

from collections.abc import Sequence
from typing import NamedTuple

from purerl.config import ConfigError
from purerl.execution.cache import ProgramCache, current_cache
from purerl.execution.format import format_bytes, with_noun
from purerl.execution.liveness import traced_memory
from purerl.execution.members import Members
from purerl.execution.memory import SHARE, BlockMemory, free_memory
from purerl.execution.programs import Program
from purerl.scale.devices import POWERS_UP_TO, Worker
from purerl.train import Bound

# Compilers have needed up to twice as much as shapes say beside the states.
UNSEEN = 2.0


class MemoryModel(NamedTuple):
    """Bytes on a device as a function of the width of a block.

    Attributes:
        state: Bytes of one member's state.
        working: Bytes of one member beside its state, while its block is advanced.
        fixed: Bytes that do not grow with the number of members.
    """

    state: float
    working: float
    fixed: float

    def block(self, lanes: int) -> float:
        """Return the bytes while one block is trained alone."""
        return self.chunk(lanes, 1)

    def chunk(self, lanes: int, blocks: int) -> float:
        """Return the bytes while some blocks are held and one of them is advanced."""
        return self.fixed + lanes * (blocks * self.state + self.working)


def model_of(memory: BlockMemory, lanes: int) -> MemoryModel:
    """Return the model of one compiled width; all but the code is taken to grow."""
    return MemoryModel(memory.state / lanes, memory.working / lanes, memory.code)


def extrapolate(memories: Sequence[BlockMemory], widths: Sequence[int]) -> MemoryModel:
    """Return the model through two widths.

    Args:
        memories: Memory of a block at each of the two widths.
        widths: Lanes of the two blocks, ascending.
    """
    (a, b), (first, second) = memories, widths
    working = max(0.0, (b.working - a.working) / (second - first))
    fixed = max(0.0, a.working - working * first) + max(a.code, b.code)
    return MemoryModel(a.state / first, working, fixed)


def fit_lanes(model: MemoryModel, lanes: int, limit: float, is_fixed: bool) -> int:
    """Return the width, halved until one block fits the memory.

    Args:
        model: A model of a worker's bytes.
        lanes: The width to begin with, W.
        limit: Bytes that a worker may use.
        is_fixed: Whether to refuse a width that does not fit instead of halving it.

    Raises:
        ConfigError: not even one lane fits, or a width that was asked for does not.
    """
    width = lanes
    while model.block(width) > limit and width > 1:
        width //= 2
    if model.block(width) > limit or (is_fixed and width != lanes):
        need = model.block(lanes if is_fixed else 1)
        raise ConfigError(
            f"memory: a block of {with_noun(lanes if is_fixed else 1, 'lane')} needs "
            f"{format_bytes(need)}, and a worker has {format_bytes(limit)}; use "
            "fewer lanes, a smaller replay buffer or network, or a higher "
            "memory_limit."
        )
    return width


def lanes_by_shapes(
    model: MemoryModel, lanes: int, num_members: int, limit: float
) -> int:
    """Return a width, halved while shapes say that it does not fit.

    It is never narrowed below `POWERS_UP_TO` lanes: there what the compiler counts
    decides, which is exact.

    Args:
        model: A model of a worker's bytes, from shapes.
        lanes: The width to begin with, W.
        num_members: Members whose states the worker holds at once, at least a block.
        limit: Bytes that the worker may use.
    """
    width = lanes
    while width > POWERS_UP_TO:
        states = max(num_members, width) * model.state
        if model.fixed + states + width * model.working <= limit:
            break
        width = max(POWERS_UP_TO, width // 2)
    return width


def fitting_lanes(
    bound: Bound,
    lanes: int,
    num_members: int,
    length: int,
    workers: Sequence[Worker],
    limit: float | None = None,
) -> int:
    """Return a default width of which shapes say that it fits an accelerator.

    Nothing is compiled; on a CPU, and for blocks of up to `POWERS_UP_TO` lanes, nothing
    is traced either.

    Args:
        bound: Config, environment and plan of the members.
        lanes: The width where memory does not matter, W.
        num_members: Members whose states a worker holds at once; a block at the least.
        length: Updates of one call, K.
        workers: Workers of this process.
        limit: Bytes that a worker may use; of what is free where not given.
    """
    if lanes <= POWERS_UP_TO or workers[0].device.platform == "cpu":
        return lanes
    memory = traced_memory(bound, length)
    model = MemoryModel(memory.state, UNSEEN * memory.working, 0.0)
    most = SHARE * free_memory(workers[0]) if limit is None else limit
    return lanes_by_shapes(model, lanes, num_members, most)


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
            bound: Config, environment and plan of all members.
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
            model = model_of(program.memory(), lanes)
            width = fit_lanes(model, lanes, self.limit, is_fixed)
            if width == lanes:
                return program
            lanes = width
