"""The spaces of several choices at once: `MultiDiscrete` and `MultiBinary`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .basic import Space


class MultiDiscrete(Space):
    """Arrays of integers, the i-th of which is in `0 .. nvec[i]-1`.

    Attributes:
        nvec: Number of members of each component, an int array of `shape`.
        shape: Shape of a value, that of `nvec`.
        dtype: Type of a value, int32.
    """

    def __init__(self, nvec: Any) -> None:
        """Make the space from the number of members of each component.

        Raises:
            ValueError: `nvec` is empty, or holds what is no positive whole number.
        """
        sizes = np.asarray(nvec)
        is_whole = sizes.dtype.kind in "iu"
        if not is_whole or sizes.ndim == 0 or sizes.size == 0 or sizes.min() < 1:
            raise ValueError(
                f"nvec must be an array of positive whole numbers, got {nvec!r}; for "
                "example [3, 2]."
            )
        self.nvec = sizes.astype(np.int32)
        self.shape = sizes.shape
        self.dtype = np.dtype(np.int32)

    def sample(self, key: jax.Array) -> jax.Array:
        """Draw uniformly, int32 of `shape`; the key is consumed."""
        return jax.random.randint(key, self.shape, 0, self.nvec, dtype=jnp.int32)

    def contains(self, x: Any) -> jax.Array:
        """Return whether `x` is an integer array of `shape` with members only."""
        x = jnp.asarray(x)
        if x.shape != self.shape or not jnp.issubdtype(x.dtype, jnp.integer):
            return jnp.asarray(False)
        return jnp.all((x >= 0) & (x < self.nvec))

    def __repr__(self) -> str:
        """Show the sizes."""
        return f"MultiDiscrete({self.nvec.tolist()})"


class MultiBinary(Space):
    """Arrays of zeros and ones.

    It has no attribute `n`, because code that reads a space takes that for the number
    of members of a `Discrete`.

    Attributes:
        bits: Number of components.
        shape: Shape of a value.
        dtype: Type of a value, int8.
    """

    def __init__(self, n: int | tuple[int, ...]) -> None:
        """Make the space of `n` zeros and ones, or of arrays of that shape.

        Raises:
            ValueError: there is no component.
        """
        shape = (n,) if isinstance(n, int | np.integer) else tuple(n)
        if not shape or min(shape) < 1:
            raise ValueError(
                f"n must be a positive whole number or a shape of such, got {n!r}."
            )
        self.shape = tuple(int(size) for size in shape)
        self.bits = int(np.prod(self.shape))
        self.dtype = np.dtype(np.int8)

    def sample(self, key: jax.Array) -> jax.Array:
        """Draw uniformly, int8 of `shape`; the key is consumed."""
        return jax.random.bernoulli(key, shape=self.shape).astype(jnp.int8)

    def contains(self, x: Any) -> jax.Array:
        """Return whether `x` is an integer or bool array of `shape`, of 0 and 1."""
        x = jnp.asarray(x)
        if x.shape != self.shape or x.dtype.kind not in "iub":
            return jnp.asarray(False)
        return jnp.all((x == 0) | (x == 1))

    def __repr__(self) -> str:
        """Show the number of components, or the shape."""
        return f"MultiBinary({self.bits if len(self.shape) == 1 else self.shape})"
