"""Agents whose actions have several parts: choices, switches and numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from tests import boxes
from tests.helpers import slow_but

CONFIGS = {
    "ppo": purerl.PPOConfig,
    "recurrent_ppo": purerl.RecurrentPPOConfig,
    "vpg": purerl.VPGConfig,
}
SHORT = {"env": boxes.MIXED, "hidden_sizes": (16,), "num_evaluations": 0}


@pytest.mark.slow
def test_ppo_learns_every_part_of_an_action():
    """Best is the door that is seen, both switches off, and the number that is seen."""
    config = purerl.PPOConfig(
        num_envs=16,
        num_steps=32,
        learning_rate=5e-3,
        total_timesteps=100 * 16 * 32,
        gamma=0.0,
        **SHORT,
    )
    result = jax.jit(purerl.make_train(config))(jax.random.key(0))
    policy = purerl.make_policy(config, result.state)
    doors = jnp.arange(60) % 3
    aims = jnp.linspace(-0.9, 0.9, 60)
    action = policy({"aim": aims, "door": doors})
    switches, numbers = action["gear"]
    np.testing.assert_array_equal(action["door"], doors)
    np.testing.assert_array_equal(switches, 0)
    np.testing.assert_allclose(numbers[:, 0], 2.0 + aims, atol=0.35)
    # Four steps of at most 1.5; an untrained agent has about 0.
    assert result.metrics["episode_return"][-1] > 4.5


@pytest.mark.parametrize("name", slow_but(CONFIGS))
def test_the_contract_holds_with_actions_of_several_parts(name):
    short = CONFIGS[name](num_envs=4, num_steps=8, total_timesteps=3 * 32, **SHORT)
    purerl.check(short)
