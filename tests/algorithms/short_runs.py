"""The short runs that equivalences are tested on, and how they are compared."""

import jax
import numpy as np

import purerl
from tests import helpers
from tests.helpers import plain

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


def lane(tree, index):
    return jax.tree.map(lambda x: x[index], tree)


def assert_same_bits(one, other):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    helpers.assert_same_bits(one, other)


def assert_close(one, other):
    """Across widths: 1e-4 of the value, 2e-5 near zero, over the first updates."""
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for x, y in zip(
        jax.tree.leaves(plain(one)), jax.tree.leaves(plain(other)), strict=True
    ):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=2e-5)
