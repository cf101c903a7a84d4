"""Prioritised replay against a plain list of priorities."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl.replay import batches, prioritised
from tests.helpers import assert_same_bits, slow_but

add = jax.jit(prioritised.add, static_argnames=("num", "capacity", "margin"))
sample = jax.jit(prioritised.sample, static_argnames="capacity")
update = jax.jit(prioritised.update, static_argnames="capacity")

PLAIN = {"exponent": 1.0, "eps": 0.0}
"""With which a priority is the absolute error itself."""


def empty(capacity):
    """The priorities of an empty buffer."""
    return with_values(np.zeros(capacity))


def leaves(priorities, capacity):
    return np.asarray(priorities.levels[0]).ravel()[:capacity]


def check_sums(priorities, capacity):
    """Every node is the sum of its children, and nothing lies beyond the capacity."""
    assert not np.asarray(priorities.levels[0]).ravel()[capacity:].any()
    for below, level in zip(priorities.levels, priorities.levels[1:], strict=False):
        sums = np.asarray(below, np.float64).sum(-1)
        level = np.asarray(level).ravel()
        np.testing.assert_allclose(level[: len(sums)], sums, rtol=1e-6)
        assert not level[len(sums) :].any()
        # Not only close: positive where, and only where, a child is.
        np.testing.assert_array_equal(level[: len(sums)] > 0, sums > 0)


def with_values(values):
    """Priorities of a full buffer whose item `i` has the `i`-th value."""
    return prioritised.grow(jnp.asarray(values, jnp.float32), jnp.float32(1))


# The tree


@pytest.mark.parametrize("capacity", slow_but([1, 7, 8, 9, 64, 65, 600], 1, 8, 65))
def test_the_tree_is_that_of_a_plain_list(capacity):
    rng = np.random.default_rng(capacity)
    num = min(3, capacity)
    priorities, reference, largest = empty(capacity), {}, 1.0
    for added in range(0, 30 * num, num):
        priorities = add(priorities, jnp.uint32(added), num, capacity)
        reference |= {number: largest for number in range(added, added + num)}
        reference = {i: p for i, p in reference.items() if i >= added + num - capacity}
        numbers = rng.choice(list(reference), size=4)
        errors = rng.normal(size=4).astype(np.float32)
        priorities = update(
            priorities, jnp.asarray(numbers, jnp.uint32), errors, capacity, **PLAIN
        )
        for number in numbers:
            reference[number] = np.abs(errors[numbers == number]).max()
        largest = max(largest, np.abs(errors).max())
        expected = np.zeros(capacity, np.float32)
        for number, p in reference.items():
            expected[number % capacity] = p
        np.testing.assert_allclose(leaves(priorities, capacity), expected, rtol=1e-6)
    check_sums(priorities, capacity)
    assert float(priorities.largest) == pytest.approx(largest)
    # Grown from its leaves it is the same tree, bit for bit.
    below = prioritised.leaves_of(priorities, capacity)
    assert_same_bits(prioritised.grow(below, priorities.largest), priorities)


@pytest.mark.slow
def test_sums_do_not_remember_what_was_there_before():
    # With accumulated differences the 1e8 would leave an error of about 8.
    capacity = 1000
    priorities = with_values(np.full(capacity, 1e-3, np.float32))
    before = np.asarray(priorities.levels[-1])
    numbers = jnp.arange(0, capacity, 7, dtype=jnp.uint32)
    for error in (1e8, 1e-3):
        errors = jnp.full(numbers.shape, error)
        priorities = update(priorities, numbers, errors, capacity, **PLAIN)
    np.testing.assert_array_equal(priorities.levels[-1], before)


# Priorities


def test_priority_is_the_power_of_the_error():
    # (|-3| + 1)^0.5 = 2, (0 + 1)^0.5 = 1, (8 + 1)^0.5 = 3.
    priorities = with_values(np.ones(3, np.float32))
    numbers, errors = jnp.arange(3, dtype=jnp.uint32), jnp.array([-3.0, 0.0, 8.0])
    after = update(priorities, numbers, errors, 3, exponent=0.5, eps=1.0)
    np.testing.assert_allclose(leaves(after, 3), [2, 1, 3], rtol=1e-6)


WINDOWS = [
    (10, 2, 0),
    (10, 2, 4),
    (11, 2, 4),  # Not a multiple.
    (11, 3, 6),
    (16, 8, 4),  # Several steps a round: num > margin.
    (9, 3, 6),
    (7, 3, 6),  # Rounds replace items before they are complete.
    (8, 8, 4),  # A round fills the buffer.
    (5, 1, 4),
]


@pytest.mark.parametrize(("capacity", "num", "margin"), WINDOWS)
def test_only_items_whose_window_is_complete_can_be_drawn(capacity, num, margin):
    priorities = empty(capacity)
    for added in range(0, 5 * capacity, num):
        priorities = add(priorities, jnp.uint32(added), num, capacity, margin)
        after = added + num
        complete = np.arange(max(0, after - capacity), max(0, after - margin))
        expected = np.zeros(capacity)
        expected[complete % capacity] = 1
        np.testing.assert_array_equal(leaves(priorities, capacity), expected)
    check_sums(priorities, capacity)


# Drawing


def test_draws_are_the_shares_of_the_sum_by_hand():
    # Shares 1, 0, 3, 4 of 8, and 4 draws, each in a quarter of the sum (2 wide):
    #   bits of 0:          positions 0, 2, 4, 6                  -> items 0, 2, 3, 3
    #   bits of 3/4 * 2^32: positions 1.5, 3.5, 5.5, 7.5          -> items 2, 2, 3, 3
    priorities = with_values(np.array([1, 0, 3, 4], np.float32))
    for bits, items in ((0, [0, 2, 3, 3]), (3 * 2**30, [2, 2, 3, 3])):
        numbers, probability = sample(
            priorities, jnp.full(4, bits, jnp.uint32), jnp.uint32(4), 4
        )
        np.testing.assert_array_equal(numbers, items)
        np.testing.assert_array_equal(probability, np.array([1, 0, 3, 4])[items] / 8)


@pytest.mark.parametrize("capacity", slow_but([5, 64, 501], 64))
def test_stratified_counts_are_within_one_of_the_shares(capacity):
    # A share of x strata contains at least x - 2 and touches at most x + 2 of them.
    rng = np.random.default_rng(capacity)
    values = rng.exponential(size=capacity).astype(np.float32)
    values[rng.random(capacity) < 0.2] = 0
    num = 4096
    bits = jax.random.bits(jax.random.key(2), (num,))
    added = jnp.uint32(7 * capacity)
    numbers, probability = sample(with_values(values), bits, added, capacity)
    numbers = np.asarray(numbers)
    assert numbers.min() >= 6 * capacity and numbers.max() < 7 * capacity
    shares = values.astype(np.float64) / values.sum(dtype=np.float64)
    counts = np.bincount(numbers % capacity, minlength=capacity)
    assert np.abs(counts - num * shares).max() < 2
    np.testing.assert_allclose(probability, shares[numbers % capacity], rtol=1e-5)


@pytest.mark.parametrize("added", [1, 2, 9, 63])
def test_no_empty_slot_is_ever_drawn(added):
    capacity = 1000
    priorities = empty(capacity)
    for number in range(added):
        priorities = add(priorities, jnp.uint32(number), 1, capacity)
    edges = jnp.array([0, 1, 255, 256, 2**31, 2**32 - 257, 2**32 - 1], jnp.uint32)
    for bits in (edges, jnp.repeat(edges[-1], 64), jnp.repeat(edges[0], 64)):
        drawn = sample(priorities, bits, jnp.uint32(added), capacity)
        assert np.asarray(drawn.numbers).max() < added
        np.testing.assert_allclose(drawn.probability, 1 / added, rtol=1e-6)


def test_rounding_never_leads_to_an_item_of_zero_priority():
    # Sums of numbers of very different sizes, and positions at the very end of shares.
    rng = np.random.default_rng(0)
    for seed in range(20):
        values = np.exp(rng.normal(scale=6, size=300)).astype(np.float32)
        values[rng.random(300) < 0.5] = 0
        bits = jax.random.bits(jax.random.key(seed), (512,)) | jnp.uint32(0xFFFF0000)
        drawn = sample(with_values(values), bits, jnp.uint32(300), 300)
        assert (values[np.asarray(drawn.numbers)] > 0).all()


@pytest.mark.parametrize("value", [np.nan, 0.0])
def test_without_a_sum_the_numbers_still_lie_in_the_buffer(value):
    # A network that diverged, or a draw from nothing, must not read other memory.
    priorities = with_values(np.full(11, value, np.float32))
    bits = jax.random.bits(jax.random.key(0), (64,))
    numbers = sample(priorities, bits, jnp.uint32(30), 11).numbers
    assert set(np.asarray(numbers).tolist()) <= set(range(30 - 11, 30))


# Weights


def test_per_exponent_sign():
    # A published version computed (1 / (N p))^(-beta) = (N p)^beta with p not divided
    # by the sum, so that what was drawn too often counted most. Here N = 4, beta = 1/2:
    #   P = 1/16, 4/16, 9/16, 2/16;  N P = 1/4, 1, 9/4, 1/2
    #   (N P)^-1/2 = 2, 1, 2/3, sqrt(2); divided by the largest: 1, 1/2, 1/3, 1/sqrt(2)
    probability = jnp.array([1, 4, 9, 2]) / 16
    weights = prioritised.importance_weights(probability, 0.5)
    np.testing.assert_allclose(weights, [1, 1 / 2, 1 / 3, 2**-0.5], rtol=1e-6)


@pytest.mark.parametrize("added", [0, 10, 50, 100, 200])
def test_the_importance_exponent_grows_to_one_over_the_run(added):
    sizes = {"num_envs": 1, "buffer_size": 8, "batch_size": 64}
    config = purerl.DQNConfig(prioritised=True, importance_exponent=0.4, **sizes)
    unread = [lambda *args: None] * 2
    # 100 items come in the whole run.
    replayed = batches.make_replay(config, None, *unread, total=100, margin=0)
    noise = replayed.draw(jax.random.key(0), ())
    tree = with_values([1.0] * 7 + [3.0])
    _, weight = replayed.sample(tree, noise, jnp.uint32(added))
    beta = 0.4 + 0.6 * min(added / 100, 1.0)
    np.testing.assert_allclose([weight.min(), weight.max()], [3**-beta, 1], rtol=1e-5)
