"""Evaluation against a plain Python loop over the same environments and keys."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import envs
from purerl.acting.evaluate import evaluate

EPISODES = 4


def lean(obs):
    """Push to where the pole leans: some 40 steps with the default physics."""
    return (obs[..., 2] > 0).astype(jnp.int32)


def python_loop(env, params, key, max_steps):
    key_step, *resets = jax.random.split(key, 1 + EPISODES)
    step = jax.jit(env.step)
    episodes = []
    for e in range(EPISODES):
        obs, state = env.reset(resets[e], params)
        rewards, flags = [], [False, False]
        while not any(flags) and len(rewards) < max_steps:
            keys = jax.random.fold_in(key_step, len(rewards))
            now = jax.random.split(keys, EPISODES)[e]
            obs, state, reward, *flags, _ = step(now, state, lean(obs), params)
            rewards.append(float(reward))
        episodes.append((sum(rewards), len(rewards)))
    return np.transpose(episodes)


@pytest.fixture(scope="module")
def cartpole():
    env = envs.make("CartPole-v1")
    params = env.default_params

    @jax.jit
    def program(key, max_steps, params):
        return evaluate(
            env, params, lean, key, num_episodes=EPISODES, max_steps=max_steps
        )

    return env, params, program


def test_evaluation_equals_a_python_loop(cartpole):
    env, params, program = cartpole
    key = jax.random.key(0)
    result = program(key, 500, params)
    returns, lengths = python_loop(env, params, key, 500)
    assert len(set(lengths)) > 1 and lengths.max() < 500
    np.testing.assert_array_equal(result.episode_return, returns)
    np.testing.assert_array_equal(result.episode_length, lengths)
    assert result.cut_episodes == 0


def test_an_episode_still_running_at_max_steps_is_cut_there(cartpole):
    _, params, program = cartpole
    key = jax.random.key(0)
    whole = program(key, 500, params)
    cut = int(np.median(whole.episode_length))
    result = program(key, cut, params)
    np.testing.assert_array_equal(
        result.episode_length, np.minimum(whole.episode_length, cut)
    )
    np.testing.assert_array_equal(result.episode_return, result.episode_length)
    assert 0 < result.cut_episodes == (whole.episode_length > cut).sum()


def test_a_truncated_episode_ends_there(cartpole):
    _, params, program = cartpole
    limited = params.replace(max_steps_in_episode=15)
    result = program(jax.random.key(0), 500, limited)
    np.testing.assert_array_equal(result.episode_length, np.full(EPISODES, 15))
    np.testing.assert_array_equal(result.episode_return, np.full(EPISODES, 15.0))
    # An episode that ends in the very last step is not cut.
    assert program(jax.random.key(0), 15, limited).cut_episodes == 0
