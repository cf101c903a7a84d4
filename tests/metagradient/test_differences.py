"""The meta-gradient is the finite difference of the same updates on the same data."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl import precision
from purerl.losses import MLPDrift
from purerl.networks import distributions
from tests.helpers import CONTINUOUS_CARTPOLE
from tests.metagradient.configs import EACH, LPG, PPO
from tests.metagradient.replay import along, axis, difference, record

UNROLL = 2


@pytest.fixture(autouse=True)
def _in_float64(monkeypatch):
    """Everything in 64 bits, also what asks for 32 by name."""
    distributions._distrax()  # It looks for that name when it is first imported.
    monkeypatch.setattr(jnp, "float32", jnp.float64)
    with jax.enable_x64(True), precision.keeping_64_bits():
        yield


def both(config, names, key, **options):
    """The meta-gradient, and the replay of what it is the derivative of."""
    meta = purerl.meta_gradient(config, names, unroll=UNROLL, **options)
    replay = record(config, meta, key, options.get("objective", "policy_gradient"))
    found = jax.jit(meta)(replay.state, replay.values)
    return found, replay


def assert_each_number_agrees(found, replay):
    for name in (n for n, x in replay.values.items() if x.ndim == 0):
        direction = axis(replay.values, name)
        expected = difference(replay.outer_loss, replay.values, direction)
        assert abs(expected) > 1e-7, f"{name} does not move the outer loss"
        np.testing.assert_allclose(
            along(found.gradient, direction), expected, rtol=1e-5, err_msg=name
        )


@pytest.mark.slow(optimised=False)
def test_numbers_and_a_learned_drift_of_ppo(key):
    drift = MLPDrift.create(key, hidden_size=4, scale=0.3, base_clip=0.05)
    config = PPO.replace(policy_loss=drift)
    found, replay = both(config, EACH["ppo"][1], key)
    assert_each_number_agrees(found, replay)
    for seed in range(3):
        draw = partial(np.random.default_rng(seed).normal)
        direction = {
            name: draw(size=x.shape) * name.startswith("policy_loss")
            for name, x in replay.values.items()
        }
        expected = difference(replay.outer_loss, replay.values, direction, 1e-6)
        assert abs(expected) > 1e-7
        actual = along(found.gradient, direction)
        np.testing.assert_allclose(actual, expected, rtol=1e-4)


# The scale of the rewards follows the discount, and the derivative knows it.
NORMALISED = PPO.replace(
    env=CONTINUOUS_CARTPOLE, normalize_rewards=True, normalize_observations=True
)
CASES = {
    **{name: (*each, {}) for name, each in EACH.items()},
    "values": (*EACH["ppo"], {"objective": "actor_critic"}),
    "normalised": (NORMALISED, EACH["ppo"][1], {}),
}


@pytest.mark.slow(optimised=False)
@pytest.mark.parametrize(("config", "names", "options"), CASES.values(), ids=CASES)
def test_the_numbers_of(config, names, options, key):
    assert_each_number_agrees(*both(config, names, key, **options))


@pytest.mark.slow(optimised=False)
def test_a_learned_rule(key):
    """LPG's rule, which sees what the agents that it has made think of their rollout.

    Its output for the prediction moves the policy in later updates only.
    """
    found, replay = both(LPG, "rule", key)
    random = np.random.default_rng(0)
    for name in replay.values:
        direction = {
            other: random.normal(size=x.shape) * (other == name)
            for other, x in replay.values.items()
        }
        expected = difference(replay.outer_loss, replay.values, direction)
        actual = along(found.gradient, direction)
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-10)
        assert abs(expected) > 1e-9, f"{name} does not move the outer loss"
