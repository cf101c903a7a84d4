"""Two-hot values in closed form, and moving moments against a plain computation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl.contrib.disco import algorithm
from purerl.learning import small_networks

TOP, SIZE = 2.0, 5  # at -2, -1, 0, 1, 2


def test_squeezing_is_its_formula_and_unsqueezing_its_inverse():
    values = jnp.array([-1e4, -3.0, -1e-3, 0.0, 0.5, 8.0, 9e4])
    squeezed = small_networks.squeeze(values)
    # sqrt(9) - 1 and a thousandth of 8.
    np.testing.assert_allclose(squeezed[5], 2.008, rtol=1e-6)
    found = small_networks.unsqueeze(squeezed)
    np.testing.assert_allclose(found, values, rtol=2e-5, atol=1e-6)
    # The usual difference of roots is off by 39% and 19% here in float32.
    small = jnp.array([1e-4, -3e-4])
    found = small_networks.unsqueeze(small_networks.squeeze(small))
    np.testing.assert_allclose(found, small, rtol=2e-3)


@pytest.mark.parametrize("at", [0.0, -0.0, 1e-6, -1e-6])
def test_slopes_at_zero_are_those_beside_it(at):
    """By `sign` and `abs`, which are flat there, they were 0.001, 0 and 0."""
    own = small_networks
    curves = own.squeeze, own.unsqueeze, own.signed_log
    slopes = [jax.grad(curve)(at) for curve in curves]
    np.testing.assert_allclose(slopes, [0.501, 1 / 0.501, 1.0], rtol=1e-4)


def cross_entropy(value, logits=None):
    logits = jnp.arange(SIZE, dtype=jnp.float32) if logits is None else logits
    return small_networks.cross_entropy(
        logits, small_networks.unsqueeze(jnp.float32(value)), TOP
    )


def test_the_distribution_lies_on_the_two_neighbours():
    log_probs = np.log(np.exp(np.arange(SIZE)) / np.exp(np.arange(SIZE)).sum())
    # 0.25 lies between 0 (the third) and 1 (the fourth), a quarter of the way.
    expected = -(0.75 * log_probs[2] + 0.25 * log_probs[3])
    np.testing.assert_allclose(cross_entropy(0.25), expected, rtol=1e-5)
    np.testing.assert_allclose(cross_entropy(-2.0), -log_probs[0], rtol=1e-5)
    # On the last number, and beyond it.
    for value in (2.0, 7.0):
        np.testing.assert_allclose(cross_entropy(value), -log_probs[4], rtol=1e-5)
    values = np.array([0.25, -2.0])  # fewer than places, of which there are SIZE
    both = cross_entropy(values, jnp.tile(jnp.arange(SIZE, dtype=jnp.float32), (2, 1)))
    np.testing.assert_allclose(both, [expected, -log_probs[0]], rtol=1e-5)


@pytest.mark.parametrize("value", [-1.7, 0.25, 1.0])
def test_the_mean_of_the_minimum_is_the_value(value):
    # At the minimum of the cross-entropy the probabilities are the two-hot ones.
    low = int(np.floor(value))
    probs = np.zeros(SIZE)
    probs[low + 2 : low + 4] = 1 - (value - low), value - low
    logits = jnp.log(jnp.asarray(probs) + 1e-9)
    slope = jax.grad(lambda x: cross_entropy(value, x))(logits)
    np.testing.assert_allclose(slope, 0.0, atol=1e-5)
    expected = small_networks.unsqueeze(jnp.float32(value))
    np.testing.assert_allclose(small_networks.mean(logits, TOP), expected, rtol=1e-4)


def test_moving_moments_are_weighted_means_of_what_was_seen():
    batches = np.random.RandomState(0).randn(4, 6) * 3.0 + 2.0
    moments = algorithm.init_moments()
    for batch in batches:
        moments = algorithm.seen_moments(
            moments, jnp.asarray(batch, jnp.float32), 0.5, None
        )
    weight = 0.5 ** np.arange(4)[::-1]
    weight = weight / weight.sum()
    mean = weight @ batches.mean(1)
    deviation = np.sqrt(weight @ np.square(batches).mean(1) - mean**2)
    found = algorithm.standardised(moments, jnp.asarray(batches[-1], jnp.float32))
    np.testing.assert_allclose(found, (batches[-1] - mean) / deviation, rtol=1e-4)


@pytest.mark.parametrize("value", [2.0, 1000.1])
def test_what_never_differs_is_standardised_to_zero(value):
    """As a difference of averages of squares the variance of 1000.1 would be noise."""
    moments, values = algorithm.init_moments(), jnp.full(300, value, jnp.float32)
    for _ in range(50):
        moments = algorithm.seen_moments(moments, values, 0.9, None)
    np.testing.assert_allclose(algorithm.standardised(moments, values), 0.0, atol=1e-3)
    np.testing.assert_allclose(moments.var, 0.0, atol=1e-8)
