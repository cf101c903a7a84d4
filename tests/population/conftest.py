"""A population of half a second: axes, and what its searches share."""

import pytest

import purerl
from tests.helpers import tiny_config

NUM_UPDATES = 20
LANES = 4
SEED = 3
ROUND, SIZE = 4, 6  # five rounds; two blocks, the second one with two idle lanes
PBT = {
    "population": SIZE,
    "ready_updates": ROUND,
    "lanes": LANES,
    "fitness": "evaluation",
    "progress": False,
}
RUNG = 2  # rungs after 2, 6 and 20 updates; brackets of 9, 5 and 3 members
HALVING = {"min_updates": RUNG, "eta": 3, "lanes": LANES, "progress": False}


@pytest.fixture(scope="session")
def tiny() -> purerl.PPOConfig:
    return tiny_config(num_evaluations=0, normalize_observations=True)


@pytest.fixture(scope="session")
def axes():
    return {
        "learning_rate": purerl.loguniform(1e-4, 1e-2),
        "gamma": purerl.uniform(0.9, 0.999),
        "entropy_coef": [0.0, 0.01, 0.1],
    }
