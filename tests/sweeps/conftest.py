import numpy as np
import pytest

import purerl
from purerl.scale.devices import make_workers
from purerl.sweeps.plan import SweepOptions, make_outline
from tests.helpers import tiny_config

# Every sweep of these tests is made of the same two programs.
LANES, SEGMENT = 2, 4
RATES = [1e-3, 3e-3, 1e-2]


def run_sweep(config, axes=None, **options):
    """A sweep at the width and segments that the tests share."""
    defaults = {"lanes": LANES, "segment_updates": SEGMENT, "progress": False}
    defaults["seeds"] = 1
    return purerl.sweep(config, axes, **{**defaults, **options})


def outline_of(config, axes, seeds, **options):
    """What a sweep of a grid is asked to train, on two workers."""
    asked = SweepOptions(config, axes, seeds=seeds, **options)
    return make_outline(asked, make_workers()[:1] * 2, 1e12)


def assert_equal(one, two):
    """Two results have the same variables, bit for bit."""
    assert set(one.names) == set(two.names)
    for name in one.names:
        np.testing.assert_array_equal(one[name].values, two[name].values, err_msg=name)


@pytest.fixture(scope="session")
def tiny():
    return tiny_config()


# Of a module, not of the session: a file sets how its programs are compiled, and two
# ways of compiling differ in the last bits.
@pytest.fixture(scope="module")
def whole(tiny):
    """Three learning rates, five seeds, in memory."""
    return run_sweep(tiny, {"learning_rate": RATES}, seeds=5)
