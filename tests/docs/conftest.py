"""What a page registers is gone after its tests: other tests list the registries."""

from contextlib import ExitStack
from unittest.mock import patch

import pytest

from purerl.algorithms import ALGORITHMS
from purerl.envs import registry
from purerl.losses import LOSSES
from purerl.optimisers import OPTIMISERS
from purerl.randomisation import DISTRIBUTIONS
from purerl.schedules import SCHEDULES


@pytest.fixture(scope="module", autouse=True)
def registries():
    tables = (registry._ENTRIES, ALGORITHMS, LOSSES, OPTIMISERS)
    tables += (SCHEDULES, DISTRIBUTIONS)
    with ExitStack() as stack:
        for table in tables:
            stack.enter_context(patch.dict(table))
        yield
