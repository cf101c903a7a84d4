"""CartPole against Gymnasium's own, and the contract's fine print on it."""

import dataclasses
import warnings

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl.envs.cartpole import CartPole, CartPoleParams, CartPoleState

NUM_SEEDS = 16


def _random(rng, t, obs):
    return int(rng.integers(2))


def _alternating(rng, t, obs):
    return t % 2


def _balancing(rng, t, obs):
    return int(obs[2] + 0.3 * obs[3] + 0.02 * obs[0] + 0.05 * obs[1] > 0)


def _record(policy, num_steps):
    """Play the bare Gymnasium environment on past termination; arrays `[S, T, ...]`."""
    episodes = []
    for seed in range(NUM_SEEDS):
        env = gymnasium.make("CartPole-v1").unwrapped
        rng = np.random.default_rng(seed)
        obs, _ = env.reset(seed=seed)
        rows = []
        for t in range(num_steps):
            action = policy(rng, t, obs)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # It warns of steps after the end.
                next_obs, reward, terminated, _, _ = env.step(action)
            rows.append((obs, action, next_obs, reward, terminated))
            obs = next_obs
        episodes.append([np.array(column) for column in zip(*rows, strict=True)])
    return [np.stack(column) for column in zip(*episodes, strict=True)]


def _state(obs, time=0):
    return CartPoleState(jnp.int32(time), *jnp.asarray(obs, jnp.float32))


def _single_steps(obs, actions):
    """One step from every recorded state: observation, reward and both flags."""
    env = CartPole()

    def one(obs, action, time):
        out = env.step_env(
            jax.random.key(0), _state(obs, time), action, env.default_params
        )
        return out[0], out[2], out[3], env.is_truncated(out[1], env.default_params)

    times = jnp.arange(obs.shape[1])
    one_episode = jax.vmap(one)
    fn = jax.jit(jax.vmap(one_episode, in_axes=(0, 0, None)))
    return [np.asarray(x) for x in fn(jnp.asarray(obs), jnp.asarray(actions), times)]


@pytest.mark.parametrize(
    ("policy", "num_steps"), [(_random, 60), (_alternating, 60), (_balancing, 500)]
)
def test_equals_gymnasium_step_by_step(policy, num_steps):
    obs, actions, next_obs, reward, terminated = _record(policy, num_steps)
    ours = _single_steps(obs, actions)
    np.testing.assert_allclose(ours[0], next_obs, rtol=2e-6, atol=2e-6)
    np.testing.assert_array_equal(ours[2], terminated)
    # Gymnasium remembers that an episode was over. A state does not, so the rewards
    # agree up to where a fallen pole, played on, swings back into range.
    over = np.cumsum(terminated, axis=1) > 0
    back = np.cumsum(over & ~terminated, axis=1) > 0
    np.testing.assert_array_equal(ours[1][~back], reward[~back])
    if policy is _balancing:
        np.testing.assert_array_equal(ours[3].all(0), np.arange(500) == 499)
        assert not over.any() and (reward == 1).all()
    else:  # The recordings do go past the end, where the reward is 0.
        assert over[:, -1].mean() > 0.9 and (reward[~back] == 0).any()


@pytest.mark.parametrize(
    "field", [field.name for field in dataclasses.fields(CartPoleParams)]
)
def test_every_constant_is_a_leaf_that_matters(field):
    """A tenth of any constant changes a reset or a step; equal values change none."""
    env, default = CartPole(), CartPoleParams()
    value = getattr(default, field)
    tenth = value // 10 if isinstance(value, int) else value / 10
    state = _state([0.3, 0.2, 0.1, 0.4], time=60)  # Beyond a tenth of every limit.

    def play(value):
        params = default.replace(**{field: value})
        first, _ = env.reset(jax.random.key(0), params)
        out = env.step_env(jax.random.key(1), state, jnp.int32(1), params)
        return first, out[0], out[3], env.is_truncated(out[1], params)

    lanes = jax.vmap(play)(jnp.asarray([value, value, tenth]))
    assert all(bool((x[0] == x[1]).all()) for x in lanes)
    assert any(bool((x[0] != x[2]).any()) for x in lanes)


def test_resets_fill_the_range():
    env = CartPole()
    keys = jax.random.split(jax.random.key(0), 2_000)
    obs, _ = jax.vmap(env.reset)(keys)
    assert obs.shape == (2_000, 4)
    for column in np.asarray(obs).T:
        assert column.min() < -0.049 and column.max() > 0.049
        # Standard error of the mean of 2000 uniforms in +-0.05: 0.00065.
        assert abs(column.mean()) < 0.003


def test_observation_space_follows_the_parameters():
    space = CartPole().observation_space(CartPoleParams().replace(x_threshold=5.0))
    np.testing.assert_allclose(space.high[0], 10.0)
    reference = gymnasium.make("CartPole-v1").observation_space
    np.testing.assert_allclose(CartPole().observation_space().high, reference.high)
