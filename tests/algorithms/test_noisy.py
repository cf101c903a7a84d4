"""Noisy networks (Fortunato et al. 2018): what the noise is, and where it is fresh."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl import networks
from purerl.acting.environment import resolve_env
from purerl.algorithms import dqn
from purerl.networks.heads import NOISE
from tests.algorithms.test_dqn import make_batch

SIZES = (3, 2)  # inputs and outputs


@pytest.fixture(scope="module")
def layer():
    """A noisy layer and its parameters, of which no two are equal."""
    module = networks.NoisyDense(SIZES[1])
    params = module.init(jax.random.key(0), jnp.zeros((1, SIZES[0])))["params"]
    leaves, structure = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(1), len(leaves))
    leaves = [jax.random.normal(k, x.shape) for k, x in zip(keys, leaves, strict=True)]
    return module, {"params": jax.tree.unflatten(structure, leaves)}


def test_without_a_key_the_layer_is_the_plain_one(layer):
    module, params = layer
    mean = {name: params["params"][name] for name in ("kernel", "bias")}
    x = jax.random.normal(jax.random.key(2), (4, SIZES[0]))
    plain = networks.Dense(SIZES[1]).apply({"params": mean}, x)
    np.testing.assert_array_equal(module.apply(params, x), plain)


def test_noise_begins_as_in_the_paper():
    module = networks.NoisyDense(SIZES[1], sigma=0.4)
    params = module.init(jax.random.key(0), jnp.zeros((1, SIZES[0])))
    for name in ("kernel_sigma", "bias_sigma"):
        np.testing.assert_allclose(params["params"][name], 0.4 / np.sqrt(3), rtol=1e-6)


def test_mean_and_covariance_of_the_outputs_have_a_closed_form(layer):
    # E f(e)^2 = E |e| = sqrt(2 / pi). Two outputs share the noise of their inputs, but
    # each has a sign of its own, so that they do not correlate; two rows with the same
    # noise do.
    module, params = layer
    x = jax.random.normal(jax.random.key(2), (2, SIZES[0]))
    keys = jax.random.split(jax.random.key(3), 40_000)
    y = jax.jit(jax.vmap(lambda key: module.apply(params, x, rngs={NOISE: key})))(keys)
    y, (w, b, s, r) = (
        np.asarray(y, np.float64),
        (
            np.asarray(params["params"][name], np.float64)
            for name in ("kernel", "bias", "kernel_sigma", "bias_sigma")
        ),
    )
    x = np.asarray(x, np.float64)
    np.testing.assert_allclose(y.mean(0), x @ w + b, atol=0.05)
    own = (2 / np.pi) * np.square(x) @ np.square(s) + np.sqrt(2 / np.pi) * np.square(r)
    np.testing.assert_allclose(y.var(0), own, rtol=0.05)
    centred = y - y.mean(0)
    both = (2 / np.pi) * (x[0] * x[1]) @ np.square(s) + np.sqrt(2 / np.pi) * r**2
    np.testing.assert_allclose((centred[:, 0] * centred[:, 1]).mean(0), both, atol=0.15)
    across = (centred[:, 0, 0] * centred[:, 0, 1]).mean()
    assert abs(across) < 0.05 * np.sqrt(own[0, 0] * own[0, 1])


CONFIG = purerl.DQNConfig(hidden_sizes=(8,), noisy=True, noisy_sigma=3.0)


@pytest.fixture(scope="module")
def agent():
    """A parts with a state, and its hooks."""
    parts = dqn.build(CONFIG, resolve_env(CONFIG))
    state = dqn.init(parts, jax.random.key(0))
    whole = dqn.enter(parts, state)
    return parts, state, whole


def test_every_environment_and_step_has_noise_of_its_own(agent):
    _, _, (hooks, learner, _) = agent
    draw = jax.jit(lambda key: hooks.draw_action(key, (50, 4)))
    noise = draw(jax.random.key(1))
    assert len(np.unique(jax.random.key_data(noise).reshape(200, -1), axis=0)) == 200
    # The same observation everywhere: what differs is the noise.
    obs = jnp.ones((4, 4))
    steps = jnp.zeros(4, jnp.uint32)
    explore = jax.jit(jax.vmap(lambda n: hooks.explore(learner, obs, (), n, steps)[0]))
    actions = np.asarray(explore(noise))
    assert 0.1 < actions.mean() < 0.9
    assert (actions != actions[:, :1]).any() and (actions != actions[:1]).any()
    np.testing.assert_array_equal(actions, explore(noise))


def test_evaluation_is_by_the_means(agent):
    parts, state, _ = agent
    obs = jax.random.normal(jax.random.key(2), (16, 4))
    means = jax.tree.map(lambda x: x, state.params)
    silent = jax.tree_util.tree_map_with_path(
        lambda path, x: 0.0 * x if "sigma" in jax.tree_util.keystr(path) else x, means
    )
    greedy = dqn.act(parts, state, obs, ())[0]
    values = dqn.values_of(parts, silent, obs, jax.random.key(3))
    np.testing.assert_array_equal(greedy, values.argmax(1))
    keys = jax.random.split(jax.random.key(4), 20)
    drawn = jax.jit(jax.vmap(lambda key: dqn.act(parts, state, obs, (), key)[0]))(keys)
    assert (np.asarray(drawn) != np.asarray(greedy)).any()


def test_a_gradient_step_draws_noise_for_each_of_its_networks(agent):
    parts, state, (_, learner, _) = agent
    restore, batch = dqn.optimiser.flatten(state.params)[1], make_batch()
    draws = dqn.draw(parts, jax.random.key(5), len(batch.reward))
    keys = jax.random.key_data(jnp.stack(draws[1:]))
    assert len(np.unique(keys, axis=0)) == 3
    # Each of them moves what it is for, and nothing else does.
    target = dqn.td_target(parts, restore, learner, batch, draws)
    slow = dqn.values_of(parts, state.target_params, batch.next_obs, draws.target)
    fast = dqn.values_of(parts, state.params, batch.next_obs, draws.chooser)
    value = np.asarray(slow)[np.arange(len(slow)), np.asarray(fast).argmax(1)]
    np.testing.assert_allclose(
        target, batch.reward + batch.discount * value, rtol=1e-5, atol=1e-5
    )
    total, (td_error, _) = dqn.loss(
        parts, restore, learner.params, batch, target, draws
    )
    q = dqn.values_of(parts, state.params, batch.obs, draws.online)
    taken = np.asarray(q)[np.arange(len(q)), np.asarray(batch.action)]
    np.testing.assert_allclose(td_error, target - taken, rtol=1e-4, atol=1e-4)
    other, _ = dqn.loss(parts, restore, learner.params, batch, target)
    assert abs(float(total) - float(other)) > 1e-3
