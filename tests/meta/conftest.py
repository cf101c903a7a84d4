"""An evolution of half a second: every test of its bits is made of one program."""

import jax
import numpy as np
import pytest

import purerl
from purerl.optimisers import LearnedOptimiser
from purerl.rules import LPGRule
from tests.helpers import tiny_config

LANES, SEGMENT = 4, 10
# Six members with two rollouts: three blocks of four lanes.
POPULATION, ROLLOUTS, GENERATIONS = 6, 2, 3
EVOLVED = "policy_loss,learning_rate"
STRATEGY = "open-es(sigma=0.5, learning_rate=0.2)"
SETTINGS = {
    "strategy": STRATEGY,
    "population": POPULATION,
    "rollouts": ROLLOUTS,
    "generations": GENERATIONS,
    "lanes": LANES,
    "segment_updates": SEGMENT,
    "seed": 3,
    "progress": False,
}


def start():
    return tiny_config(policy_loss=purerl.losses.DPODrift())


def evolve(config=None, evolved=EVOLVED, **changes):
    """An evolution at the width and segments that the tests share."""
    config = start() if config is None else config
    return purerl.evolve(config, evolved, **{**SETTINGS, **changes})


def with_optimiser():
    """A config with a learned optimiser whose weights are evolved."""
    return tiny_config(optimiser=LearnedOptimiser.make(hidden_size=4)), "optimiser"


def with_rule():
    """A config whose rule of learning, a small LSTM, is evolved."""
    config = purerl.LPGConfig(
        env="CartPole-v1",
        total_timesteps=640,
        num_envs=2,
        num_steps=16,
        hidden_sizes=(8,),
        rule=LPGRule.make(hidden_size=4, prediction_size=4, embedding_size=4),
    )
    return config, "rule"


# What `evolve` is called with, by name of the part that is evolved.
PARTS = {"loss": tuple, "optimiser": with_optimiser, "rule": with_rule}


def outcome(result):
    """Everything that an evolution computes, but its times."""
    state = result._state._replace(seconds=np.zeros(0))
    return state, result.solution, result.best().point


# Of a module, not of the session: a file sets how its programs are compiled, and two
# ways of compiling differ in the last bits.
@pytest.fixture(scope="module")
def whole():
    """Three generations, in memory, in one process, a block at a time."""
    return evolve()


@pytest.fixture
def one_core(monkeypatch):
    """As on a machine where JAX has one worker."""
    from purerl.scale import devices

    monkeypatch.setattr(devices, "num_cores", lambda: 1)
    assert len(devices.make_workers()) == 1
    return jax.local_devices()[0]
