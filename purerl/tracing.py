"""The platform that a program is traced for, and who cannot be traced.

An accelerator with small networks spends its time on starting kernels, so there a
program is written so that it has few of them; a CPU would only have more to do.
"""

import contextlib
import math
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import jax
from jax.core import Tracer

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
