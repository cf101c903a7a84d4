"""VPG's arithmetic against closed forms, plain loops and an independent derivation."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import purerl
from purerl.acting.rollout import Transition
from purerl.algorithms import vpg
from tests.algorithms.agents import agent_of, compiled, samples_of

CONFIG = purerl.VPGConfig(
    num_envs=2,
    num_steps=8,
    critic_iterations=3,
    hidden_sizes=(5,),
    total_timesteps=2 * 8 * 4,
    num_evaluations=0,
)


def slopes(parts, actor, batch):
    """The gradient of the policy's loss, and its metrics."""
    loss = partial(vpg.policy_loss, parts)
    return jax.jit(jax.grad(loss, has_aux=True))(actor, batch)


def init(config):
    return jax.jit(purerl.make_algorithm(config).init)(jax.random.key(0))


def batch_of(obs, action, advantage, target=None):
    zeros = jnp.zeros(len(advantage))
    return vpg.Batch(
        obs=jnp.asarray(obs, jnp.float32),
        action=jnp.asarray(action),
        log_prob=zeros,
        value=zeros,
        advantage=jnp.asarray(advantage, jnp.float32),
        target=zeros if target is None else jnp.asarray(target, jnp.float32),
    )


# The policy gradient of a softmax bandit.


def bandit(logits, **fields):
    """A policy that ignores its input: zero weights, and the logits as last biases."""
    parts = agent_of(CONFIG.replace(**fields))
    algorithm = purerl.make_algorithm(parts.config)
    params = jax.eval_shape(algorithm.init, jax.random.key(0)).params["actor"]
    params = jax.tree.map(lambda x: jnp.zeros(x.shape), params)
    params["params"]["Dense_0"]["bias"] = jnp.asarray(logits, jnp.float32)
    return parts, params


def test_the_gradient_of_a_softmax_bandit_is_the_closed_form():
    # pi = softmax(log 3, 0) = (3/4, 1/4). For an action a, d log pi(a) / d logits is
    # onehot(a) - pi: (1/4, -1/4) for action 0, (-3/4, 3/4) for action 1.
    # Over three samples, weights 2, -1, 4 on actions 0, 0, 1:
    #   dJ = (2 (1/4, -1/4) - (1/4, -1/4) + 4 (-3/4, 3/4)) / 3 = (-11/12, 11/12)
    parts, actor = bandit([np.log(3.0), 0.0])
    batch = batch_of(np.zeros((3, 4)), [0, 0, 1], [2.0, -1.0, 4.0])
    grads, metrics = slopes(parts, actor, batch)
    np.testing.assert_allclose(
        grads["params"]["Dense_0"]["bias"], [11 / 12, -11 / 12], rtol=1e-5
    )
    # loss = -(2 log(3/4) - log(3/4) + 4 log(1/4)) / 3
    expected = -(np.log(0.75) + 4 * np.log(0.25)) / 3
    np.testing.assert_allclose(metrics["policy_loss"], expected, rtol=1e-5)
    np.testing.assert_allclose(
        metrics["entropy"], -(0.75 * np.log(0.75) + 0.25 * np.log(0.25)), rtol=1e-5
    )


def test_the_entropy_bonus_flattens_the_policy():
    # dH / d logits = -pi (log pi + H); without advantages nothing else acts.
    parts, actor = bandit([np.log(3.0), 0.0], entropy_coef=0.5)
    batch = batch_of(np.zeros((2, 4)), [0, 1], [0.0, 0.0])
    grads, _ = slopes(parts, actor, batch)
    pi = np.array([0.75, 0.25])
    slope = -pi * (np.log(pi) - (pi * np.log(pi)).sum())
    np.testing.assert_allclose(
        grads["params"]["Dense_0"]["bias"], -0.5 * slope, rtol=1e-5
    )


def test_the_gradient_of_a_gaussian_is_the_closed_form():
    # d log N(a; m, s) / dm = (a - m) / s^2 and / d log s = ((a - m) / s)^2 - 1, at
    # m = 0 and s = exp(-1/2), the initial one: s^2 = 1/e.
    config = CONFIG.replace(env="probe/continuous")
    parts = agent_of(config)
    started = init(config).params["actor"]
    actor = jax.tree.map(jnp.zeros_like, started)
    actor["params"]["log_std"] = started["params"]["log_std"]
    action, weight = np.array([0.5, -1.0]), np.array([1.0, 3.0])
    batch = batch_of(np.zeros((2, 1)), action[:, None], weight)
    grads, metrics = slopes(parts, actor, batch)
    mean_slope = (weight * action * np.e).mean()
    std_slope = (weight * (action**2 * np.e - 1)).mean()
    grads = grads["params"]
    np.testing.assert_allclose(grads["Dense_0"]["bias"], [-mean_slope], rtol=1e-5)
    np.testing.assert_allclose(grads["log_std"], [-std_slope], rtol=1e-5)
    log_prob = stats.norm.logpdf(action, 0.0, np.exp(-0.5))
    np.testing.assert_allclose(
        metrics["policy_loss"], -(weight * log_prob).mean(), rtol=1e-5
    )


# The fit of the value function.


def adam_loop(start, slope, rate, iterations):
    """Adam (Kingma and Ba 2015, algorithm 1) in float64."""
    x, m, v = start.copy(), np.zeros_like(start), np.zeros_like(start)
    for k in range(1, iterations + 1):
        g = slope(x)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        x = x - rate * (m / (1 - 0.9**k)) / (np.sqrt(v / (1 - 0.999**k)) + 1e-8)
    return x


def test_the_value_fit_is_so_many_steps_of_adam_on_the_squared_error():
    # A critic whose last bias alone is free to move: V(s) = b, error (b - G)^2 / 2 has
    # the slope b - mean(G). With zero kernels the other gradients vanish but for the
    # last kernel's, which is h (b - mean G) with h = tanh(0) = 0.
    iterations, rate = 7, 0.1
    config = CONFIG.replace(critic_iterations=iterations, critic_learning_rate=rate)
    parts = agent_of(config)
    state = init(config)
    critic = jax.tree.map(jnp.zeros_like, state.params["critic"])
    state = state._replace(params={**state.params, "critic": critic})
    target = np.array([1.0, 2.0, 6.0])
    batch = batch_of(np.zeros((3, 4)), [0, 0, 0], np.zeros(3), target)
    fit = jax.jit(partial(vpg.fit_value, parts))
    fitted, opt_state, losses = fit(state, batch)

    expected = adam_loop(np.zeros(1), lambda b: b - target.mean(), rate, iterations)
    bias = fitted["params"].pop("Dense_0")["bias"]
    np.testing.assert_allclose(bias, expected, rtol=1e-5)
    for leaf in jax.tree.leaves(fitted):  # the torso stays as it was
        np.testing.assert_array_equal(leaf, 0.0)
    assert opt_state[1][0].count == iterations
    # Errors before the first and the last step: (1 + 4 + 36) / 3 / 2 at b = 0.
    np.testing.assert_allclose(losses["value_loss"], 41 / 6, rtol=1e-6)
    before = adam_loop(np.zeros(1), lambda b: b - target.mean(), rate, iterations - 1)
    np.testing.assert_allclose(
        losses["value_loss_last"], 0.5 * ((before - target) ** 2).mean(), rtol=1e-5
    )


# Weights and targets of a rollout.


@pytest.fixture(scope="module")
def rollout():
    """One environment, four steps: an end, a time limit, an unfinished last path."""
    rng = np.random.default_rng(0)
    obs, next_obs = jnp.asarray(rng.normal(size=(2, 4, 1, 4)), jnp.float32)
    flag = lambda *x: jnp.asarray(x, bool)[:, None]  # noqa: E731
    return Transition(
        obs=obs,
        action=jnp.zeros((4, 1), jnp.int32),
        log_prob=jnp.zeros((4, 1)),
        reward=jnp.array([[1.0], [2.0], [4.0], [8.0]]),
        next_obs=next_obs,
        terminated=flag(0, 1, 0, 0),
        truncated=flag(0, 0, 1, 0),
    )


def judged(rollout, **fields):
    """A rollout's batch, and the critic's values `V(s_t)`, `V(s'_t)` of it."""
    config = CONFIG.replace(num_envs=1, gamma=0.5, normalize_advantages=False, **fields)
    parts = agent_of(config)

    def judge(state):
        critic = partial(parts.critic.apply, state.params["critic"])
        values = [critic(x)[:, 0] for x in (rollout.obs, rollout.next_obs)]
        return samples_of(vpg, parts, state, rollout), *values

    return compiled(judge, init(config))


def by_hand(next_value):
    #   R_3 = 8 + V(s'_3)/2    the rollout ends: the unfinished path is completed
    #   R_2 = 4 + V(s'_2)/2    a time limit, completed too; nothing of R_3
    #   R_1 = 2                terminated; nothing of R_2
    #   R_0 = 1 + R_1/2 = 2
    return np.array([2.0, 2.0, 4 + next_value[2] / 2, 8 + next_value[3] / 2])


def test_a_baseline_is_subtracted_from_the_weights_not_from_the_targets(rollout):
    batch, value, next_value = judged(rollout, advantage="rewards_to_go")
    np.testing.assert_allclose(batch.advantage, by_hand(next_value) - value, rtol=1e-5)
    np.testing.assert_allclose(batch.target, by_hand(next_value), rtol=1e-6)


def test_gae_weighs_actions_and_rewards_to_go_are_the_targets(rollout):
    # gamma = lambda = 1/2. delta_0 = 1 + V'_0/2 - V_0, delta_1 = 2 - V_1, and A_0 =
    # delta_0 + delta_1/4; the last two steps end their paths.
    batch, value, next_value = judged(rollout, gae_lambda=0.5)
    delta = np.array([1, 2, 4, 8]) + np.array([1, 0, 1, 1]) * next_value / 2 - value
    expected = delta + np.array([delta[1] / 4, 0, 0, 0])
    np.testing.assert_allclose(batch.advantage, expected, rtol=1e-5)
    np.testing.assert_allclose(batch.target, by_hand(next_value), rtol=1e-6)


def test_advantages_are_standardised_over_the_whole_batch(rollout):
    config = CONFIG.replace(num_envs=1, advantage="rewards_to_go", baseline=False)
    parts = agent_of(config)
    gather = jax.jit(lambda state: samples_of(vpg, parts, state, rollout))
    batch = gather(init(config))
    target = np.asarray(batch.target)  # not standardised
    np.testing.assert_allclose(
        batch.advantage, (target - target.mean()) / target.std(), rtol=1e-4
    )
