"""Five agents of a tiny run in blocks of two, whose program is compiled once."""

import jax
import numpy as np
import pytest

from purerl.execution.cohort import make_cohort
from purerl.execution.programs import Members, ProgramCache
from purerl.train import bind
from tests.helpers import tiny_config

LANES, SEGMENT, UPDATES = 2, 4, 12


@pytest.fixture(scope="session")
def bound():
    config = tiny_config(total_timesteps=UPDATES * 32, num_evaluations=0)
    return bind(config)


@pytest.fixture(scope="session")
def members():
    rates = np.array([1e-3, 3e-3, 1e-2, 3e-2, 1e-4], np.float32)
    return Members(jax.random.split(jax.random.key(7), 5), {"learning_rate": rates})


@pytest.fixture(scope="session")
def cache():
    return ProgramCache()


@pytest.fixture(scope="session")
def begun(bound, cache):
    """What makes a cohort of some members at the beginning."""

    def begin(members):
        made = make_cohort(bound, members, LANES, SEGMENT, cache=cache)
        made.init()
        return made

    return begin


@pytest.fixture
def cohort(begun, members):
    return begun(members)
