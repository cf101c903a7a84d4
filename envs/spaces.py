"""Action and observation spaces: what an environment accepts and what it returns.

A member of `Discrete`, `Box`, `MultiDiscrete` or `MultiBinary` is one array. A member
of `Dict` or `Tuple` is a pytree of members of its parts, which may be a `Dict` or a
`Tuple` again. Attribute names are those of gymnax and Gymnasium (`n`, `nvec`, `low`,
`high`, `spaces`, `shape`, `dtype`), so that code which reads a space works on any
package's.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from .options import whole_number

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


class _Choices(Space):
    """Integers, each of which is one of so many."""

    dtype = np.dtype(np.int32)
    _sizes: Any

    def sample(self, key: jax.Array) -> jax.Array:
        """Draw uniformly, int32 of `shape`; the key is consumed."""
        return jax.random.randint(key, self.shape, 0, self._sizes, dtype=jnp.int32)

    def contains(self, x: Any) -> jax.Array:
        """Return whether `x` is an integer array of `shape` with members only."""
        x = jnp.asarray(x)
        if x.shape != self.shape or not jnp.issubdtype(x.dtype, jnp.integer):
            return jnp.asarray(False)
        return jnp.all((x >= 0) & (x < self._sizes))


class Discrete(_Choices):
    """The integers `0 .. n-1`.

    Attributes:
        n: Number of members.
        shape: Shape of a value, always `()`.
        dtype: Type of a value, int32.
    """

    shape = ()

    def __init__(self, n: int) -> None:
        """Make the space of `n` integers.

        Raises:
            ValueError: `n` is no whole number, or not positive.
        """
        self.n = self._sizes = whole_number("n", n, least=1)

    def __repr__(self) -> str:
        """Show the size."""
        return f"Discrete({self.n})"


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
        known = not any(isinstance(x, Tracer) for x in (self.low, self.high))
        if known and not np.all(self.low <= self.high):
            raise ValueError(
                f"low must not be greater than high, got {_brief(self.low)} and "
                f"{_brief(self.high)}."
            )

    def sample(self, key: jax.Array) -> jax.Array:
        """Draw uniformly, or from a clipped normal where there are no two bounds.

        A bound beyond 1e30 is none: see `without_far_ends`. The key is consumed.
        """
        if self.dtype.kind in "iub":
            kind = np.uint32 if self.dtype.kind == "u" else np.int32
            ends = np.iinfo(kind).min, np.iinfo(kind).max
            low, high = (
                b if isinstance(b, Tracer) else np.clip(b.astype(float), *ends)
                for b in (self.low, self.high)
            )
            # One more than the largest number of 32 bits is none.
            top = jnp.minimum(high.astype(kind), kind(ends[1] - 1)) + kind(1)
            drawn = jax.random.randint(key, self.shape, low.astype(kind), top, kind)
            return drawn.astype(self.dtype)
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
    """A bound as an array of the space's shape and dtype, which must hold it."""
    if np.shape(value) not in ((), shape):
        raise ValueError(
            f"{name} has shape {np.shape(value)}, but the space has shape {shape}."
        )
    if isinstance(value, Tracer):
        return jnp.broadcast_to(value, shape).astype(dtype)
    try:
        with np.errstate(all="ignore"):
            kept = np.asarray(value).astype(dtype)
    except (TypeError, ValueError):
        kept = np.asarray(np.nan)
    is_whole = dtype.kind in "iub"
    if np.isnan(kept).any() or (is_whole and not np.array_equal(kept, value)):
        raise ValueError(
            f"{name} is {value!r}, expected a number that {dtype.name} holds."
        )
    return np.broadcast_to(kept, shape)


def _brief(bound: Any) -> str:
    if isinstance(bound, Tracer):
        return str(bound)
    values = np.unique(bound)
    if len(values) == 1:
        return f"{values[0]:g}"
    return np.array2string(np.asarray(bound), separator=", ", threshold=6)


class MultiDiscrete(_Choices):
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
        is_whole = sizes.dtype.kind in "iu" and sizes.ndim and sizes.size
        if not is_whole or np.any(sizes < 1):
            raise ValueError(f"nvec must be positive whole numbers, got {nvec!r}.")
        self.nvec = self._sizes = sizes.astype(np.int32)
        self.shape = sizes.shape

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

    dtype = np.dtype(np.int8)

    def __init__(self, n: int | tuple[int, ...]) -> None:
        """Make the space of `n` zeros and ones, or of arrays of that shape.

        Raises:
            ValueError: there is no component.
        """
        shape = (n,) if isinstance(n, int | np.integer) else tuple(n)
        if not shape or min(shape) < 1:
            raise ValueError(f"n must be a positive whole number or more, got {n!r}.")
        self.shape = tuple(int(size) for size in shape)
        self.bits = int(np.prod(self.shape))

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


class _Several(Space):
    """A space of pytrees, with a space for every part; see `Dict` and `Tuple`.

    Attributes:
        spaces: Space of each part.
    """

    spaces: Any

    def _each(self, make: Callable[[Any], Any]) -> Any:
        """What a function makes of each part's space, in the form of a member."""
        if isinstance(self.spaces, dict):
            return {key: make(space) for key, space in self.spaces.items()}
        return tuple(map(make, self.spaces))

    @property
    def shape(self) -> Any:
        """Shape of each part."""
        return self._each(lambda space: space.shape)

    @property
    def dtype(self) -> Any:
        """Type of each part."""
        return self._each(lambda space: space.dtype)

    def sample(self, key: jax.Array) -> Any:
        """Draw every part by itself; the key is consumed."""
        keys = iter(jax.random.split(key, len(self.spaces)))
        return self._each(lambda space: space.sample(next(keys)))

    def __getitem__(self, key: Any) -> Any:
        """Return the space of a part."""
        return self.spaces[key]


class Dict(_Several):
    """Dictionaries with a member of one space under every key.

    Keys are kept in sorted order, which is the order of JAX's pytrees.

    Attributes:
        spaces: Space of each key.
    """

    def __init__(self, spaces: Mapping[str, Any]) -> None:
        """Make the space from the space of each key.

        Raises:
            ValueError: there is no key.
        """
        if not spaces:
            raise ValueError("a Dict needs at least one key.")
        self.spaces: dict[str, Any] = {key: spaces[key] for key in sorted(spaces)}

    def contains(self, x: Any) -> jax.Array:
        """Return whether `x` is a mapping with the same keys, and members under all."""
        if not isinstance(x, Mapping) or set(x) != set(self.spaces):
            return jnp.asarray(False)
        return _all(space.contains(x[key]) for key, space in self.spaces.items())

    def __repr__(self) -> str:
        """Show keys and spaces."""
        inner = ", ".join(f"{key!r}: {space!r}" for key, space in self.spaces.items())
        return f"Dict({{{inner}}})"


class Tuple(_Several):
    """Tuples with a member of one space in every place.

    Attributes:
        spaces: Space of each place.
    """

    def __init__(self, spaces: Iterable[Any]) -> None:
        """Make the space from the space of each place.

        Raises:
            ValueError: there is no place.
        """
        self.spaces: tuple[Any, ...] = tuple(spaces)
        if not self.spaces:
            raise ValueError("a Tuple needs at least one space, got ().")

    def contains(self, x: Any) -> jax.Array:
        """Return whether `x` is a tuple of the same length, of members."""
        if not isinstance(x, tuple) or len(x) != len(self.spaces):
            return jnp.asarray(False)
        pairs = zip(self.spaces, x, strict=True)
        return _all(space.contains(part) for space, part in pairs)

    def __len__(self) -> int:
        """Return the number of places."""
        return len(self.spaces)

    def __repr__(self) -> str:
        """Show the spaces."""
        return f"Tuple({', '.join(map(repr, self.spaces))})"


def _all(answers: Iterable[Any]) -> jax.Array:
    """Return whether all of some boolean scalars are true."""
    return jnp.all(jnp.stack([jnp.asarray(answer) for answer in answers]))


def num_choices(space: Any) -> int:
    """Return the number of choices, of all components together; 0 of other spaces."""
    if hasattr(space, "n"):
        return int(space.n)
    return int(np.sum(space.nvec)) if hasattr(space, "nvec") else 0


def zeros(space: Any) -> Any:
    """Return zeros in the place of every array of a member of a space."""
    if isinstance(space, _Several):
        return space._each(zeros)
    return jnp.zeros(space.shape, space.dtype)
