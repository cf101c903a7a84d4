"""EnvPool's environments for training: C++, stepped by threads on the host.

EnvPool (Weng et al. 2022, arXiv:2206.10558) differs from Gymnasium's vectors in three
ways, each of which is met here so that training sees the same transitions.

* An environment whose episode ended is reset by the next step of it, which takes no
  action. Here it is stepped once more at once, alone, so that the last observation of
  an episode and the first one of the next belong to the same step. (A forced reset
  would do the same in most environments, but it begins a new game of Atari where
  `episodic_life` goes on with the next life.)
* It calls every end in the step of the time limit a truncation, also where the task
  ended by itself. Here EnvPool gets a limit that is a step longer, and whoever is still
  running at the limit is cut and reset here.
* Seeds are fixed where a pool is made, so that to reset with a seed is to make a pool.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar

import envpool
import numpy as np
from gymnasium import spaces as gym_spaces

from ..options import guess
from .gymnasium_spaces import from_observation
from .host import NO_LIMIT, HostEnvironment, HostEnvs, made, with_rows

# What training decides: how many environments there are, that all of them step
# together, and which seeds they have.
_DECIDED = ("num_envs", "batch_size", "seed", "env_seed", "gym_reset_return_info")
_SEEDS = 2**31  # EnvPool's seeds have 31 bits.


class EnvPoolEnvironment(HostEnvironment):
    """An environment of EnvPool, as training on the host sees it."""

    taken_by: ClassVar[str] = "envpool.make"
    wrapped_by: ClassVar[str] = (
        "EnvPool's environments have options in their place, such as those of Atari, "
        "which are env_kwargs"
    )

    def __init__(self, envpool_id: str, **options: Any) -> None:
        """Look an environment up, and read its spaces and its time limit.

        Args:
            envpool_id: Name for `envpool.make`, such as `"CartPole-v1"`.
            **options: Options of `envpool.make`, such as `num_threads` and
                `max_episode_steps`, but not those that training decides.

        Raises:
            ValueError: no such environment, options that it does not take or that
                training decides, several players, spaces that are none of
                `envs.spaces`, or a box of integers with several axes as actions.
        """
        self.id, self.options = envpool_id, dict(options)
        name = f"envpool/{envpool_id}"
        known = envpool.list_all_envs()
        if envpool_id not in known:
            raise ValueError(
                f"EnvPool has no {envpool_id!r}.{guess(envpool_id, known, 3)} "
                "`envpool.list_all_envs()` lists every id."
            )
        for option in _DECIDED:
            if option in options:
                raise ValueError(
                    f"{option} in env_kwargs of {name} is decided by training, got "
                    f"{options[option]!r}; leave it out."
                )
        spec = made(name, partial(envpool.make_spec, envpool_id, **options))
        players = int(spec.config.max_num_players)
        if players != 1:
            raise ValueError(
                f"{name} has up to {players} players, and training needs an "
                "environment with one."
            )
        self.limit = min(int(spec.config.max_episode_steps), NO_LIMIT)
        with _quiet():
            spaces = (spec.observation_space, spec.action_space)
        super().__init__(name, spaces[0], _choices(spaces[1]), self.limit)

    def start(self, num_envs: int) -> EnvPoolEnvs:
        """Make `num_envs` environments that are stepped together.

        Args:
            num_envs: Number B of environments.
        """
        return EnvPoolEnvs(self, num_envs)


class EnvPoolEnvs(HostEnvs):
    """`B` environments of EnvPool between two steps.

    Args:
        env: Environment of which these are copies.
        num_envs: Number B of environments.
    """

    env: EnvPoolEnvironment
    _pool: Any = None

    def reset(self, seed: int) -> Any:
        """Start an episode in every environment; see `HostEnvs.reset`."""
        self.close()
        env, num_envs = self.env, self.num_envs
        options = dict(env.options)
        if env.limit < NO_LIMIT:  # EnvPool's own limit is one that no episode reaches.
            options["max_episode_steps"] = env.limit + 1
        seed = seed % (_SEEDS - num_envs)  # The seed of the last one fits, too.
        make = partial(envpool.make_gymnasium, num_envs=num_envs, seed=seed, **options)
        self._pool = made(env.name, partial(make, env.id))
        with _quiet():
            assert self._pool.observation_space is not None  # Made when first asked.
        # The last one is the action; its first axis, if any, is that of the players.
        shape = list(self._pool.spec.action_array_spec.values())[-1].shape
        self._action_shape = tuple(size for size in shape if size != -1)
        obs, _ = self._pool.reset()
        return self._seen(obs)

    def advance(self, action: np.ndarray) -> tuple[Any, Any, Any, Any, Any]:
        """Step every environment; see `HostEnvs.advance`."""
        pool = self._pool
        action = action.reshape(len(action), *self._action_shape)
        found, reward, terminated, truncated, info = pool.step(action)
        obs = next_obs = self._seen(found)
        ended = terminated | truncated
        cut = ~ended & (np.asarray(info["elapsed_step"]) >= self.env.limit)
        ways: tuple[tuple[np.ndarray, Callable], ...] = (
            (ended, lambda ids: pool.step(action[ids], ids)),  # EnvPool's own reset
            (cut, pool.reset),
        )
        for which, begin in ways:
            ids = np.flatnonzero(which).astype(np.int32)
            if len(ids):
                obs = with_rows(obs, ids, self._seen(begin(ids)[0]))
        return obs, next_obs, reward, terminated, truncated | cut

    def restart(self, obs: Any, rows: np.ndarray) -> Any:
        """Start an episode in some environments; see `HostEnvs.restart`."""
        first = self._seen(self._pool.reset(rows.astype(np.int32))[0])
        return with_rows(obs, rows, first)

    def close(self) -> None:
        """End the environments, and the threads that they run in."""
        if self._pool is not None:
            self._pool.close()
        self._pool = None

    def _seen(self, obs: Any) -> Any:
        """Observations of EnvPool's as arrays of this package."""
        space = self.env.gym_observation_space
        return from_observation(space, _shaped(space, obs))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without Gymnasium's words on bounds of 64 bits of boxes of 32."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*precision lowered by casting")
        yield


def _shaped(space: gym_spaces.Space, obs: Any) -> Any:
    """A batch without axes of length 1 that the space has not."""
    if isinstance(space, gym_spaces.Dict):
        return {key: _shaped(part, obs[key]) for key, part in space.items()}
    return np.reshape(obs, (len(obs), *(space.shape or ())))


def _choices(space: gym_spaces.Space) -> gym_spaces.Space:
    """The space of actions; a row of integers is a row of choices."""
    if not isinstance(space, gym_spaces.Box) or space.dtype.kind not in "iu":
        return space
    if len(space.shape) != 1:
        return space
    low, high = space.low.astype(np.int64), space.high.astype(np.int64)
    return gym_spaces.MultiDiscrete(high - low + 1, start=low)
