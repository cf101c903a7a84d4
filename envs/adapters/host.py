"""Environments that are stepped on the host, several at a time, of any package.

`HostEnvironment` says what an environment is (spaces, time limit), as every
`Environment` does, and `HostEnvironment.start` makes a batch of it that is stepped from
Python. It has no pure functions: what would need them says so.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import gymnasium
import jax
import numpy as np

from ..base import Array, Environment, EnvParams, Step
from ..spaces import Space, zeros
from .gymnasium_spaces import batch_action, check_action_space, from_gym_space

NO_LIMIT = 10_000_000
"""Episodes that may be this long count as episodes without a time limit."""


class HostStep(NamedTuple):
    """One step of `B` environments: arrays of the host, `[B, ...]` each.

    Attributes:
        obs: Observation that the policy sees next: where an episode ended, the first
            one of the next episode.
        next_obs: Observation that the action led to, before any reset.
        reward: Reward of the step, float32.
        terminated: The episode ended by itself.
        truncated: The episode was cut; true with `terminated` where the step is bad:
            its reward or observation was not finite. Its reward is 0 then, and a
            `next_obs` that was not finite is that of the next episode.
    """

    obs: Any
    next_obs: Any
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray


class HostEnvironment(Environment[Any, EnvParams]):
    """An environment that is stepped from Python, as training on the host sees it.

    Integers of spaces with a `start` count from 0 here, and 64-bit numbers have 32.

    Attributes:
        taken_by: Function that takes the options of the environment, for messages.
        wrapped_by: Remedy in messages: what to do instead of putting purerl's wrappers
            around it.
        gym_observation_space: Gymnasium's space of one observation.
        gym_action_space: Gymnasium's space of one action.
    """

    on_host: ClassVar[bool] = True
    taken_by: ClassVar[str]
    wrapped_by: ClassVar[str]

    def __init__(
        self, name: str, observation_space: Any, action_space: Any, limit: int
    ) -> None:
        """Keep what is known of an environment.

        Args:
            name: The id of `envs.make`.
            observation_space: Gymnasium's space of one observation.
            action_space: Gymnasium's space of one action.
            limit: Steps after which an episode is cut.

        Raises:
            ValueError: spaces that are none of `envs.spaces`, or a box of integers as
                actions.
        """
        check_action_space(action_space, name)
        self._name, self._limit = name, limit
        self.gym_observation_space = observation_space
        self.gym_action_space = action_space
        self._observation_space = from_gym_space(observation_space, "observations")
        self._action_space = from_gym_space(action_space, "actions")

    @property
    def name(self) -> str:
        """The id of `envs.make`."""
        return self._name

    @property
    def default_params(self) -> EnvParams:
        """The time limit; other numbers of such an environment are its options."""
        return EnvParams(max_steps_in_episode=self._limit)

    def observation_space(self, params: EnvParams | None = None) -> Space:
        """Return the space of what `HostEnvs` hands out."""
        return self._observation_space

    def action_space(self, params: EnvParams | None = None) -> Space:
        """Return the space of what `HostEnvs` takes."""
        return self._action_space

    def reset_env(self, key: Array, params: EnvParams) -> tuple[Any, Any]:
        """Return zeros in the place of a first observation, and no state.

        A state of training has this shape before `HostEnvs.reset` fills it in.
        """
        return zeros(self._observation_space), ()

    def step_env(self, key: Array, state: Any, action: Array, params: Any) -> Step:
        """Refuse to step inside a program."""
        raise ValueError(
            f"{self.name} is stepped on the host, and no compiled program can do that: "
            "train with purerl.run(config) or `purerl train`."
        )


class HostEnvs(abc.ABC):
    """`B` environments between two steps, with this package's arrays.

    Args:
        env: Environment of which these are copies.
        num_envs: Number B of environments.

    Attributes:
        env: Environment of which these are copies.
        num_envs: Number B of environments.
    """

    def __init__(self, env: HostEnvironment, num_envs: int) -> None:
        self.env, self.num_envs = env, num_envs

    @abc.abstractmethod
    def reset(self, seed: int) -> Any:
        """Start an episode in every environment.

        Args:
            seed: Seed of the first environment; the others follow.

        Returns:
            First observations `[B, ...]`.
        """

    def step(self, action: Any) -> HostStep:
        """Step every environment, and restart those whose episode ended.

        Raises:
            ValueError: an episode ended without its last observation.
        """
        taken = batch_action(self.env.gym_action_space, action)
        obs, next_obs, reward, terminated, truncated = self.advance(taken)
        reward, terminated = np.array(reward, np.float32), np.array(terminated, bool)
        # If an environment says both, the episode terminated.
        truncated = np.array(truncated, bool) & ~terminated
        is_finite = finite_rows(next_obs, self.num_envs)
        bad = ~(is_finite & np.isfinite(reward))
        if bad.any():
            running = np.flatnonzero(bad & ~(terminated | truncated))
            if len(running):
                obs = self.restart(obs, running)
            rows = np.flatnonzero(~is_finite)
            first = jax.tree.map(lambda x: x[rows], obs)
            next_obs = with_rows(next_obs, rows, first)
            reward[bad], terminated[bad], truncated[bad] = 0, True, True
        return HostStep(obs, next_obs, reward, terminated, truncated)

    def restart(self, obs: Any, rows: np.ndarray) -> Any:
        """Start an episode in some environments; those that cannot go on as they are.

        Args:
            obs: Observations `[B, ...]`.
            rows: Whole numbers `[K]`, the environments that start anew.

        Returns:
            The observations, with first ones in the rows.
        """
        return obs

    @abc.abstractmethod
    def advance(self, action: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Step as `step` does, with the package's own actions.

        Args:
            action: `[B, ...]` members of Gymnasium's space of actions.

        Returns:
            What `HostStep` lists, observations as this package has them; both of an
            episode's ends may be true.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """End the environments, and what they run in."""


def with_rows(batch: Any, rows: np.ndarray, members: Any) -> Any:
    """Return a copy of a batch of observations, some of which are others.

    Args:
        batch: Observations `[B, ...]`.
        rows: Whole numbers `[K]`, the rows that are replaced.
        members: Observations `[K, ...]`.
    """
    new = jax.tree.map(np.copy, batch)
    jax.tree.map(lambda all, some: all.__setitem__(rows, some), new, members)
    return new


def finite_rows(batch: Any, num: int) -> np.ndarray:
    """Return which of `num` rows have finite numbers alone, bool `[num]`.

    Args:
        batch: Observations `[num, ...]`.
        num: Number of rows.
    """
    found = np.ones(num, bool)
    for leaf in jax.tree.leaves(batch):
        if np.asarray(leaf).dtype.kind == "f":
            found &= np.isfinite(leaf).reshape(num, -1).all(1)
    return found


def made(id: str, make: Callable[[], Any]) -> Any:
    """Return what `make` makes, or raise a ValueError that says why it cannot.

    Args:
        id: Name of the environment, as in `envs.make`.
        make: Function that makes it, or what describes it.
    """
    refused = (gymnasium.error.Error, ImportError, TypeError, ValueError)
    try:
        return make()
    except (*refused, AssertionError, RuntimeError) as error:
        raise ValueError(
            f"{id} cannot be made with these env_kwargs: {error}"
        ) from None
