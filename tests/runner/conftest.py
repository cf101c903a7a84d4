"""A training run of half a second."""

import pytest

import purerl
from tests.helpers import assert_same_bits as assert_same_bits
from tests.helpers import tiny_config

NUM_UPDATES = 20
SEGMENT = 3  # does not divide 20: the last segment is partly idle
LANES = 2


@pytest.fixture(scope="session")
def tiny() -> purerl.PPOConfig:
    return tiny_config()


@pytest.fixture(scope="session")
def tiny_off_policy() -> purerl.DQNConfig:
    """Twenty updates of 32 steps; the warm-up ends in the second segment."""
    return purerl.DQNConfig(
        total_timesteps=NUM_UPDATES * 32,
        num_envs=2,
        rounds_per_update=16,
        learning_starts=130,
        buffer_size=301,  # full, and overwritten, before the end
        batch_size=8,
        prioritised=True,
        n_step=2,
        epsilon_steps=300.0,
        target_update_interval=7,
        hidden_sizes=(8,),
        num_evaluations=3,
        eval_episodes=2,
        eval_max_steps=20,
        eval_share=1.0,
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


def outcome(result):
    return result.state, result.metrics, result.evaluation
