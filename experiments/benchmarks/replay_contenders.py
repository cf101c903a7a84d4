"""The contenders of replay_speed.py: the buffers of purerl and flashbax."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from purerl.replay import prioritised
from purerl.replay import uniform as replay

ALPHA = 0.6


class Item(NamedTuple):
    """One stored step of an agent of CartPole: 42 bytes."""

    obs: jax.Array
    action: jax.Array
    reward: jax.Array
    next_obs: jax.Array
    terminated: jax.Array
    truncated: jax.Array


class Case(NamedTuple):
    """The work of an agent in an iteration, and the number of agents that do it."""

    agents: int
    capacity: int
    add: int
    batch: int
    is_prioritised: bool = False


class Contender(NamedTuple):
    """A buffer.

    Attributes:
        init: `() -> state`, empty.
        add: `(state, items, added) -> state`; `added` counts what came before.
        learn: `(state, key, added) -> (state, number)`: sample, read, update;
            the number depends on every entry of the batch.
    """

    init: Callable[[], Any]
    add: Callable[..., Any]
    learn: Callable[..., tuple[Any, jax.Array]]


EXAMPLE = Item(
    jnp.zeros(4), jnp.int32(0), jnp.float32(0), jnp.zeros(4), jnp.bool(0), jnp.bool(0)
)


def read(batch: Item, weight: Any) -> tuple[jax.Array, jax.Array]:
    """A TD error per item and a number, of all that a learner would read."""
    value = batch.obs.sum(-1) + batch.action + batch.next_obs.sum(-1)
    bootstrap = jnp.where(batch.terminated | batch.truncated, 0.0, value)
    error = batch.reward + 0.9 * bootstrap - value
    return error, (weight * error).sum()


def ours(case: Case) -> Contender:
    """The buffer of purerl for a case."""
    size = case.capacity

    def init() -> Any:
        priorities = (
            prioritised.grow(jnp.zeros(size), jnp.float32(1))
            if case.is_prioritised
            else ()
        )
        return replay.init(EXAMPLE, size), priorities

    def add(state: Any, items: Item, added: jax.Array) -> Any:
        buffer, priorities = state
        if case.is_prioritised:
            priorities = prioritised.add(priorities, added, case.add, size)
        return replay.add(buffer, items, added), priorities

    def learn(state: Any, key: jax.Array, added: jax.Array) -> tuple[Any, jax.Array]:
        buffer, priorities = state
        bits = jax.random.bits(key, (case.batch,))
        if not case.is_prioritised:
            numbers = replay.sample(bits, added, size)
            return state, read(replay.gather(buffer, numbers), 1.0)[1]
        numbers, probability = prioritised.sample(priorities, bits, added, size)
        weight = prioritised.importance_weights(probability, 0.4)
        error, number = read(replay.gather(buffer, numbers), weight)
        priorities = prioritised.update(
            priorities, numbers, error, size, exponent=ALPHA
        )
        return (buffer, priorities), number

    return Contender(init, add, learn)


def flashbax(case: Case) -> Contender:
    """The item buffer of flashbax for a case."""
    import flashbax  # pyright: ignore[reportMissingImports]  # Not a dependency.

    sizes = (case.capacity, case.batch, case.batch)
    if case.is_prioritised:
        buffer = flashbax.make_prioritised_item_buffer(
            *sizes,
            add_batches=True,
            priority_exponent=ALPHA,
            device=jax.default_backend(),
        )
    else:
        buffer = flashbax.make_item_buffer(*sizes, add_batches=True)

    def add(state: Any, items: Item, added: jax.Array) -> Any:
        del added  # It has counters of its own.
        return buffer.add(state, items)

    def learn(state: Any, key: jax.Array, added: jax.Array) -> tuple[Any, jax.Array]:
        del added
        sample = buffer.sample(state, key)
        if not case.is_prioritised:
            return state, read(sample.experience, 1.0)[1]
        weight = prioritised.importance_weights(sample.probabilities, 0.4)
        error, number = read(sample.experience, weight)
        # It takes the priorities themselves and does the power.
        priorities = jnp.abs(error) + 1e-6
        return buffer.set_priorities(state, sample.indices, priorities), number

    return Contender(lambda: buffer.init(EXAMPLE), add, learn)


def random_items(key: jax.Array, num: int) -> Item:
    """Items `[num, ...]`."""
    key_obs, key_next, key_reward = jax.random.split(key, 3)
    flags = jnp.arange(num) % 17 == 0
    return Item(
        obs=jax.random.normal(key_obs, (num, 4)),
        action=jnp.arange(num, dtype=jnp.int32) % 2,
        reward=jax.random.normal(key_reward, (num,)),
        next_obs=jax.random.normal(key_next, (num, 4)),
        terminated=flags,
        truncated=~flags & (jnp.arange(num) % 13 == 0),
    )
