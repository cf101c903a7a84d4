"""The spaces of one number or one array: `Discrete` and `Box`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ..options import whole_number

# Beyond this a bound of numbers with a fraction means that there is none.
_FARTHEST = 1e30


class Space:
    """A set of values with a `shape`, a `dtype`, `sample` and `contains`.

    Attributes:
        shape: Shape of a member; of a `Dict` or a `Tuple` that of each part.
        dtype: Type of a member; of a `Dict` or a `Tuple` that of each part.
    """

    shape: Any
    dtype: Any

    def sample(self, key: jax.Array) -> jax.Array:
        """Draw one random member; the key is consumed."""
        raise NotImplementedError

    def contains(self, x: Any) -> jax.Array:
        """Return a boolean scalar: is `x` (one member, not a batch) in the space?"""
        raise NotImplementedError


class Discrete(Space):
    """The integers `0 .. n-1`.

    Attributes:
        n: Number of members.
        shape: Shape of a value, always `()`.
        dtype: Type of a value, int32.
    """

    def __init__(self, n: int) -> None:
        """Make the space of `n` integers.

        Raises:
            ValueError: `n` is no whole number, or not positive.
        """
        self.n = whole_number("n", n, least=1)
        self.shape = ()
        self.dtype = np.dtype(np.int32)

    def sample(self, key: jax.Array) -> jax.Array:
        """Draw uniformly, int32 `[]`; the key is consumed."""
        return jax.random.randint(key, (), 0, self.n, dtype=jnp.int32)

    def contains(self, x: Any) -> jax.Array:
        """Return whether `x` is an integer scalar in `0 .. n-1`."""
        x = jnp.asarray(x)
        if x.shape != () or not jnp.issubdtype(x.dtype, jnp.integer):
            return jnp.asarray(False)
        return (x >= 0) & (x < self.n)

    def __repr__(self) -> str:
        """Show the size."""
        return f"Discrete({self.n})"


def _draw_integers(
    key: jax.Array, low: Any, high: Any, shape: tuple[int, ...], dtype: np.dtype
) -> jax.Array:
    """Draw whole numbers uniformly, both ends among them, of all 32 bits at most.

    Args:
        key: Random key, consumed.
        low: Lower bound, a scalar or an array of `shape`.
        high: Upper bound, a scalar or an array of `shape`.
        shape: Shape of the draw.
        dtype: Type of the numbers, or of truth values.
    """
    # In unsigned words, which wrap around, `last - first` and `first + drawn` are right
    # also where a signed number would be too small for them.
    first, last = (
        jnp.asarray(b).astype(jnp.int32).astype(jnp.uint32) for b in (low, high)
    )
    most = last - first
    is_all = most == np.uint32(2**32 - 1)
    one_more = jnp.where(is_all, most, most + 1)
    drawn = jax.random.randint(key, shape, 0, one_more, jnp.uint32)
    every = jax.random.bits(key, shape, jnp.uint32)
    words = first + jnp.where(is_all, every, drawn)
    return words.astype(jnp.int32).astype(dtype)


class Box(Space):
    """Arrays of one shape and dtype, bounded element by element (ends included).

    Attributes:
        low: Lower bounds, an array of `shape`; may hold `-inf`.
        high: Upper bounds, an array of `shape`; may hold `inf`.
        shape: Shape of a member.
        dtype: Dtype of a member.
    """

    def __init__(
        self,
        low: Any,
        high: Any,
        shape: tuple[int, ...] | None = None,
        dtype: Any = np.float32,
    ) -> None:
        """Make the space from scalar or array bounds.

        Args:
            low: Lower bound, a scalar or an array of `shape`. May be traced.
            high: Upper bound, a scalar or an array of `shape`. May be traced.
            shape: Shape of a member; that of the bounds where it is not given.
            dtype: Dtype of a member.

        Raises:
            ValueError: a bound has another shape than `shape`, is NaN, or cannot be
                kept in the dtype, or a lower one is above the upper one.
        """
        self.shape = tuple(shape) if shape is not None else np.shape(low)
        self.dtype = np.dtype(dtype)
        self.low = _bound("low", low, self.shape, self.dtype)
        self.high = _bound("high", high, self.shape, self.dtype)
        _check_order(self.low, self.high)

    def sample(self, key: jax.Array) -> jax.Array:
        """Draw uniformly, or from a clipped normal where there are no two bounds.

        A bound beyond 1e30 is none: see `without_far_ends`. Integer boxes are drawn
        uniformly over `low .. high`. The key is consumed.
        """
        if np.issubdtype(self.dtype, np.integer) or self.dtype == np.bool_:
            return _draw_integers(key, self.low, self.high, self.shape, self.dtype)
        low, high = (without_far_ends(jnp.asarray(b)) for b in (self.low, self.high))
        bounded = jnp.isfinite(low) & jnp.isfinite(high)
        uniform = jax.random.uniform(
            key,
            self.shape,
            minval=jnp.where(bounded, low, 0.0),
            maxval=jnp.where(bounded, high, 1.0),
        )
        normal = jnp.clip(jax.random.normal(key, self.shape), low, high)
        return jnp.where(bounded, uniform, normal).astype(self.dtype)

    def contains(self, x: Any) -> jax.Array:
        """Return whether `x` has the shape and kind of dtype, and is in bounds."""
        x = jnp.asarray(x)
        if x.shape != self.shape or x.dtype.kind != self.dtype.kind:
            return jnp.asarray(False)
        return jnp.all((x >= self.low) & (x <= self.high))

    def __repr__(self) -> str:
        """Show bounds (one number where they are all equal), shape and dtype."""
        low, high = _brief(self.low), _brief(self.high)
        return f"Box({low}, {high}, {self.shape}, {self.dtype.name})"


def bounds(*values: Any) -> Any:
    """Stack scalars into one bound `[len(values)]`, float32.

    Stays in numpy unless a value is traced, so that a space made while a program is
    being traced still has concrete bounds where its parameters are concrete.
    """
    if any(isinstance(v, Tracer) for v in values):
        return jnp.stack([jnp.asarray(v, jnp.float32) for v in values])
    return np.asarray([float(v) for v in values], np.float32)


def without_far_ends(bound: Any) -> Any:
    """Return a bound with infinities where it is beyond 1e30, which means none.

    Many environments write float32's largest number for "no bound". Nothing can be
    scaled to it: `high - low` is infinite.

    Args:
        bound: Lower or upper bounds, a number or an array; may be traced.
    """
    xp: Any = jnp if isinstance(bound, jax.Array) else np
    return xp.where(xp.abs(bound) > _FARTHEST, xp.copysign(xp.inf, bound), bound)


def _bound(name: str, value: Any, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    if np.shape(value) not in ((), shape):
        raise ValueError(
            f"{name} has shape {np.shape(value)}, but the space has shape {shape}: "
            "give a scalar or an array of the space's shape."
        )
    if isinstance(value, Tracer):
        return jnp.broadcast_to(value, shape).astype(dtype)
    return np.broadcast_to(_numbers(name, value, dtype), shape)


def _numbers(name: str, value: Any, dtype: np.dtype) -> np.ndarray:
    """A bound as an array of the space's dtype, which must hold it."""
    given = np.asarray(value)
    try:
        with np.errstate(all="ignore"):
            kept = given.astype(dtype)
    except (TypeError, ValueError):
        kept = np.asarray(np.nan)
    is_whole = dtype.kind in "iub"
    if np.isnan(kept).any() or (is_whole and not np.array_equal(kept, given)):
        raise ValueError(
            f"{name} is {value!r}, expected a number that {dtype.name} holds: change "
            "the bound, or the space's dtype."
        )
    return kept


def _check_order(low: Any, high: Any) -> None:
    """Refuse a space without members, as far as its bounds are known."""
    if isinstance(low, Tracer) or isinstance(high, Tracer) or np.all(low <= high):
        return
    raise ValueError(
        f"low must not be greater than high, got {_brief(low)} and {_brief(high)}: "
        "exchange the two."
    )


def _brief(bound: Any) -> str:
    if isinstance(bound, Tracer):
        return str(bound)
    values = np.unique(bound)
    if len(values) == 1:
        return f"{values[0]:g}"
    return np.array2string(np.asarray(bound), separator=", ", threshold=6)
