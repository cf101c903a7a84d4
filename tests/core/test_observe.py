"""From observations to what a network takes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl.acting.policy import RecurrentPolicy
from purerl.config import ConfigError
from purerl.envs.spaces import Box, Dict, Discrete
from purerl.networks.observe import completed, to_features
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


def test_a_policy_names_the_shape_that_it_expects():
    config = tiny_config()
    state = purerl.make_algorithm(config).init(jax.random.key(0))
    policy = purerl.make_policy(config, state)
    for obs in (np.zeros(3), [0.0, 0.0, 0.0]):
        with pytest.raises(ConfigError, match=r"shape \(4,\), .* got \(3,\)"):
            policy(obs)
    for obs, shape in (([0.0] * 4, ()), ((0.0,) * 4, ()), (np.zeros((2, 4)), (2,))):
        assert policy(obs).shape == shape


def test_a_batch_of_no_observation_has_no_action():
    config = tiny_config()
    policy = purerl.make_policy(config, jax.jit(purerl.make_train(config))(KEY).state)
    assert policy(np.zeros((0, 4))).shape == (0,)
    for name in ("threefry2x32", "rbg"):
        with jax.default_prng_impl(name):
            key = jax.random.PRNGKey(0)
            assert policy(np.zeros((2, 4)), key).shape == (2,)
            with pytest.raises(ConfigError, match="one key for all observations"):
                policy(np.zeros((2, 4)), jnp.stack([key, key]))
    with pytest.raises(ConfigError, match="key of a policy must be one key"):
        policy(np.zeros(4), 1)
    with pytest.raises(ConfigError, match="one key for all observations"):
        policy(np.zeros((2, 4)), jax.random.split(KEY))


def test_a_policy_with_a_memory_takes_a_number_of_episodes_and_refuses_a_key():
    config = small("recurrent_ppo")
    state = jax.jit(purerl.make_train(config))(KEY).state
    policy = purerl.make_policy(config, state)
    assert isinstance(policy, RecurrentPolicy)
    alike = zip(*(map(jax.tree.leaves, map(policy.init, (3, (3,))))), strict=True)
    assert all(a.shape == b.shape for a, b in alike)
    for key in (KEY, jax.random.PRNGKey(0)):
        with pytest.raises(ConfigError, match="begin with memory = policy"):
            policy(np.zeros(4), key)
