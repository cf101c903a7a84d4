"""Time limits are no part of the task: values are right only with the flags apart.

On the chain every episode that does not start near the end is cut by the limit. With
truncation apart from termination what an algorithm learns is the closed form
`gamma^(steps to go)`. One algorithm learns from its own rollout and one from replay:
targets of the others are held to plain loops over both flags.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl import networks
from purerl.algorithms import actor_critic
from purerl.envs.probe import ChainMDP

GAMMA, LENGTH = 0.9, 5


def critic_values(config, state):
    """Of an actor-critic with a value function."""
    torso = networks.make_torso("mlp", (LENGTH,), config.hidden_sizes, "tanh")
    return networks.Critic(torso).apply(state.params["critic"], jnp.eye(LENGTH))


def twin_critic_values(config, state):
    """Of two critics of observation and action: the first one's, at action 0."""
    critics = actor_critic.make_critics(config, (LENGTH,))
    return critics.apply(
        state.params["critics"], jnp.eye(LENGTH), jnp.zeros((LENGTH, 1))
    )[0]


CASES = {
    "ppo": (
        purerl.PPOConfig(
            env=ChainMDP(LENGTH),
            num_envs=16,
            num_steps=16,
            total_timesteps=16 * 16 * 200,
            num_minibatches=1,
            num_epochs=8,
            hidden_sizes=(16,),
            learning_rate=1e-2,
            gae_lambda=0.0,
            value_loss=purerl.losses.SquaredError(),
        ),
        critic_values,
    ),
    # Whatever is in the buffer, the values are the same.
    "td3": (
        purerl.TD3Config(
            env=ChainMDP(LENGTH, continuous=True),
            num_envs=8,
            num_steps=8,
            gradient_steps=8,
            rounds_per_update=20,
            total_timesteps=8 * 8 * 20 * 10,
            learning_starts=640,
            batch_size=512,  # targets at the cuts are noisy
            hidden_sizes=(16,),
            activation="tanh",
            learning_rate=5e-3,
            tau=0.1,
        ),
        twin_critic_values,
    ),
}


@pytest.mark.parametrize(("config", "values_of"), CASES.values(), ids=CASES)
def test_with_the_flags_apart_values_are_the_closed_form(config, values_of):
    config = config.replace(gamma=GAMMA, num_evaluations=0)
    result = jax.jit(purerl.make_train(config))(jax.random.key(0))
    expected = config.env.optimal_values(GAMMA)
    np.testing.assert_allclose(values_of(config, result.state), expected, atol=0.03)
