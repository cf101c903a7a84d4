"""An environment of this package as a `gymnasium.Env`."""

from __future__ import annotations

from typing import Any

import gymnasium
import jax
import numpy as np

from .gymnasium_programs import Lane, keys_of
from .gymnasium_registration import spec_of
from .gymnasium_spaces import to_action, to_observation
from .gymnasium_task import RENDER_FPS, make_task, with_reset_options


class GymnasiumEnv(gymnasium.Env):
    """One lane, stepped from Python: for comparisons, wrappers, videos, other agents.

    Every step is a call of a compiled program, which costs more than most of these
    environments do; to train, use purerl's own loop, or the vector environment.

    * Keys: `reset(seed=s)` starts the stream of `jax.random.key(s)`, from which every
      reset and every step take the next key (see `gymnasium_programs`). Without a seed
      a reset goes on in the running stream; the first one, or one after `np_random`
      was set, starts a stream from a number drawn from `np_random`.
    * `reset(options={"params": {"length": 0.7}})` sets numbers, from that episode on.
      Other options do nothing.
    * Nothing is reset by itself, and an ended episode cannot be stepped.
    * `info` is what the environment's own `step_env` says.

    Attributes:
        task: The environment, its numbers and spaces.
    """

    # Of the class, for `gymnasium.make`; an object has that of its environment.
    metadata: dict[str, Any] = {  # noqa: RUF012 - the type is Gymnasium's
        "render_modes": ["rgb_array"],
        "render_fps": RENDER_FPS,
    }

    def __init__(
        self,
        env: Any,
        *,
        params: Any = None,
        render_mode: str | None = None,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        """Make one; the arguments are those of `envs.to_gymnasium`."""
        self.task = make_task(env, params, options)
        self.task.check_render_mode(render_mode)
        self.render_mode = render_mode
        self.metadata = self.task.metadata()
        self.observation_space = self.task.observation_space
        self.action_space = self.task.action_space
        self.spec = spec_of(
            env, params=params, render_mode=render_mode, seed=seed, **options
        )
        self._first_seed = seed
        self._key_source: np.random.Generator | None = None
        self._lane: Lane | None = None
        self._running = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode.

        Args:
            seed: Number that starts a stream of keys; see the class.
            options: `params`: numbers to change.

        Returns:
            The first observation, and an empty dictionary.

        Raises:
            ValueError: options that are no dictionary, an unknown number, or one that
                changes a space.
        """
        self.task = with_reset_options(self.task, options)
        seed = self._first_seed if seed is None else seed
        self._first_seed = None
        super().reset(seed=seed)
        obs, self._lane = self.task.programs.reset(self.task.params, self._key(seed))
        self._running = True
        return to_observation(self.observation_space, obs), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take one step.

        Args:
            action: A member of `action_space`.

        Returns:
            `obs, reward, terminated, truncated, info`; the flags are never both true.

        Raises:
            ResetNeeded: no episode is running.
            InvalidAction: another shape, or an integer that is no action.
        """
        if not self._running:
            raise gymnasium.error.ResetNeeded(
                f"no episode of {self.task.env.name} is running: call `reset`."
            )
        lane, outcome = self.task.programs.step(
            self.task.params, self._lane, to_action(self.action_space, action)
        )
        self._lane = lane
        obs, reward, terminated, truncated, info = jax.device_get(outcome)
        self._running = not (terminated or truncated)
        return (
            to_observation(self.observation_space, obs),
            float(reward),
            bool(terminated),
            bool(truncated),
            jax.tree.map(_plain, info),
        )

    def render(self) -> Any:
        """Draw the state, uint8 `[height, width, 3]`; None without a mode.

        Raises:
            ResetNeeded: there is no state yet.
        """
        if self.render_mode is None:
            return None
        if self._lane is None:
            raise gymnasium.error.ResetNeeded("there is no state yet: call `reset`.")
        return self.task.env.render(self._lane.state, self.task.params)

    def _key(self, seed: int | None) -> jax.Array:
        """The key that the next reset splits."""
        if seed is not None:
            self._key_source = self._np_random
            return keys_of([seed])[0]
        if self._lane is None or self.np_random is not self._key_source:
            self._key_source = self.np_random
            return keys_of([int(self.np_random.integers(2**32))])[0]
        return self._lane.key


def _plain(value: np.ndarray) -> Any:
    """A Python number for a scalar, which Gymnasium's vectors know how to stack."""
    return value.item() if np.ndim(value) == 0 else np.array(value)
