"""The platform that a program is traced for, who cannot be traced, and what is read.

An accelerator with small networks spends its time on starting kernels, so there a
program is written so that it has few of them; a CPU would only have more to do.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.interpreters import partial_eval

from purerl.config import ConfigError

# Steps that one turn of a loop makes on an accelerator. A turn costs a kernel for its
# counter and others that write and copy, however many steps it makes; with more of them
# a program is compiled for longer, and has few kernels less.
STEPS_OF_TURN = 4
# The platform that programs are traced for; None for that of JAX's default devices.
_platform: ContextVar[str | None] = ContextVar("platform", default=None)


@contextlib.contextmanager
def traced_for(platform: str) -> Iterator[None]:
    """Trace programs for a platform that is not that of JAX's default devices.

    Args:
        platform: The platform, such as `cpu` or `cuda`.
    """
    before = _platform.set(platform)
    try:
        yield
    finally:
        _platform.reset(before)


def traced_for_cpu() -> bool:
    """Return whether programs are traced for a CPU, where small kernels cost little."""
    return (_platform.get() or jax.default_backend()) == "cpu"


def steps_of_turn(num_steps: int) -> int:
    """Return how many steps one turn of a loop makes: a divisor of them, 1 on a CPU.

    Args:
        num_steps: Number of steps of the loop.
    """
    return 1 if traced_for_cpu() else math.gcd(num_steps, STEPS_OF_TURN)


def refuse_traced(who: str, *values: Any) -> None:
    """Refuse to compile and train inside a function that JAX traces.

    Programs are handed to threads, which know nothing of a trace in this one.

    Args:
        who: What compiles by itself, as a sentence begins.
        *values: Values that may be traced, as under `jax.vmap`.

    Raises:
        ConfigError: with what to call instead.
    """
    # Inside `jax.jit` every computation is traced, whatever it is of.
    here = jax.numpy.zeros(()) + 1
    if any(isinstance(leaf, Tracer) for leaf in [here, *jax.tree.leaves(values)]):
        raise ConfigError(
            f"{who} compiles by itself, and cannot be called inside jax.jit, jax.vmap "
            "or jax.grad; call it outside, or give JAX purerl.make_train(config), "
            "which they transform."
        )


def read_by(
    function: Callable[..., Any], named: Mapping[str, Any], *inputs: Any
) -> frozenset[str]:
    """Return the names of the inputs that some output of a function depends on.

    The function is traced and not run. What cannot be looked into, such as a call of
    the host, counts as reading all of its inputs.

    Args:
        function: Function of a mapping and other inputs, which JAX can trace.
        named: Inputs by name, of which shapes and types are looked at.
        *inputs: The other inputs, arrays or their shapes.
    """
    shapes = shapes_of(named)
    program = jax.make_jaxpr(function)(shapes, *inputs)
    _, is_read = partial_eval.dce_jaxpr(
        program.jaxpr, [True] * len(program.jaxpr.outvars)
    )
    names = [path[0].key for path, _ in jax.tree.leaves_with_path(shapes)]
    # The inputs by name come first.
    return frozenset(name for name, read in zip(names, is_read, strict=False) if read)


def shapes_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return numbers by name as the shapes and types that they have in a program."""
    return {name: jax.tree.map(shape_of, value) for name, value in values.items()}


def shape_of(value: Any) -> jax.ShapeDtypeStruct:
    """Return the shape and type that a number has in a program."""
    return jax.ShapeDtypeStruct(np.shape(value), jnp.result_type(value))
