"""The last few observations at once."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import struct

from ..base import Environment, Info, Obs
from ..spaces import Box, Dict
from .base import MASK, Wrapper, WrapperState, box_of, check_count, on_bounds

PADDINGS = ("reset", "zero")


@struct.dataclass
class FrameStackState(WrapperState):
    """The state of the environment inside, and what was seen.

    Attributes:
        frames: `[..., n * C]`, the last n observations, the newest last; of a
            dictionary those of every key but the mask of actions.
    """

    frames: Any


@dataclasses.dataclass(unsafe_hash=True)
class FrameStack(Wrapper):
    """The last n observations, side by side along the last axis, the newest last.

    `[H, W, C]` becomes `[H, W, n * C]`, and `[D]` becomes `[n * D]`. Mnih et al.
    (2015), "Human-level control through deep reinforcement learning", stack four.

    Every entry of a dictionary is stacked by itself, but for `action_mask`: the mask is
    that of the newest observation, because actions are taken now.

    Attributes:
        env: The environment inside; its observations are arrays, or a dictionary of
            arrays.
        n: Number of observations.
        padding: Kind of what stands in place of observations from before the episode:
            `reset` repeats the first one, which is the default of Gymnasium's
            FrameStackObservation too; `zero` has zeros.
    """

    n: int = 4
    padding: str = "reset"
    has_state: ClassVar[bool] = True
    adds_to_observations: ClassVar[bool] = False

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
        _boxes(self.env, self.env.default_params)

    def reset_env(self, key: jax.Array, params: Any) -> tuple[Obs, FrameStackState]:
        """Start an episode; the key is consumed."""
        obs, inner = self.env.reset_env(key, params)

        def repeat(new: jax.Array) -> jax.Array:
            before = new if self.padding == "reset" else jnp.zeros_like(new)
            return jnp.concatenate([*[before] * (self.n - 1), new], axis=-1)

        frames = jax.tree.map(repeat, _without_mask(obs))
        return _with_mask(frames, obs), FrameStackState(inner, frames)

    def step_env(
        self, key: jax.Array, state: FrameStackState, action: jax.Array, params: Any
    ) -> tuple[Obs, FrameStackState, jax.Array, jax.Array, Info]:
        """Take one step; the oldest observation makes room for the new one.

        Args:
            key: Random key, consumed.
            state: State of the running episode.
            action: Member of `action_space(params)`.
            params: Numbers of the environment.
        """
        obs, inner, *rest = self.env.step_env(key, state.inner, action, params)
        frames = jax.tree.map(
            lambda old, new: jnp.concatenate([old[..., new.shape[-1] :], new], axis=-1),
            state.frames,
            _without_mask(obs),
        )
        return _with_mask(frames, obs), FrameStackState(inner, frames), *rest  # type: ignore[return-value]

    def observation_space(self, params: Any = None) -> Box | Dict:
        """Return n times the space of the environment inside, along the last axis."""
        params = self._params(params)
        space, boxes = self.env.observation_space(params), _boxes(self.env, params)
        stacked = {key: self._stacked(box) for key, box in boxes.items()}
        if isinstance(space, Dict):
            return Dict({**space.spaces, **stacked})
        return stacked[""]

    def _stacked(self, space: Box) -> Box:
        """The space of n observations of another one."""
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


def _boxes(env: Environment, params: Any) -> dict[str, Box]:
    """The spaces that are stacked, by key; under no name where there is one alone."""
    space = env.observation_space(params)
    if isinstance(space, Dict):
        boxes: dict[str, Any] = {k: x for k, x in space.spaces.items() if k != MASK}
    else:
        boxes = {"": box_of(env, params, "FrameStack")}
    for key, box in boxes.items():
        under = f" under {key!r}" if key else ""
        if not isinstance(box, Box):
            raise ValueError(
                f"FrameStack takes dictionaries of arrays, but {env.name} observes "
                f"{box}{under}; show it as a Box, or leave FrameStack out."
            )
        if not box.shape:
            remedy = (
                "show it as a vector [1]" if key else "put FlattenObservation before it"
            )
            raise ValueError(
                f"FrameStack stacks along the last axis, but {env.name} observes a "
                f"single number{under}; {remedy}."
            )
    return boxes


def _without_mask(obs: Any) -> Any:
    """The observation, or what a dictionary has beside the mask."""
    if not isinstance(obs, dict):
        return obs
    return {key: value for key, value in obs.items() if key != MASK}


def _with_mask(frames: Any, obs: Any) -> Obs:
    """The frames, and the mask of the newest observation where it has one."""
    if isinstance(obs, dict) and MASK in obs:
        return {**frames, MASK: obs[MASK]}
    return frames
