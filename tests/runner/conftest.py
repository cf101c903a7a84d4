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
