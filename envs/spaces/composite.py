"""The spaces of several parts: `Dict` and `Tuple`, which may hold one another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from .basic import Space


class Dict(Space):
    """Dictionaries with a member of one space under every key.

    Keys are kept in sorted order, which is the order of JAX's pytrees.

    Attributes:
        spaces: Space of each key.
    """

    def __init__(self, spaces: Mapping[str, Any]) -> None:
        """Make the space from the space of each key.

        Raises:
            ValueError: there is no key, or one that is no text.
        """
        odd = [key for key in spaces if not isinstance(key, str)]
        if not spaces or odd:
            raise ValueError(
                "a Dict needs at least one key, and keys that are text, got "
                f"{list(spaces)}."
            )
        self.spaces: dict[str, Any] = {key: spaces[key] for key in sorted(spaces)}

    @property
    def shape(self) -> dict[str, Any]:
        """Shape of each part."""
        return {key: space.shape for key, space in self.spaces.items()}

    @property
    def dtype(self) -> dict[str, Any]:
        """Type of each part."""
        return {key: space.dtype for key, space in self.spaces.items()}

    def sample(self, key: jax.Array) -> dict[str, Any]:
        """Draw every part by itself; the key is consumed."""
        keys = jax.random.split(key, len(self.spaces))
        pairs = zip(self.spaces.items(), keys, strict=True)
        return {name: space.sample(part) for (name, space), part in pairs}

    def contains(self, x: Any) -> jax.Array:
        """Return whether `x` is a mapping with the same keys, and members under all."""
        if not isinstance(x, Mapping) or set(x) != set(self.spaces):
            return jnp.asarray(False)
        return _all(space.contains(x[key]) for key, space in self.spaces.items())

    def __getitem__(self, key: str) -> Any:
        """Return the space of a key."""
        return self.spaces[key]

    def __repr__(self) -> str:
        """Show keys and spaces."""
        inner = ", ".join(f"{key!r}: {space!r}" for key, space in self.spaces.items())
        return f"Dict({{{inner}}})"


class Tuple(Space):
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

    @property
    def shape(self) -> tuple[Any, ...]:
        """Shape of each part."""
        return tuple(space.shape for space in self.spaces)

    @property
    def dtype(self) -> tuple[Any, ...]:
        """Type of each part."""
        return tuple(space.dtype for space in self.spaces)

    def sample(self, key: jax.Array) -> tuple[Any, ...]:
        """Draw every part by itself; the key is consumed."""
        keys = jax.random.split(key, len(self.spaces))
        pairs = zip(self.spaces, keys, strict=True)
        return tuple(space.sample(part) for space, part in pairs)

    def contains(self, x: Any) -> jax.Array:
        """Return whether `x` is a tuple of the same length, of members."""
        if not isinstance(x, tuple) or len(x) != len(self.spaces):
            return jnp.asarray(False)
        pairs = zip(self.spaces, x, strict=True)
        return _all(space.contains(part) for space, part in pairs)

    def __getitem__(self, place: int) -> Any:
        """Return the space of a place."""
        return self.spaces[place]

    def __iter__(self) -> Iterator[Any]:
        """Go through the spaces of the places."""
        return iter(self.spaces)

    def __len__(self) -> int:
        """Return the number of places."""
        return len(self.spaces)

    def __repr__(self) -> str:
        """Show the spaces."""
        return f"Tuple({', '.join(map(repr, self.spaces))})"


def _all(answers: Iterable[Any]) -> jax.Array:
    """Return whether all of some boolean scalars are true."""
    return jnp.all(jnp.stack([jnp.asarray(answer) for answer in answers]))
