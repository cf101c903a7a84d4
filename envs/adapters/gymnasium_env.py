"""Environments of this package as a `gymnasium.Env` and as a `VectorEnv`.

A *lane* is one running environment: its state, and a stream of keys that starts at
`jax.random.key(seed)`. Every reset and every step takes the next key of the stream
(`key, key_now = jax.random.split(key)`), the resets between episodes included. So a
lane is a function of its seed and its actions, and it does not matter whether it runs
alone or in a vector.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import gymnasium
import jax
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from ..base import Array, Environment, Info, Obs, outcome, select_tree
from ..options import one_of
from ..params import check_wrappers, put_in
from ..registry import make, source_of
from .adapt import adapt
from .adapted import as_arrays
from .gymnasium_spaces import to_action, to_gym_space, to_observation

ENTRY_POINTS: dict[str, Any] = {
    "entry_point": f"{__name__}:GymnasiumEnv",
    "vector_entry_point": f"{__name__}:GymnasiumVectorEnv",
}
RENDER_FPS = 30
"""Frames per second of a video: a rate to watch, whatever time a step stands for."""
AUTORESET = AutoresetMode.SAME_STEP


class Lane(NamedTuple):
    """The key and the state that one environment carries; `[N]` each in a vector."""

    key: Array
    state: Any


class Outcome(NamedTuple):
    """The outcome of a step before any reset; `[N, ...]` each in a vector."""

    obs: Obs
    reward: Array
    terminated: Array
    truncated: Array
    info: Info


class Programs(NamedTuple):
    """Compiled on first use, once for all environments that are equal.

    Attributes:
        reset: Function that resets an environment, `(params, key) -> obs, lane`.
        step: Function that steps an environment, `(params, lane, action) -> lane,
            outcome`.
        reset_lanes: Function that resets a vector, `(params, keys [N]) -> obs, lanes`.
        step_lanes: Function that steps a vector, `(params, lanes, actions) -> obs,
            lanes, outcome`; `obs` and `lanes` are the next episode's where one ended.
    """

    reset: Callable[..., tuple[Obs, Lane]]
    step: Callable[..., tuple[Lane, Outcome]]
    reset_lanes: Callable[..., tuple[Obs, Lane]]
    step_lanes: Callable[..., tuple[Obs, Lane, Outcome]]


def _make_programs(env: Environment) -> Programs:
    def reset(params: Any, key: Array) -> tuple[Obs, Lane]:
        key, key_reset = jax.random.split(key)
        obs, state = env.reset(key_reset, params)
        return obs, Lane(key, state)

    def step(params: Any, lane: Lane, action: Array) -> tuple[Lane, Outcome]:
        key, key_step = jax.random.split(lane.key)
        obs, state, reward, terminated, truncated, info = outcome(
            env, key_step, lane.state, action, params
        )
        known = ("terminated", "truncated", "final_observation")
        info = {name: value for name, value in info.items() if name not in known}
        truncated = truncated & ~terminated
        return Lane(key, state), Outcome(obs, reward, terminated, truncated, info)

    def step_and_restart(params: Any, lane: Lane, action: Array) -> Any:
        lane, after = step(params, lane, action)
        done = after.terminated | after.truncated
        obs, lane = select_tree(done, reset(params, lane.key), (after.obs, lane))
        return obs, lane, after

    return Programs(
        reset=jax.jit(reset),
        step=jax.jit(step),
        reset_lanes=jax.jit(jax.vmap(reset, (None, 0))),
        step_lanes=jax.jit(jax.vmap(step_and_restart, (None, 0, 0))),
    )


_shared_programs = lru_cache(maxsize=64)(_make_programs)
_make_shared = lru_cache(maxsize=64)(make)
_make_keys = jax.jit(jax.vmap(jax.random.key))


def keys_of(seeds: Sequence[int]) -> Array:
    """Return `jax.random.key(seed)` for each seed, `[N]`.

    A key has room for 32 bits; a larger seed is hashed by numpy's `SeedSequence`.
    """
    words = [
        s if s < 2**32 else int(np.random.SeedSequence(s).generate_state(1)[0])
        for s in map(int, seeds)
    ]
    return _make_keys(np.asarray(words, np.uint32))


class Task(NamedTuple):
    """An environment with its numbers, as Gymnasium sees it.

    Attributes:
        env: The environment.
        params: Numbers of the environment, arrays all of them.
        programs: Compiled reset and step.
        observation_space: Gymnasium's space of one observation.
        action_space: Gymnasium's space of one action.
    """

    env: Environment
    params: Any
    programs: Programs
    observation_space: gymnasium.Space
    action_space: gymnasium.Space

    def with_params(self, values: Any) -> "Task":
        """Return the task with numbers put in, all of them arrays of a strong type."""
        env, params, owner = self.env, self.params, f"params of {self.env.name}"
        if values is not None:
            params = put_in(params, values, owner)
            check_wrappers(env, lambda name, _: getattr(params, name), owner)
        spaces = env.observation_space(params), env.action_space(params)
        return Task(env, as_arrays(params), self.programs, *map(to_gym_space, spaces))

    def with_options(self, options: Any) -> "Task":
        """Return the task with the numbers under `options["params"]` of a reset."""
        values = (options or {}).get("params")
        if values is None:
            return self
        new = self.with_params(values)
        if new[-2:] != self[-2:]:
            raise ValueError(
                f"params {values} change a space of {self.env.name}, which a reset "
                "cannot: make another environment with them."
            )
        return new


def make_task(env: Any, params: Any, options: Mapping[str, Any]) -> Task:
    """Find an environment and put its numbers in.

    Args:
        env: An id, an `Environment`, or an object of the gymnax 1.0 contract.
        params: Names and values, a whole structure, or None for the defaults.
        options: Options of `envs.make`, with an id only.

    Raises:
        ValueError: unknown id, option or number; options without an id.
        TypeError: the object does not keep the contract.
    """
    if isinstance(env, str):
        # Only environments that nobody can redefine are shared, with their programs.
        shared = make if source_of(env) == "registered" else _make_shared
        env = _hashed(shared, make)(env, **options)
    elif options:
        raise ValueError(
            f"options are {sorted(options)}, but env is an object: they go with an id."
        )
    env = adapt(env)
    programs = _hashed(_shared_programs, _make_programs)(env)
    nothing: Any = None
    return Task(env, env.default_params, programs, nothing, nothing).with_params(params)


def _hashed(shared: Callable[..., Any], plain: Callable[..., Any]) -> Any:
    """Call the one function, or the other where an argument cannot be hashed."""

    def call(*args: Any, **options: Any) -> Any:
        try:
            hash((args, tuple(options.items())))
        except TypeError:
            return plain(*args, **options)
        return shared(*args, **options)

    return call


def gymnasium_id(id: str) -> str:
    """Return Gymnasium's name of an id.

    It allows one slash, that of the namespace, and few characters beside letters.
    """
    return "purerl/" + re.sub(r"[^-:.\w]", "-", id)


class _Lanes:
    """What one lane and several have in common: the task, and where keys come from."""

    task: Task
    _carry: Lane | None = None
    _key_source: np.random.Generator | None = None

    def _set_up(self, env: Any, options: dict[str, Any], **given: Any) -> None:
        """Find the task, and keep how Gymnasium could make the environment again."""
        self.task = make_task(env, given["params"], options)
        self.render_mode, self._first_seed = given["render_mode"], given["seed"]
        modes = ["rgb_array"] if self.task.env.has_picture else []
        mode = f"render_mode of {self.task.env.name}"
        one_of(mode, self.render_mode, [None, *modes])
        rate = {"render_fps": RENDER_FPS} if modes else {}
        self.metadata = {"render_modes": modes, **rate}
        self.spec = None
        if isinstance(env, str):
            asked = {name: x for name, x in given.items() if x is not None}
            kwargs = {"env": env, **asked, **options}
            self.spec = EnvSpec(id=gymnasium_id(env), kwargs=kwargs, **ENTRY_POINTS)

    def _take_seed(self, seed: Any) -> Any:
        """The seed of a reset: the first one has that of the constructor."""
        seed, self._first_seed = self._first_seed if seed is None else seed, None
        return seed

    def _new_stream(self) -> Array | None:
        """A key from `np_random`, where it is not the one that the keys came from."""
        source: np.random.Generator = self.np_random  # type: ignore[attr-defined]
        if self._carry is not None and source is self._key_source:
            return None
        self._key_source = source
        return keys_of([int(source.integers(2**32))])[0]

    def _running(self) -> Any:
        """The lane or the lanes, of which there must be some."""
        if self._carry is None:
            raise gymnasium.error.ResetNeeded(
                f"no episode of {self.task.env.name} is running: call `reset`."
            )
        return self._carry


class GymnasiumEnv(_Lanes, gymnasium.Env):
    """One lane, stepped from Python: for comparisons, wrappers, videos, other agents.

    Every step is a call of a compiled program, which costs more than most of these
    environments do; to train, use purerl's own loop, or the vector environment.

    * Keys: `reset(seed=s)` starts the stream of `jax.random.key(s)`, from which every
      reset and every step take the next key. Without a seed a reset goes on in the
      running stream; the first one, or one after `np_random` was set, starts a stream
      from a number drawn from `np_random`.
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
        self._set_up(env, options, params=params, render_mode=render_mode, seed=seed)
        self.observation_space = self.task.observation_space
        self.action_space = self.task.action_space
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
        self.task, seed = self.task.with_options(options), self._take_seed(seed)
        super().reset(seed=seed)
        if seed is not None:
            self._key_source, key = self._np_random, keys_of([seed])[0]
        else:
            new = self._new_stream()
            key = self._running().key if new is None else new
        obs, self._carry = self.task.programs.reset(self.task.params, key)
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
                f"the episode of {self.task.env.name} has ended: call `reset`."
            )
        taken = to_action(self.action_space, action)
        step = self.task.programs.step
        self._carry, after = step(self.task.params, lane, taken)
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
        return self.task.env.render(self._running().state, self.task.params)


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
        self._set_up(env, options, params=params, render_mode=render_mode, seed=seed)
        self.metadata["autoreset_mode"] = AUTORESET
        self.num_envs = num_envs
        self.single_observation_space = self.task.observation_space
        self.single_action_space = self.task.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

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
        self.task, seed = self.task.with_options(options), self._take_seed(seed)
        super().reset(seed=None if isinstance(seed, Sequence) else seed)
        reset = self.task.programs.reset_lanes
        obs, self._carry = reset(self.task.params, self._keys(seed))
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
        step = self.task.programs.step_lanes
        obs, self._carry, after = step(self.task.params, lanes, taken)
        after = jax.device_get(after)
        return (
            to_observation(self.observation_space, obs),
            np.array(after.reward, np.float64),
            np.array(after.terminated),
            np.array(after.truncated),
            self._infos(after),
        )

    def render(self) -> tuple[Any, ...] | None:
        """Draw each lane's state after any reset; None without a mode.

        Raises:
            ResetNeeded: there are no states yet.
        """
        if self.render_mode is None:
            return None
        env, states = self.task.env, self._running().state
        lane = [jax.tree.map(lambda x, i=i: x[i], states) for i in range(self.num_envs)]
        return tuple(env.render(state, self.task.params) for state in lane)

    def _keys(self, seed: int | Sequence[int] | None) -> Array:
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
        new = self._new_stream()
        if new is not None:
            return jax.random.split(new, self.num_envs)
        return self._running().key

    def _infos(self, after: Outcome) -> dict[str, Any]:
        """Return the info of all lanes, and the final info of those that ended."""
        done = np.asarray(after.terminated) | np.asarray(after.truncated)
        infos = _masked(after.info, ~done)
        if not done.any():
            return infos
        final_obs = np.full(self.num_envs, None, dtype=object)
        for i in np.flatnonzero(done):
            obs = jax.tree.map(lambda x, i=i: x[i], after.obs)
            final_obs[i] = to_observation(self.single_observation_space, obs)
        return {
            **infos,
            "final_obs": final_obs,
            "_final_obs": np.array(done),
            "final_info": _masked(after.info, done),
            "_final_info": np.array(done),
        }


def _masked(info: dict[str, Any], mask: np.ndarray) -> dict[str, Any]:
    """An info `[N, ...]` with its masks, zero where the mask `[N]` is false.

    It is empty where the mask is false throughout.
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
