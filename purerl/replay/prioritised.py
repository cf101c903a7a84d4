"""Prioritised replay, proportional (Schaul et al. 2016, arXiv:1511.05952).

Item `i` of the replay buffer is drawn with probability

    P(i) = p_i / sum_j p_j,    p_i = (|TD error of i| + eps)^alpha

(section 3.3) and its gradient weighed by `w_i = (N P(i))^-beta / max_j w_j` (section
3.4). An item that was never drawn has the largest `p` so far, which starts at 1
(algorithm 1).

The `p` are the leaves of a sum tree in which every node has eight children: three
times fewer levels than with two, and a level costs a gather and a scatter whatever its
width. A node is always summed anew from its children, so rounding errors do not add
up, and an item drawn twice in a batch is written twice to the same effect.

The tree knows slots, as `uniform` does: item number `i` lies in slot `i % C`, and the
caller says how many items were added.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from purerl.replay import uniform as replay
from purerl.types import Array

CHILDREN = 8
"""Of a node: the fastest of 2, 4, 8, 16, 32, 64 on a CPU for 10^4 and 10^6 items."""

SMALLEST, LARGEST = 1e-30, 1e30
"""What `p` is clipped to: an item that is there can be drawn, and the sum is finite."""


class Priorities(NamedTuple):
    """A sum tree over the slots of a buffer.

    Attributes:
        levels: `[R, 8]` float32 each, from the leaves (R * 8 >= C, the rest zero) to
            the root's children (R = 1); entry `k` of a level, counted through its rows,
            is the sum of row `k` of the level before.
        largest: `[]` float32, the largest `p` so far, which new items get.
    """

    levels: tuple[Array, ...]
    largest: Array


class Sample(NamedTuple):
    """Items drawn by priority.

    Attributes:
        numbers: `[N]` uint32, numbers of the items.
        probability: `[N]` float32, that of one draw to fall on the item.
    """

    numbers: Array
    probability: Array


def grow(leaves: Array, largest: Array) -> Priorities:
    """Build the tree over leaves: bit for bit the one that `add` and `update` left.

    Leaves of zero, with 1 as the largest, are those of an empty buffer.

    Args:
        leaves: `[C]` float32, the `p` of every slot.
        largest: `[]` float32, the largest `p` so far.
    """
    levels, entries = [], leaves
    while True:
        rows = -(-entries.size // CHILDREN)
        entries = jnp.pad(entries, (0, rows * CHILDREN - entries.size))
        levels.append(entries.reshape(rows, CHILDREN))
        if rows == 1:
            return Priorities(tuple(levels), largest)
        entries = _running_sums(levels[-1])[..., -1]


def leaves_of(priorities: Priorities, capacity: int) -> Array:
    """Return the `p` of every slot, `[C]`: all that `grow` needs beside the largest."""
    return priorities.levels[0].reshape(-1)[:capacity]


def add(
    priorities: Priorities, added: Array, num: int, capacity: int, margin: int = 0
) -> Priorities:
    """Take account of `num` new items.

    With a margin, the newest items cannot be drawn (they lack the steps after them):
    an item gets its priority, the largest so far, when `margin` items follow it.

    Args:
        added: `[]` uint32, how many items were added before these.
        num: Number of the new items, at most C.
        margin: Number of items that must follow an item before it can be drawn, less
            than C; equal in every call.
    """
    # An item's age is the number of items that are newer. Those at the new end may lie
    # where an old item lay that could be drawn; those beyond C have just been replaced.
    incomplete = np.arange(min(num, margin))
    complete = np.arange(margin, min(margin + num, capacity))
    ages = np.concatenate([incomplete, complete]).astype(np.int32)
    after = added + jnp.uint32(num)
    newest = replay.slots_of(after - 1, capacity)
    slots = (newest - ages) % capacity
    is_there = ages.astype(np.uint32) < replay.size(after, capacity)
    values = jnp.where((ages >= margin) & is_there, priorities.largest, 0.0)
    return priorities._replace(levels=_set(priorities.levels, slots, values))


def sample(priorities: Priorities, bits: Array, added: Array, capacity: int) -> Sample:
    """Draw items in proportion to their priorities, with replacement.

    Stratified (section 3.3): draw `k` of N falls into the k-th of N equal shares of the
    sum, so the batch comes in the order of slots. Positions are multiples of about
    2^-24 of the sum, so that the chance of an item with the share p is p to within a
    share of 2^-24 / p: 6% for one of a million equal items. Which way it is off depends
    on what lies before the item, which changes with every update.

    Args:
        priorities: Priorities, of which at least one is positive.
        bits: `[N]` uint32, uniform random bits.
        added: `[]` uint32, how many items were added.
    """
    total = _running_sums(priorities.levels[-1][0])[-1]
    uniform = (bits >> 8).astype(jnp.float32) * 2.0**-24
    num = bits.shape[0]
    position = (jnp.arange(num) + uniform) * (total / num)
    node = jnp.zeros(num, jnp.int32)
    value = position
    for level in reversed(priorities.levels):
        row = level.at[node].get(mode="promise_in_bounds")
        child, position, value = _descend(row, position)
        node = node * CHILDREN + child
    return Sample(replay.numbers_in(node, added, capacity), value / total)


def update(
    priorities: Priorities,
    numbers: Array,
    td_error: Array,
    capacity: int,
    *,
    exponent: Array | float = 0.6,
    eps: float = 1e-6,
) -> Priorities:
    """Give items the priority of their TD error.

    Args:
        numbers: `[N]` uint32, numbers of items that could be drawn, duplicates among
            them.
        td_error: `[N]` TD errors of either sign; of an item's duplicates the largest
            counts.
        exponent: Exponent alpha; 0 makes all items equal. 0.6 is the paper's (section
            4).
        eps: Number that is added to every absolute error, so that items without one can
            be drawn; that of OpenAI Baselines.
    """
    p = jnp.power(jnp.abs(td_error).astype(jnp.float32) + eps, exponent)
    p = jnp.clip(p, SMALLEST, LARGEST)
    levels = _set(priorities.levels, replay.slots_of(numbers, capacity), p)
    return Priorities(levels, jnp.maximum(priorities.largest, p.max()))


def importance_weights(probability: Array, exponent: Array | float) -> Array:
    """Return `(N P)^-beta` divided by the largest of the batch, `[N]`, in (0, 1].

    The number of items cancels, and so does the sum of priorities: what remains is
    `(P / min P)^-beta`.

    Args:
        probability: `[N]` probabilities of the items, from a `Sample`.
        exponent: Exponent beta; 1 corrects the bias of the draw in full, 0 not at all.
    """
    return jnp.power(probability / probability.min(), -exponent)


def _set(levels: tuple[Array, ...], slots: Array, values: Array) -> tuple[Array, ...]:
    """Write leaves and sum their ancestors anew, level by level."""
    row, child = slots // CHILDREN, slots % CHILDREN
    # Duplicates get the largest priority, in whatever order a device writes them.
    leaves = levels[0].at[row, child].set(0.0, mode="promise_in_bounds")
    leaves = leaves.at[row, child].max(values, mode="promise_in_bounds")
    new = [leaves]
    for level in levels[1:]:
        # The sums are read after all writes below, so that duplicates have the same
        # sum.
        sums = _running_sums(new[-1].at[row].get(mode="promise_in_bounds"))[..., -1]
        row, child = row // CHILDREN, row % CHILDREN
        new.append(level.at[row, child].set(sums, mode="promise_in_bounds"))
    return tuple(new)


def _descend(row: Array, position: Array) -> tuple[Array, Array, Array]:
    """Find the child in whose share of the row a position lies.

    Args:
        row: `[N, 8]`, children of a node each.
        position: `[N]` positions from the beginning of the row, not negative.

    Returns:
        The child, int32 `[N]`; the position from its beginning; its value. It is never
        a child of value 0 while the row's sum is positive: a running sum that exceeds
        the position for the first time has just grown.
    """
    ends = _running_sums(row)
    # Rounding further up may have put the position past the end.
    position = jnp.minimum(position, jnp.nextafter(ends[:, -1], jnp.float32(0)))
    is_before = ends <= position[:, None]
    child = jnp.minimum(is_before.sum(-1, dtype=jnp.int32), CHILDREN - 1)
    start = jnp.where(is_before, ends, 0.0).max(-1)
    is_child = jnp.arange(CHILDREN)[None] == child[:, None]
    value = jnp.where(is_child, row, 0.0).sum(-1)
    return child, position - start, value


def _running_sums(row: Array) -> Array:
    """From left to right along the last axis; never decreasing, unlike a scan's."""
    sums = [row[..., 0]]
    for child in range(1, CHILDREN):
        sums.append(sums[-1] + row[..., child])
    return jnp.stack(sums, -1)
