"""One compilation for all calls of a test file that train the same program.

A run, and a run that goes on with it, are two calls of the library, which trace, lower
and load the same two programs. What tells programs apart is the key below. Nothing here
is for files that replace what is traced (an algorithm's or an environment's functions).
"""

import contextlib
import threading
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
import pytest

from purerl.population import engine
from purerl.runner.programs import Executables, Members, Programs
from purerl.scale.devices import Worker
from purerl.train import Bound


@contextlib.contextmanager
def shared_programs() -> Iterator[None]:
    """Inside, equal `Executables` are compiled once."""
    build, lock = Executables.__init__, threading.Lock()
    known: dict[Hashable, Executables] = {}

    def init(
        self: Executables,
        bound: Bound,
        example: Members,
        length: int,
        workers: Sequence[Worker],
        data_parallel: bool = False,
    ) -> None:
        name = (_name(bound, example), length, data_parallel, _places(workers))
        try:
            hash(name)
        except TypeError:  # an environment object or a config that no dict can hold
            build(self, bound, example, length, workers, data_parallel)
            return
        with lock:
            found = known.get(name)
        if found is None:
            build(self, bound, example, length, workers, data_parallel)
            with lock:
                known[name] = self
        else:
            self.__dict__.update(found.__dict__)

    judge, judges = engine._compile, {}

    def compile_judge(function: Any, programs: Programs) -> Any:
        # What looks at states goes with the program that makes them.
        name = id(programs.executables._advance)
        if name not in judges:
            judges[name] = programs.executables, judge(function, programs)
        return judges[name][1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Executables, "__init__", init)
        patch.setattr(engine, "_compile", compile_judge)
        yield


def _name(bound: Bound, example: Members) -> Hashable:
    """The config's numbers are constants of the program; the overrides are not."""
    # What was asked for, too: what is `auto` in it follows the overrides.
    numbers, structure = jax.tree.flatten((bound.config, bound.asked))
    constants = [
        (type(x).__name__, np.shape(x), np.asarray(x).tobytes()) for x in numbers
    ]
    shapes = [(x.shape, str(x.dtype)) for x in jax.tree.leaves(example)]
    # An id, which is in the structure, makes equal environments; objects of adapters
    # are equal to nothing but themselves.
    env = None if isinstance(bound.config.env, str) else bound.env
    return (
        structure,
        tuple(constants),
        env,
        repr(bound.plan),
        jax.tree.structure(example),
        tuple(shapes),
    )


def _places(workers: Sequence[Worker]) -> Hashable:
    devices: dict[Any, None] = dict.fromkeys(worker.device for worker in workers)
    return (tuple(devices), jax.config.read("jax_disable_most_optimizations"))
