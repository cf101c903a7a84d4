"""The random keys of a search: one seed, and numbers that name its use.

A search with a seed draws from `key(seed)`: `fold_in(key, m)` is member `m`'s own, and
the far end of `fold_in`'s 32 bits, which no member reaches, holds the rest.
"""

import jax
import jax.numpy as jnp
import numpy as np

from purerl.types import Array

_EVALUATION = 2**32 - 3
_CHILD = 2**32 - 4
# 2**32 - 5 and below: see `purerl.execution.members`.
HELD_OUT = 2**32 - 1
"""A milestone that no search reaches: its episodes evaluate what a search has found."""


def member_keys(seeds: tuple[int, ...], size: int) -> Array:
    """Return keys `[S * size]` of the members of every search, the members fastest."""

    def of_search(seed: Array) -> Array:
        return jax.vmap(lambda m: jax.random.fold_in(jax.random.key(seed), m))(
            jnp.arange(size, dtype=jnp.uint32)
        )

    return jax.vmap(of_search)(jnp.asarray(seeds, jnp.uint32)).reshape(-1)


def evaluation_keys(seeds: np.ndarray, milestone: int) -> Array:
    """Return keys `[N]` of the evaluations at a milestone, one for each search.

    All members of a search play the same episodes, so that only the members differ.
    """

    def one(seed: Array) -> Array:
        key = jax.random.fold_in(jax.random.key(seed), jnp.uint32(_EVALUATION))
        return jax.random.fold_in(key, jnp.uint32(milestone))

    return jax.vmap(one)(jnp.asarray(seeds, jnp.uint32))


def child_keys(seeds: np.ndarray, milestone: int, members: np.ndarray) -> Array:
    """Return keys `[N]` of members that go on as copies of others after a milestone.

    Args:
        seeds: The seed of each member's search, `[N]`.
        milestone: The number of the milestone.
        members: The number of each member in its search, `[N]`.
    """

    def one(seed: Array, member: Array) -> Array:
        key = jax.random.fold_in(jax.random.key(seed), jnp.uint32(_CHILD))
        return jax.random.fold_in(jax.random.fold_in(key, milestone), member)

    return jax.vmap(one)(
        jnp.asarray(seeds, jnp.uint32), jnp.asarray(members, jnp.uint32)
    )
