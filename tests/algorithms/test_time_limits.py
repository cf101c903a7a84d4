"""Time limits are no part of the task: values are right only with the flags apart.

On the chain every episode that does not start near the end is cut by the limit. With
truncation apart from termination what an algorithm learns is the closed form
`gamma^(steps to go)`; with the two flags merged the same algorithm settles on other
values, which are known too. An algorithm is a row of `CASES`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl import networks
from purerl.algorithms import actor_critic
from purerl.config import TrainConfig
from purerl.envs.probe import ChainMDP
from tests.helpers import slow_but

GAMMA, LENGTH = 0.9, 5
TOLERANCE = 0.03


class Case(NamedTuple):
    """How an algorithm learns the chain, and what it then takes for its values.

    `values(config, state)` is the learned value of every position, `[LENGTH]`; where
    there are values of actions, either action's, since both do the same.
    `trace_decay` is that of its targets: 0 one step, 1 rewards to the path's end.
    `continuous` is whether it needs an action that is a number.
    """

    config: TrainConfig
    values: Callable[[Any, Any], Any]
    trace_decay: float = 0.0
    continuous: bool = False


def critic_values(config, state):
    """Of an actor-critic with a value function."""
    torso = networks.make_torso("mlp", (LENGTH,), config.hidden_sizes, "tanh")
    return networks.Critic(torso).apply(state.params["critic"], jnp.eye(LENGTH))


def q_network_values(config, state):
    """Of a Q-network: the first action's."""
    torso = networks.make_torso(
        "mlp", (LENGTH,), config.hidden_sizes, config.activation, config.layer_norm
    )
    q = networks.DiscreteCritic(torso, 2).apply(state.params, jnp.eye(LENGTH))
    return q[:, 0]


def twin_critic_values(config, state):
    """Of two critics of observation and action: the first one's, at action 0."""
    critics = actor_critic.make_critics(config, (LENGTH,))
    return critics.apply(
        state.params["critics"], jnp.eye(LENGTH), jnp.zeros((LENGTH, 1))
    )[0]


# Of every algorithm with replay. Whatever is in the buffer, the values are the same.
OFF_POLICY = {
    "num_envs": 8,
    "num_steps": 8,
    "gradient_steps": 8,
    "rounds_per_update": 20,
    "total_timesteps": 8 * 8 * 20 * 10,
    "learning_starts": 640,
    "batch_size": 512,  # targets at the cuts are noisy
    "hidden_sizes": (16,),
    "activation": "tanh",
    "learning_rate": 5e-3,
}

CASES = {
    "ppo": Case(
        purerl.PPOConfig(
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
    "vpg": Case(
        purerl.VPGConfig(
            num_envs=16,
            # Long: the few paths that the rollout's end cuts are completed with values,
            # and what merged flags lead to is derived without such paths.
            num_steps=64,
            total_timesteps=16 * 64 * 150,
            critic_iterations=10,
            hidden_sizes=(16,),
            critic_learning_rate=1e-2,
            anneal_learning_rate=True,  # returns are noisy: average over rollouts
        ),
        critic_values,
        trace_decay=1.0,
    ),
    "pqn": Case(
        purerl.PQNConfig(
            num_envs=64,  # targets at the cuts are noisy
            num_steps=16,
            total_timesteps=64 * 16 * 200,
            num_minibatches=1,
            num_epochs=4,
            hidden_sizes=(16,),
            learning_rate=1e-2,
            trace_decay=0.0,
        ),
        q_network_values,
    ),
    "dqn": Case(
        purerl.DQNConfig(
            **OFF_POLICY, target_update_interval=20, anneal_learning_rate=True
        ),
        q_network_values,
    ),
    "td3": Case(
        purerl.TD3Config(**OFF_POLICY, tau=0.1), twin_critic_values, continuous=True
    ),
    # Entropy is worth next to nothing, or values would be those of another task.
    "sac": Case(
        purerl.SACConfig(
            **OFF_POLICY, tau=0.05, temperature_init=1e-6, learn_temperature=False
        ),
        twin_critic_values,
        continuous=True,
    ),
    "mpo": Case(
        purerl.MPOConfig(
            **{**OFF_POLICY, "learning_rate": 2e-3},
            n_step=1,
            action_samples=2,
            bootstrap_samples=2,
            target_update_interval=20,
        ),
        twin_critic_values,
        continuous=True,
    ),
}


def learned_values(case, env):
    config = case.config.replace(env=env, gamma=GAMMA, num_evaluations=0)
    result = jax.jit(purerl.make_train(config))(jax.random.key(0))
    return np.asarray(case.values(config, result.state))


@pytest.mark.parametrize("name", slow_but(CASES, "ppo", "td3"))
def test_with_the_flags_apart_values_are_the_closed_form(name):
    chain = ChainMDP(LENGTH, CASES[name].continuous)
    values = learned_values(CASES[name], chain)
    np.testing.assert_allclose(values, chain.optimal_values(GAMMA), atol=TOLERANCE)
