"""A population of half a second: axes, and what its searches share."""

import pytest

import purerl
from tests.helpers import tiny_config

NUM_UPDATES = 20
LANES = 4
SEED = 3


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


class KilledError(Exception):
    """In place of a kill: nothing after it runs."""


def stop_after(monkeypatch, records: int):
    """Let a search die right after it has written so many more records."""
    from purerl.search import folder

    save, left = folder.save_step, [records]

    def save_and_count(*args):
        save(*args)
        left[0] -= 1
        if left[0] == 0:
            raise KilledError

    monkeypatch.setattr(folder, "save_step", save_and_count)
