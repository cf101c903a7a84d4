"""The minibatch shuffle is a permutation, and a uniform one."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from purerl.learning.minibatches import shuffled_indices
from tests.helpers import slow_but

SIZES = (1, 2, 3, 7, 8, 128, 1000, 2**16, 2**16 + 1)


@pytest.mark.parametrize("size", slow_but(SIZES, 1, 7, 128, SIZES[-1]))
def test_it_is_a_permutation_at_every_size(size):
    order = shuffled_indices(jax.random.key(size), size)
    assert order.dtype == jnp.int32
    np.testing.assert_array_equal(np.sort(order), np.arange(size))


def test_another_key_gives_another_permutation():
    first, second = (shuffled_indices(jax.random.key(k), 128) for k in (0, 1))
    assert (first != second).mean() > 0.9


def test_every_permutation_of_four_is_equally_likely():
    keys = jax.random.split(jax.random.key(0), 48_000)
    orders = np.asarray(jax.vmap(lambda k: shuffled_indices(k, 4))(keys))
    number = {p: i for i, p in enumerate(itertools.permutations(range(4)))}
    counts = np.bincount([number[tuple(o)] for o in orders.tolist()], minlength=24)
    # Chi-square with 23 degrees of freedom; the seed is fixed, so this is no lottery.
    assert stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize("size", slow_but([7, 32], 7))
def test_every_index_is_equally_likely_at_every_position(size):
    draws = 20_000
    keys = jax.random.split(jax.random.key(1), draws)
    orders = np.asarray(jax.vmap(lambda k: shuffled_indices(k, size))(keys))
    pvalues = [
        stats.chisquare(np.bincount(orders[:, position], minlength=size)).pvalue
        for position in range(size)
    ]
    # The smallest of `size` p-values: Bonferroni.
    assert min(pvalues) > 1e-3 / size
