"""Replay: what was seen, kept in arrays, added to and sampled by pure functions.

The buffer is a pytree with leaves `[C, ...]`, each in the dtype that it was given (a
byte stays a byte), and holds no counter. Item number `i` (counted from the first ever
added) lies in slot `i % C`, so where the next one goes, and which are there to sample,
follows from how many were added: one number that all vmapped agents share, and that a
program computes from its update counter.

Items are added in rounds, every environment's step one after another, so item `i + B`
is the next step of the environment of item `i`, whatever the capacity. Where C is a
multiple of B, so that an environment's items lie in a column of `[C / B, B]` slots, a
buffer can be split by environments as everything else is (`by_env`).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from purerl.accelerator import rows
from purerl.types import Array, PyTree


def init(example: PyTree, capacity: int) -> PyTree:
    """Make an empty buffer.

    Args:
        example: One item (arrays or their shapes).
        capacity: C, the most items kept.
    """
    return jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape), x.dtype), example)


def capacity_of(buffer: PyTree) -> int:
    """Return C, the number of items that fit."""
    return jax.tree.leaves(buffer)[0].shape[0]


def by_env(buffer: PyTree, num_envs: int) -> PyTree:
    """Return leaves `[C / B, B, ...]` of leaves `[C, ...]`: a column per environment.

    Args:
        buffer: Buffer of items that were added in rounds of whole steps.
        num_envs: B, by which C is divisible.
    """
    return jax.tree.map(lambda x: x.reshape(-1, num_envs, *x.shape[1:]), buffer)


def in_order(buffer: PyTree) -> PyTree:
    """Return leaves `[C, ...]` of leaves `[C / B, B, ...]`: the inverse of `by_env`."""
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), buffer)


def add(buffer: PyTree, items: PyTree, added: Array) -> PyTree:
    """Put items in the place of the oldest.

    Args:
        buffer: Buffer with leaves `[C, ...]`.
        items: Items with leaves `[N, ...]`, `N <= C`.
        added: `[]` uint32, how many items were added before.
    """
    items = rows.like(buffer, items)
    capacity = capacity_of(buffer)
    num = jax.tree.leaves(items)[0].shape[0]
    start = slots_of(added, capacity)
    if capacity % num == 0:
        # Every addition starts at a multiple of N, so that none wraps around.
        return rows.write(buffer, items, start)
    slots = (start + jnp.arange(num)) % capacity
    return jax.tree.map(lambda all, new: all.at[slots].set(new), buffer, items)


def size(added: Array, capacity: int) -> Array:
    """Return how many items there are to sample, uint32 `[]`."""
    return jnp.minimum(added, jnp.uint32(capacity))


def sample(bits: Array, added: Array, capacity: int, margin: int = 0) -> Array:
    """Draw numbers of items, uniform with replacement.

    Args:
        bits: `[...]` uint32, uniform random bits.
        added: `[]` uint32, how many were added; more than `margin`.
        margin: Number of the newest items, which are left out.

    Returns:
        Item numbers, uint32 `[...]`; the modulus favours none by more than C / 2^32.
    """
    there = size(added, capacity)
    oldest = added - there
    return oldest + bits % (there - jnp.uint32(margin))


def slots_of(numbers: Array, capacity: int) -> Array:
    """Return where items lie, int32, of the shape of `numbers` (uint32)."""
    return (numbers % jnp.uint32(capacity)).astype(jnp.int32)


def numbers_in(slots: Array, added: Array, capacity: int) -> Array:
    """Return which items lie in slots, uint32, of the shape of `slots` (int32).

    Args:
        slots: Slots that are not empty.
        added: `[]` uint32, how many items were added.
    """
    newest = added - 1
    age = (slots_of(newest, capacity) - slots) % capacity
    return newest - age.astype(jnp.uint32)


def gather(buffer: PyTree, numbers: Array) -> PyTree:
    """Return items by number, `[*numbers.shape, ...]`; they must still be there."""
    slots = slots_of(numbers, capacity_of(buffer))
    found = jax.tree.map(lambda x: x.at[slots].get(mode="promise_in_bounds"), buffer)
    return rows.items_of(found)


class Window(NamedTuple):
    """The next steps of an environment as one, `[N, ...]` each.

    There are `m <= n` of them: the last is the n-th, the end of the episode, or the one
    before a bad transition. A target
    is `reward + (1 - terminated) * discount * V(next_obs)`.

    Attributes:
        first: The item itself.
        reward: Discounted sum of the rewards, `r_0 + gamma r_1 + ... + gamma^(m-1)
            r_(m-1)`.
        next_obs: Observation after the last of these steps, before any reset.
        discount: Discount `gamma^m` of what follows the window.
        terminated: Whether the last of these steps terminated the episode.
    """

    first: PyTree
    reward: Array
    next_obs: Array
    discount: Array
    terminated: Array


def gather_n_step(
    buffer: Any, numbers: Array, n: int, num_envs: int, gamma: Array | float
) -> Window:
    """Return items by number, each with the steps that follow it (Sutton 1988).

    Args:
        buffer: A record with leaves `[C, ...]`; its fields `reward`, `next_obs`,
            `terminated` and `truncated` are read by name.
        numbers: `[N]` uint32, none of the newest `(n - 1) * num_envs` items, whose
            windows are not complete: see `margin` of `sample`.
        n: The most steps, at least 1.
        num_envs: B, environments whose steps were added in turn.
    """
    later = jnp.arange(n, dtype=jnp.uint32) * jnp.uint32(num_envs)
    every = numbers[None] + later[:, None]
    if n == 1 or isinstance(buffer, rows.Rows):  # Everything of an item, at once.
        items = gather(buffer, every)
        steps = items.reward, items.terminated, items.truncated
        reward, discount, terminated, last = sum_rewards(steps, numbers, later, gamma)
        first = jax.tree.map(lambda x: x[0], items)
        next_obs = first.next_obs if n == 1 else gather(buffer, last).next_obs
    else:
        # Observations of the later steps are not needed.
        steps = gather((buffer.reward, buffer.terminated, buffer.truncated), every)
        reward, discount, terminated, last = sum_rewards(steps, numbers, later, gamma)
        first = gather(buffer, numbers)
        next_obs = gather(buffer.next_obs, last)
    return Window(first, reward, next_obs, discount, terminated)


def sum_rewards(
    steps: tuple[Array, Array, Array],
    numbers: Array,
    later: Array,
    gamma: Array | float,
) -> tuple[Array, Array, Array, Array]:
    """Sum the rewards up to the n-th step, or the end of the episode before it.

    Args:
        steps: Rewards, and whether they terminated or truncated an episode, `[n, N]`.
        numbers: `[N]` uint32, numbers of the first steps.
        later: `[n]` uint32, how much larger those of the next ones are.

    Returns:
        `reward`, `discount` and `terminated` of a `Window`, and the number of its last
        step, `[N]` each.
    """
    rewards, terminations, truncations = steps
    reward, discount = jnp.zeros(numbers.shape), jnp.ones(numbers.shape)
    terminated = jnp.zeros(numbers.shape, bool)
    is_open = jnp.ones(numbers.shape, bool)
    last = numbers
    for k in range(len(rewards)):
        if k:  # A bad transition is no part of a window; see `acting.rollout`.
            is_open = is_open & ~(terminations[k] & truncations[k])
        reward = reward + jnp.where(is_open, discount * rewards[k], 0.0)
        discount = jnp.where(is_open, discount * gamma, discount)
        terminated = terminated | (is_open & terminations[k])
        last = jnp.where(is_open, numbers + later[k], last)
        is_open = is_open & ~(terminations[k] | truncations[k])
    return reward, discount, terminated, last
