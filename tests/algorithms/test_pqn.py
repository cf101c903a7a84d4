"""PQN against arithmetic by hand, plain loops and tasks whose answer is known.

With a memory and without one.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl.acting import exploration
from purerl.algorithms import on_policy, pqn
from purerl.keys import update_keys
from purerl.losses import HuberError
from tests import nets
from tests.algorithms import by_hand
from tests.algorithms.agents import (
    agent_of,
    algorithm_of,
    compiled,
    rolled,
    rows_of,
    samples_of,
)
from tests.algorithms.q_probes import Q_PROBES

CONFIG = purerl.PQNConfig(
    num_envs=4,
    num_steps=16,
    num_epochs=2,
    num_minibatches=2,
    hidden_sizes=(8,),
    total_timesteps=4 * 4 * 16,
    epsilon_start=0.9,
    epsilon_end=0.1,
    epsilon_steps=128.0,
    learning_rate=1e-3,
    num_evaluations=1,
    eval_episodes=2,
    eval_max_steps=10,
)


def make(**changes):
    """The parts of a config and a fresh state."""
    config = CONFIG.replace(**changes)
    parts = agent_of(config, pqn.make_agent)
    return parts, algorithm_of(config).init(jax.random.key(0))


def q_values(parts, params, obs):
    return np.asarray(parts.networks["q"].apply(params["q"], jnp.asarray(obs)))


@pytest.mark.parametrize("delta", [None, 0.3])
def test_the_loss_is_that_of_the_chosen_actions_value(delta):
    changes = {} if delta is None else {"value_loss": HuberError(delta)}
    parts, state = make(**changes)
    rng = np.random.default_rng(1)
    obs = jnp.asarray(rng.normal(size=(6, 4)), jnp.float32)
    action = jnp.array([0, 1, 1, 0, 1, 0])
    target = jnp.asarray(rng.normal(size=6), jnp.float32)
    total, metrics = pqn.loss(parts, state.params, pqn.Batch(obs, action, target))
    q = q_values(parts, state.params, obs)
    chosen = np.array([q[i, a] for i, a in enumerate(np.asarray(action))])
    error = np.abs(chosen - np.asarray(target))
    expected = 0.5 * error**2
    if delta is not None:
        assert (error > delta).any() and (error < delta).any()
        expected = np.where(error < delta, expected, delta * (error - delta / 2))
    np.testing.assert_allclose(total, expected.mean(), rtol=1e-5)
    np.testing.assert_allclose(metrics["q_value"], chosen.mean(), rtol=1e-4)


@pytest.mark.slow
def test_the_targets_are_those_of_the_network_before_the_update():
    # With epochs that hardly move the network, every pass sees the same loss; with a
    # target that followed the network, large steps would see others than this one.
    parts, state = make(num_epochs=2, num_minibatches=1, learning_rate=1e-12)
    _, metrics = jax.jit(lambda s: on_policy.step(parts, pqn.learn, s))(state)
    transitions = on_policy.collect(parts, state, update_keys(state, 3)).transitions
    batch = samples_of(pqn, parts, state, transitions)
    expected, _ = pqn.loss(parts, state.params, batch)
    np.testing.assert_allclose(metrics["value_loss"], expected, rtol=1e-5)


def test_epsilon_of_an_update_is_that_of_its_first_step():
    # 64 steps per update; 0.9 to 0.1 over 128 steps: 0.9, 0.5, 0.1, 0.1.
    parts, _ = make()
    epsilon_of = partial(exploration.epsilon_of_update, parts.config)
    epsilons = jax.vmap(epsilon_of)(jnp.arange(4))
    np.testing.assert_allclose(epsilons, [0.9, 0.5, 0.1, 0.1], rtol=1e-6)


def test_a_greedy_rollout_takes_the_best_actions():
    parts, state = make(epsilon_start=0.0, epsilon_end=0.0)
    transitions = on_policy.collect(parts, state, jax.random.key(3)).transitions
    greedy = q_values(parts, state.params, transitions.obs).argmax(-1)
    np.testing.assert_array_equal(transitions.action, greedy)


@pytest.mark.slow
def test_acting_is_greedy_and_with_keys_explores_at_the_last_epsilon():
    parts, state = make(epsilon_end=0.5)
    obs = jax.random.normal(jax.random.key(4), (2000, 4))
    greedy = q_values(parts, state.params, obs).argmax(-1)
    np.testing.assert_array_equal(on_policy.act(parts, state, obs, ())[0], greedy)
    explored = on_policy.act(parts, state, obs, (), jax.random.key(5))[0]
    # Half the actions are uniform, and half of those the greedy one.
    np.testing.assert_allclose((explored != greedy).mean(), 0.25, atol=0.04)


def test_layer_norm_is_before_every_activation_unless_it_is_off():
    def norms(**changes):
        _, state = make(hidden_sizes=(8, 8), **changes)
        paths = jax.tree_util.tree_leaves_with_path(state.params)
        return sum("LayerNorm" in jax.tree_util.keystr(path) for path, _ in paths)

    assert norms() == 4  # scale and bias of two layers
    assert norms(layer_norm=False) == 0


PROBE = CONFIG.replace(
    num_envs=16,
    num_epochs=4,
    num_minibatches=4,
    # Where the observation is always 0 the last bias alone learns, at RAdam's pace.
    total_timesteps=16 * 16 * 120,
    gamma=0.7,  # far from 1, so that forgetting it shows
    epsilon_schedule="constant",
    epsilon_end=1.0,  # all actions: the values of all of them are known
    hidden_sizes=(16,),
    learning_rate=1e-2,
    eval_episodes=8,
    eval_max_steps=3,
)


@pytest.mark.parametrize(("env", "observations", "expected"), Q_PROBES)
@pytest.mark.slow(optimised=False)
def test_action_values_of_the_probes(env, observations, expected):
    config = PROBE.replace(env=env)
    result = jax.jit(purerl.make_train(config))(jax.random.key(0))
    parts = agent_of(config, pqn.make_agent)
    obs = jnp.asarray(observations, jnp.float32)[:, None]
    q = q_values(parts, result.state.params, obs)
    np.testing.assert_allclose(q, expected, atol=0.03)
    if "action" in env:
        np.testing.assert_array_equal(result.evaluation["episode_return"], 1.0)


# With a memory: a plain loop.

RECURRENT = purerl.RecurrentPQNConfig(
    env="probe/chain",  # terminations and truncations
    env_kwargs={"length": 5},
    num_envs=4,
    num_steps=8,
    num_minibatches=2,
    total_timesteps=4 * 8 * 10,
    hidden_sizes=(8,),
    memory=nets.Leaky(6),
    sequence_length=8,
    gamma=0.9,
    trace_decay=0.7,
    epsilon_steps=50.0,
    num_evaluations=0,
)


def test_values_targets_and_loss_are_those_of_a_plain_loop():
    parts = agent_of(RECURRENT, pqn.make_agent)
    state, played = rolled(parts, pqn.learn, updates=1)

    def learned_from(state, played):
        rows, core = rows_of(pqn, parts, state, played), state.params["core"]
        entering = partial(by_hand.entering, parts.memory.core, core)
        steps = played.transitions
        return (
            *(rows.batch.target, entering(steps.obs), entering(steps.next_obs)),
            pqn.loss(parts, state.params, rows)[0],
        )

    targets, entering, following, found = compiled(learned_from, state, played)
    transitions, memories = jax.tree.map(
        np.asarray, (played.transitions, played.memories)
    )
    head = jax.tree.map(np.asarray, state.params["q"]["params"]["Dense_0"])

    def values(memory):
        return memory @ head["kernel"] + head["bias"]

    ends = transitions.terminated, transitions.truncated
    steps, num_envs = ends[0].shape
    squared, cut = [], 0
    for b in range(num_envs):
        memory = np.asarray(state.memory.carry[b])
        q, bootstrap = np.zeros(steps), np.zeros(steps)
        for t in range(steps):
            memory = 0.5 * memory + entering[t, b]
            np.testing.assert_allclose(memories.output[t, b], memory, atol=1e-5)
            q[t] = values(memory)[transitions.action[t, b]]
            # The memory of this episode sees the observation before any reset.
            bootstrap[t] = values(0.5 * memory + following[t, b]).max()
            if ends[0][t, b] or ends[1][t, b]:
                memory = np.zeros_like(memory)
        target = 0.0
        for t in reversed(range(steps)):
            last = ends[1][t, b] or t == steps - 1
            decay = 0.0 if last else 0.7
            later = (1 - decay) * bootstrap[t] + decay * target
            target = transitions.reward[t, b] + 0.9 * later * (not ends[0][t, b])
            np.testing.assert_allclose(targets[b, t], target, atol=1e-5)
            squared.append(np.square(q[t] - target))
            cut += bool(ends[1][t, b])
    assert cut > 2
    np.testing.assert_allclose(found, np.mean(squared) / 2, rtol=1e-4)


def test_a_critic_of_ones_own_is_on_the_memory():
    config = RECURRENT.replace(critic=nets.Policy(2))
    algorithm = purerl.make_algorithm(config)
    state = jax.eval_shape(algorithm.init, jax.random.key(0))
    kernel = jax.tree.leaves(state.params["q"])[-1]
    assert kernel.shape[0] == 6
