"""MPO with discrete actions: both steps against closed forms, and a task to learn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, special

import purerl
from purerl.acting.environment import resolve_env
from purerl.algorithms import mpo
from purerl.algorithms.off_policy import Batch, Learner
from purerl.config import ConfigError
from purerl.learning.branches import StepCount
from purerl.losses import mpo as losses
from tests.algorithms.agents import compiled

EPSILON = 0.1
BOUNDS = losses.Bounds(weights=EPSILON, mean=0.02, std=1.0)
# Three actions in four states: probabilities of the target policy, and values.
PRIOR = np.array([[0.2, 0.5, 0.3], [0.98, 0.01, 0.01], [1 / 3] * 3, [0.05, 0.05, 0.9]])
VALUES = np.array([[1.0, 3.0, -2.0], [0.0, 5.0, 1.0], [2.0, 2.0, 2.0], [10.0, 0, 0]])
LOG_PRIOR = jnp.asarray(np.log(PRIOR).T, jnp.float32)
Q = jnp.asarray(VALUES.T, jnp.float32)
solve = jax.jit(losses.solve_temperature)
improve = jax.jit(losses.improved)
divergence_from = jax.jit(losses.divergence_from)


def better(eta):
    """The closed form of the better policy, `[N, n]` in double precision."""
    factors = PRIOR * np.exp((VALUES - VALUES.max(1, keepdims=True)) / eta)
    return factors / factors.sum(1, keepdims=True)


def mean_divergence(eta):
    weights = better(eta)
    return special.rel_entr(weights, PRIOR).sum(1).mean()


def test_the_better_policy_is_as_far_from_the_old_one_as_is_allowed():
    eta = solve(Q, EPSILON, None, LOG_PRIOR)
    root = optimize.brentq(lambda x: mean_divergence(x) - EPSILON, 1e-2, 1e3)
    np.testing.assert_allclose(eta, root, rtol=1e-4)
    found = improve(LOG_PRIOR, Q, eta)
    np.testing.assert_allclose(found.weights.T, better(root), rtol=1e-3, atol=1e-6)
    kl = divergence_from(found.weights, LOG_PRIOR)
    np.testing.assert_allclose(kl.mean(), EPSILON, rtol=1e-3)
    # Where all actions are worth the same nothing is better than the old policy.
    np.testing.assert_allclose(found.weights[:, 2], 1 / 3, rtol=1e-5)
    # And the temperature is the minimum of the dual, whose slope is what is left.
    dual = jax.jit(jax.grad(losses.temperature_dual))(eta, Q, EPSILON, LOG_PRIOR)
    np.testing.assert_allclose(dual, 0.0, atol=1e-4)


def test_equal_probabilities_are_the_samples_of_continuous_actions():
    uniform = jnp.full_like(Q, -np.log(3))
    eta = solve(Q, EPSILON, None, uniform)
    np.testing.assert_allclose(eta, solve(Q, EPSILON), rtol=1e-5)
    dual = jax.jit(losses.temperature_dual)
    for one in (0.5, 4.0):
        np.testing.assert_allclose(
            dual(one, Q, EPSILON, uniform), dual(one, Q, EPSILON), rtol=1e-5
        )


def test_an_action_without_probability_gets_none_however_good_it_is():
    masked = jnp.asarray([[-1e9], [np.log(0.5)], [np.log(0.5)]], jnp.float32)
    values = jnp.array([[1e4], [1.0], [2.0]])
    eta = solve(values, 0.05, None, masked)
    found = improve(masked, values, eta)
    assert found.weights[0, 0] == 0.0
    kl = divergence_from(found.weights, masked)
    np.testing.assert_allclose(kl, 0.05, rtol=1e-2)
    # More than log 2 is never reached: the smallest temperature, where what is left of
    # the two is the best, and an excluded action's quotient would be 1e10.
    eta = solve(values, 0.8, None, masked)
    np.testing.assert_allclose(eta, losses.MIN_TEMPERATURE, rtol=1e-5)
    found = improve(masked, values, eta)
    np.testing.assert_array_equal(found.weights[:, 0], [0.0, 0.0, 1.0])


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_a_rare_best_action_does_not_stop_the_search(epsilon, scale):
    """Far from the root the divergence rounds to 0, and so does Newton's step."""
    log_rare, better_in = -25.0, 6
    log_prior = np.stack([np.full(64, log_rare), np.full(64, -np.exp(log_rare))])
    sign = np.where(np.arange(64) < better_in, 1.0, -1.0)
    values = np.float32(scale * np.stack([sign, np.zeros(64)]))
    log_prior = np.float32(log_prior)
    eta = solve(values, epsilon, None, log_prior)

    def divergence(x):
        """Mean over states, at the temperature `scale / x`; elsewhere it is 1e-11."""
        odds = np.exp(log_rare + x)
        weight = odds / (1 + odds)
        return better_in / 64 * (weight * x - np.log1p(odds))

    root = optimize.brentq(lambda x: divergence(x) - epsilon, 1.0, 100.0)
    np.testing.assert_allclose(eta, scale / root, rtol=1e-4)
    found = improve(log_prior, values, eta)
    kl = divergence_from(found.weights, log_prior).mean()
    np.testing.assert_allclose(kl, epsilon, rtol=1e-3)


def test_the_m_step_in_numbers():
    # At the old policy the divergence and its slope vanish: what remains is pi - q,
    # the slope of the likelihood in the logits, over the number of states.
    duals = losses.Duals(policy=jnp.full(1, losses.softplus_inverse(3.0)))
    found = improve(LOG_PRIOR, Q, jnp.float32(2.0))

    def loss(logits, duals):
        return losses.fit_discrete(duals, logits, found, BOUNDS)[0]

    old = LOG_PRIOR.T
    slopes = jax.jit(jax.grad(loss, argnums=(0, 1)))
    slope, dual_slope = slopes(old, duals)
    np.testing.assert_allclose(slope, (PRIOR - better(2.0)) / 4, atol=1e-5)
    # Inside its bound by all of 0.02, a multiplier shrinks: times softplus' slope.
    np.testing.assert_allclose(
        dual_slope.policy, [0.02 * (1 - np.exp(-3.0))], rtol=1e-3
    )
    # Elsewhere: the likelihood, and the multiplier of the divergence.
    logits = jnp.asarray(np.random.default_rng(0).normal(size=(4, 3)), jnp.float32)
    new = np.asarray(jax.nn.softmax(logits), np.float64)
    kl = (PRIOR * np.log(PRIOR / new)).sum(1).mean()
    likelihood = (better(2.0) * np.log(new)).sum(1).mean()
    fit = jax.jit(lambda *given: losses.fit_discrete(*given, found, BOUNDS))
    total, metrics = fit(duals, logits)
    np.testing.assert_allclose(metrics["kl_policy"], kl, rtol=1e-5)
    np.testing.assert_allclose(metrics["policy_loss"], -likelihood, rtol=1e-5)
    expected = -likelihood + 3.0 * kl + 3.0 * (0.02 - kl)
    np.testing.assert_allclose(total, expected, rtol=1e-4)
    slope, _ = slopes(logits, duals)
    expected = (new - better(2.0) + 3.0 * (new - PRIOR)) / 4
    np.testing.assert_allclose(slope, expected, atol=1e-5)


def test_a_temperature_by_gradient_descends_the_dual():
    duals = losses.Duals(policy=jnp.zeros(1), temperature=losses.softplus_inverse(2.0))
    found = improve(LOG_PRIOR, Q, jnp.float32(2.0))

    def loss(duals):
        return losses.fit_discrete(duals, LOG_PRIOR.T, found, BOUNDS)[0]

    slope = jax.jit(jax.grad(loss))(duals).temperature
    # g'(eta) = epsilon - KL, times softplus' slope.
    expected = (EPSILON - mean_divergence(2.0)) * (1 - np.exp(-2.0))
    np.testing.assert_allclose(slope, expected, rtol=1e-3)


def test_the_target_is_the_expectation_over_all_actions():
    config = purerl.MPOConfig(env="CartPole-v1", hidden_sizes=(4,))
    parts = mpo.build(config, resolve_env(config))
    state = jax.jit(lambda key: mpo.init(parts, key))(jax.random.key(0))
    duals = state.params["duals"]
    assert duals.mean is duals.std is None and duals.policy.shape == (1,)
    rng = np.random.default_rng(0)
    obs, next_obs = (
        jnp.asarray(rng.normal(size=(5, 4)), jnp.float32) for _ in range(2)
    )
    reward, discount = jnp.arange(5.0), jnp.array([0.0, 0.9, 0.9, 0.9, 0.8])
    batch = Batch(
        obs, jnp.array([0, 1, 1, 0, 1]), reward, next_obs, discount, jnp.ones(5)
    )
    actor = jax.tree.map(
        lambda x: np.asarray(x) + np.float32(0.3), state.target_params["actor"]
    )
    targets = {**state.target_params, "actor": actor}
    key = jax.random.key(0)
    target, improvement, policy, pair, values = compiled(
        lambda: (
            mpo.td_target(parts, targets, batch, key),
            mpo.improve(parts, targets, duals, batch.obs, key),
            jax.nn.softmax(parts.actor.apply(targets["actor"], next_obs)),
            parts.critics.apply(targets["critics"], next_obs),
            parts.critics.apply(state.params["critics"], obs),
        )
    )
    smaller = np.minimum(*pair)
    expected = reward + discount * (policy * smaller).sum(1)
    np.testing.assert_allclose(target, expected, rtol=1e-5)
    assert improvement.weights.shape == (2, 5)
    np.testing.assert_allclose(improvement.weights.sum(0), 1.0, rtol=1e-5)
    # The critics are judged by the actions that were taken.
    learner = Learner(state.params, targets, state.opt_state)
    learn = jax.jit(lambda *given: mpo.learn(parts, *given))
    _, td_error, metrics = learn(learner, batch, key, StepCount(jnp.uint32(0)))
    values = [one[np.arange(5), batch.action] for one in values]
    np.testing.assert_allclose(td_error, target - values[0], rtol=1e-4, atol=1e-5)
    loss = sum(0.5 * (one - target) ** 2 for one in values).mean()
    np.testing.assert_allclose(metrics["value_loss"], loss, rtol=1e-4)


def test_the_temperature_is_learned_where_the_config_says():
    config = purerl.MPOConfig(env="CartPole-v1")
    env = resolve_env(config)
    assert mpo.init_duals(mpo.build(config, env)).temperature is None
    learned = mpo.init_duals(mpo.build(config.replace(temperature="gradient"), env))
    np.testing.assert_allclose(losses.positive(learned.temperature), 10.0, rtol=1e-5)
    with pytest.raises(ConfigError, match="epsilon_mean must be greater than 0"):
        purerl.make_train(config.replace(epsilon_mean=0.0))
