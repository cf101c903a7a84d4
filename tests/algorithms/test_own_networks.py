"""Networks by name and of the user's own, trained, saved, resumed, swept and shared."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl import networks
from purerl.algorithms import on_policy, policy_gradient, ppo
from purerl.config import ConfigError
from purerl.train import bind
from tests import nets
from tests.algorithms.agents import compiled
from tests.contracts.test_algorithms import small
from tests.helpers import StopAfter, assert_same_bits, tiny_config

SEGMENT = {"lanes": 1, "segment_updates": 5, "progress": False}
PICTURES = {"env": nets.PICTURES, "num_evaluations": 1}


@pytest.mark.slow(optimised=False)
def test_a_run_with_a_module_is_saved_read_and_resumed_with_the_same_bits(tmp_path):
    config = tiny_config(torso=nets.Torso(4), num_evaluations=1)
    whole = purerl.run(config, **SEGMENT)
    out = tmp_path / "run"
    stopped = purerl.run(
        config, out=out, trackers=[StopAfter(5)], checkpoint_seconds=0.0, **SEGMENT
    )
    assert not stopped.finished
    # The same module as a person writes it, and as the folder holds it.
    again = config.replace(torso="tests.nets:Torso(features=4)")
    resumed = purerl.run(again, out=out, resume=True, **SEGMENT)
    assert_same_bits(resumed.state, whole.state)
    loaded = purerl.load_run(out)
    assert loaded.config.torso == nets.Torso(4)
    one = jax.tree.map(lambda x: x[0], loaded.state)
    policy, obs = purerl.make_policy(loaded.config, one), jnp.ones((2, 3, 4))
    assert policy(obs).shape == (2, 3) and policy(obs[0, 0]).shape == ()
    layer = one.params["actor"]["params"]["torso"]["module"]["Dense_0"]
    assert layer["kernel"].shape == (4, 4)
    with pytest.raises(ConfigError, match=r"torso is .*features': 4.*features': 5"):
        other = config.replace(torso=nets.Torso(5))
        purerl.run(other, out=out, resume=True, **SEGMENT)


def joined(params):
    """Parameters of two networks with equal torsos, from those of one shared torso."""
    torso = params["actor"]["params"]["torso"]
    critic = {"params": {**params["critic"]["params"], "torso": torso}}
    return {"actor": params["actor"], "critic": critic}


def test_a_shared_torso_gets_the_sum_of_both_networks_gradients(key):
    shared, separate = (
        policy_gradient.make_agent(bound.config, bound.env)
        for bound in (
            bind(tiny_config(shared_torso=flag, layer_norm=True))
            for flag in (True, False)
        )
    )
    params = jax.jit(on_policy.algorithm(shared, ppo.learn).init)(key).params
    assert set(params["critic"]["params"]) == {"Dense_0"}
    rng = np.random.default_rng(0)
    numbers = [jnp.asarray(rng.normal(size=6), jnp.float32) for _ in range(4)]
    obs = jnp.asarray(rng.normal(size=(6, 4)), jnp.float32)
    batch = policy_gradient.Batch(obs, jnp.array([0, 1] * 3), *numbers)

    def gradient(parts, params):
        return jax.jit(jax.grad(lambda p: ppo.loss(parts, p, batch), has_aux=True))(
            params
        )

    found, metrics = gradient(shared, params)
    expected, same = gradient(separate, joined(params))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), metrics, same
    )
    actor, critic = (expected[name]["params"] for name in ("actor", "critic"))
    whole = jax.tree.map(
        lambda x, y: np.asarray(x) + y, actor["torso"], critic["torso"]
    )
    torso = found["actor"]["params"]["torso"]
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6),
        torso,
        whole,
    )
    assert all(np.abs(x).max() > 1e-6 for x in jax.tree.leaves(critic["torso"]))
    for mine, theirs in (
        (found["actor"]["params"], actor),
        (found["critic"]["params"], critic),
    ):
        np.testing.assert_allclose(
            mine["Dense_0"]["kernel"], theirs["Dense_0"]["kernel"], rtol=1e-4, atol=1e-6
        )


def test_a_shared_torso_acts_and_judges_as_two_networks_with_its_numbers(key):
    bound = bind(small("vpg", shared_torso=True))
    shared = policy_gradient.make_agent(bound.config, bound.env)
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
    config = small(algorithm, torso=torso, **PICTURES)
    state, metrics, *_ = jax.jit(purerl.make_train(config))(jax.random.key(0))
    before = jax.jit(purerl.make_algorithm(config).init)(jax.random.key(0))
    assert np.isfinite(metrics["value_loss"][-1])  # DQN's first update only warms up.
    moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), state.params, before.params)
    assert all(x > 0 for x in jax.tree.leaves(moved))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(state.params))
