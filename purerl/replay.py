"""Replay: what was seen, kept in arrays, added to and sampled by pure functions.

The buffer is a pytree with leaves `[C, ...]`, each in the dtype that it was given (a
byte stays a byte), and holds no counter. Item number `i` (counted from the first ever
added) lies in slot `i % C`, so where the next one goes, and which are there to sample,
follows from how many were added: one number that all vmapped agents share, and that a
program computes from its update counter.

Items are added in rounds, every environment's step one after another, so item `i + B`
is the next step of the environment of item `i`, whatever the capacity.
"""

import jax
import jax.numpy as jnp

from purerl.types import Array, PyTree


def init(example: PyTree, capacity: int) -> PyTree:
    """An empty buffer.

    Args:
        example: one item (arrays or their shapes).
        capacity: C, the most items kept.
    """
    return jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape), x.dtype), example)


def capacity_of(buffer: PyTree) -> int:
    """C."""
    return jax.tree.leaves(buffer)[0].shape[0]


def add(buffer: PyTree, items: PyTree, added: Array) -> PyTree:
    """Put items in the place of the oldest.

    Args:
        buffer: leaves `[C, ...]`.
        items: leaves `[N, ...]` with `N <= C`.
        added: uint32 `[]`, how many were added before.
    """
    capacity = capacity_of(buffer)
    num = jax.tree.leaves(items)[0].shape[0]
    start = (added % jnp.uint32(capacity)).astype(jnp.int32)
    if capacity % num == 0:
        # Every addition starts at a multiple of N, so that none wraps around.
        return jax.tree.map(
            lambda all, new: jax.lax.dynamic_update_slice_in_dim(all, new, start, 0),
            buffer,
            items,
        )
    slots = (start + jnp.arange(num)) % capacity
    return jax.tree.map(lambda all, new: all.at[slots].set(new), buffer, items)


def size(added: Array, capacity: int) -> Array:
    """How many items there are to sample, uint32 `[]`."""
    return jnp.minimum(added, jnp.uint32(capacity))


def sample(bits: Array, added: Array, capacity: int, margin: int = 0) -> Array:
    """Numbers of random items, uniform with replacement.

    Args:
        bits: uint32 `[...]`, uniform.
        added: uint32 `[]`, how many were added; more than `margin`.
        capacity: C.
        margin: of the newest items, which are left out.

    Returns:
        Item numbers, uint32 `[...]`; the modulus favours none by more than C / 2^32.
    """
    there = size(added, capacity)
    oldest = added - there
    return oldest + bits % (there - jnp.uint32(margin))


def gather(buffer: PyTree, numbers: Array) -> PyTree:
    """Items by number, leaves `[*numbers.shape, ...]`; they must still be there."""
    slots = (numbers % jnp.uint32(capacity_of(buffer))).astype(jnp.int32)
    return jax.tree.map(lambda x: x.at[slots].get(mode="promise_in_bounds"), buffer)


def num_bytes(example: PyTree, capacity: int) -> int:
    """Memory of a buffer of `capacity` such items."""
    one = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(example))
    return capacity * one
