"""From observations to what a network takes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl.acting.policy import RecurrentPolicy, recurrence_of
from purerl.config import ConfigError
from purerl.envs.spaces import Box, Dict, Discrete
from purerl.networks.observe import completed, to_features
from purerl.types import Algorithm, Recurrence
from tests.contracts.test_algorithms import small
from tests.helpers import tiny_config

KEY = jax.random.key(0)

BYTES = jnp.array([0, 51, 255], jnp.uint8).reshape(1, 1, 3)


@pytest.mark.parametrize(
    "space",
    [
        Box(0, 255, (1, 1, 3), np.float32),  # in its own units
        Box(0, 1, (1, 1, 3), np.uint8),  # planes of zeros and ones
        Box(0, 255, (3,), np.uint8),  # no image
    ],
)
def test_other_numbers_stay_as_they_are(space):
    obs = BYTES.astype(space.dtype).reshape(space.shape)
    np.testing.assert_array_equal(to_features(space, obs), obs)


PARTS = Dict({"a": Box(-1, 1, (4,)), "b": Discrete(3)})


@pytest.mark.parametrize(
    ("space", "obs", "words"),
    [
        (Box(-1, 1, (4,)), np.zeros(3), r"shape \(4,\), or axes .*, got \(3,\)"),
        (Box(-1, 1, (4,)), 0.0, r"shape \(4,\), .*, got \(\)"),
        (Box(-1, 1, (4,)), np.zeros((4, 2)), r"got \(4, 2\)"),
        (Box(-1, 1, (4,)), [[1.0, 2.0], [3.0]], "got list"),
        (Box(-1, 1, (4,)), {"a": np.zeros(4)}, "got dict"),
        (PARTS, {"a": np.zeros((5, 3)), "b": np.zeros(5, int)}, r"at 'a'.*\(5, 3\)"),
    ],
)
def test_an_observation_of_another_shape_is_refused(space, obs, words):
    with pytest.raises(ConfigError, match=words):
        completed(space, obs, ())


def policy_of(config):
    """The policy of a fresh agent."""
    state = jax.jit(purerl.make_algorithm(config).init)(KEY)
    return purerl.make_policy(config, state)


def test_a_policy_takes_lists_and_names_what_it_expects():
    policy, pair = policy_of(tiny_config()), np.zeros((2, 4))
    assert policy(np.zeros((0, 4))).shape == (0,)
    for obs in ([0.0] * 4, (0.0,) * 4):
        assert policy(obs).shape == ()
    for name in ("threefry2x32", "rbg"):
        with jax.default_prng_impl(name):
            key = jax.random.PRNGKey(0)
            assert policy(pair, key).shape == (2,)
            with pytest.raises(ConfigError, match="one key for all observations"):
                policy(pair, jnp.stack([key, key]))
    for arguments, words in (
        ((np.zeros(3),), r"shape \(4,\), .* got \(3,\)"),
        (([0.0] * 3,), r"shape \(4,\), .* got \(3,\)"),
        ((np.zeros(4), 1), "key of a policy must be one key"),
        ((pair, jax.random.split(KEY)), "one key for all observations"),
    ):
        with pytest.raises(ConfigError, match=words):
            policy(*arguments)


def test_a_policy_with_a_memory_takes_a_number_of_episodes_and_refuses_a_key():
    policy = policy_of(small("recurrent_ppo"))
    assert isinstance(policy, RecurrentPolicy)
    shapes = [jax.tree.map(jnp.shape, policy.init(batch)) for batch in (3, (3,))]
    assert shapes[0] == shapes[1]
    for key in (KEY, jax.random.PRNGKey(0)):
        with pytest.raises(ConfigError, match="begin with memory = policy"):
            policy(np.zeros(4), key)


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
    policy = RecurrentPolicy(algorithm.recurrence, 2.0, remembering)
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
