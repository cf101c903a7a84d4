"""MPO's temperature against scipy, its divergences against distrax and by hand."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, stats

from purerl.losses import mpo
from purerl.networks.distributions import Gaussian, _distrax

SAMPLES, STATES = 20, 32
SCALES = 10.0 ** np.arange(-5, 7)


def dual(eta, q, epsilon):
    """g(eta) in double precision."""
    q = np.asarray(q, np.float64)
    best = q.max(0)
    log_mean = np.log(np.exp((q - best) / eta).mean(0))
    return eta * epsilon + (best + eta * log_mean).mean()


def minimum(q, epsilon):
    """Where scipy finds the minimum of the dual, over log eta."""
    spread = max(np.ptp(np.asarray(q, np.float64), axis=0).max(), 1e-6)
    found = optimize.minimize_scalar(
        lambda x: dual(np.exp(x), q, epsilon),
        bounds=(np.log(mpo.MIN_TEMPERATURE), np.log(1e3 * spread)),
        method="bounded",
        options={"xatol": 1e-9},
    )
    return np.exp(found.x)


def normal(rng):
    return rng.standard_normal((SAMPLES, STATES))


Q_VALUES = {
    "normal": normal,
    "heavy-tailed": lambda rng: rng.standard_cauchy((SAMPLES, STATES)),
    "far-from-zero": lambda rng: normal(rng) + 100.0,
    "states-of-many-scales": lambda rng: (
        normal(rng) * 10.0 ** rng.uniform(-6, 0, STATES)
    ),
    "states-of-two-scales": lambda rng: (
        normal(rng) * np.where(np.arange(STATES) < 25, 1e-4, 1.0)
    ),
    "one-good-action": lambda rng: -np.exp(3.0 * normal(rng)),
    "two-samples": lambda rng: rng.standard_normal((2, STATES)),
}


@pytest.fixture(scope="module")
def solve():
    """Many Q-values at once: the vmapped solver is the one that agents run."""
    return jax.jit(jax.vmap(mpo.solve_temperature, (0, None)))


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("kind", Q_VALUES)
def test_the_solved_temperature_is_scipys_minimum_over_twelve_scales(
    solve, kind, epsilon
):
    rng = np.random.default_rng(0)
    q = np.stack([scale * Q_VALUES[kind](rng) for scale in SCALES]).astype(np.float32)
    solved = np.asarray(solve(q, epsilon))
    for values, eta in zip(q, solved, strict=True):
        expected = minimum(values, epsilon)
        # Flat at its minimum, the dual fixes the argument to the root of the rounding.
        np.testing.assert_allclose(eta, expected, rtol=2e-3)
        excess = dual(eta, values, epsilon) - dual(expected, values, epsilon)
        assert excess <= 1e-6 * eta * epsilon


def test_two_actions_by_hand():
    # Q = (1, 0), weights (p, 1-p) with p = sigmoid(1/eta). KL to uniform is
    # log 2 - H(p). For p = 3/4: 0.693147 - 0.562335 = 0.130812, and
    # eta = 1 / log(p / (1-p)) = 1 / log 3 = 0.910239.
    q = jnp.array([[1.0], [0.0]])
    eta = mpo.solve_temperature(q, 0.130812)
    np.testing.assert_allclose(eta, 0.910239, rtol=1e-4)
    weights = mpo.action_weights(q, eta)
    np.testing.assert_allclose(weights, [[0.75], [0.25]], atol=1e-4)
    np.testing.assert_allclose(mpo.weights_divergence(weights), [0.130812], rtol=1e-3)
    # g = eta * (0.130812 + log(mean(e^(1/eta), 1))) with e^(1/eta) = 3:
    #   0.910239 * (0.130812 + log 2) = 0.750000
    value = mpo.temperature_dual(0.910239, q, 0.130812)
    np.testing.assert_allclose(value, 0.75, rtol=1e-5)


@pytest.mark.parametrize("level", [0.0, -3.5, 1e6])
def test_actions_of_equal_worth_are_weighted_equally(level):
    q = jnp.full((SAMPLES, STATES), level)
    eta = mpo.solve_temperature(q, 0.1)
    np.testing.assert_allclose(eta, mpo.MIN_TEMPERATURE, rtol=1e-4)
    np.testing.assert_allclose(
        mpo.action_weights(q, eta), np.full(q.shape, 1 / SAMPLES), rtol=1e-6
    )


def test_a_bound_that_no_weights_reach_leaves_the_smallest_temperature():
    # With S samples the divergence is at most log S = 3.0.
    q = jax.random.normal(jax.random.key(0), (SAMPLES, STATES))
    eta = mpo.solve_temperature(q, 3.1)
    np.testing.assert_allclose(eta, mpo.MIN_TEMPERATURE, rtol=1e-4)
    np.testing.assert_allclose(mpo.action_weights(q, eta).max(0), np.ones(STATES))


@pytest.mark.slow
def test_states_spread_over_devices_have_one_temperature():
    q = jax.random.normal(jax.random.key(0), (SAMPLES, STATES))
    q = q * jnp.where(jnp.arange(STATES) < STATES // 2, 1.0, 20.0)[None]
    parts = jnp.stack(jnp.split(q, 2, axis=1))
    solve = partial(mpo.solve_temperature, axis_name="d")
    spread = jax.vmap(solve, (0, None), axis_name="d")(parts, 0.1)
    np.testing.assert_allclose(
        spread, np.full(2, mpo.solve_temperature(q, 0.1)), rtol=1e-5
    )


def gaussians(num, actions, seed=0):
    keys = jax.random.split(jax.random.key(seed), 4)
    draw = partial(jax.random.normal, shape=(num, actions))
    target = Gaussian(draw(keys[0]), 0.5 * draw(keys[1]))
    new = Gaussian(
        target.mean + 0.3 * draw(keys[2]), target.log_std + 0.3 * draw(keys[3])
    )
    return target, new


def test_divergences_are_distraxs_of_the_decoupled_policies():
    target, new = gaussians(50, 3)
    divergence = mpo.decoupled_divergence(target, new)
    old = _distrax().Normal(target.mean, jnp.exp(target.log_std))
    only_mean = _distrax().Normal(new.mean, jnp.exp(target.log_std))
    only_std = _distrax().Normal(target.mean, jnp.exp(new.log_std))
    for found, policy in ((divergence.mean, only_mean), (divergence.std, only_std)):
        expected = old.kl_divergence(policy)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_the_likelihood_is_scipys_with_one_new_parameter_at_a_time():
    target, new = gaussians(4, 3)
    raw = jax.random.normal(jax.random.key(9), (5, 4, 3))
    target_std, new_std = np.exp(target.log_std), np.exp(new.log_std)
    expected = stats.norm.logpdf(raw, new.mean, target_std).sum(-1)
    expected += stats.norm.logpdf(raw, target.mean, new_std).sum(-1)
    np.testing.assert_allclose(
        mpo.decoupled_log_likelihood(target, new, raw), expected, rtol=1e-5
    )


def test_a_penalty_moves_the_policy_and_a_multipliers_loss_does_not():
    multiplier, divergence = jnp.array([3.0, 5.0]), jnp.array([0.3, 0.1])
    penalty, dual_loss = mpo.lagrangian(multiplier, divergence, 0.2)
    np.testing.assert_allclose(penalty, 3 * 0.3 + 5 * 0.1, rtol=1e-6)
    np.testing.assert_allclose(dual_loss, 3 * -0.1 + 5 * 0.1, rtol=1e-5)
    jacobian = jax.jacobian(mpo.lagrangian, (0, 1))(multiplier, divergence, 0.2)
    (by_multiplier, by_divergence), (dual_by_multiplier, dual_by_divergence) = jacobian
    np.testing.assert_array_equal(by_multiplier, np.zeros(2))
    np.testing.assert_array_equal(by_divergence, multiplier)
    np.testing.assert_allclose(dual_by_multiplier, [-0.1, 0.1], rtol=1e-5)
    np.testing.assert_array_equal(dual_by_divergence, np.zeros(2))


@pytest.mark.parametrize("value", [1e-3, 1.0, 10.0, 1000.0])
def test_softplus_inverse_is_undone_by_softplus(value):
    np.testing.assert_allclose(
        jax.nn.softplus(mpo.softplus_inverse(value)), value, rtol=1e-4
    )
