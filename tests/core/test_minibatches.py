"""Epochs of minibatches: every sample once per pass, one step per minibatch."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

from purerl.accelerator.kernels import traced_for
from purerl.learning import optimiser
from purerl.learning.minibatches import Passes, minimise, shuffled_indices
from tests.helpers import assert_same_bits, slow_but

N, EPOCHS, PARTS = 12, 3, 4
BATCH = {"index": jnp.arange(N, dtype=jnp.float32), "twice": 2.0 * jnp.arange(N)}
PARAMS = {"a": jnp.zeros(2), "b": jnp.float32(0.0)}


def sgd(rate):
    """Plain gradient steps that remember the norm, as the optimisers of a run do."""
    return optax.chain(optimiser.clip_by_global_norm(1e9), optax.sgd(rate))


def run(loss, rate, key=0, **changes):
    optim = sgd(rate)
    state = optim.init(optimiser.flatten(PARAMS)[0])
    passes = Passes(optim, EPOCHS, PARTS)._replace(**changes)
    return minimise(loss, PARAMS, state, BATCH, jax.random.key(key), passes)


def seen(params, minibatch):
    """A loss that reports which samples it saw, as bits, and whether leaves agree."""
    bits = jnp.sum(2.0 ** minibatch["index"])
    agree = jnp.abs(minibatch["twice"] - 2 * minibatch["index"]).max()
    return params["b"] * 0.0 + params["a"].sum() * 0.0, {"bits": bits, "torn": agree}


def test_every_sample_is_seen_once_in_every_pass_and_its_leaves_stay_together():
    _, _, metrics = run(seen, 0.0)
    assert metrics["bits"].shape == (EPOCHS, PARTS)
    # Twelve different powers of two: each sum has all bits exactly if none repeats.
    np.testing.assert_array_equal(metrics["bits"].sum(1), np.full(EPOCHS, 2.0**N - 1))
    sizes = [[bin(int(x)).count("1") for x in row] for row in metrics["bits"]]
    np.testing.assert_array_equal(sizes, np.full((EPOCHS, PARTS), N // PARTS))
    np.testing.assert_array_equal(metrics["torn"], 0.0)


def test_passes_and_keys_are_shuffled_differently():
    one, other = (np.asarray(run(seen, 0.0, key)[2]["bits"]) for key in (0, 1))
    assert (one[0] != one[1]).any() and (one[1] != one[2]).any()
    assert (one != other).any()


def test_steps_follow_one_another_as_in_a_plain_loop():
    # loss = mean((b - x)^2) / 2 over all samples: gradient b - 5.5 with mean 5.5, so
    # b <- b + (5.5 - b) / 2 in every pass; and sum(a) falls by the rate per element.
    def loss(params, minibatch):
        error = jnp.square(params["b"] - minibatch["index"]).mean() / 2
        return error + params["a"].sum(), {"b": params["b"]}

    params, _, metrics = run(loss, 0.5, num_minibatches=1)
    np.testing.assert_allclose(metrics["b"][:, 0], [0.0, 2.75, 4.125], rtol=1e-6)
    np.testing.assert_allclose(params["b"], 4.8125, rtol=1e-6)
    np.testing.assert_allclose(params["a"], [-1.5, -1.5], rtol=1e-6)
    # |(1, 1, b - 5.5)| of the first pass, before the step.
    norm = np.sqrt(2 + 5.5**2)
    np.testing.assert_allclose(metrics["grad_norm"][0, 0], norm, rtol=1e-6)


def test_what_begins_a_minibatch_is_a_constant_of_the_gradient_alone():
    # loss = b start with start = b: the gradient is start, so that b <- (1 - rate) b;
    # and the derivative of the steps knows that start was b.
    def begin(params, minibatch):
        return {**minibatch, "start": jnp.full_like(minibatch["index"], params["b"])}

    def loss(params, minibatch):
        return params["b"] * minibatch["start"].mean(), {}

    def learned(b):
        params, optim = {**PARAMS, "b": b}, sgd(0.25)
        state = optim.init(optimiser.flatten(params)[0])
        passes = Passes(optim, EPOCHS, PARTS, begin=begin)
        return minimise(loss, params, state, BATCH, jax.random.key(0), passes)[0]["b"]

    value, slope = jax.jit(jax.value_and_grad(learned))(jnp.float32(2.0))
    np.testing.assert_allclose([value / 2, slope], 0.75 ** (EPOCHS * PARTS), rtol=1e-5)


def test_a_gradient_of_zero_has_a_derivative_after_clipping():
    """A meta-gradient through an update that moves nothing is a number."""
    optim = optimiser.clip_by_global_norm(0.5)

    def moved(scale):
        grads = {"w": scale * jnp.array([3.0, 4.0])}
        updates, state = optim.update(grads, optim.init(grads))
        return updates["w"].sum(), state.grad_norm

    found, norm = jax.grad(moved, has_aux=True)(0.0)
    assert (float(found), float(norm)) == (7.0, 0.0)
    _, norm = moved(jnp.nan)
    assert np.isnan(norm)


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
def test_an_infinite_bound_that_is_traced_clips_nothing(platform):
    gradient = {"w": jnp.array([3.0, -1e-3, 2.0**60]), "b": jnp.zeros(2)}

    @jax.jit
    def clipped(bound):
        with traced_for(platform):
            clip = optimiser.clip_by_global_norm(bound)
            return clip.update(gradient, clip.init(gradient))

    for bound in (jnp.inf, 1e38):
        moved, state = clipped(bound)
        assert_same_bits(moved, gradient)
        assert float(state.grad_norm) == pytest.approx(2.0**60)


# The shuffle is a permutation, and a uniform one

SIZES = (1, 2, 3, 7, 8, 128, 1000, 2**16, 2**16 + 1)


@pytest.mark.parametrize("size", slow_but(SIZES, 1, 7, 128, SIZES[-1]))
def test_it_is_a_permutation_at_every_size(size):
    order = shuffled_indices(jax.random.key(size), size)
    assert order.dtype == jnp.int32
    np.testing.assert_array_equal(np.sort(order), np.arange(size))


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
