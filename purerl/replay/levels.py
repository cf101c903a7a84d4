"""A buffer of levels, and how levels are scored, kept and drawn again.

Prioritised level replay (PLR; Jiang et al. 2021, arXiv:2010.03934) draws level `i` of
the buffer with probability

    P(i) = (1 - rho) P_S(i) + rho P_C(i)                                   (section 3)
    P_S(i) = rank(S_i)^(-1/beta) / sum_j rank(S_j)^(-1/beta)
    P_C(i) = (c - C_i) / sum_j (c - C_j)

where `rank` is 1 for the highest score, `c` is the present time and `C_i` the time at
which the level was played last. Time is counted in updates here; the authors count
episodes. The scores are those of Jiang et al. (2021, arXiv:2110.02439).

Axes: `K` places of the buffer, `B` levels played in an update, `T` steps.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from purerl.envs.base import select_tree
from purerl.types import Array, PyTree

Number = Array | float


class LevelBuffer(NamedTuple):
    """Levels that were played, the first `size` of K places.

    Attributes:
        levels: Parameters of the environment, leaves `[K, ...]`.
        score: `[K]` float32, score when the level was played last; -inf in places that
            are free.
        best_return: `[K]` float32, the highest return in the level so far.
        played: `[K]` int32, time at which the level was played last.
        size: `[]` int32, number of levels.
    """

    levels: PyTree
    score: Array
    best_return: Array
    played: Array
    size: Array


class Result(NamedTuple):
    """The result of playing a level; fields `[]`, or `[B]` of several.

    Attributes:
        score: Score of the level, float32.
        best_return: The highest return in it, float32.
    """

    score: Array
    best_return: Array


def empty(level: PyTree, capacity: int) -> LevelBuffer:
    """Make a buffer without levels.

    Args:
        level: A level, of which only shapes and types are taken.
        capacity: Capacity K of the buffer, in levels.
    """
    return LevelBuffer(
        levels=jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape), x.dtype), level),
        score=jnp.full(capacity, -jnp.inf, jnp.float32),
        best_return=jnp.full(capacity, -jnp.inf, jnp.float32),
        played=jnp.zeros(capacity, jnp.int32),
        size=jnp.int32(0),
    )


def replay_probabilities(
    buffer: LevelBuffer, now: Array, temperature: Number, staleness_coef: Number
) -> Array:
    """Compute P `[K]` of the module's equation; zero in free places.

    Levels of equal score are ranked by their place. Where every level was played at
    `now`, all are equally stale. The probabilities of an empty buffer are zeros.

    Args:
        now: `[]` int32, the present time c.
    """
    capacity = buffer.score.shape[0]
    is_level = jnp.arange(capacity) < buffer.size
    order = jnp.argsort(jnp.where(is_level, -buffer.score, jnp.inf), stable=True)
    place = jnp.arange(1, capacity + 1, dtype=jnp.float32)
    rank = jnp.zeros(capacity).at[order].set(place)
    # Weights are a softmax, because powers of ranks leave the range of floats at a
    # small temperature.
    log_weight = -jnp.log(rank) / temperature
    by_score = jax.nn.softmax(log_weight, where=is_level | (buffer.size == 0))

    stale = jnp.where(is_level, now - buffer.played, 0).astype(jnp.float32)
    stale = jnp.where(stale.sum() > 0, stale, is_level.astype(jnp.float32))
    by_time = stale / jnp.maximum(stale.sum(), 1.0)

    mixed = (1.0 - staleness_coef) * by_score + staleness_coef * by_time
    return jnp.where(is_level, mixed, 0.0)


def draw(key: Array, probabilities: Array, number: int) -> Array:
    """Draw places of levels, int32 `[B]`, independently of one another.

    Args:
        key: Random key, consumed.
        probabilities: `[K]`; where all are zero the places mean nothing.
        number: Number B of levels to draw.
    """
    places = jax.random.categorical(key, jnp.log(probabilities), shape=(number,))
    return places.astype(jnp.int32)


def take(buffer: LevelBuffer, places: Array) -> PyTree:
    """Return the levels `[B, ...]` of some places `[B]`."""
    return jax.tree.map(lambda x: x[places], buffer.levels)


def update(
    buffer: LevelBuffer, places: Array, results: Result, now: Array
) -> LevelBuffer:
    """Write what came of levels that were replayed.

    The score is the new one, the highest return the highest of all. A level that was
    played several times keeps the last of its scores.

    Args:
        places: `[B]` int32, where the levels are.
        results: Results of the levels, `[B]` each.
        now: `[]` int32, the present time.
    """

    def write(
        buffer: LevelBuffer, one: tuple[Array, Result]
    ) -> tuple[LevelBuffer, None]:
        place, result = one
        return buffer._replace(
            score=buffer.score.at[place].set(result.score),
            best_return=buffer.best_return.at[place].max(result.best_return),
            played=buffer.played.at[place].set(now),
        ), None

    # Levels are written one after the other: on accelerators a scatter to equal places
    # has no order.
    return jax.lax.scan(write, buffer, (places, results))[0]


def insert(
    buffer: LevelBuffer,
    levels: PyTree,
    results: Result,
    now: Array,
    *numbers: Number,
) -> LevelBuffer:
    """Offer new levels to the buffer, one after the other.

    While there are free places, every level gets one. After that a level takes the
    place of the one that is the least likely to be replayed, the one of the lowest
    score among several, if its own score is higher.

    Args:
        levels: `[B, ...]` levels to insert.
        results: Results of these levels, `[B]` each.
        now: `[]` int32, the present time.
    """
    capacity = buffer.score.shape[0]

    def offer(
        buffer: LevelBuffer, one: tuple[PyTree, Result]
    ) -> tuple[LevelBuffer, None]:
        level, result = one
        likely = replay_probabilities(buffer, now, *numbers)
        has_room = buffer.size < capacity
        # In 32 bits the share of a low rank may be lost beside that of staleness, so
        # that many places are equally likely: of these it is the lowest score.
        is_least = likely == likely.min()
        least = jnp.where(is_least, buffer.score, jnp.inf).argmin()
        place = jnp.where(has_room, buffer.size, least).astype(jnp.int32)
        is_kept = has_room | (result.score > buffer.score[place])
        written = LevelBuffer(
            levels=jax.tree.map(lambda x, y: x.at[place].set(y), buffer.levels, level),
            score=buffer.score.at[place].set(result.score),
            best_return=buffer.best_return.at[place].set(result.best_return),
            played=buffer.played.at[place].set(now),
            size=buffer.size + has_room,
        )
        return select_tree(is_kept, written, buffer), None

    return jax.lax.scan(offer, buffer, (levels, results))[0]


def best_returns(done: Array, returns: Array) -> Array:
    """Return the highest return `[B]` of the episodes of a rollout.

    Where no episode ended it is what the running one has earned by then: nothing, where
    it begins after a bad transition.

    Args:
        done: `[T, B]` bool, where episodes ended.
        returns: `[T, B]` sum of rewards of the episode so far, this step included; not
            finite in a bad transition.
    """
    highest = jnp.where(done, returns, -jnp.inf).max(0)
    running = jnp.where(jnp.isfinite(returns[-1]), returns[-1], 0.0)
    return jnp.where(done.any(0), highest, running)


def positive_value_loss(advantage: Array) -> Array:
    """Return the mean of the positive parts of the advantages, `[B]`.

    It is the positive value loss of the second paper, where the first one has `|A_t|`:
    how much more than the critic expected the level has paid.

    Args:
        advantage: `[T, B]` generalised advantage estimates.
    """
    return jnp.maximum(advantage, 0.0).mean(0)


def max_monte_carlo(value: Array, best_return: Array) -> Array:
    """Return the mean over steps of `R_max - V(s_t)`, `[B]`.

    Returns are not discounted and values are, as in JaxUED.

    Args:
        value: `[T, B]` values of the observations.
        best_return: `[B]` the highest return in each level so far, `R_max`.
    """
    return (best_return[None] - value).mean(0)
