"""The tools of the checks of environments and of algorithms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


class Counted:
    """A jitted function that counts how often it is traced.

    Args:
        fn: Function of arrays, which is jitted.
    """

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.traces = 0

        def counted(*args: Any) -> Any:
            self.traces += 1
            return fn(*args)

        self._jitted = jax.jit(counted)

    def __call__(self, *args: Any) -> Any:
        """Call the function, which is traced where the shapes are new."""
        return self._jitted(*args)


def signature(leaf: jax.Array) -> str:
    """Return the dtype and the shape of an array, such as `float32[4]`."""
    return f"{leaf.dtype}{list(leaf.shape)}"


def is_float(leaf: Any) -> bool:
    """Return whether an array or a number is a floating-point one."""
    return jnp.issubdtype(jnp.result_type(leaf), jnp.floating)


def is_equal(first: jax.Array, second: jax.Array) -> bool:
    """Return whether two arrays, of numbers or of random keys, are equal.

    Args:
        first: The one array; a NaN equals another.
        second: The other array.
    """
    if jnp.issubdtype(first.dtype, jax.dtypes.prng_key):
        first, second = jax.random.key_data(first), jax.random.key_data(second)
    one, two = np.asarray(first), np.asarray(second)
    return bool(np.array_equal(one, two, equal_nan=is_float(first)))
