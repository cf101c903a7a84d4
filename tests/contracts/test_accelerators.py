"""Programs are written otherwise for an accelerator: every algorithm can be traced.

What they compute is held in `tests/algorithms/test_few_kernels.py` and
`tests/core/test_packing.py`; here nothing is compiled.
"""

import jax
import pytest

import purerl
from purerl.accelerator.kernels import traced_for
from tests.contracts.tools import rows
from tests.helpers import slow_but

CONFIGS = {**rows.defaults(), **rows.variants()}
QUICK = ("ppo", "ppo-continuous", "ppo-dict-masked", "dqn")


@pytest.mark.parametrize("name", slow_but(CONFIGS, *QUICK))
def test_a_run_is_traced_for_an_accelerator_as_for_a_cpu(name):
    def shapes(platform):
        with traced_for(platform):
            # A function of its own, as JAX keeps what it has traced.
            train = purerl.make_train(CONFIGS[name])
            return jax.eval_shape(train, jax.random.key(0))

    assert shapes("cuda") == shapes("cpu")
