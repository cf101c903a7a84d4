"""A policy with a memory; the tests of `recurrent_ppo` have rollouts with one."""

from functools import partial

import jax.numpy as jnp
import numpy as np

from purerl.acting.policy import RecurrentPolicy, recurrence_of
from purerl.types import Algorithm, Recurrence


def remembering():
    """An algorithm that adds up what it saw; its state is a factor."""

    def act(state, obs, memory, key=None):
        del key
        memory = memory + obs[..., 0]
        return (state * memory > 0).astype(jnp.int32), memory

    def refuse(*args):
        raise AssertionError("acted without its memory")

    recurrence = Recurrence(lambda shape: jnp.zeros(shape), act)
    return Algorithm(lambda key: key, lambda state: (state, {}), refuse, recurrence)


def test_a_policy_with_a_memory_goes_its_way_step_by_step():
    algorithm = remembering()
    assert recurrence_of(algorithm) is algorithm.recurrence
    policy = RecurrentPolicy(algorithm.recurrence, 2.0, partial(remembering))
    memory = policy.init()
    observations, expected = [1.0, -3.0, 1.0, 2.0], [1, 0, 0, 1]  # sums 1 -2 -1 1
    for obs, action in zip(observations, expected, strict=True):
        acted, memory = policy(np.array([obs]), memory)
        assert acted == action
    assert policy.restart(memory, True) == 0
    assert policy.restart(memory, False) == memory == 1

    batch = policy.init((3,))
    _, batch = policy(np.array([[1.0], [2.0], [3.0]]), batch)
    kept = policy.restart(batch, np.array([False, True, False]))
    np.testing.assert_array_equal(kept, [1.0, 0.0, 3.0])
