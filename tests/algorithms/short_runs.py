"""The short runs that equivalences are tested on, and how they are compared."""

import jax

import purerl
from tests import helpers

UPDATES, LANES = 6, 4
EVALUATED_AFTER = (3, 6)

CONFIG = purerl.PPOConfig(
    env="CartPole-v1",
    total_timesteps=UPDATES * 4 * 16,
    num_envs=4,
    num_steps=16,
    num_epochs=2,
    num_minibatches=2,
    hidden_sizes=(8,),
    num_evaluations=len(EVALUATED_AFTER),
    eval_share=1.0,
    eval_episodes=2,
    eval_max_steps=12,
    learning_rate=1e-3,
)
KEYS = jax.random.split(jax.random.key(0), 2 * LANES)


def assert_same_bits(one, other):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    helpers.assert_same_bits(one, other)


def assert_close(one, other):
    """Across widths: 1e-4 of the value, 2e-5 near zero, over the first updates."""
    assert jax.tree.structure(one) == jax.tree.structure(other)
    helpers.assert_close(one, other)
