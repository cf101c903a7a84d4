"""The wrapper that adds the last action and reward to observations."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..base import Info
from ..spaces import Box, Discrete, MultiDiscrete
from .base import Wrapper, on_bounds, vector_of


@dataclasses.dataclass(unsafe_hash=True)
class PreviousActionReward(Wrapper):
    """The previous action and the previous reward, after the observation.

    A discrete action stands there as a vector with a single 1. All of it is zero at the
    reset. Agents with a memory that have to find out what the task is are given both;
    Duan et al. (2016), "RL^2", and Wang et al. (2016), "Learning to reinforcement
    learn", do so across episodes, while here the numbers begin anew with each episode.

    Attributes:
        env: The environment inside; its observations are vectors of floats.
    """

    def check(self) -> None:
        """Check the observations and the actions.

        Raises:
            ValueError: observations are no vectors of floats, or actions have several
                parts.
        """
        vector_of(self.env, self.env.default_params, "PreviousActionReward")
        actions: Any = self.action_space(self.env.default_params)
        if hasattr(actions, "spaces"):
            raise ValueError(
                "PreviousActionReward takes actions of one part, but those of "
                f"{self.env.name} are {actions}: leave it out, or make them one "
                "MultiDiscrete, MultiBinary or Box in a wrapper inside."
            )

    def reset_env(self, key: jax.Array, params: Any) -> tuple[jax.Array, Any]:
        """Start an episode; the key is consumed."""
        obs, state = self.env.reset_env(key, params)
        zeros = jnp.zeros(self._size(params) + 1, obs.dtype)
        return jnp.concatenate([obs, zeros]), state

    def step_env(
        self, key: jax.Array, state: Any, action: jax.Array, params: Any
    ) -> tuple[jax.Array, Any, jax.Array, jax.Array, Info]:
        """Take one step, after which its action and reward are the previous ones.

        Args:
            key: Random key, consumed.
            state: State of the running episode.
            action: Member of `action_space(params)`.
            params: Numbers of the environment.
        """
        obs, state, reward, *rest = self.env.step_env(key, state, action, params)
        space: Any = self.action_space(params)
        if isinstance(space, Discrete):
            done = jax.nn.one_hot(action, space.n, dtype=obs.dtype)
        elif isinstance(space, MultiDiscrete):
            choices, sizes = jnp.ravel(action), np.ravel(space.nvec)
            done = jnp.concatenate(
                [
                    jax.nn.one_hot(choices[i], int(size), dtype=obs.dtype)
                    for i, size in enumerate(sizes)
                ]
            )
        else:
            done = jnp.ravel(jnp.asarray(action, obs.dtype))
        earned = jnp.asarray(reward, obs.dtype)[None]
        return jnp.concatenate([obs, done, earned]), state, reward, *rest  # type: ignore[return-value]

    def observation_space(self, params: Any = None) -> Box:
        """Return the space of the environment inside, and those of action and reward.

        Zeros, as they are at the reset, are in it.
        """
        params = self._params(params)
        space = vector_of(self.env, params, "PreviousActionReward")
        actions: Any = self.action_space(params)
        done = Box(0.0, 1.0, (self._size(params),))
        if isinstance(actions, Box):
            done = actions
        low = on_bounds(
            lambda xp, b: xp.concatenate(
                [b[0], xp.minimum(xp.ravel(b[1]), 0), xp.full(1, -xp.inf)]
            ),
            space.low,
            done.low,
        )
        high = on_bounds(
            lambda xp, b: xp.concatenate(
                [b[0], xp.maximum(xp.ravel(b[1]), 0), xp.full(1, xp.inf)]
            ),
            space.high,
            done.high,
        )
        return Box(low, high, low.shape, space.dtype)

    def _size(self, params: Any) -> int:
        """Numbers that stand for an action."""
        space: Any = self.action_space(params)
        if isinstance(space, Discrete):
            return space.n
        if isinstance(space, MultiDiscrete):
            return int(np.sum(space.nvec))
        return int(np.prod(space.shape))
