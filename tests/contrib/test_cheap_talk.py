"""A channel that changes what is seen and nothing else."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl import envs
from purerl.acting.environment import bind_params
from purerl.config import ConfigError
from purerl.contrib.cheap_talk import CheapTalk
from purerl.envs.cartpole import CartPole
from tests.envs.episodes import played

STEPS, LIMIT = 90, 25


def episodes(env, params):
    """Random steps `[B, T, ...]` of three episodes and those after them."""
    keys = jax.random.split(jax.random.key(0), 3)
    (first, _), steps = jax.jit(jax.vmap(lambda key: played(env, params, key, STEPS)))(
        keys
    )
    return first, steps


@pytest.fixture(scope="module")
def env():
    return CheapTalk(CartPole(), size=3, hidden_size=5)


@pytest.fixture(scope="module")
def params(env):
    channel = env.random_channel(jax.random.key(1))
    # Biases too, so that a formula without them is noticed.
    channel = channel.replace(bias_in=jnp.arange(5) / 5, bias_out=jnp.arange(3) / 3)
    return env.default_params.replace(channel=channel, max_steps_in_episode=LIMIT)


@pytest.fixture(scope="module")
def talking(env, params):
    return episodes(env, params)


@pytest.fixture(scope="module")
def bare():
    inner = CartPole()
    return episodes(inner, inner.default_params.replace(max_steps_in_episode=LIMIT))


@pytest.mark.slow(optimised=False)
def test_the_channel_touches_neither_dynamics_nor_rewards(talking, bare):
    first, steps = talking
    first_bare, bare_steps = bare
    seen = (first[..., :4], steps.obs[..., :4], steps.final[..., :4], steps[3:7])
    expected = (first_bare, bare_steps.obs, bare_steps.final, bare_steps[3:7])
    for mine, theirs in zip(*map(jax.tree.leaves, (seen, expected)), strict=True):
        # Two programs may round the same dynamics differently: by 1e-7 on some CPUs.
        np.testing.assert_allclose(
            np.asarray(mine, float), np.asarray(theirs, float), rtol=1e-5, atol=1e-5
        )
    # Or nothing was compared.
    assert steps.terminated.any() and steps.truncated.any()


def test_a_message_is_a_function_of_the_observation_that_carries_it(params, talking):
    first, steps = talking
    channel = jax.tree.map(np.asarray, params.channel)
    for seen in (first, steps.obs, steps.final):
        seen = np.asarray(seen)
        hidden = np.tanh(seen[..., :4] @ channel.weight_in + channel.bias_in)
        expected = np.tanh(hidden @ channel.weight_out + channel.bias_out)
        np.testing.assert_allclose(
            seen[..., 4:], 2 * math.pi * expected, rtol=1e-4, atol=1e-5
        )
    assert np.ptp(steps.obs[..., 4:], axis=(0, 1)).min() > 0.1


def test_messages_fill_their_range_and_do_not_leave_it(env, params):
    loud = jax.tree.map(lambda x: 1e4 * x, params.channel)
    for scale in (1.5, -1.5):
        changed = params.replace(channel=loud, channel_scale=scale)
        obs, _ = env.reset(jax.random.key(0), changed)
        assert np.abs(obs[4:]).max() == 1.5
        space = env.observation_space(changed)
        assert space.contains(obs) and space.shape == (7,)
        np.testing.assert_array_equal(space.high[4:], [1.5] * 3)
        np.testing.assert_array_equal(space.low[4:], [-1.5] * 3)
        np.testing.assert_array_equal(
            space.high[:4], CartPole().observation_space().high
        )


def test_a_silent_channel_says_zero(env):
    obs, _ = env.reset(jax.random.key(0))
    assert (obs[4:] == 0).all() and (obs[:4] != 0).all()


def test_by_name_with_options():
    made = envs.make("cheap-talk/CartPole-v1", size=3, hidden_size=5)
    assert made == CheapTalk(CartPole(), 3, 5)
    assert hash(made) == hash(CheapTalk(CartPole(), 3, 5))
    assert made.name == "cheap-talk/CartPole-v1"
    assert envs.make("cheap-talk/CartPole-v1").observation_space().shape == (6,)


def test_parameters_are_those_of_the_environment_and_the_channel(env):
    config = purerl.PPOConfig(
        env="cheap-talk/CartPole-v1",
        env_params={"length": 0.7, "channel": {"bias_out": [1.0, -2.0]}},
    )
    bound = bind_params(envs.make("cheap-talk/CartPole-v1"), config.env_params)
    assert bound.length == np.float32(0.7) and bound.gravity == 9.8
    np.testing.assert_array_equal(bound.channel.bias_out, [1.0, -2.0])
    assert not np.any(bound.channel.weight_in)
    with pytest.raises(ConfigError, match="channel must be a Channel with arrays"):
        bind_params(env, {"channel": CheapTalk(CartPole()).silent_channel()})
    with pytest.raises(ConfigError, match="channel must be a Channel with arrays"):
        bind_params(env, {"channel": {"weight_in"}})


class _OwnStep(CartPole):
    def step(self, key, state, action, params=None):
        return super().step(key, state, action, params)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: CheapTalk(_OwnStep()), "only resets by itself: wrap the bare"),
        (
            lambda: CheapTalk(envs.make("Doors-v0", observation="planes")),
            "vectors of floats, but Doors-v0 observes Box",
        ),
    ],
)
def test_what_cannot_carry_a_channel(make, words):
    with pytest.raises(ValueError, match=words):
        make()
