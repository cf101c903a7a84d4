"""Levels that belong to episodes: drawn anew, repeated, or given."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import envs
from purerl.envs import wrappers
from purerl.envs.wrappers import RandomLevels, RepeatedLevels
from purerl.randomisation import Choice
from tests.envs.episodes import played
from tests.helpers import assert_same_bits

LIMIT, STEPS, ENVS = 6, 30, 8
MAZE = envs.Maze(size=(4, 4), view=3, max_walls=6)


@pytest.mark.parametrize("cls", [RandomLevels, RepeatedLevels])
def test_a_level_stays_in_an_episode_and_moves_as_it_should_after_it(cls):
    env = cls(MAZE)
    params = env.default_params.replace(max_steps_in_episode=LIMIT)
    keys = jax.random.split(jax.random.key(0), ENVS)
    play = jax.jit(jax.vmap(lambda key: played(env, params, key, STEPS)))
    (_, first), steps = play(keys)
    states, done = steps.state, steps.terminated | steps.truncated
    levels = jax.tree.map(
        lambda a, b: np.concatenate([a[:, None], b], 1), first.level, states.level
    )
    walls = levels.walls.reshape(ENVS, STEPS + 1, -1)
    differs = (walls[:, 1:] != walls[:, :-1]).any(-1) | (
        levels.goal[:, 1:] != levels.goal[:, :-1]
    )
    done = np.asarray(done)
    assert done.sum() >= ENVS * STEPS // LIMIT and not differs[~done].any()
    # Two levels of 16 cells are seldom the same.
    assert not differs.any() if cls is RepeatedLevels else differs[done].mean() > 0.95
    assert (levels.max_steps_in_episode == LIMIT).all()  # belongs to no level
    # An episode begins on the start of its level, and not that of the config.
    begun = np.asarray(states.inner.time) == 0
    cell = states.inner.position[..., 0] * 4 + states.inner.position[..., 1]
    np.testing.assert_array_equal(begun, done)
    np.testing.assert_array_equal(cell[begun], states.level.start[begun])


def test_a_given_level_is_played_as_the_environment_with_these_numbers():
    env, key = RandomLevels(MAZE), jax.random.key(4)
    level = jax.jit(env.draw_level)(key, env.default_params)
    obs, state = jax.jit(env.reset_in)(key, level)
    expected, inner = jax.jit(MAZE.reset)(key, level)
    step, step_bare = jax.jit(env.step_env), jax.jit(MAZE.step_env)
    np.testing.assert_array_equal(obs, expected)
    for action in (2, 0, 2, 1, 2):
        obs, state, *rest = step(key, state, jnp.int32(action), env.default_params)
        bare_obs, inner, *bare = step_bare(key, inner, jnp.int32(action), level)
        assert_same_bits((obs, state.inner, rest), (bare_obs, inner, bare))


@dataclasses.dataclass(unsafe_hash=True)
class Limits(envs.CartPole):
    """CartPole whose levels are time limits of 4 and 8; the default is 7."""

    @property
    def default_params(self):
        return super().default_params.replace(max_steps_in_episode=jnp.int32(7))

    def draw_level(self, key, params):
        is_long = jax.random.bernoulli(key)
        return params.replace(max_steps_in_episode=jnp.where(is_long, 8, 4))


WITH_LIMITS = {
    "RandomLevels": lambda: RandomLevels(Limits()),
    "StickyActions": lambda: wrappers.StickyActions(RandomLevels(Limits()), 0.0),
    "Randomised": lambda: wrappers.Randomised(envs.CartPole()),
}


@pytest.mark.parametrize("name", WITH_LIMITS)
def test_what_looks_at_an_episode_sees_its_own_limit(name):
    """By the default limit, 7, the share at truncation was 4 / 7 and 8 / 7."""
    inner = WITH_LIMITS[name]()
    params = inner.default_params
    if name == "Randomised":
        params = params.replace(max_steps_in_episode=Choice((4, 8)))
    timed = wrappers.TimeObservation(inner)
    masked = wrappers.ActionMask(
        inner, lambda state, params: jnp.arange(2) < params.max_steps_in_episode / 4
    )
    space, step = timed.observation_space(params), jax.jit(timed.step)
    found = set()
    for seed in range(8):
        key, length, truncated = jax.random.key(seed), 0, False
        _, state = timed.reset(key, params)
        mask = masked.reset(key, params)[0]["action_mask"]
        while not truncated:
            action = jnp.int32(length % 2)
            _, state, _, terminated, truncated, info = step(key, state, action, params)
            last, length = info["final_observation"], length + 1
            assert space.contains(last) and not terminated
        found.add((length, float(last[-1]), int(mask.sum())))
    assert found == {(4, 1.0, 1), (8, 1.0, 2)}


def test_an_environment_without_levels_is_refused():
    with pytest.raises(ValueError, match=r"CartPole-v1 has no levels: .*draw_level"):
        envs.wrap(envs.make("CartPole-v1"), ("RandomLevels",))
    with pytest.raises(NotImplementedError, match="CartPole-v1 has no levels"):
        env = envs.CartPole()
        env.draw_level(jax.random.key(0), env.default_params)
