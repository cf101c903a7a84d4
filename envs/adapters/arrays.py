"""From another package's spaces, states and numbers to those of this one."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ..spaces import Box, Discrete, Space


def as_space(space: Any, field: str = "space") -> Space:
    """Convert a space with `n`, or with `low`, `high` and `shape`, into ours.

    Args:
        space: Space of any of the known packages.
        field: Name that error messages give to it.

    Raises:
        ValueError: it is of another kind, such as a dictionary of spaces.
    """
    if isinstance(space, Space):
        return space
    if hasattr(space, "n"):
        return Discrete(int(space.n))
    if hasattr(space, "low") and hasattr(space, "high"):
        shape = tuple(int(size) for size in space.shape)
        low, high = (_fit(bound, shape) for bound in (space.low, space.high))
        return Box(low, high, shape, space.dtype)
    raise ValueError(
        f"{field} is {space!r}, which is neither discrete nor a box: wrap the "
        "environment so that it is one of them, for instance by flattening."
    )


def as_arrays(tree: Any) -> Any:
    """Turn every leaf, Python numbers included, into an array of a strong type."""
    return jax.tree.map(_strong, tree)


def cast_like(tree: Any, like: Any) -> Any:
    """Give every leaf the dtype of its counterpart, so that a scan can carry it."""
    return jax.tree.map(lambda x, y: _strong(x, jnp.result_type(y)), tree, like)


def _strong(x: Any, dtype: Any = None) -> jax.Array:
    x = jnp.asarray(x)
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return x
    return jax.lax.convert_element_type(x, x.dtype if dtype is None else dtype)


def _fit(bound: Any, shape: tuple[int, ...]) -> Any:
    """Reduce a bound of one element to a scalar; others must have the shape."""
    if np.shape(bound) == shape or isinstance(bound, Tracer):
        return bound
    return np.asarray(bound).reshape(()) if np.size(bound) == 1 else bound
