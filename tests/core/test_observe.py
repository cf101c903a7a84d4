"""From observations to what a network takes."""

import jax.numpy as jnp
import numpy as np
import pytest

from envs.spaces import Box, Discrete
from purerl.acting.observe import to_features

BYTES = jnp.array([0, 51, 255], jnp.uint8).reshape(1, 1, 3)


def test_images_in_bytes_come_out_between_0_and_1():
    features = to_features(Box(0, 255, (1, 1, 3), np.uint8), BYTES)
    assert features.dtype == jnp.float32
    np.testing.assert_allclose(features.ravel(), [0.0, 0.2, 1.0], rtol=1e-6)
    batch = to_features(Box(0, 255, (1, 1, 3), np.uint8), jnp.stack([BYTES] * 2))
    np.testing.assert_array_equal(batch[1], features)


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


def test_a_discrete_observation_is_one_hot():
    np.testing.assert_array_equal(to_features(Discrete(3), jnp.int32(1)), [0, 1, 0])
