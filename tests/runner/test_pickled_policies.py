"""A policy travels to another process as what it was trained with."""

import pickle

import jax
import numpy as np
import pytest

import purerl
from tests.contracts.test_algorithms import small
from tests.helpers import assert_same_bits, slow_but

OBS = np.linspace(-0.1, 0.1, 4, dtype=np.float32)


@pytest.mark.parametrize(
    "name", slow_but(["ppo", "sac/discrete", "recurrent_ppo"], "ppo", "recurrent_ppo")
)
def test_a_policy_that_was_pickled_acts_alike(name, tmp_path):
    config = small(name, num_evaluations=0)
    result = purerl.run(config, seeds=[3], out=tmp_path, progress=False)
    state = jax.jit(purerl.make_algorithm(config).init)(jax.random.key(3))
    for policy in (
        result.policy(3),
        purerl.load_run(tmp_path).policy(3),
        purerl.make_policy(config, state),
    ):
        other, key = pickle.loads(pickle.dumps(policy)), jax.random.key(1)
        given = (OBS, policy.init()) if hasattr(policy, "init") else (OBS,)
        for arguments in (given, (*given, key)):
            assert_same_bits(policy(*arguments), other(*arguments))
