"""MPO: one gradient step against the textbook, and known bugs."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy import optimize, special

import purerl
from purerl.acting.environment import resolve_env
from purerl.algorithms import actor_critic, mpo
from purerl.algorithms.off_policy import Batch, Learner
from purerl.config import ConfigError
from purerl.learning.branches import StepCount
from purerl.losses import mpo as losses
from purerl.networks.distributions import _distrax
from purerl.replay import uniform as replay
from tests.algorithms.agents import compiled
from tests.algorithms.test_actor_critics import TwoActions
from tests.helpers import assert_close, assert_same_bits

# One gradient step, of two action dimensions.

SAMPLES, STATES, ACTIONS = 7, 5, 2
SMALL = purerl.MPOConfig(
    env=TwoActions(),
    action_samples=SAMPLES,
    bootstrap_samples=3,
    batch_size=STATES,
    hidden_sizes=(8,),
    activation="tanh",
    multiplier_mean=2.0,
    multiplier_std=30.0,
    max_grad_norm=0.5,  # so that it binds
    target_update_interval=3,
    learning_starts=10,
    total_timesteps=1_000,
)


def flat(params):
    return ravel_pytree(params)[0]


def scramble(params, seed, scale=0.3):
    vector, restore = ravel_pytree(params)
    noise = jax.random.normal(jax.random.key(seed), vector.shape)
    return restore(vector + scale * noise)


@pytest.fixture(scope="module")
def start():
    """A learner whose targets are not its online networks, and a batch."""
    parts = mpo.build(SMALL, SMALL.env)
    state = jax.jit(partial(mpo.init, parts))(jax.random.key(0))
    state = state._replace(target_params=scramble(state.target_params, 1))
    state.params["actor"] = scramble(state.target_params["actor"], 2, 0.1)
    keys = jax.random.split(jax.random.key(3), 5)
    batch = Batch(
        obs=jax.random.normal(keys[0], (STATES, 1)),
        action=jax.random.uniform(keys[1], (STATES, ACTIONS), minval=-1.0),
        reward=jax.random.normal(keys[2], (STATES,)),
        next_obs=jax.random.normal(keys[3], (STATES, 1)),
        discount=jnp.array([0.99, 0.99, 0.0, 0.99, 0.99]),
        weight=jnp.ones(STATES),
    )
    return parts, state, batch


def act_with(parts, params, obs, num, key):
    """Raw actions of a policy by distrax, from the noise that the learner draws."""
    outputs = parts.actor.apply(params["actor"], obs)
    noise = jax.random.normal(key, (num, len(obs), ACTIONS))
    std = jnp.broadcast_to(jnp.exp(outputs.log_std), noise.shape)
    return jnp.broadcast_to(outputs.mean, noise.shape) + std * noise


def values_of(parts, params, obs, raw):
    """The smaller of both critics, sample by sample."""
    rows = [parts.critics.apply(params["critics"], obs, jnp.tanh(a)) for a in raw]
    return jnp.stack([jnp.minimum(*row) for row in rows])


def textbook(parts, state, batch, key):
    """The three steps as in the papers: distrax for distributions, scipy for eta."""
    config, targets = parts.config, state.target_params
    key_evaluate, key_improve = jax.random.split(key)

    @jax.jit
    def evaluate():
        num = config.bootstrap_samples
        raw = act_with(parts, targets, batch.next_obs, num, key_evaluate)
        v_next = values_of(parts, targets, batch.next_obs, raw).mean(0)
        target = batch.reward + batch.discount * v_next
        raw = act_with(parts, targets, batch.obs, config.action_samples, key_improve)
        return target, raw, values_of(parts, targets, batch.obs, raw)

    target, raw, q = evaluate()
    q = np.asarray(q, np.float64)

    def dual(log_eta):
        eta = np.exp(log_eta)
        return eta * (config.epsilon + np.log(np.exp(q / eta).mean(0)).mean())

    found = optimize.minimize_scalar(
        dual, bounds=(-8, 5), method="bounded", options={"xatol": 1e-10}
    )
    eta = np.exp(found.x)
    weights = jnp.asarray(np.exp(q / eta) / np.exp(q / eta).sum(0), jnp.float32)

    def normal(mean, log_std):
        return _distrax().MultivariateNormalDiag(mean, jnp.exp(log_std))

    def loss(params):
        old = parts.actor.apply(targets["actor"], batch.obs)
        new = parts.actor.apply(params["actor"], batch.obs)
        critic = 0.0
        for value in parts.critics.apply(params["critics"], batch.obs, batch.action):
            critic += (0.5 * (value - target) ** 2).mean()
        fit = 0.0
        for one in (normal(new.mean, old.log_std), normal(old.mean, new.log_std)):
            fit += (weights * jnp.stack([one.log_prob(a) for a in raw])).sum(0).mean()
        total = critic - fit
        duals = params["duals"]
        for d in range(ACTIONS):
            before = normal(old.mean[:, d:][:, :1], old.log_std[:, d:][:, :1])
            moved = normal(new.mean[:, d:][:, :1], old.log_std[:, d:][:, :1])
            spread = normal(old.mean[:, d:][:, :1], new.log_std[:, d:][:, :1])
            for param, kl, epsilon in (
                (duals.mean[d], before.kl_divergence(moved), config.epsilon_mean),
                (duals.std[d], before.kl_divergence(spread), config.epsilon_std),
            ):
                multiplier, kl = jax.nn.softplus(param), kl.mean()
                total += jax.lax.stop_gradient(multiplier) * kl
                total += multiplier * (epsilon - jax.lax.stop_gradient(kl))
        return total

    return eta, target, jax.jit(jax.grad(loss))(state.params)


def test_one_gradient_step_is_the_textbooks(start):
    parts, state, batch = start
    config, key = parts.config, jax.random.key(7)
    before = Learner(state.params, state.target_params, state.opt_state)
    learn = jax.jit(partial(mpo.learn, parts))
    # Targets are copied after every third gradient step: number 2, counted from 0. The
    # known bugs are targets that are nearly the online networks, and never copied.
    learner, *_ = learn(before, batch, key, StepCount(jnp.int32(2)))
    online = {name: learner.params[name] for name in learner.target_params}
    assert_same_bits(learner.target_params, online)
    learner, td_error, metrics = learn(before, batch, key, StepCount(jnp.int32(0)))
    assert_same_bits(learner.target_params, before.target_params)
    eta, target, grads = textbook(parts, state, batch, key)

    np.testing.assert_allclose(metrics["temperature"], eta, rtol=1e-3)
    apply = jax.jit(parts.critics.apply)
    value = apply(state.params["critics"], batch.obs, batch.action)[0]
    np.testing.assert_allclose(td_error, target - value, rtol=1e-4, atol=1e-5)
    rates = {"actor": 3e-4, "critics": 3e-4, "duals": 1e-2}
    for name, rate in rates.items():
        norm = jnp.linalg.norm(flat(grads[name]))
        np.testing.assert_allclose(metrics[f"{name}_grad_norm"], norm, rtol=2e-3)
        # Adam's first moment after one step is a tenth of the clipped gradient.
        moment = learner.opt_state[name][1][0].mu
        scale = 0.1 * min(1.0, config.max_grad_norm / norm)
        scaled = jax.tree.map(lambda x, by=scale: by * x, grads[name])
        assert_close(moment, scaled, rtol=5e-3, atol=1e-5)
        # And its first step is the step size, in the direction of each sign.
        moved = np.abs(flat(learner.params[name]) - flat(state.params[name]))
        np.testing.assert_allclose(moved.max(), rate, rtol=1e-2)


@pytest.mark.slow
def test_one_constraint_for_all_dimensions_is_on_their_sum(start):
    parts, state, batch = start
    joint_setup = parts._replace(config=SMALL.replace(per_dimension=False))
    duals, joint_duals = mpo.init_duals(parts), mpo.init_duals(joint_setup)
    assert duals.mean.shape == duals.std.shape == (ACTIONS,)
    assert joint_duals.mean.shape == joint_duals.std.shape == (1,)
    improvement = mpo.improve(
        parts, state.target_params, duals, batch.obs, jax.random.key(0)
    )
    outputs = parts.actor.apply(state.params["actor"], batch.obs)
    fit = partial(losses.fit_loss, new=outputs, improvement=improvement)
    _, each = fit(duals, bounds=losses.Bounds(0.1, 1e-3, 1e-5))
    _, joint = fit(joint_duals, bounds=losses.Bounds(0.1, 1e-3, 1e-5))
    for name in ("kl_mean", "kl_std"):
        np.testing.assert_allclose(joint[name], ACTIONS * each[name], rtol=1e-5)


# Acting.


@pytest.mark.slow
def test_deterministic_acting_during_training():
    # The known bug: after the warm-up the deterministic action was taken. A policy of
    # nearly mean 0 and std 1 gives distinct actions, with tanh(N(0, 1))'s spread 0.63.
    config = SMALL.replace(
        num_envs=3,
        rounds_per_update=20,
        buffer_size=60,
        learning_starts=31,  # between two rounds
        total_timesteps=60,
        num_evaluations=0,
    )
    result = jax.jit(purerl.make_train(config))(jax.random.key(0))
    buffer = replay.in_order(result.state.buffer)
    after = np.asarray(buffer.action)[config.learning_starts :]
    assert len(np.unique(after)) == after.size
    assert 0.4 < after.std() < 0.85


def act(parts, state, obs, key=None):
    return actor_critic.act(actor_critic.decide, parts, state, obs, (), key)[0]


def test_the_deterministic_action_is_the_squashed_mean_scaled(start):
    # The known bug: the raw mean was clipped, while the critics had seen its tanh.
    parts, state, batch = start
    actor = scramble(state.params["actor"], 5, 1.0)
    state = state._replace(params={**state.params, "actor": actor})
    mean = parts.actor.apply(state.params["actor"], batch.obs).mean
    assert np.abs(mean).max() > 0.5  # where tanh is far from the mean itself
    action = act(parts, state, batch.obs)
    np.testing.assert_allclose(action, 1.0 + 2.0 * np.tanh(mean), rtol=1e-5, atol=1e-5)


def test_sampled_actions_have_the_policys_quantiles(start):
    parts, state, batch = start
    outputs = parts.actor.apply(state.params["actor"], batch.obs[:1])
    keys = jax.random.split(jax.random.key(0), 20_000)
    actions = jax.jit(jax.vmap(lambda k: act(parts, state, batch.obs[0], k)))(keys)
    # 15.87% of a normal lies below mean - std; tanh and scaling are monotone.
    for z, share in ((-1.0, 0.1587), (0.0, 0.5), (1.0, 0.8413)):
        bound = 1.0 + 2.0 * np.tanh(outputs.mean + z * np.exp(outputs.log_std))
        np.testing.assert_allclose(
            (actions < bound).mean(0), np.full(ACTIONS, share), atol=0.015
        )


# Discrete actions: both steps against closed forms.

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
