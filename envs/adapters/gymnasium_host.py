"""Gymnasium's environments for training: stepped on the host, several at a time.

`HostEnvironment` says what an environment is (spaces, time limit), as every
`Environment` does, and `HostEnvironment.start` makes a batch of it that is stepped from
Python. It has no pure functions: what would need them says so.
"""

from __future__ import annotations

import contextlib
import copy
import signal
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector import AutoresetMode

from ..base import Environment, EnvParams
from ..spaces import Space
from .gymnasium_spaces import (
    batch_action,
    check_action_space,
    from_gym_space,
    from_observation,
)

if TYPE_CHECKING:
    from gymnasium.vector import VectorEnv

# Options of `gymnasium.make_vec` that are not the environment's own.
_VECTOR = ("vectorization_mode", "vector_kwargs")
_OWN_VECTOR = "vector_entry_point"  # the vector that an environment brings itself
_MODES = ("sync", "async", _OWN_VECTOR)
_NO_LIMIT = 10_000_000  # Such an episode counts as one without a limit.


class HostStep(NamedTuple):
    """What one step of `B` environments gives, arrays of the host, `[B, ...]` each.

    Attributes:
        obs: What the policy sees next: where an episode ended, the first observation of
            the next one.
        next_obs: Observation that the action led to, before any reset.
        reward: float32.
        terminated: The episode ended by itself.
        truncated: The episode was cut; never true with `terminated`.
    """

    obs: Any
    next_obs: Any
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray


class HostEnvironment(Environment[Any, EnvParams]):
    """An environment that Gymnasium registers, as training on the host sees it.

    Integers of spaces with a `start` count from 0 here, and 64-bit numbers have 32.
    """

    on_host: ClassVar[bool] = True

    def __init__(self, gymnasium_id: str, **options: Any) -> None:
        """Look an environment up, and read its spaces and its time limit.

        Args:
            gymnasium_id: Name for `gymnasium.make`, such as `"CartPole-v1"`, or
                `"my_package:MyEnv-v0"` to import a module first.
            **options: `vectorization_mode` (`"sync"`, `"async"` or
                `"vector_entry_point"`) and `vector_kwargs` of `gymnasium.make_vec`; all
                others are the environment's own.

        Raises:
            ValueError: no such environment, options that it does not take, spaces
                that are none of `envs.spaces`, or a box of integers as actions.
        """
        self.id = gymnasium_id
        self.options = {key: value for key, value in options.items()}
        self._mode = str(options.get("vectorization_mode", "sync"))
        own = {k: v for k, v in options.items() if k not in _VECTOR}
        env = _made(gymnasium_id, partial(gymnasium.make, gymnasium_id, **own))
        try:
            self.gym_observation_space = env.observation_space
            self.gym_action_space = env.action_space
            limit = env.spec.max_episode_steps if env.spec is not None else None
            self._limit = int(limit or _NO_LIMIT)
        finally:
            env.close()
        check_action_space(env.action_space, self.name)
        self._observation_space = from_gym_space(env.observation_space, "observations")
        self._action_space = from_gym_space(env.action_space, "actions")
        if self._mode not in _MODES:
            raise ValueError(
                f"vectorization_mode in env_kwargs must be one of {', '.join(_MODES)}, "
                f"got {self._mode!r}."
            )
        if self._mode == _OWN_VECTOR:
            self.start(1).close()  # An environment that does not fit says so here.

    @property
    def name(self) -> str:
        """The id of `envs.make`."""
        return f"gymnasium/{self.id}"

    @property
    def default_params(self) -> EnvParams:
        """The time limit; other numbers of a Gymnasium environment are its options."""
        return EnvParams(max_steps_in_episode=self._limit)

    def observation_space(self, params: EnvParams | None = None) -> Space:
        """Return the space of what `HostEnvs` hands out."""
        del params
        return self._observation_space

    def action_space(self, params: EnvParams | None = None) -> Space:
        """Return the space of what `HostEnvs` takes."""
        del params
        return self._action_space

    def reset_env(self, key: jax.Array, params: EnvParams) -> tuple[Any, Any]:
        """Return zeros in the place of a first observation, and no state.

        A state of training has this shape before `HostEnvs.reset` fills it in.
        """
        del key, params
        space = self._observation_space
        return _zeros(space), ()

    def step_env(
        self, key: jax.Array, state: Any, action: jax.Array, params: EnvParams
    ) -> Any:
        """Refuse to step inside a program.

        Raises:
            ValueError: always.
        """
        del key, state, action, params
        raise ValueError(
            f"{self.name} is stepped on the host, and no compiled program can do that: "
            "train with purerl.run(config) or `purerl train`."
        )

    def start(self, num_envs: int) -> HostEnvs:
        """Make `num_envs` environments that are stepped together.

        Args:
            num_envs: Number B of environments.

        Raises:
            ValueError: they do not hand out the observation before a reset.
        """
        return HostEnvs(self, num_envs)

    def make_vector(self, num_envs: int) -> VectorEnv:
        """Make Gymnasium's vector environment, which resets in the step of an end."""
        options = {"vectorization_mode": "sync", **self.options}
        if self._mode != _OWN_VECTOR:
            given = dict(options.pop("vector_kwargs", {}))
            if self._mode == "async":
                # A copy of a process with JAX's threads in it may never wake up.
                given.setdefault("context", "spawn")
            given["autoreset_mode"] = AutoresetMode.SAME_STEP
            options["vector_kwargs"] = given
            # An environment may write the next episode into the array that it handed
            # out, and the last observation of the one before is looked at afterwards.
            options["wrappers"] = [_own_observations]
        make = partial(gymnasium.make_vec, self.id, num_envs=num_envs, **options)
        with _deaf_children(self._mode):
            return _made(self.id, make)


class HostEnvs:
    """`B` environments between two steps; Gymnasium's, with this package's arrays.

    Args:
        env: What they are.
        num_envs: Number B of environments.

    Attributes:
        num_envs: Number B of environments.

    Raises:
        ValueError: they do not reset in the step in which an episode ends.
    """

    def __init__(self, env: HostEnvironment, num_envs: int) -> None:
        self._env, self.num_envs = env, num_envs
        self._vector = env.make_vector(num_envs)
        mode = self._vector.metadata.get("autoreset_mode")
        if mode is not AutoresetMode.SAME_STEP:
            self._vector.close()
            raise ValueError(
                f"{env.name} with vectorization_mode={_OWN_VECTOR!r} resets by "
                f"{mode}, and training needs AutoresetMode.SAME_STEP, which hands out "
                "the observation before a reset; leave vectorization_mode out."
            )

    def reset(self, seed: int) -> Any:
        """Start an episode in every environment.

        Args:
            seed: Seed of the first environment; the others follow.

        Returns:
            First observations `[B, ...]`.
        """
        obs, _ = self._vector.reset(seed=seed)
        return from_observation(self._env.gym_observation_space, obs)

    def step(self, action: np.ndarray) -> HostStep:
        """Step every environment, and restart those whose episode ended.

        Args:
            action: `[B, ...]` members of `HostEnvironment.action_space`.

        Raises:
            ValueError: an episode ended without its last observation.
        """
        space = self._env.gym_observation_space
        taken = batch_action(self._env.gym_action_space, np.asarray(action))
        found, reward, terminated, truncated, infos = self._vector.step(taken)
        obs = from_observation(space, found)
        terminated = np.array(terminated, bool)
        truncated = np.array(truncated, bool) & ~terminated
        next_obs = obs
        ended = np.flatnonzero(terminated | truncated)
        if len(ended):
            next_obs = jax.tree.map(np.copy, obs)
            last = infos.get("final_obs")
            if last is None:
                raise ValueError(
                    f"{self._env.name} ended an episode and handed out no 'final_obs', "
                    "the observation before the reset: training cannot bootstrap at "
                    "its time limit."
                )
            for i in ended:
                jax.tree.map(
                    lambda all, one, i=i: all.__setitem__(i, one),
                    next_obs,
                    from_observation(space, last[i]),
                )
        return HostStep(
            obs, next_obs, np.array(reward, np.float32), terminated, truncated
        )

    def close(self) -> None:
        """End the environments, and the processes that they may run in."""
        self._vector.close()


@contextlib.contextmanager
def _deaf_children(mode: str) -> Iterator[None]:
    """Let processes that are begun here not hear Ctrl-C, which is for the training.

    A run that is asked to stop finishes what it is doing, in which they have a part.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if mode != "async" or not is_main:
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _own_observations(env: gymnasium.Env) -> gymnasium.Env:
    """The environment, handing out arrays that it does not write into again."""
    return gymnasium.wrappers.TransformObservation(
        env, copy.deepcopy, env.observation_space
    )


def _made(gymnasium_id: str, make: Any) -> Any:
    """What `make` makes; where it cannot, one sentence."""
    try:
        return make()
    except (gymnasium.error.DependencyNotInstalled, ModuleNotFoundError) as error:
        raise ValueError(
            f"gymnasium/{gymnasium_id} needs a package that is missing: {error}"
        ) from None
    except gymnasium.error.Error as error:
        raise ValueError(f"Gymnasium has no {gymnasium_id!r}: {error}") from None
    except (TypeError, ValueError, AssertionError) as error:
        raise ValueError(
            f"gymnasium/{gymnasium_id} cannot be made with these env_kwargs: {error}"
        ) from None


def _zeros(space: Any) -> Any:
    """Zeros of the shape of one observation."""
    parts = getattr(space, "spaces", None)
    if isinstance(parts, Mapping):
        return {key: _zeros(part) for key, part in parts.items()}
    if parts is not None:
        return tuple(_zeros(part) for part in parts)
    return jnp.zeros(space.shape, space.dtype)
