"""Time limits are no part of the task: values are right only with the flags apart.

On the chain every episode that does not start near the end is cut by the limit. With
truncation apart from termination the learned critic is the closed form
`gamma^(steps to go)`; with the two flags merged the same PPO settles on other values,
which are known too.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

import purerl
from envs.probe import ChainMDP
from purerl import networks

GAMMA, LENGTH = 0.9, 5
TOLERANCE = 0.03

CONFIG = purerl.PPOConfig(
    num_envs=16,
    num_steps=16,
    total_timesteps=16 * 16 * 200,
    num_minibatches=1,
    num_epochs=8,
    hidden_sizes=(16,),
    learning_rate=1e-2,
    gamma=GAMMA,
    gae_lambda=0.0,  # one-step targets, as `merged_values` derives
    value_loss=purerl.losses.SquaredError(),
    num_evaluations=0,
)


@dataclasses.dataclass(unsafe_hash=True)
class MergedChain(ChainMDP):
    """The known bug: an environment or wrapper that reports the limit as an end."""

    def step(self, key, state, action, params=None):
        obs, state, reward, terminated, truncated, info = super().step(
            key, state, action, params
        )
        done = terminated | truncated
        return obs, state, reward, done, jnp.zeros_like(done), info


def learned_values(env):
    result = jax.jit(purerl.make_train(CONFIG.replace(env=env)))(jax.random.key(0))
    torso = networks.make_torso("mlp", (LENGTH,), CONFIG.hidden_sizes, "tanh")
    critic = networks.Critic(torso)
    return np.asarray(critic.apply(result.state.params["critic"], jnp.eye(LENGTH)))


def test_with_the_flags_apart_values_are_the_closed_form():
    chain = ChainMDP(LENGTH)
    values = learned_values(chain)
    np.testing.assert_allclose(values, chain.optimal_values(GAMMA), atol=TOLERANCE)
    # The closed form by hand: 0.9^4, 0.9^3, 0.9^2, 0.9, 1.
    np.testing.assert_allclose(
        chain.optimal_values(GAMMA), [0.6561, 0.729, 0.81, 0.9, 1.0]
    )


def test_with_the_flags_merged_values_are_others():
    chain = MergedChain(LENGTH)
    values = learned_values(chain)
    merged = chain.merged_values(GAMMA)
    np.testing.assert_allclose(values, merged, atol=TOLERANCE)
    # By hand, limit 3: V4 = 1; position 3 is seen at times 0, 1, 2 and cut at 2:
    # V3 = 2/3 * 0.9 = 0.6; V2 = 2/3 * 0.54 = 0.36; V1 (times 0, 1) = 0.324;
    # V0 = 0.2916. The closed form is 0.36 away at the start.
    np.testing.assert_allclose(merged, [0.2916, 0.324, 0.36, 0.6, 1.0], atol=1e-9)
    assert np.abs(values - chain.optimal_values(GAMMA))[:4].min() > 8 * TOLERANCE
