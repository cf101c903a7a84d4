"""The last few observations at once."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import struct

from ..base import Info
from ..spaces import Box
from .base import Wrapper, WrapperState, box_of, check_count, on_bounds

PADDINGS = ("reset", "zero")


@struct.dataclass
class FrameStackState(WrapperState):
    """The state of the environment inside, and what was seen.

    Attributes:
        frames: `[..., n * C]`, the last n observations, the newest last.
    """

    frames: jax.Array


@dataclasses.dataclass(unsafe_hash=True)
class FrameStack(Wrapper):
    """The last n observations, side by side along the last axis, the newest last.

    `[H, W, C]` becomes `[H, W, n * C]`, and `[D]` becomes `[n * D]`. Mnih et al.
    (2015), "Human-level control through deep reinforcement learning", stack four.

    Attributes:
        env: The environment inside; its observations are arrays.
        n: Number of observations.
        padding: Kind of what stands in place of observations from before the episode:
            `reset` repeats the first one, which is the default of Gymnasium's
            FrameStackObservation too; `zero` has zeros.
    """

    n: int = 4
    padding: str = "reset"
    has_state: ClassVar[bool] = True

    def check(self) -> None:
        """Check the number, the padding and the observations.

        Raises:
            ValueError: naming what does not fit.
        """
        check_count("FrameStack", "n", self.n)
        if self.padding not in PADDINGS:
            raise ValueError(
                f"FrameStack: padding must be one of {', '.join(PADDINGS)}, got "
                f"{self.padding!r}."
            )
        space = box_of(self.env, self.env.default_params, "FrameStack")
        if not space.shape:
            raise ValueError(
                f"FrameStack stacks along the last axis, but {self.env.name} observes "
                "a single number; put FlattenObservation before it."
            )

    def reset_env(
        self, key: jax.Array, params: Any
    ) -> tuple[jax.Array, FrameStackState]:
        """Start an episode; the key is consumed."""
        obs, inner = self.env.reset_env(key, params)
        before = obs if self.padding == "reset" else jnp.zeros_like(obs)
        frames = jnp.concatenate([*[before] * (self.n - 1), obs], axis=-1)
        return frames, FrameStackState(inner, frames)

    def step_env(
        self, key: jax.Array, state: FrameStackState, action: jax.Array, params: Any
    ) -> tuple[jax.Array, FrameStackState, jax.Array, jax.Array, Info]:
        """Take one step; the oldest observation makes room for the new one.

        Args:
            key: Random key, consumed.
            state: State of the running episode.
            action: Member of `action_space(params)`.
            params: Numbers of the environment.
        """
        obs, inner, *rest = self.env.step_env(key, state.inner, action, params)
        newer = state.frames[..., obs.shape[-1] :]
        frames = jnp.concatenate([newer, obs], axis=-1)
        return frames, FrameStackState(inner, frames), *rest  # type: ignore[return-value]

    def observation_space(self, params: Any = None) -> Box:
        """Return n times the space of the environment inside, along the last axis."""
        space = box_of(self.env, self._params(params), "FrameStack")
        low, high = space.low, space.high
        if self.padding == "zero":
            low = on_bounds(lambda xp, b: xp.minimum(b[0], 0), low)
            high = on_bounds(lambda xp, b: xp.maximum(b[0], 0), high)
        shape = (*space.shape[:-1], space.shape[-1] * self.n)
        low, high = (
            on_bounds(lambda xp, b: xp.concatenate(b * self.n, -1), bound)
            for bound in (low, high)
        )
        return Box(low, high, shape, space.dtype)
