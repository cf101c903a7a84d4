"""Environments of this package as a `gymnasium.Env` and as a `VectorEnv`.

A *lane* is one running environment: its state, and a stream of keys that starts at
`jax.random.key(seed)`. Every reset and every step takes the next key of the stream
(`key, key_now = jax.random.split(key)`), the resets between episodes included. So a
lane is a function of its seed and its actions, and it does not matter whether it runs
alone or in a vector.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from ..base import Array, Environment, Obs, outcome, select_tree
from ..options import one_of
from ..params import check_wrappers, put_in
from ..registry import make
from .adapt import adapt
from .adapted import as_arrays
from .gymnasium_spaces import to_action, to_gym_space, to_observation

ENTRY_POINTS: dict[str, Any] = {
    "entry_point": f"{__name__}:GymnasiumEnv",
    "vector_entry_point": f"{__name__}:GymnasiumVectorEnv",
}
# 30 frames per second are a rate to watch, whatever time a step stands for.
PICTURES: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 30}
AUTORESET = AutoresetMode.SAME_STEP
Lane = tuple[Array, Any]
"""The key and the state that one environment carries; `[N]` each in a vector."""


class Programs:
    """Reset and step, compiled on first use, once for all environments that are equal.

    `step(params, lane, action)` returns the lane and what Gymnasium does, before any
    reset: observation, reward, terminated, truncated and info. `step_lanes` returns
    besides, in front, the observations of episodes that begin where others ended.
    """

    def __init__(self, env: Environment) -> None:
        """Take the functions of an environment."""

        def reset(params: Any, key: Array) -> tuple[Obs, Lane]:
            key, key_reset = jax.random.split(key)
            obs, state = env.reset(key_reset, params)
            return obs, (key, state)

        def step(params: Any, lane: Lane, action: Array) -> tuple[Lane, tuple]:
            key, key_step = jax.random.split(lane[0])
            obs, state, reward, terminated, truncated, info = outcome(
                env, key_step, lane[1], action, params
            )
            known = ("terminated", "truncated", "final_observation")
            info = {name: value for name, value in info.items() if name not in known}
            after = (obs, reward, terminated, truncated & ~terminated, info)
            return (key, state), after

        def step_and_restart(params: Any, lane: Lane, action: Array) -> Any:
            lane, after = step(params, lane, action)
            done = after[2] | after[3]
            obs, lane = select_tree(done, reset(params, lane[0]), (after[0], lane))
            return obs, lane, after

        self.reset, self.step = jax.jit(reset), jax.jit(step)
        self.reset_lanes = jax.jit(jax.vmap(reset, (None, 0)))
        self.step_lanes = jax.jit(jax.vmap(step_and_restart, (None, 0, 0)))


_shared_programs = lru_cache(maxsize=64)(Programs)
_make_keys = jax.jit(jax.vmap(jax.random.key))


def gymnasium_id(id: str) -> str:
    """Return Gymnasium's name of an id.

    It allows one slash, that of the namespace, and few characters beside letters.
    """
    return "purerl/" + re.sub(r"[^-:.\w]", "-", id)


class _Lanes:
    """What one lane and several have in common.

    Attributes:
        pure: The environment inside.
        params: Its numbers, arrays all of them.
        programs: Its compiled reset and step.
    """

    pure: Environment
    params: Any
    programs: Programs
    np_random: np.random.Generator
    _carry: Lane | None = None

    def _set_up(
        self, env: Any, params: Any, render_mode: Any, options: Any
    ) -> tuple[gymnasium.Space, gymnasium.Space]:
        """Make the environment with its numbers; return Gymnasium's spaces of it."""
        if options and not isinstance(env, str):
            raise ValueError(
                f"options are {sorted(options)}, but env is an object: they go with an "
                "id."
            )
        self.pure = make(env, **options) if isinstance(env, str) else adapt(env)
        try:
            self.programs = _shared_programs(self.pure)
        except TypeError:  # It has no hash.
            self.programs = Programs(self.pure)
        self.params = self._with(self.pure.default_params, params)
        self.metadata = PICTURES if self.pure.has_picture else {"render_modes": []}
        modes = [None, *self.metadata["render_modes"]]
        one_of(f"render_mode of {self.pure.name}", render_mode, modes)
        self.render_mode = render_mode
        return self._spaces(self.params)

    def _with(self, params: Any, values: Any) -> Any:
        """Return the numbers with values put in, as arrays."""
        owner = f"params of {self.pure.name}"
        if values is not None:
            params = put_in(params, values, owner)
            check_wrappers(self.pure, params, owner)
        return as_arrays(params)

    def _spaces(self, params: Any) -> tuple[gymnasium.Space, gymnasium.Space]:
        both = self.pure.observation_space(params), self.pure.action_space(params)
        return to_gym_space(both[0]), to_gym_space(both[1])

    def _change(self, options: dict[str, Any] | None) -> None:
        """Put the numbers of a reset's options in."""
        values = (options or {}).get("params")
        if values is None:
            return
        params = self._with(self.params, values)
        if self._spaces(params) != self._spaces(self.params):
            raise ValueError(
                f"params {values} change a space of {self.pure.name}, which a reset "
                "cannot: make another environment with them."
            )
        self.params = params

    def _keys(self, seeds: Sequence[int] | None, count: int) -> Array:
        """The keys `[N]` of the next resets: of seeds, or those that come next."""
        if seeds is None and self._carry is not None:
            return self._carry[0].reshape(count)
        if seeds is None:
            seeds = list(self.np_random.integers(2**32, size=count))
        return _make_keys(np.asarray([int(seed) % 2**32 for seed in seeds], np.uint32))

    def _running(self) -> Lane:
        """The lane or the lanes, of which there must be some."""
        if self._carry is None:
            raise gymnasium.error.ResetNeeded(
                f"no episode of {self.pure.name} is running: call `reset`."
            )
        return self._carry


class GymnasiumEnv(_Lanes, gymnasium.Env):
    """One lane, stepped from Python: for comparisons, wrappers, videos, other agents.

    Every step is a call of a compiled program, which costs more than most of these
    environments do; to train, use purerl's own loop, or the vector environment.

    * Keys: `reset(seed=s)` starts the stream of `jax.random.key(s)`, from which every
      reset and every step take the next key. Without a seed a reset goes on in the
      running stream, and the first one begins at random.
    * `reset(options={"params": {"length": 0.7}})` sets numbers, from that episode on.
      Other options do nothing.
    * Nothing is reset by itself, and an ended episode cannot be stepped.
    * `info` is what the environment's own `step_env` says.

    Attributes:
        pure: The environment inside.
        params: Its numbers.
    """

    # Of the class, for `gymnasium.make`; an object has that of its environment.
    metadata = PICTURES

    def __init__(
        self,
        env: Any,
        *,
        params: Any = None,
        render_mode: str | None = None,
        **options: Any,
    ) -> None:
        """Make one; the arguments are those of `envs.to_gymnasium`."""
        spaces = self._set_up(env, params, render_mode, options)
        self.observation_space, self.action_space = spaces
        self._ended = True

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
            ValueError: an unknown number, or one that changes a space.
        """
        self._change(options)
        super().reset(seed=seed)
        key = self._keys(None if seed is None else [seed], 1)[0]
        obs, self._carry = self.programs.reset(self.params, key)
        self._ended = False
        return to_observation(self.observation_space, obs), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take one step with a member of `action_space`.

        Returns:
            `obs, reward, terminated, truncated, info`; the flags are never both true.

        Raises:
            ResetNeeded: no episode is running.
            InvalidAction: another shape, or an integer that is no action.
        """
        lane = self._running()
        if self._ended:
            raise gymnasium.error.ResetNeeded(
                f"the episode of {self.pure.name} has ended: call `reset`."
            )
        taken = to_action(self.action_space, action)
        self._carry, after = self.programs.step(self.params, lane, taken)
        obs, reward, terminated, truncated, info = jax.device_get(after)
        self._ended = bool(terminated or truncated)
        obs = to_observation(self.observation_space, obs)
        # Gymnasium's vectors know how to stack numbers of Python.
        info = jax.tree.map(lambda x: np.array(x) if np.ndim(x) else x.item(), info)
        return obs, float(reward), bool(terminated), bool(truncated), info

    def render(self) -> Any:
        """Draw the state, uint8 `[height, width, 3]`; None without a mode.

        Raises:
            ResetNeeded: there is no state yet.
        """
        if self.render_mode is None:
            return None
        return self.pure.render(self._running()[1], self.params)


class GymnasiumVectorEnv(_Lanes, VectorEnv):
    """N lanes that one compiled program steps.

    * Keys: lane i of `reset(seed=s)` is `GymnasiumEnv` after `reset(seed=s + i)`, step
      by step and over all its episodes; a list gives each lane its own seed. Without a
      seed the lanes go on in their streams.
    * A lane that ends is reset in the same step (`AutoresetMode.SAME_STEP`): `obs` is
      the next episode's first one. What the action led to is `info["final_obs"]`, an
      object array `[N]` with None for the lanes that run on, and `info["final_info"]`,
      each with its mask (`_final_obs`, `_final_info`): the layout of `SyncVectorEnv`.
    * `reset(options={"params": ...})` sets numbers for all lanes. Other options do
      nothing.

    Attributes:
        pure: The environment inside.
        params: Its numbers, shared by the lanes.
    """

    metadata = {**PICTURES, "autoreset_mode": AUTORESET}  # noqa: RUF012

    def __init__(
        self,
        env: Any,
        *,
        num_envs: int,
        params: Any = None,
        render_mode: str | None = None,
        **options: Any,
    ) -> None:
        """Make one; the arguments are those of `envs.to_gymnasium_vector`."""
        if num_envs < 1:
            raise ValueError(f"num_envs must be at least 1, got {num_envs}.")
        single = self._set_up(env, params, render_mode, options)
        self.metadata = {**self.metadata, "autoreset_mode": AUTORESET}
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = single
        self.observation_space = batch_space(single[0], num_envs)
        self.action_space = batch_space(single[1], num_envs)

    def reset(
        self,
        *,
        seed: int | Sequence[int] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode in every lane.

        Args:
            seed: Lane i starts the stream of `seed + i`, or of `seed[i]`.
            options: Dict with `params`; see the class.

        Returns:
            First observations `[N, ...]`, and an empty dictionary.

        Raises:
            ValueError: not N seeds, an unknown number, or one that changes a space.
        """
        self._change(options)
        if not isinstance(seed, Sequence):
            super().reset(seed=seed)
            seed = seed if seed is None else range(seed, seed + self.num_envs)
        elif len(seed) != self.num_envs:
            raise ValueError(f"seed has {len(seed)} numbers for {self.num_envs} lanes.")
        keys = self._keys(seed, self.num_envs)
        obs, self._carry = self.programs.reset_lanes(self.params, keys)
        return to_observation(self.observation_space, obs), {}

    def step(
        self, actions: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Take one step in every lane, with actions `[N, ...]`.

        Returns:
            `obs [N, ...]`, rewards float64 `[N]`, terminated and truncated bool `[N]`
            and never both true, and the infos with `final_obs` where lanes ended.

        Raises:
            ResetNeeded: there are no episodes yet.
            InvalidAction: another shape, or an integer that is no action.
        """
        lanes = self._running()
        taken = to_action(self.single_action_space, actions, self.num_envs)
        obs, self._carry, after = self.programs.step_lanes(self.params, lanes, taken)
        final, reward, terminated, truncated, info = jax.device_get(after)
        done = terminated | truncated
        # One number a lane has the type of Python's, as Gymnasium's own vectors do.
        info = jax.tree.map(
            lambda x: x.astype(type(x[0].item())) if x.ndim == 1 else x, info
        )
        infos = _masked(info, ~done)
        if done.any():
            final_obs = np.full(self.num_envs, None, dtype=object)
            for i in np.flatnonzero(done):
                last = jax.tree.map(lambda x, i=i: x[i], final)
                final_obs[i] = to_observation(self.single_observation_space, last)
            infos |= {"final_obs": final_obs, "final_info": _masked(info, done)}
            infos |= {"_final_obs": done.copy(), "_final_info": done.copy()}
        obs = to_observation(self.observation_space, obs)
        reward = np.array(reward, np.float64)
        return obs, reward, np.array(terminated), np.array(truncated), infos

    def render(self) -> tuple[Any, ...] | None:
        """Draw each lane's state after any reset; None without a mode.

        Raises:
            ResetNeeded: there are no states yet.
        """
        if self.render_mode is None:
            return None
        states = self._running()[1]
        lane = [jax.tree.map(lambda x, i=i: x[i], states) for i in range(self.num_envs)]
        return tuple(self.pure.render(state, self.params) for state in lane)


def _masked(info: dict[str, Any], mask: np.ndarray) -> dict[str, Any]:
    """An info `[N, ...]` with its masks, zero where the mask `[N]` is false.

    It is empty where the mask is false throughout.
    """
    masked: dict[str, Any] = {}
    for name, value in info.items() if mask.any() else ():
        if isinstance(value, dict):
            masked[name] = _masked(value, mask)
        else:
            masked[name] = np.zeros_like(value)
            masked[name][mask] = value[mask]
        masked[f"_{name}"] = np.array(mask)
    return masked
