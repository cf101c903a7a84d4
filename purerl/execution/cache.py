"""Equal programs are compiled once: within a search, and within `share_programs`."""

import contextlib
import gc
import threading
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from purerl.execution.memory import fit_lanes
from purerl.execution.programs import Members, Program
from purerl.scale.devices import Worker
from purerl.serialise import env_text
from purerl.train import Bound

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
        self._programs: dict[Hashable, Program] = {}
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
        arguments = (bound, example, length, workers, data_parallel)
        name = _name(*arguments)
        if name is None:
            return self._compile(arguments)
        with self._lock:
            lock = self._locks.setdefault(name, threading.Lock())
        with lock:
            program = self._programs.pop(name, None) or self._compile(arguments)
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

    def _compile(self, arguments: tuple) -> Program:
        self.make_room()
        program = Program(*arguments)
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


def _name(
    bound: Bound,
    example: Members,
    length: int,
    workers: Sequence[Worker],
    data_parallel: bool,
) -> Hashable | None:
    """Return the key of a program in the cache; None if the config is not hashable.

    The config's numbers are constants of the program, the values of overrides are not.
    """
    # What was asked for, too: what is `auto` in it follows the overrides.
    numbers, structure = jax.tree.flatten((bound.config, bound.asked))
    constants = tuple(
        (type(x).__name__, np.shape(x), np.asarray(x).tobytes()) for x in numbers
    )
    shapes = tuple((x.shape, str(x.dtype)) for x in jax.tree.leaves(example))
    # An id, which is in the structure, makes equal environments; objects of adapters
    # are equal to nothing but themselves. Equal is not alike: a class that inherits
    # from a dataclass may have attributes that its comparison does not look at.
    own = bound.config.env
    env = None if isinstance(own, str) else (bound.env, env_text(own))
    devices: dict[Any, None] = dict.fromkeys(worker.device for worker in workers)
    name = (
        structure,
        constants,
        env,
        repr(bound.plan),
        jax.tree.structure(example),
        shapes,
        length,
        data_parallel,
        tuple(devices),
        # Options of JAX with which the same arguments would make another program.
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
