"""The wrapper that adds the last action and reward to observations."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..base import Info, Obs
from ..spaces import Box, Dict, Discrete, MultiDiscrete
from .base import Wrapper, on_bounds, vector_or_dict

_KEY = "previous"


@dataclasses.dataclass(unsafe_hash=True)
class PreviousActionReward(Wrapper):
    """The previous action and the previous reward, after the observation.

    An observation that is a dictionary gets them under the key `previous`, `[A + 1]`
    float32, the action first.

    A discrete action stands there as a vector with a single 1. All of it is zero at the
    reset. Agents with a memory that have to find out what the task is are given both;
    Duan et al. (2016), "RL^2", and Wang et al. (2016), "Learning to reinforcement
    learn", do so across episodes, while here the numbers begin anew with each episode.

    Attributes:
        env: The environment inside; its observations are vectors of floats, or
            dictionaries.
    """

    def check(self) -> None:
        """Check the observations and the actions.

        Raises:
            ValueError: observations are neither vectors of floats nor dictionaries, or
                actions have several parts.
        """
        params = self.env.default_params
        vector_or_dict(self.env, params, "PreviousActionReward", _KEY)
        actions: Any = self.action_space(self.env.default_params)
        if hasattr(actions, "spaces"):
            raise ValueError(
                "PreviousActionReward takes actions of one part, but those of "
                f"{self.env.name} are {actions}: leave it out, or make them one "
                "MultiDiscrete, MultiBinary or Box in a wrapper inside."
            )

    def reset_env(self, key: jax.Array, params: Any) -> tuple[Obs, Any]:
        """Start an episode; the key is consumed."""
        obs, state = self.env.reset_env(key, params)
        return _beside(obs, jnp.zeros(self._size(params) + 1, _dtype(obs))), state

    def step_env(
        self, key: jax.Array, state: Any, action: jax.Array, params: Any
    ) -> tuple[Obs, Any, jax.Array, jax.Array, Info]:
        """Take one step, after which its action and reward are the previous ones.

        Args:
            key: Random key, consumed.
            state: State of the running episode.
            action: Member of `action_space(params)`.
            params: Numbers of the environment.
        """
        obs, state, reward, *rest = self.env.step_env(key, state, action, params)
        done = self._numbers_of(action, params, _dtype(obs))
        earned = jnp.asarray(reward, _dtype(obs))[None]
        shown = _beside(obs, jnp.concatenate([done, earned]))
        return shown, state, reward, *rest  # type: ignore[return-value]

    def observation_space(self, params: Any = None) -> Box | Dict:
        """Return the space of the environment inside, and those of action and reward.

        Zeros, as they are at the reset, are in it.
        """
        params = self._params(params)
        space = vector_or_dict(self.env, params, "PreviousActionReward", _KEY)
        actions: Any = self.action_space(params)
        done = Box(0.0, 1.0, (self._size(params),))
        if isinstance(actions, Box):
            done = actions
        low = on_bounds(
            lambda xp, b: xp.append(xp.minimum(xp.ravel(b[0]), 0), -xp.inf), done.low
        )
        high = on_bounds(
            lambda xp, b: xp.append(xp.maximum(xp.ravel(b[0]), 0), xp.inf), done.high
        )
        if isinstance(space, Dict):
            return Dict({**space.spaces, _KEY: Box(low, high, low.shape)})
        low = on_bounds(lambda xp, b: xp.concatenate(b), space.low, low)
        high = on_bounds(lambda xp, b: xp.concatenate(b), space.high, high)
        return Box(low, high, low.shape, space.dtype)

    def _numbers_of(self, action: jax.Array, params: Any, dtype: Any) -> jax.Array:
        """The numbers `[A]` that stand for an action."""
        space: Any = self.action_space(params)
        if isinstance(space, Discrete):
            return jax.nn.one_hot(action, space.n, dtype=dtype)
        if not isinstance(space, MultiDiscrete):
            return jnp.ravel(jnp.asarray(action, dtype))
        choices, sizes = jnp.ravel(action), np.ravel(space.nvec)
        return jnp.concatenate(
            [
                jax.nn.one_hot(choices[i], int(size), dtype=dtype)
                for i, size in enumerate(sizes)
            ]
        )

    def _size(self, params: Any) -> int:
        """Numbers that stand for an action."""
        space: Any = self.action_space(params)
        if isinstance(space, Discrete):
            return space.n
        if isinstance(space, MultiDiscrete):
            return int(np.sum(space.nvec))
        return int(np.prod(space.shape))


def _dtype(obs: Any) -> Any:
    """The type of the numbers: that of a vector, or float32 in a dictionary."""
    return jnp.float32 if isinstance(obs, dict) else obs.dtype


def _beside(obs: Any, previous: jax.Array) -> Obs:
    """The observation with the numbers after it, or under a key of their own."""
    if isinstance(obs, dict):
        return {**obs, _KEY: previous}
    return jnp.concatenate([obs, previous])
