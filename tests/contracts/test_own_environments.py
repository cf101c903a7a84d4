"""Environments that are almost right: one sentence, from training and the check."""

import dataclasses

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct
from gymnasium import spaces

import purerl
from purerl import envs
from purerl.envs import CartPole
from tests.helpers import tiny_config


@struct.dataclass
class NoLimitParams:
    gravity: float = 9.8


@dataclasses.dataclass(unsafe_hash=True)
class NoLimit(envs.Environment):
    @property
    def default_params(self):
        return NoLimitParams()

    def observation_space(self, params=None):
        return envs.spaces.Box(-1.0, 1.0, (1,))

    def action_space(self, params=None):
        return envs.spaces.Discrete(2)

    def reset_env(self, key, params):
        return jnp.zeros(1), jnp.int32(0)

    def step_env(self, key, state, action, params):
        return jnp.zeros(1), state + 1, jnp.float32(1.0), state > 5, {}


@dataclasses.dataclass(unsafe_hash=True)
class NeverEnds(CartPole):
    def step_env(self, key, state, action, params):
        obs, state, reward, _, info = super().step_env(key, state, action, params)
        return obs, state, reward, False, info


class FourValues(CartPole):
    def step_env(self, key, state, action, params):
        return super().step_env(key, state, action, params)[:4]


class Forgets(CartPole):
    def step_env(self, key, state, action, params):
        obs, new, *rest = super().step_env(key, state, action, params)
        return obs, new.replace(time=state.time), *rest


def train(env):
    purerl.run(tiny_config(env=env), progress=False)


@pytest.mark.parametrize(
    ("env", "words"),
    [
        (NoLimit(), "NoLimitParams has no max_steps_in_episode, .* is_truncated"),
        (NeverEnds(), "returns terminated as a Python bool"),
        (FourValues(), "step_env returns 4 values, expected obs"),
        (Forgets(), "returns state.time as it was, so that no episode ever"),
        (envs.wrap(Forgets(), ("ScaleReward(2.0)",)), "returns state.time as it was"),
    ],
)
@pytest.mark.parametrize("act", [train, envs.check])
def test_what_the_contract_lacks_is_named(act, env, words):
    with pytest.raises((ValueError, AssertionError), match=words):
        act(env)


class Rewards(gymnasium.Env):
    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, reward):
        self.reward = {"array": np.array([1.0]), "none": None}[reward]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), self.reward, False, True, {}


gymnasium.register("Rewards-v0", Rewards)


@pytest.mark.parametrize(
    ("reward", "shown"), [("array", r"array\(\[1\.\]\)"), ("none", "None")]
)
def test_a_reward_of_gymnasium_that_is_no_number_is_named(reward, shown):
    config = tiny_config(env="gymnasium/Rewards-v0", env_kwargs={"reward": reward})
    with pytest.raises(ValueError, match=f"reward of {shown}, expected one number"):
        purerl.run(config, progress=False)
