"""A training run of half a second, and the means to compare runs bit for bit."""

import jax
import numpy as np
import pytest

import purerl

NUM_UPDATES = 20
SEGMENT = 3  # does not divide 20: the last segment is partly idle
LANES = 2


@pytest.fixture(scope="session")
def tiny() -> purerl.PPOConfig:
    return purerl.PPOConfig(
        total_timesteps=NUM_UPDATES * 32,
        num_envs=2,
        num_steps=16,
        num_epochs=2,
        num_minibatches=2,
        hidden_sizes=(8,),
        num_evaluations=3,
        eval_episodes=2,
        eval_max_steps=20,
        eval_share=1.0,
    )


@pytest.fixture(scope="session")
def tiny_continuous(tiny) -> purerl.PPOConfig:
    return tiny.replace(
        env="probe/continuous", normalize_observations=True, normalize_rewards=True
    )


def run_tiny(config, **options):
    options = {
        "lanes": LANES,
        "segment_updates": SEGMENT,
        "progress": False,
        "checkpoint_seconds": 0.0,
        **options,
    }
    return purerl.run(config, **options)


def assert_same_bits(one, two):
    """Every array of two runs is equal, bit for bit (NaN equals NaN)."""
    left = jax.tree_util.tree_leaves_with_path(one)
    right = jax.tree.leaves(two)
    assert len(left) == len(right)
    for (path, a), b in zip(left, right, strict=True):
        name = jax.tree_util.keystr(path)
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b), err_msg=name)


def outcome(result):
    return result.state, result.metrics, result.evaluation
