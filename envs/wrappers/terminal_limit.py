"""A time limit that is the end of the task."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax

from ..base import Info, Obs
from .base import Wrapper


@dataclasses.dataclass(unsafe_hash=True)
class TerminalLimit(Wrapper):
    """The time limit terminates the episode, where it would truncate it.

    Nothing is worth anything after a termination, and a truncated episode is valued as
    if it went on. Where a lifetime is the task, as in bandits with a number of pulls,
    the return is to be made within it. Pardo et al. (2018), "Time limits in
    reinforcement learning", call the two time-aware learning and partial-episode
    bootstrapping; an agent of the first kind should see the time that is left, as with
    `TimeObservation`, where the observation does not tell it.

    Attributes:
        env: The environment inside.
    """

    adds_to_observations: ClassVar[bool] = False

    def step_env(
        self, key: jax.Array, state: Any, action: jax.Array, params: Any
    ) -> tuple[Obs, Any, jax.Array, jax.Array, Info]:
        """Take a step, which terminates at the time limit too.

        Args:
            key: Random key, consumed.
            state: State of the running episode.
            action: Member of `action_space(params)`.
            params: Numbers of the environment.
        """
        obs, state, reward, terminated, info = self.env.step_env(
            key, state, action, params
        )
        is_over = terminated | self.env.is_truncated(state, params)
        return obs, state, reward, is_over, info
