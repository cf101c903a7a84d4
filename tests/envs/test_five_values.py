"""The older contract: one `done`, which is split into the two flags exactly."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

import purerl
from purerl import envs
from purerl.config import ConfigError
from purerl.envs.adapters.adapt import ContractEnvironment
from purerl.envs.spaces import Box, Discrete
from tests.envs.episodes import played
from tests.helpers import tiny_config


@struct.dataclass
class OldState:
    time: int
    place: float


@struct.dataclass
class GoalParams:
    goal: float = 3.0


@struct.dataclass
class OldParams:
    goal: float = 3.0
    max_steps_in_episode: int = 5


class OldWalk:
    """As gymnax environments were before 1.0: a walk up to a goal, or to the limit."""

    default_params = OldParams()

    def is_done(self, state, params):
        at_limit = state.time >= getattr(params, "max_steps_in_episode", 5)
        return (state.place >= params.goal) | at_limit

    def reset_env(self, key, params):
        state = OldState(0, jnp.float32(0.0))
        return self.see(state), state

    def step_env(self, key, state, action, params):
        state = OldState(state.time + 1, state.place + action)
        done = self.is_done(state, params)
        return self.see(state), state, state.place, done, {"discount": 1.0 - done}

    def reset(self, key, params):
        return self.reset_env(key, params)

    def step(self, key, state, action, params):
        obs, after, reward, done, info = self.step_env(key, state, action, params)
        first, fresh = self.reset_env(key, params)
        pick = lambda a, b: jnp.where(done, a, b)  # noqa: E731
        return pick(first, obs), jax.tree.map(pick, fresh, after), reward, done, info

    def see(self, state):
        return jnp.stack([jnp.float32(state.time), state.place])

    def action_space(self, params):
        return Discrete(2)

    def observation_space(self, params):
        return Box(-100.0, 100.0, (2,))


class Endless(OldWalk):
    """Its limit is written into it, and no parameter."""

    default_params = GoalParams()


# Actions of three episodes: the goal after 4 steps, the limit after 5 with place 2, and
# the goal in the very step of the limit, which is a termination.
ACTIONS = [1, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1]


def ends_of(env):
    """In which steps episodes terminate, are truncated, and all last observations."""
    key, actions = jax.random.key(0), jnp.array(ACTIONS)
    _, steps = played(env, env.default_params, key, len(actions), actions)
    flags = (np.flatnonzero(x).tolist() for x in (steps.terminated, steps.truncated))
    return *flags, steps.final


def test_ends_are_told_apart_and_the_last_observation_is_kept():
    env = envs.adapt(OldWalk())
    assert isinstance(env, envs.FiveValueEnvironment) and env.note == ""
    *ends, final = ends_of(env)
    assert ends == [[3, 13], [8]]
    np.testing.assert_array_equal(final[np.array([8, 13])], [[5.0, 2.0], [5.0, 3.0]])


def test_a_limit_is_known_among_the_parameters_or_as_it_is_given():
    env = envs.adapt(Endless())
    assert ends_of(env)[:2] == ([3, 8, 13], [])
    assert "every end is a termination" in env.note
    env = envs.FiveValueEnvironment(Endless(), limit=5)
    assert env.default_params.max_steps_in_episode == 5 and env.note == ""
    # Its `done` in the step of the limit may be either, and counts as the limit.
    assert ends_of(env)[:2] == ([3], [8, 13])
    with pytest.raises(ValueError, match="leave out limit"):
        envs.FiveValueEnvironment(OldWalk(), limit=5)
    with pytest.raises(ValueError, match="limit must be a whole number"):
        envs.FiveValueEnvironment(Endless(), limit=0)


def test_an_object_without_a_step_of_its_own_is_refused_in_a_sentence():
    class Passing:
        """As old wrappers of gymnax: unknown attributes are those of what is inside."""

        def __init__(self, inner):
            self.inner = inner

        def __getattr__(self, name):
            return getattr(self.inner, name)

    env = envs.adapt(Passing(OldWalk()))
    assert isinstance(env, ContractEnvironment)
    _, state = env.reset(jax.random.key(0))
    with pytest.raises(ValueError, match="5 values, expected 6"):
        env.step(jax.random.key(0), state, jnp.int32(0))


def test_it_trains_with_wrappers_and_with_parameters_by_name():
    config = tiny_config(env=OldWalk(), env_wrappers=("ScaleReward(2.0)",))
    config = config.replace(env_params={"goal": 1.0}, total_timesteps=64)
    train = jax.jit(purerl.make_train(config))
    result = train(jax.random.key(0), {"env_params.reward_factor": 0.0})
    assert np.all(np.asarray(result.metrics["shaped_return"]) == 0.0)
    assert np.all(np.asarray(result.metrics["episode_return"]) > 0.0)
    assert np.all(np.asarray(result.metrics["episode_length"]) <= 5)
    with pytest.raises(ConfigError, match="no 'gaol'"):
        purerl.make_train(config.replace(env_params={"gaol": 1.0}))
