"""Fresh random keys for copies, so that they do not repeat what the original does."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl.scale.host import HostKey, is_host_key
from purerl.types import Array, PyTree

# What to fold into a key for those inside an environment's state: the number of the
# leaf is subtracted. No number of a member is as large.
_INSIDE = 2**32 - 5


def rekey(states: PyTree, is_copy: np.ndarray, keys: Array) -> PyTree:
    """Return states on the host with fresh keys for members that are copies of others.

    Everything an agent draws comes from `state.key`. An environment of somebody else's
    may keep keys in its own state: typed ones are replaced as well. (Plain numbers that
    such an environment uses as a key cannot be told from others. Parent and child then
    share the environment's noise, but act differently from the first step on.)

    Args:
        states: States of all members, leaves `[N, ...]`, with keys as `HostKey`.
        is_copy: Whether each member gets a fresh key, `[N]` bool.
        keys: Fresh keys `[N]`; those of other members are not used.
    """
    leaves, structure = jax.tree.flatten(states, is_leaf=is_host_key)
    agent_key = jax.tree.leaves(states.key, is_leaf=is_host_key)[0]
    fresh: list[Any] = []
    for number, leaf in enumerate(leaves):
        if not is_host_key(leaf):
            fresh.append(leaf)
        elif leaf is agent_key:
            fresh.append(_put(leaf, is_copy, np.asarray(jax.random.key_data(keys))))
        else:
            fresh.append(_put(leaf, is_copy, _inner(keys, leaf, number)))
    return jax.tree.unflatten(structure, fresh)


def _put(leaf: HostKey, is_copy: np.ndarray, data: np.ndarray) -> HostKey:
    mask = is_copy.reshape(-1, *[1] * (leaf.data.ndim - 1))
    return HostKey(np.where(mask, data, leaf.data), leaf.impl)


def _inner(keys: Array, leaf: HostKey, number: int) -> np.ndarray:
    """Key data of a leaf `[N, ..., words]` inside the environments' states."""
    shape = leaf.data.shape[1:-1]

    def inner_key(key: Array) -> Array:
        key = jax.random.fold_in(key, jnp.uint32(_INSIDE - number))
        return jax.random.split(key, shape)

    return np.asarray(jax.random.key_data(jax.vmap(inner_key)(keys)))
