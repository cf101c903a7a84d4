"""Members, the agents that one program trains, their blocks, and keys of copies."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl.scale.devices import Worker
from purerl.scale.host import HostKey, is_host_key
from purerl.types import Array, Overrides, PyTree


class Members(NamedTuple):
    """Agents that one program trains.

    Attributes:
        keys: Random keys `[N]`, one per agent.
        overrides: Values of dynamic fields by name, leaves `[N, ...]`.
    """

    keys: Array
    overrides: Overrides

    @property
    def size(self) -> int:
        """The number of members, N."""
        return self.keys.shape[0]

    def take(self, index: np.ndarray) -> "Members":
        """Return the members of some numbers, in their order."""
        return jax.tree.map(lambda x: x[index], self)

    def block(self, start: int, lanes: int) -> "Members":
        """Return `lanes` members from number `start` on, padded with the last one."""
        return self.lanes(np.arange(start, min(start + lanes, self.size)), lanes)

    def lanes(self, numbers: np.ndarray, lanes: int) -> "Members":
        """Return at most `lanes` members as a block, filled up with the last one."""
        index = fill(numbers, lanes)
        return jax.tree.map(lambda x: jnp.asarray(x)[index], self)


def every(overrides: Overrides, num_points: int, seeds: Sequence[int]) -> Members:
    """Return every point with every seed, the seeds fastest.

    Args:
        overrides: Values of the points, leaves `[P, ...]`.
        num_points: The number of points, P.
        seeds: Seeds of the agents of each point; the key of a seed is `key(seed)`.
    """
    keys = jax.vmap(jax.random.key)(jnp.asarray(seeds, jnp.uint32))
    return crossed(keys, overrides, np.arange(num_points * len(seeds)))


def crossed(keys: Array, overrides: Overrides, rows: np.ndarray) -> Members:
    """Return some rows of every point with every key, the keys fastest.

    Args:
        keys: Keys `[R]`.
        overrides: Values of the points on the host, leaves `[P, ...]`.
        rows: Numbers of members: number `p * R + r` is point `p` with key `r`.
    """
    points, repeats = np.divmod(rows, keys.shape[0])
    return Members(
        keys[repeats], jax.tree.map(lambda x: np.asarray(x)[points], overrides)
    )


def fill(numbers: np.ndarray, lanes: int) -> np.ndarray:
    """Return numbers `[lanes]`: those given, then the last of them again."""
    return numbers[np.minimum(np.arange(lanes), len(numbers) - 1)]


class Block(NamedTuple):
    """The lanes that one call advances.

    Attributes:
        rows: Numbers of the members in it, ascending; lanes beyond them are copies of
            the last one.
        worker: The worker whose device holds its states.
    """

    rows: np.ndarray
    worker: Worker

    @property
    def size(self) -> int:
        """Members in it."""
        return len(self.rows)


def cut(num_members: int, lanes: int, workers: Sequence[Worker]) -> list[Block]:
    """Cut a population into blocks, handed to the workers in turn.

    Args:
        num_members: The number of members of the population.
        lanes: The width of a block, W.
        workers: The workers that hold the blocks.
    """
    return [
        Block(
            np.arange(start, min(start + lanes, num_members)),
            workers[number % len(workers)],
        )
        for number, start in enumerate(range(0, num_members, lanes))
    ]


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
