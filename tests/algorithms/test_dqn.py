"""DQN against the textbook, one gradient step at a time."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import purerl
from purerl.acting import exploration
from purerl.acting.environment import resolve_env
from purerl.algorithms import dqn
from purerl.algorithms.off_policy import Batch
from purerl.learning import optimiser
from purerl.learning.branches import StepCount
from purerl.losses import HuberError, SquaredError
from tests.algorithms.q_probes import Q_PROBES
from tests.helpers import assert_close

N = 7
CONFIG = purerl.DQNConfig(hidden_sizes=(5,), batch_size=N, learning_rate=1e-2)


@cache
def make(**changes):
    """A parts, the way back from flat parameters, and a learner with two networks."""
    config = CONFIG.replace(**changes)
    parts = dqn.build(config, resolve_env(config))
    init = jax.jit(lambda key: parts.network.init(key, jnp.zeros((1, 4))))
    online, target = map(init, jax.random.split(jax.random.key(0)))
    flat, restore = optimiser.flatten(online)
    state = jax.jit(dqn.make_optimiser(config, restore).init)(flat)
    return parts, restore, dqn.Learner(flat, optimiser.flatten(target)[0], state)


def make_batch():
    keys = jax.random.split(jax.random.key(1), 5)
    return Batch(
        obs=jax.random.normal(keys[0], (N, 4)),
        action=jnp.array([0, 1, 1, 0, 1, 0, 0]),
        reward=jax.random.normal(keys[1], (N,)),
        next_obs=jax.random.normal(keys[2], (N, 4)),
        # Terminated, one step, two steps.
        discount=jnp.array([0.0, 0.9, 0.81, 0.9, 0.0, 0.9, 0.81]),
        weight=jax.random.uniform(keys[3], (N,)),
    )


def q_values(parts, restore, flat, obs):
    return np.asarray(jax.jit(parts.network.apply)(restore(flat), obs))


@pytest.mark.parametrize("double", [False, True])
def test_the_target_is_the_textbooks(double):
    parts, restore, learner = make(double=double)
    batch = make_batch()
    target = jax.jit(partial(dqn.td_target, parts, restore))(learner, batch)
    batch = jax.tree.map(np.asarray, batch)
    online = q_values(parts, restore, learner.params, batch.next_obs)
    slow = q_values(parts, restore, learner.target_params, batch.next_obs)
    chosen = (online if double else slow).argmax(1)
    expected = batch.reward + batch.discount * slow[np.arange(N), chosen]
    np.testing.assert_allclose(target, expected, rtol=1e-5)
    # The two estimators do differ on this batch.
    assert (online.argmax(1) != slow.argmax(1)).any()


@pytest.mark.parametrize("error", [SquaredError(), HuberError(0.3)])
def test_a_gradient_step_is_the_textbooks(error):
    parts, restore, learner = make(value_loss=error, max_grad_norm=0.5)
    batch = make_batch()

    def loss(params, target):
        q = parts.network.apply(params, batch.obs)
        total = 0.0
        for i in range(N):
            diff = q[i, batch.action[i]] - target[i]
            one = 0.5 * diff**2
            if isinstance(error, HuberError):
                one = jnp.where(jnp.abs(diff) < 0.3, one, 0.3 * (jnp.abs(diff) - 0.15))
            total = total + batch.weight[i] * one / N
        return total

    optim = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(1e-2))

    @jax.jit
    def textbook(learner):
        target = dqn.td_target(parts, restore, learner, batch)
        params = restore(learner.params)
        total, grads = jax.value_and_grad(loss)(params, target)
        updates, _ = optim.update(grads, optim.init(params), params)
        return target, total, optax.apply_updates(params, updates)

    target, total, expected = textbook(learner)
    learn = jax.jit(partial(dqn.learn, parts, restore))
    new, td_error, metrics = learn(learner, batch, None, StepCount(jnp.int32(0)))
    assert_close(restore(new.params), expected, atol=1e-6)
    q = q_values(parts, restore, learner.params, batch.obs)
    chosen = q[np.arange(N), np.asarray(batch.action)]
    np.testing.assert_allclose(td_error, np.asarray(target) - chosen, rtol=1e-4)
    np.testing.assert_allclose(metrics["value_loss"], total, rtol=1e-5)


@pytest.mark.parametrize("tau", [0.25, 1.0])
def test_the_target_network_follows_after_every_interval_and_only_then(tau):
    parts, restore, learner = make(target_update_interval=3, tau=tau)
    batch, step = make_batch(), jax.jit(partial(dqn.learn, parts, restore))
    for count in range(7):
        new, *_ = step(learner, batch, None, StepCount(jnp.int32(count)))
        if count in (2, 5):
            expected = (1 - tau) * learner.target_params + tau * new.params
            exact = 0.0 if tau == 1.0 else 1e-6  # a copy
            np.testing.assert_allclose(new.target_params, expected, rtol=exact)
        else:
            np.testing.assert_array_equal(new.target_params, learner.target_params)
        learner = new


def test_dueling_values_are_those_of_the_two_streams():
    parts, restore, learner = make(hidden_sizes=(6, 5), dueling=True)
    obs = jax.random.normal(jax.random.key(5), (3, 4))
    params = restore(learner.params)
    weights = jax.tree.map(np.asarray, params["params"])

    @jax.jit
    def seen(params):
        torso = parts.network.apply(
            params, obs, method=lambda module, x: module.torso(x)
        )
        return parts.network.apply(params, obs), torso

    q, torso = seen(params)

    def stream(index):
        hidden = weights[f"MLP_{index}"]["Dense_0"]
        head = weights[f"Dense_{index}"]
        features = np.asarray(torso) @ hidden["kernel"] + hidden["bias"]
        return np.maximum(features, 0) @ head["kernel"] + head["bias"]

    advantage, value = stream(0), stream(1)
    expected = value + advantage - advantage.mean(1, keepdims=True)  # eq. 9
    np.testing.assert_allclose(q, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(q.mean(1), value[:, 0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("option", "shapes"),
    [
        ({"dueling": True}, [(4, 2), (4, 1)]),
        ({"noisy": True}, [(4, 2)]),
        ({"values": "implicit"}, [(64, 4), (4, 2)]),
    ],
)
def test_without_hidden_layers_every_stream_is_linear(option, shapes):
    config = purerl.DQNConfig(hidden_sizes=(), **option)
    init = purerl.make_algorithm(config).init
    params = jax.eval_shape(init, jax.random.key(0)).params["params"]
    layers = jax.tree.leaves(params, is_leaf=lambda part: "kernel" in part)
    assert sorted(x["kernel"].shape for x in layers) == sorted(shapes)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        # From 0.9 to 0.1 in 100 steps.
        ("linear", [0.9, 0.5, 0.1, 0.1]),
        # 0.1 + 0.8 / (1 + t / 100)
        ("inverse_time", [0.9, 0.1 + 0.8 / 1.5, 0.5, 0.1 + 0.8 / 11]),
        ("constant", [0.1, 0.1, 0.1, 0.1]),
    ],
)
def test_schedules_of_epsilon(schedule, expected):
    steps = jnp.array([0, 50, 100, 1000], jnp.uint32)
    numbers = {"epsilon_start": 0.9, "epsilon_end": 0.1, "epsilon_steps": 100.0}
    config = purerl.DQNConfig(epsilon_schedule=schedule, **numbers)
    epsilon = exploration.epsilon_of(config, steps)
    np.testing.assert_allclose(epsilon, expected, rtol=1e-6)


def test_every_environment_tosses_its_own_coin():
    # The known bug: one coin for the batch, so that all explore together or none.
    q = np.tile(np.array([0.0, 0.0, 1.0, 0.0], np.float32), (1000, 1))

    @jax.jit
    def act(key):
        draw = jax.vmap(lambda key: exploration.draw_coin(key, num_actions=4))
        coins = draw(jax.random.split(key, 1000))
        return exploration.epsilon_greedy(jnp.asarray(q), coins, jnp.full(1000, 0.4))

    actions = act(jax.random.key(0))
    # Greedy is action 2: 60% and a quarter of the rest; others 10% each.
    shares = np.bincount(np.asarray(actions), minlength=4) / 1000
    np.testing.assert_allclose(shares, [0.1, 0.1, 0.7, 0.1], atol=0.035)


PROBE = purerl.DQNConfig(
    num_envs=4,
    total_timesteps=4000,
    learning_starts=100,
    buffer_size=1000,
    batch_size=32,
    epsilon_start=1.0,
    epsilon_end=1.0,  # all actions: the values of all of them are known
    gamma=0.7,  # far from 1, so that forgetting it shows
    hidden_sizes=(16,),
    learning_rate=1e-2,
    target_update_interval=10,
    num_evaluations=1,
    eval_episodes=8,
    eval_max_steps=3,
)


def learned(env, *observations, **changes):
    config = PROBE.replace(env=env, **changes)
    result = jax.jit(purerl.make_train(config))(jax.random.key(0))
    parts = dqn.build(config, resolve_env(config))
    obs = jnp.asarray(observations, jnp.float32)[:, None]
    return result, np.asarray(dqn.values_of(parts, result.state.params, obs))


@pytest.mark.parametrize(("env", "observations", "expected"), Q_PROBES)
def test_action_values_of_the_probes(env, observations, expected):
    result, q = learned(env, *observations)
    np.testing.assert_allclose(q, expected, atol=0.08)
    if "action" in env:
        np.testing.assert_array_equal(result.evaluation["episode_return"], 1.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"n_step": 3},
        {"prioritised": True},
        {"n_step": 2, "prioritised": True, "dueling": True, "buffer_size": 999},
        {"values": "categorical", "value_min": -2.0, "value_max": 2.0, "n_step": 2},
        {"values": "quantile", "prioritised": True},
        {"values": "implicit", "dueling": True, "double": False},
    ],
    ids=["n_step", "prioritised", "all", "categorical", "quantile", "implicit"],
)
def test_the_options_leave_the_values_what_they_are(options):
    # Windows end with their episode: one step late pays 0.7, not 0.7 and the next 1.
    _, q = learned("probe/delayed-reward", 0.0, 1.0, **options)
    np.testing.assert_allclose(q, [[0.7, 0.7], [1, 1]], atol=0.08)
    result, q = learned("probe/action-observation", -1.0, 1.0, **options)
    np.testing.assert_allclose(q, [[1, -1], [-1, 1]], atol=0.08)
    np.testing.assert_array_equal(result.evaluation["episode_return"], 1.0)


def test_the_step_size_of_dqn_decays_over_its_gradient_steps():
    parts, restore, learner = make(anneal_learning_rate=True)
    learn, batch = jax.jit(partial(dqn.learn, parts, restore)), make_batch()
    for share in (0.0, 0.5, 1.0):
        count = jnp.uint32(share * parts.config.total_gradient_steps)
        new, *_ = learn(learner, batch, None, StepCount(count))
        moved = np.abs(new.params - learner.params).max()  # Adam's first step
        np.testing.assert_allclose(moved, 1e-2 * (1 - share), rtol=1e-3, atol=1e-7)
