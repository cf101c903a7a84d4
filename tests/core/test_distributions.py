"""Policies against distrax, scipy, quadrature and Monte Carlo."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from purerl import envs
from purerl.networks.distributions import (
    CategoricalHead,
    Gaussian,
    GaussianHead,
    TanhGaussianHead,
    log_tanh_slope,
    make_head,
)

with warnings.catch_warnings():  # its imports use names that jax has deprecated
    warnings.simplefilter("ignore", DeprecationWarning)
    import distrax

LOW, HIGH = -1.0, 3.0  # not symmetric: centre 1, radius 2


def gaussian(mean, std):
    mean = jnp.asarray(mean, jnp.float32)
    std = jnp.broadcast_to(jnp.asarray(std, jnp.float32), mean.shape)
    return Gaussian(mean, jnp.log(std))


@pytest.mark.parametrize("head_class", [GaussianHead, TanhGaussianHead])
def test_gaussian_heads_agree_with_distrax(head_class):
    head = head_class(LOW, HIGH, (2,))
    rng = np.random.default_rng(1)
    mean, raw = (jnp.asarray(x, jnp.float32) for x in rng.normal(size=(2, 7, 2)))
    outputs = gaussian(mean, [0.5, 1.2])
    reference = distrax.MultivariateNormalDiag(mean, jnp.exp(outputs.log_std))
    if head_class is TanhGaussianHead:
        squash = distrax.Chain(
            [distrax.ScalarAffine(shift=1.0, scale=2.0), distrax.Tanh()]
        )
        reference = distrax.Transformed(reference, distrax.Block(squash, 1))
        value = head.to_env(raw)
    else:
        value = raw
        np.testing.assert_allclose(
            head.entropy(outputs), reference.entropy(), rtol=1e-5
        )
    np.testing.assert_allclose(
        head.log_prob(outputs, raw), reference.log_prob(value), rtol=1e-4, atol=1e-4
    )


def test_categorical_agrees_with_scipy():
    head = CategoricalHead(4)
    logits = jnp.array([[0.0, 1.0, -2.0, 3.0], [5.0, 5.0, 5.0, 5.0]])
    probabilities = np.exp(np.asarray(logits, np.float64))
    probabilities /= probabilities.sum(-1, keepdims=True)
    action = jnp.array([1, 3])
    np.testing.assert_allclose(
        head.log_prob(logits, action),
        np.log(probabilities[[0, 1], [1, 3]]),
        rtol=1e-5,
    )
    np.testing.assert_allclose(
        head.entropy(logits), stats.entropy(probabilities, axis=-1), rtol=1e-5
    )
    assert head.mode(logits[0]) == 3
    keys = jax.random.split(jax.random.key(0), 20_000)
    draws = jax.vmap(lambda k: head.sample(logits[0], k))(keys)
    frequency = np.bincount(draws, minlength=4) / len(keys)
    np.testing.assert_allclose(frequency, probabilities[0], atol=0.012)


@pytest.mark.slow
def test_a_certain_categorical_has_finite_log_prob_entropy_and_gradient():
    head = CategoricalHead(2)
    logits = jnp.array([200.0, -200.0])
    assert head.entropy(logits) == 0.0
    assert head.log_prob(logits, jnp.int32(0)) == 0.0
    assert head.log_prob(logits, jnp.int32(1)) == -400.0
    for value in (head.entropy, lambda x: head.log_prob(x, jnp.int32(1))):
        assert jnp.isfinite(jax.grad(value)(logits)).all()


@pytest.mark.parametrize(
    ("std", "most"), [(0.5, 1e-4), (1.5, 1e-3), (2.0, 4e-3), (3.0, 0.03), (5.0, 0.11)]
)
def test_tanh_entropy_against_the_integral(std, most):
    head = TanhGaussianHead(np.array([-1.0]), np.array([1.0]), (1,))
    z = np.linspace(-10.0, 10.0, 100_001)
    density = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    for mean in (0.0, 0.5, 1.0, 3.0):
        raw = mean + std * z
        slope = 2 * (np.log(2.0) - raw - np.logaddexp(0.0, -2 * raw))
        normal = 0.5 * np.log(2 * np.pi * np.e * std**2)
        exact = normal + np.trapezoid(slope * density, z)
        assert abs(float(head.entropy(gaussian([mean], [std]))) - exact) < most


INF = np.inf


@pytest.mark.parametrize(
    ("head_class", "low", "high", "raw", "actions"),
    [
        # Dimension 0 in [-1, 3] (centre 1, radius 2); dimension 1 in [0, 10].
        (
            GaussianHead,
            [-1.0, 0.0],
            [3.0, 10.0],
            [[0.0, 0.0], [0.5, -0.5], [1.0, 1.0], [7.0, -7.0]],
            [[1.0, 5.0], [2.0, 2.5], [3.0, 10.0], [3.0, 0.0]],
        ),
        (GaussianHead, [-1.0, -INF], [3.0, INF], [[7.0, 7.0]], [[3.0, 7.0]]),
        # With one bound as Gymnasium's ClipAction: the raw action keeps its units.
        (
            GaussianHead,
            [0.0, -INF, -1.0],
            [INF, 2.0, 3.0],
            [[-5.0, 5.0, 5.0], [7.0, -7.0, 0.5]],
            [[0.0, 2.0, 3.0], [7.0, -7.0, 2.0]],
        ),
        (
            TanhGaussianHead,
            [LOW],
            [HIGH],
            [[-50.0], [0.0], [np.arctanh(0.5)], [50.0]],
            [[LOW], [1.0], [2.0], [HIGH]],
        ),
    ],
    ids=["two bounds", "no bounds", "one bound", "tanh"],
)
def test_raw_actions_are_brought_to_the_bounds(head_class, low, high, raw, actions):
    head = head_class(np.array(low), np.array(high), (len(low),))
    np.testing.assert_allclose(head.to_env(jnp.array(raw)), actions, atol=1e-6)


def test_the_largest_number_as_a_bound_means_none():
    """Actions were -3.4e38, NaN and 3.4e38 where `high - low` is infinite."""
    big = float(np.finfo(np.float32).max)
    for low, high in ((-big, big), (-1e300, 1e300), (-np.inf, big), (-2e38, 1e38)):
        space = envs.spaces.Box(low, high, (1,))
        head = make_head(space, "auto")
        raw = jnp.array([[-0.5], [0.0], [0.5]])
        np.testing.assert_array_equal(head.to_env(raw), raw)
        with pytest.raises(ValueError, match="needs a bounded action space"):
            make_head(space, "tanh_gaussian")
    one_sided = GaussianHead(0.0, big, (1,))
    np.testing.assert_array_equal(
        one_sided.to_env(jnp.array([[-5.0], [7.0]])), [[0], [7]]
    )


def test_an_action_without_width_does_not_make_a_density_infinite():
    """It adds what an action of width 2 would, and is its only value."""
    head = TanhGaussianHead(np.array([-1.0, 3.0]), np.array([1.0, 3.0]), (2,))
    wide = TanhGaussianHead(np.array([-1.0, 2.0]), np.array([1.0, 4.0]), (2,))
    outputs, raw = gaussian([0.3, -0.2], [0.5, 1.5]), jnp.array([0.7, 0.1])
    for method in (lambda h: h.log_prob(outputs, raw), lambda h: h.entropy(outputs)):
        assert jnp.isfinite(method(head))
        np.testing.assert_array_equal(method(head), method(wide))
    np.testing.assert_allclose(head.to_env(raw), [np.tanh(0.7), 3.0], rtol=1e-6)


@pytest.mark.parametrize("head_class", [GaussianHead, TanhGaussianHead])
@pytest.mark.parametrize(("low", "high"), [(-0.7, 0.1), (-0.2, 1.1)])
def test_no_action_is_rounded_out_of_its_bounds(head_class, low, high):
    """The centre and the radius of these bounds add up to more than one of them."""
    low, high = np.float32(low), np.float32(high)
    head = head_class(low, high, (1,))
    ends = np.asarray(head.to_env(jnp.array([[-50.0], [50.0]])))[:, 0]
    assert low <= ends[0] and ends[1] <= high
    np.testing.assert_allclose(ends, [low, high], rtol=1e-6)


def test_samples_have_the_moments_of_the_distribution():
    head = GaussianHead(-1.0, 1.0, (2,))
    outputs = gaussian([1.0, -2.0], [0.5, 2.0])
    draws = jax.vmap(lambda k: head.sample(outputs, k))(
        jax.random.split(jax.random.key(3), 40_000)
    )
    # Standard errors: std / 200 of the mean, std / 283 of the std.
    np.testing.assert_allclose(draws.mean(0), [1.0, -2.0], atol=0.04)
    np.testing.assert_allclose(draws.std(0), [0.5, 2.0], rtol=0.02)
    assert abs(np.corrcoef(draws.T)[0, 1]) < 0.02
    np.testing.assert_array_equal(head.mode(outputs), [1.0, -2.0])


def test_log_tanh_slope_is_stable_far_out():
    x = np.array([-40.0, -3.0, 0.0, 3.0, 40.0])
    # log(1 - tanh^2) = 2 log 2 - 2 |x| - 2 log(1 + exp(-2|x|))
    expected = 2 * (np.log(2) - np.abs(x) - np.log1p(np.exp(-2 * np.abs(x))))
    actual = log_tanh_slope(jnp.asarray(x, jnp.float32))
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
    slope = jax.vmap(jax.grad(log_tanh_slope))(jnp.asarray(x, jnp.float32))
    np.testing.assert_allclose(slope, -2 * np.tanh(x), atol=1e-6)
