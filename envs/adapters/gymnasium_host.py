"""Gymnasium's environments for training: stepped on the host, several at a time."""

from __future__ import annotations

import contextlib
import copy
import signal
import threading
import warnings
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium
import jax
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from ..options import one_of
from .gymnasium_spaces import from_observation
from .host import NO_LIMIT, HostEnvironment, HostEnvs, made, with_rows
from .packages import imported

if TYPE_CHECKING:
    from gymnasium.vector import VectorEnv

# Options of `gymnasium.make_vec` that are not the environment's own.
_VECTOR = ("vectorization_mode", "vector_kwargs")
_OWN_VECTOR = "vector_entry_point"  # the vector that an environment brings itself
_MODES = ("sync", "async", _OWN_VECTOR)


class GymnasiumEnvironment(HostEnvironment):
    """An environment that Gymnasium registers, as training on the host sees it."""

    taken_by: ClassVar[str] = "gymnasium.make"
    wrapped_by: ClassVar[str] = (
        "register an environment with Gymnasium's own wrappers around it"
    )

    def __init__(self, gymnasium_id: str, **options: Any) -> None:
        """Look an environment up, and read its spaces and its time limit.

        Args:
            gymnasium_id: Name for `gymnasium.make`, such as `"CartPole-v1"`, or
                `"my_package:MyEnv-v0"` of a module that has been imported.
            **options: `vectorization_mode` (`"sync"`, `"async"` or
                `"vector_entry_point"`) and `vector_kwargs` of `gymnasium.make_vec`; all
                others are the environment's own.

        Raises:
            ValueError: no such environment or module, options that it does not take,
                spaces that are none of `envs.spaces`, or a box of integers as actions.
        """
        module, colon, _ = gymnasium_id.partition(":")
        if colon:
            imported(module)  # Else Gymnasium would import it.
        self.id = gymnasium_id
        self.options = options
        self._mode = str(options.get("vectorization_mode", "sync"))
        # An environment may write into its own config.
        own = {k: copy.deepcopy(v) for k, v in options.items() if k not in _VECTOR}
        name = f"gymnasium/{gymnasium_id}"
        env = made(name, partial(gymnasium.make, gymnasium_id, **own))
        try:
            spaces = (env.observation_space, env.action_space)
            limit = env.spec and env.spec.max_episode_steps
            super().__init__(name, *spaces, int(limit or NO_LIMIT))
            if self._mode != _OWN_VECTOR:
                _check_reward(gymnasium_id, env)
        finally:
            env.close()
        one_of("vectorization_mode in env_kwargs", self._mode, _MODES)
        if self._mode == _OWN_VECTOR:
            self.start(1).close()  # An environment that does not fit says so here.

    def start(self, num_envs: int) -> GymnasiumEnvs:
        """Make `num_envs` environments that are stepped together.

        Args:
            num_envs: Number B of environments.

        Raises:
            ValueError: they do not hand out the observation before a reset.
        """
        return GymnasiumEnvs(self, num_envs)

    def make_vector(self, num_envs: int) -> VectorEnv:
        """Make Gymnasium's vector environment, which resets in the step of an end."""
        options = {"vectorization_mode": "sync", **copy.deepcopy(self.options)}
        if self._mode != _OWN_VECTOR:
            given = dict(options.pop("vector_kwargs", {}))
            if self._mode == "async":
                # A copy of a process with JAX's threads in it may never wake up.
                given.setdefault("context", "spawn")
            given["autoreset_mode"] = AutoresetMode.SAME_STEP
            options["vector_kwargs"] = given
            options["wrappers"] = [_Outcomes]
        make = partial(gymnasium.make_vec, self.id, num_envs=num_envs, **options)
        with _deaf_children(self._mode):
            return made(self.name, make)


def _check_reward(gymnasium_id: str, env: gymnasium.Env) -> None:
    """Step once, and refuse a reward that Gymnasium's vectors do not take for a number.

    Raises:
        ValueError: the reward is None, an array, or anything else.
    """
    with warnings.catch_warnings():  # Gymnasium's own checker warns, and goes on.
        warnings.simplefilter("ignore")
        env.reset(seed=0)
        env.action_space.seed(0)
        reward: Any = env.step(env.action_space.sample())[1]
    if np.ndim(reward) or np.asarray(reward).dtype.kind not in "biuf":
        raise ValueError(
            f"{gymnasium_id}: step returns a reward of {reward!r}, expected one "
            "number; take float(reward[0]), 0.0 or the like."
        )


class GymnasiumEnvs(HostEnvs):
    """`B` environments of Gymnasium between two steps.

    Args:
        env: Environment of which these are copies.
        num_envs: Number B of environments.

    Raises:
        ValueError: they do not reset in the step in which an episode ends.
    """

    def __init__(self, env: GymnasiumEnvironment, num_envs: int) -> None:
        super().__init__(env, num_envs)
        self._vector = env.make_vector(num_envs)
        mode = self._vector.metadata.get("autoreset_mode")
        if mode is not AutoresetMode.SAME_STEP:
            self._vector.close()
            raise ValueError(
                f"{env.name} with vectorization_mode={_OWN_VECTOR!r} resets by "
                f"{mode}, and training needs AutoresetMode.SAME_STEP."
            )

    def reset(self, seed: int) -> Any:
        """Start an episode in every environment; see `HostEnvs.reset`."""
        obs, _ = self._vector.reset(seed=seed)
        return self._seen(obs)

    def advance(self, action: np.ndarray) -> tuple[Any, Any, Any, Any, Any]:
        """Step every environment; see `HostEnvs.advance`."""
        found, reward, terminated, truncated, infos = self._vector.step(action)
        obs = next_obs = self._seen(found)
        ended = np.flatnonzero(np.logical_or(terminated, truncated))
        if len(ended):
            last = infos.get("final_obs")
            if last is None:
                raise ValueError(
                    f"{self.env.name} ended an episode and handed out no 'final_obs', "
                    "the observation before the reset."
                )
            next_obs = with_rows(obs, ended, self._last(last, ended))
        return obs, next_obs, reward, terminated, truncated

    def restart(self, obs: Any, rows: np.ndarray) -> Any:
        """Start an episode in some environments; see `HostEnvs.restart`."""
        if not isinstance(self._vector, SyncVectorEnv | AsyncVectorEnv):
            return obs  # Another vector may not know of masks, and reset all.
        mask = np.isin(np.arange(self.num_envs), rows)
        first = self._seen(self._vector.reset(options={"reset_mask": mask})[0])
        return with_rows(obs, rows, jax.tree.map(lambda x: x[rows], first))

    def _last(self, last: Any, ended: np.ndarray) -> Any:
        """The last observations of the episodes that ended, `[K, ...]`."""
        if isinstance(last, np.ndarray) and last.dtype == object:
            members = [self._seen(last[i]) for i in ended]
            return jax.tree.map(lambda *x: np.stack(x), *members)
        return jax.tree.map(lambda x: x[ended], self._seen(last))

    def close(self) -> None:
        """End the environments, and the processes that they may run in."""
        self._vector.close()

    def _seen(self, obs: Any) -> Any:
        """An observation of Gymnasium's, or a batch, as arrays of this package."""
        return from_observation(self.env.gym_observation_space, obs)


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


class _Outcomes(gymnasium.Wrapper):
    """An environment that hands out what is learned from alone, in arrays of its own.

    It may write the next episode into the array that it handed out, and the last
    observation of the one before is looked at afterwards. Nobody reads infos here, and
    Gymnasium's vectors cannot stack all of them.
    """

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        obs, _ = self.env.reset(**options)
        return copy.deepcopy(obs), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, _ = self.env.step(action)
        return copy.deepcopy(obs), reward, terminated, truncated, {}
