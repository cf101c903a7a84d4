"""Training in 32 bits, also where the rest of a program computes in 64.

`jax_enable_x64` is one switch for a whole process, which other code may need. All
numbers of training have 32 bits: networks, replay buffers and environments are written
for them, and a run has the same bits whatever that switch says. So what this library
traces and computes, it does as if the switch were off, and only there. It does so with
the usual promotion of types too, where `jax_numpy_dtype_promotion` is strict.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp

from purerl.types import Algorithm, Array, Hosted, PyTree, Recurrence

Function = TypeVar("Function", bound=Callable[..., Any])

STANDARD = "standard"  # The promotion of types that JAX has by default.
NARROW = {"float64": jnp.float32, "int64": jnp.int32, "uint64": jnp.uint32}
# Options by which a traced program differs, and what sets them in one thread.
_OPTIONS: dict[str, Callable[[Any], Any]] = {
    "jax_enable_x64": jax.enable_x64,
    "jax_numpy_dtype_promotion": jax.numpy_dtype_promotion,
    "jax_numpy_rank_promotion": jax.numpy_rank_promotion,
    "jax_default_matmul_precision": jax.default_matmul_precision,
    "jax_threefry_partitionable": jax.threefry_partitionable,
    "jax_default_prng_impl": jax.default_prng_impl,
}
# Whether 64 bits are left on, for derivatives that are compared with differences.
_keeps_64: ContextVar[bool] = ContextVar("keeps_64", default=False)


def in_32_bits(function: Function) -> Function:
    """Let a function compute in 32 bits, whatever `jax_enable_x64` says.

    Types are promoted as usual in it, whatever `jax_numpy_dtype_promotion` says.

    Args:
        function: The function. Arrays of JAX with 64 bits among its arguments, traced
            ones too, are given to it with 32; where the switch is off, nothing changes.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        config: Any = jax.config
        narrows = bool(config.jax_enable_x64) and not _keeps_64.get()
        if not narrows and config.jax_numpy_dtype_promotion == STANDARD:
            return function(*args, **kwargs)
        with ExitStack() as stack:
            stack.enter_context(jax.numpy_dtype_promotion(STANDARD))
            if narrows:
                args, kwargs = _narrowed((args, kwargs))
                stack.enter_context(jax.enable_x64(False))
            return function(*args, **kwargs)

    return cast(Function, call)


def algorithm_in_32_bits(algorithm: Algorithm) -> Algorithm:
    """Return an algorithm whose functions compute in 32 bits.

    Args:
        algorithm: The algorithm, as `purerl.train.Bound.algorithm` makes it.
    """
    recurrence, hosted = algorithm.recurrence, algorithm.hosted

    def pieces(update: Array) -> Hosted:
        assert hosted is not None
        found = hosted(update)
        functions = {k: x for k, x in found._asdict().items() if callable(x)}
        return found._replace(**{k: in_32_bits(x) for k, x in functions.items()})

    return algorithm._replace(
        init=in_32_bits(algorithm.init),
        step=in_32_bits(algorithm.step),
        act=in_32_bits(algorithm.act),
        recurrence=recurrence and recurrence_in_32_bits(recurrence),
        hosted=hosted and pieces,
    )


def recurrence_in_32_bits(recurrence: Recurrence) -> Recurrence:
    """Return the functions of a policy with a memory, computing in 32 bits.

    Args:
        recurrence: The functions.
    """
    return Recurrence(*(in_32_bits(function) for function in recurrence))


def as_here(function: Function) -> Function:
    """Let a function trace and compute in another thread as it would in this one.

    JAX's options that `with` sets, such as `jax.default_matmul_precision("highest")`,
    hold in one thread. Those that decide which program is traced are set in the other
    thread as they are here.

    Args:
        function: The function that the other thread calls.
    """
    options = [(enter, getattr(jax.config, name)) for name, enter in _OPTIONS.items()]

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with ExitStack() as stack:
            for enter, value in options:
                stack.enter_context(enter(value))
            return function(*args, **kwargs)

    return cast(Function, call)


@contextmanager
def keeping_64_bits() -> Iterator[None]:
    """Leave 64 bits on where they are on, as where derivatives are compared."""
    before = _keeps_64.set(True)
    try:
        yield
    finally:
        _keeps_64.reset(before)


def _narrowed(tree: PyTree) -> PyTree:
    """A pytree with arrays of JAX of 32 bits; itself where it has no others."""
    if not any(map(_is_wide, jax.tree.leaves(tree))):
        return tree
    return jax.tree.map(
        lambda x: x.astype(NARROW[x.dtype.name]) if _is_wide(x) else x, tree
    )


def _is_wide(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and leaf.dtype.name in NARROW
