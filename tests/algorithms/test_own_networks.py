"""Networks by name, trained, and a torso that two networks share."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl import networks
from purerl.algorithms import on_policy, policy_gradient, ppo
from tests import nets
from tests.algorithms.agents import agent_of, compiled
from tests.contracts.test_algorithms import small
from tests.helpers import assert_close, tiny_config


def joined(params):
    """Parameters of two networks with equal torsos, from those of one shared torso."""
    torso = params["actor"]["params"]["torso"]
    critic = {"params": {**params["critic"]["params"], "torso": torso}}
    return {"actor": params["actor"], "critic": critic}


def test_a_shared_torso_gets_the_sum_of_both_networks_gradients(key):
    shared, separate = (
        agent_of(purerl.resolve(tiny_config(shared_torso=flag, layer_norm=True)))
        for flag in (True, False)
    )
    params = jax.jit(on_policy.algorithm(shared, ppo.learn).init)(key).params
    assert set(params["critic"]["params"]) == {"Dense_0"}
    rng = np.random.default_rng(0)
    numbers = [jnp.asarray(rng.normal(size=6), jnp.float32) for _ in range(4)]
    obs = jnp.asarray(rng.normal(size=(6, 4)), jnp.float32)
    batch = policy_gradient.Batch(obs, jnp.array([0, 1] * 3), *numbers)

    def gradient(parts, params):
        loss = partial(ppo.loss, parts, rows=batch)
        return jax.jit(jax.grad(loss, has_aux=True))(params)

    found, metrics = gradient(shared, params)
    expected, same = gradient(separate, joined(params))
    assert_close(metrics, same, rtol=1e-5, atol=0)
    actor, critic = (expected[name]["params"] for name in ("actor", "critic"))
    both = {"torso": jax.tree.map(np.add, actor["torso"], critic["torso"])}
    assert_close(found["actor"]["params"], actor | both, rtol=1e-4, atol=1e-6)
    assert all(np.abs(x).max() > 1e-6 for x in jax.tree.leaves(critic["torso"]))
    assert_close(found["critic"]["params"]["Dense_0"], critic["Dense_0"], 1e-4, 1e-6)


def test_a_shared_torso_acts_and_judges_as_two_networks_with_its_numbers(key):
    shared = agent_of(purerl.resolve(small("vpg", shared_torso=True)))
    torso = networks.make_torso("mlp", (4,), (4,), "tanh")

    def outputs(key):
        params = on_policy.init(shared, lambda params: (), key).params
        obs = jax.random.normal(key, (5, 2, 4))
        inputs = shared.inputs(params, obs)
        return (
            shared.critic.apply(params["critic"], inputs),
            shared.on_features.apply(params["actor"], inputs),
            networks.Critic(torso).apply(joined(params)["critic"], obs),
            shared.actor.apply(params["actor"], obs),
        )

    value, logits, expected, other = compiled(outputs, key)
    np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(logits, other, rtol=1e-5, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
@pytest.mark.parametrize("torso", networks.TORSOS)
def test_every_torso_by_name_trains_on_pictures(algorithm, torso):
    config = small(algorithm, torso=torso, env=nets.PICTURES, num_evaluations=1)
    state, metrics, *_ = jax.jit(purerl.make_train(config))(jax.random.key(0))
    before = jax.jit(purerl.make_algorithm(config).init)(jax.random.key(0))
    assert np.isfinite(metrics["value_loss"][-1])  # DQN's first update only warms up.
    moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), state.params, before.params)
    assert all(x > 0 for x in jax.tree.leaves(moved))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(state.params))
