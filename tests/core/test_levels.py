"""The buffer of levels: its distribution, its rules and the scores, by known values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl.replay import levels
from purerl.replay.levels import LevelBuffer, Result

replay_probabilities = jax.jit(levels.replay_probabilities)
put = jax.jit(levels.insert)
update = jax.jit(levels.update)


def buffer_of(scores, played=None, capacity=None, best=None):
    """A buffer whose level number `i` is the number `10 + i`."""
    size = len(scores)
    capacity = capacity or size
    free = capacity - size

    def padded(values, filler, dtype):
        return jnp.asarray([*values, *[filler] * free], dtype)

    return LevelBuffer(
        levels={"number": padded(10 + np.arange(size), 0, jnp.int32)},
        score=padded(scores, -np.inf, jnp.float32),
        best_return=padded(best or [0.0] * size, -np.inf, jnp.float32),
        played=padded(played or [0] * size, 0, jnp.int32),
        size=jnp.int32(size),
    )


RANKED = np.array([9, 36, 4, 0, 0]) / 49
PLAYED = {"played": [4, 1, 9], "capacity": 4}
STALE, BY_RANK = np.array([6, 9, 1, 0]) / 16, np.array([2, 3, 6, 0]) / 11
MIXED = 0.7 * BY_RANK + 0.3 * STALE


BY_HAND = [
    # Ranks 2, 1, 3 and, with beta 1/2, weights 1/4, 1, 1/9; free places have none.
    (buffer_of([0.5, 7.0, -2.0], capacity=5), 3, 0.5, 0.0, RANKED),
    # Only the order of the scores counts, and then the place.
    (buffer_of([1.0, 1.1, 0.0], capacity=5), 3, 0.5, 0.0, RANKED),
    (buffer_of([1.0, 1.0]), 1, 1.0, 0.0, [2 / 3, 1 / 3]),
    # Staleness is proportional to the time since, and mixes.
    (buffer_of([0.0, 1.0, 2.0], **PLAYED), 10, 1.0, 1.0, STALE),
    (buffer_of([0.0, 1.0, 2.0], **PLAYED), 10, 1.0, 0.3, MIXED),
    (buffer_of([0.0, 1.0, 2.0], [5] * 3, 4), 5, 1.0, 1.0, [1 / 3] * 3 + [0]),
    (levels.empty({"number": jnp.int32(0)}, 4), 3, 0.3, 0.3, [0.0] * 4),
]


@pytest.mark.parametrize(
    ("buffer", "now", "temperature", "staleness_coef", "expected"), BY_HAND
)
def test_probabilities_by_hand(buffer, now, temperature, staleness_coef, expected):
    found = replay_probabilities(buffer, jnp.int32(now), temperature, staleness_coef)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_draws_follow_the_probabilities():
    chances = jnp.array([0.1, 0.0, 0.6, 0.3])
    places = levels.draw(jax.random.key(0), chances, 10_000)
    shares = np.bincount(places, minlength=4) / 10_000
    np.testing.assert_allclose(shares, chances, atol=4 * 0.5 / 100)
    assert shares[1] == 0
    taken = levels.take(buffer_of([0.0] * 4), places[:3])
    np.testing.assert_array_equal(taken["number"], 10 + places[:3])


def insert(buffer, numbers, scores, now=9, staleness_coef=0.0):
    results = Result(jnp.asarray(scores, jnp.float32), jnp.asarray(scores) / 2)
    new = {"number": jnp.asarray(numbers, jnp.int32)}
    return put(buffer, new, results, jnp.int32(now), 1.0, staleness_coef)


def test_free_places_take_every_level_and_then_only_better_ones():
    buffer = levels.empty({"number": jnp.int32(0)}, 3)
    # -5 finds a place; when there is none, 2 takes that of -5, and -7 takes none.
    buffer = insert(buffer, [1, 2, 3, 4, 5], [-5.0, 0.0, 1.0, 2.0, -7.0])
    assert buffer.size == 3
    np.testing.assert_array_equal(buffer.levels["number"], [4, 2, 3])
    np.testing.assert_array_equal(buffer.score, [2.0, 0.0, 1.0])
    np.testing.assert_array_equal(buffer.best_return, [1.0, 0.0, 0.5])
    np.testing.assert_array_equal(buffer.played, [9, 9, 9])
    # An equal score is not a higher one.
    again = insert(buffer, [6], [0.0], now=10)
    np.testing.assert_array_equal(again.levels["number"], [4, 2, 3])


def test_the_place_is_that_of_the_least_likely_level_not_of_the_lowest_score():
    # By staleness alone the second is never drawn, though it has the best score.
    buffer = buffer_of([0.0, 5.0, 1.0], played=[2, 9, 3])
    kept = insert(buffer, [20], [3.0], now=9, staleness_coef=1.0)
    np.testing.assert_array_equal(kept.levels["number"], [10, 11, 12])  # 3 < 5
    taken = insert(buffer, [20], [6.0], now=9, staleness_coef=1.0)
    np.testing.assert_array_equal(taken.levels["number"], [10, 20, 12])


def test_a_replayed_level_has_its_last_score_and_its_highest_return():
    buffer = buffer_of([0.0, 5.0, 1.0], played=[2, 3, 4], best=[0.5, 0.9, 0.1])
    results = Result(jnp.array([8.0, 7.0, 6.0]), jnp.array([0.4, 0.3, 0.8]))
    found = update(buffer, jnp.array([2, 0, 2]), results, jnp.int32(11))
    np.testing.assert_array_equal(found.score, [7.0, 5.0, 6.0])
    np.testing.assert_allclose(found.best_return, [0.5, 0.9, 0.8])
    np.testing.assert_array_equal(found.played, [11, 3, 11])
    assert found.size == 3


def test_scores_by_hand():
    advantage = jnp.array([[1.0, -2.0], [-4.0, -1.0], [2.0, 0.0]])
    np.testing.assert_allclose(levels.positive_value_loss(advantage), [1.0, 0.0])
    value = jnp.array([[0.5, 1.0], [0.1, 0.4]])
    found = levels.max_monte_carlo(value, jnp.array([0.9, 0.0]))
    np.testing.assert_allclose(found, [0.9 - 0.3, -0.7], rtol=1e-6)


def test_best_returns_are_of_episodes_that_ended_or_else_of_the_running_one():
    done = jnp.array([[True, False], [False, False], [True, False]])
    returns = jnp.array([[0.2, 1.0], [5.0, 3.0], [-1.0, 2.0]])
    # 5 is on the way; where nothing ended it is the return at the end.
    np.testing.assert_allclose(levels.best_returns(done, returns), [0.2, 2.0])
    # A bad transition ends no episode, and the one after it has earned nothing.
    broken = jnp.full((3, 2), 3.0).at[-1].set(jnp.array([jnp.inf, jnp.nan]))
    found = levels.best_returns(jnp.zeros((3, 2), bool), broken)
    np.testing.assert_array_equal(found, [0.0, 0.0])


def test_among_places_that_are_equally_likely_the_lowest_score_goes():
    """In 32 bits all but the first ranks have probability 0 at this temperature."""
    scores = np.random.default_rng(0).permutation(200) / 200
    buffer = buffer_of(scores, played=[1] * 200)
    numbers = 0.01, 0.0
    shares = replay_probabilities(buffer, jnp.int32(2), *numbers)
    assert (shares == 0).sum() > 100 and shares.argmin() != scores.argmin()
    result = Result(jnp.float32([0.5]), jnp.float32([0.5]))
    new = {"number": jnp.int32([999])}
    after = put(buffer, new, result, jnp.int32(2), *numbers)
    assert after.levels["number"][scores.argmin()] == 999
    assert (after.levels["number"] == 999).sum() == 1
