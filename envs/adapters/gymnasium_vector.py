"""An environment of this package as a `gymnasium.vector.VectorEnv`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from .gymnasium_programs import Lane, Outcome, keys_of
from .gymnasium_registration import spec_of
from .gymnasium_spaces import to_action, to_observation
from .gymnasium_task import RENDER_FPS, make_task, with_reset_options

AUTORESET = AutoresetMode.SAME_STEP


class GymnasiumVectorEnv(VectorEnv):
    """N lanes that one compiled program steps.

    * Keys: lane i of `reset(seed=s)` is `GymnasiumEnv` after `reset(seed=s + i)`, step
      by step and over all its episodes; a list gives each lane its own seed. Without a
      seed the lanes go on in their streams.
    * A lane that ends is reset in the same step (`AutoresetMode.SAME_STEP`): `obs` is
      the next episode's first one. What the action led to is `info["final_obs"]`, an
      object array `[N]` with None for the lanes that run on, and `info["final_info"]`,
      each with its mask (`_final_obs`, `_final_info`): the layout of `SyncVectorEnv`.
    * `reset(options={"params": ..., "reset_mask": mask})` sets numbers for all lanes,
      and resets only those where the bool `[N]` mask is true. Other options do nothing.

    Attributes:
        task: The environment, its numbers and spaces.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 - the type is Gymnasium's
        "render_modes": ["rgb_array"],
        "render_fps": RENDER_FPS,
        "autoreset_mode": AUTORESET,
    }

    def __init__(
        self,
        env: Any,
        *,
        num_envs: int,
        params: Any = None,
        render_mode: str | None = None,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        """Make one; the arguments are those of `envs.to_gymnasium_vector`."""
        if num_envs < 1:
            raise ValueError(f"num_envs must be at least 1, got {num_envs}.")
        self.task = make_task(env, params, options)
        self.task.check_render_mode(render_mode)
        self.num_envs = num_envs
        self.render_mode = render_mode
        self.metadata = {**self.task.metadata(), "autoreset_mode": AUTORESET}
        self.single_observation_space = self.task.observation_space
        self.single_action_space = self.task.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.spec = spec_of(
            env, params=params, render_mode=render_mode, seed=seed, **options
        )
        self._first_seed = seed
        self._key_source: np.random.Generator | None = None
        self._obs: Any = None
        self._lanes: Lane | None = None

    def reset(
        self,
        *,
        seed: int | Sequence[int] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode in every lane, or in those of the mask.

        Args:
            seed: Lane i starts the stream of `seed + i`, or of `seed[i]`.
            options: Dict with `params` and `reset_mask`; see the class.

        Returns:
            First observations `[N, ...]`, and an empty dictionary.

        Raises:
            ValueError: not N seeds, options that are no dictionary, a mask of another
                shape or dtype, an unknown number or one that changes a space.
            ResetNeeded: a mask, but no episodes yet.
        """
        task, mask = with_reset_options(self.task, options), self._reset_mask(options)
        seed = self._first_seed if seed is None else seed
        self._first_seed = None
        super().reset(seed=None if isinstance(seed, Sequence) else seed)
        self.task = task
        keys, params, programs = self._keys(seed), self.task.params, self.task.programs
        if mask is None:
            self._obs, self._lanes = programs.reset_lanes(params, keys)
        else:
            self._obs, self._lanes = programs.reset_some(
                params, keys, mask, self._obs, self._lanes
            )
        return to_observation(self.observation_space, self._obs), {}

    def step(
        self, actions: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Take one step in every lane.

        Args:
            actions: `[N, ...]` actions, one for each environment.

        Returns:
            `obs [N, ...]`, rewards float64 `[N]`, terminated and truncated bool `[N]`
            and never both true, and the infos with `final_obs` where lanes ended.

        Raises:
            ResetNeeded: there are no episodes yet.
            InvalidAction: another shape, or an integer that is no action.
        """
        if self._lanes is None:
            raise gymnasium.error.ResetNeeded(
                f"no episodes of {self.task.env.name} are running: call `reset`."
            )
        self._obs, self._lanes, outcome = self.task.programs.step_lanes(
            self.task.params,
            self._lanes,
            to_action(self.single_action_space, actions, self.num_envs),
        )
        outcome = jax.device_get(outcome)
        return (
            to_observation(self.observation_space, self._obs),
            np.array(outcome.reward, np.float64),
            np.array(outcome.terminated),
            np.array(outcome.truncated),
            self._infos(outcome),
        )

    def render(self) -> tuple[Any, ...] | None:
        """Draw each lane's state after any reset; None without a mode.

        Raises:
            ResetNeeded: there are no states yet.
        """
        if self.render_mode is None:
            return None
        if self._lanes is None:
            raise gymnasium.error.ResetNeeded("there are no states yet: call `reset`.")
        env, states = self.task.env, self._lanes.state
        lane = [jax.tree.map(lambda x, i=i: x[i], states) for i in range(self.num_envs)]
        return tuple(env.render(state, self.task.params) for state in lane)

    def _keys(self, seed: int | Sequence[int] | None) -> jax.Array:
        """The keys that the next reset splits, `[N]`."""
        if isinstance(seed, Sequence):
            if len(seed) != self.num_envs:
                raise ValueError(
                    f"seed has {len(seed)} numbers for {self.num_envs} lanes."
                )
            self._key_source = self.np_random
            return keys_of(seed)
        if seed is not None:
            self._key_source = self._np_random
            return keys_of([seed + i for i in range(self.num_envs)])
        if self._lanes is None or self.np_random is not self._key_source:
            self._key_source = self.np_random
            key = keys_of([int(self.np_random.integers(2**32))])[0]
            return jax.random.split(key, self.num_envs)
        return self._lanes.key

    def _reset_mask(self, options: dict[str, Any] | None) -> np.ndarray | None:
        mask = (options or {}).get("reset_mask")
        if mask is None:
            return None
        mask = np.asarray(mask)
        if mask.shape != (self.num_envs,) or mask.dtype != np.bool_:
            raise ValueError(
                f"reset_mask must be bool of shape ({self.num_envs},), got "
                f"{mask.dtype} of {mask.shape}."
            )
        if self._lanes is None:
            raise gymnasium.error.ResetNeeded(
                "reset_mask keeps the other lanes as they are: reset all of them first."
            )
        return mask

    def _infos(self, outcome: Outcome) -> dict[str, Any]:
        """Return the info of all lanes, and the final info of those that ended."""
        done = np.asarray(outcome.terminated) | np.asarray(outcome.truncated)
        infos = _masked(outcome.info, ~done)
        if not done.any():
            return infos
        final_obs = np.full(self.num_envs, None, dtype=object)
        for i in np.flatnonzero(done):
            obs = jax.tree.map(lambda x, i=i: x[i], outcome.obs)
            final_obs[i] = to_observation(self.single_observation_space, obs)
        return {
            **infos,
            "final_obs": final_obs,
            "_final_obs": np.array(done),
            "final_info": _masked(outcome.info, done),
            "_final_info": np.array(done),
        }


def _masked(info: dict[str, Any], mask: np.ndarray) -> dict[str, Any]:
    """An info with its masks, zero where the mask is false; empty where it always is.

    Args:
        info: Pytree with leaves `[N, ...]`.
        mask: `[N]` bool, the lanes whose info is kept.
    """
    masked: dict[str, Any] = {}
    if not mask.any():
        return masked
    for name, value in info.items():
        if isinstance(value, dict):
            masked[name] = _masked(value, mask)
        else:
            masked[name] = np.zeros_like(value)
            masked[name][mask] = value[mask]
        masked[f"_{name}"] = np.array(mask)
    return masked
