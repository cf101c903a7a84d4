"""Where a search's randomness comes from: one seed, and numbers that name its use.

A search with a seed draws from `key(seed)`: `fold_in(key, m)` is member `m`'s own, and
the far end of `fold_in`'s 32 bits, which no member reaches, holds the rest.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl.scale.host import HostKey, is_host_key
from purerl.types import Array, PyTree

_JUDGE = 2**32 - 3
_CHILD = 2**32 - 4
_INSIDE = 2**32 - 5


def member_keys(seeds: tuple[int, ...], size: int) -> Array:
    """Keys `[S * size]` of the members of every search, the members fastest."""

    def of_search(seed: Array) -> Array:
        return jax.vmap(lambda m: jax.random.fold_in(jax.random.key(seed), m))(
            jnp.arange(size, dtype=jnp.uint32)
        )

    return jax.vmap(of_search)(jnp.asarray(seeds, jnp.uint32)).reshape(-1)


def judge_keys(seeds: np.ndarray, mark: int) -> Array:
    """Keys `[N]` of the evaluations at a mark: one for all members of a search.

    Common episodes: what tells two members apart is the members.
    """

    def one(seed: Array) -> Array:
        key = jax.random.fold_in(jax.random.key(seed), jnp.uint32(_JUDGE))
        return jax.random.fold_in(key, mark)

    return jax.vmap(one)(jnp.asarray(seeds, jnp.uint32))


def child_keys(seeds: np.ndarray, mark: int, members: np.ndarray) -> Array:
    """Keys `[N]` of members that go on as copies of others after a mark."""

    def one(seed: Array, member: Array) -> Array:
        key = jax.random.fold_in(jax.random.key(seed), jnp.uint32(_CHILD))
        return jax.random.fold_in(jax.random.fold_in(key, mark), member)

    return jax.vmap(one)(
        jnp.asarray(seeds, jnp.uint32), jnp.asarray(members, jnp.uint32)
    )


def renew(states: PyTree, renewed: np.ndarray, keys: Array) -> PyTree:
    """States on the host with fresh keys for some members.

    Everything an agent draws comes from `state.key`. An environment of somebody else's
    may keep keys in its own state: typed ones are replaced as well. (Plain numbers that
    such an environment uses as a key cannot be told from others. Parent and child then
    share the environment's noise, but act differently from the first step on.)

    Args:
        states: leaves `[N, ...]`, with keys as `HostKey`.
        renewed: `[N]` bool.
        keys: `[N]`; those of other members are not used.
    """
    leaves, structure = jax.tree.flatten(states, is_leaf=is_host_key)
    own = jax.tree.leaves(states.key, is_leaf=is_host_key)[0]
    fresh: list[Any] = []
    for number, leaf in enumerate(leaves):
        if not is_host_key(leaf):
            fresh.append(leaf)
        elif leaf is own:
            fresh.append(_put(leaf, renewed, np.asarray(jax.random.key_data(keys))))
        else:
            fresh.append(_put(leaf, renewed, _inner(keys, leaf, number)))
    return jax.tree.unflatten(structure, fresh)


def _put(leaf: HostKey, renewed: np.ndarray, data: np.ndarray) -> HostKey:
    mask = renewed.reshape(-1, *[1] * (leaf.data.ndim - 1))
    return HostKey(np.where(mask, data, leaf.data), leaf.impl)


def _inner(keys: Array, leaf: HostKey, number: int) -> np.ndarray:
    """Key data of a leaf `[N, ..., words]` inside the environments' states."""
    shape = leaf.data.shape[1:-1]

    def one(key: Array) -> Array:
        key = jax.random.fold_in(key, jnp.uint32(_INSIDE - number))
        return jax.random.split(key, shape)

    return np.asarray(jax.random.key_data(jax.vmap(one)(keys)))
