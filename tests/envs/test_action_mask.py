"""A mask that is a function of the state, beside the observations of an environment."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import envs
from tests import boxes


def right_of_the_middle(state, params):
    """Pushing to the left is valid right of the middle, and to the right always."""
    del params
    return jnp.stack([state.x > 0.0, True])


def test_the_mask_is_that_of_the_state_which_the_observation_shows():
    inner = envs.make("CartPole-v1")
    masked = envs.ActionMask(inner, right_of_the_middle)
    params, key = masked.default_params, jax.random.key(0)
    obs, state = masked.reset(key, params)
    plain, _ = inner.reset(key, params)
    np.testing.assert_array_equal(obs["observation"], plain)
    assert masked.observation_space(params).contains(obs)
    seen = set()
    for i in range(20):
        key = jax.random.key(i)
        obs, state, *_, info = masked.step(key, state, jnp.int32(i % 2), params)
        for one in (obs, info["final_observation"]):
            expected = [int(one["observation"][0] > 0.0), 1]
            np.testing.assert_array_equal(one["action_mask"], expected)
            seen.add(expected[0])
        state = state.replace(x=-state.x)
    assert seen == {0, 1}


def test_an_observation_in_parts_keeps_its_keys():
    masked = envs.ActionMask(boxes.PackedCartPole(), right_of_the_middle)
    obs, _ = masked.reset(jax.random.key(0))
    assert set(obs) == {"cart", "pole", "action_mask"}
    assert masked.observation_space().contains(obs)


def test_what_can_have_no_mask_is_refused():
    with pytest.raises(ValueError, match=r"\(state, params\) .*that takes \(state\)"):
        envs.ActionMask(boxes.PackedCartPole(), lambda state: state)
    with pytest.raises(ValueError, match=r"needs a function .*, got 3\."):
        envs.ActionMask(boxes.PackedCartPole(), 3)
    with pytest.raises(ValueError, match="must be Discrete or MultiDiscrete"):
        envs.ActionMask(boxes.Privileged(is_discrete=False), right_of_the_middle)
