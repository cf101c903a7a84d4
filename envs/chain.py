"""A chain with a time limit: values in closed form, wrong ones if flags are merged."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from .base import Environment, EnvParams, EnvState, Info
from .spaces import Box, Discrete, Space


@struct.dataclass
class ChainState(EnvState):
    """The place of the walk.

    Attributes:
        position: `[]` int32; `length` means past the end.
    """

    position: jax.Array


@struct.dataclass
class ChainParams(EnvParams):
    """Numbers of the chain.

    Attributes:
        max_steps_in_episode: Time limit; shorter than the chain, so that it acts.
        reward: Reward for leaving the last position.
    """

    max_steps_in_episode: int | jax.Array = 3
    reward: float | jax.Array = 1.0


@dataclasses.dataclass(unsafe_hash=True)
class ChainMDP(Environment[ChainState, ChainParams]):
    """Walk right along `length` positions; only leaving the last one pays.

    * observation: float32 `[length]`, one-hot position; all zeros past the end. Time
      is not observed.
    * action: two, or one number in -1 .. 1 where `continuous`; all walk right.
    * start: uniform over the positions.
    * terminated: past the end, with the reward. truncated: at the time limit.

    The time limit is no part of the task (Pardo et al. 2018, "Time Limits in
    Reinforcement Learning"), so V(i) = reward * gamma^(length - 1 - i), whatever the
    limit. A learner that takes truncation for termination gets `merged_values`.

    Attributes:
        length: Number of positions, at least 2.
        continuous: Actions are numbers, for algorithms that need such.
    """

    length: int = 5
    continuous: bool = False

    stochastic_transitions: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check the length."""
        if self.length < 2:
            raise ValueError(
                f"length must be at least 2, got {self.length}: with one position "
                "there is nothing to look ahead to."
            )

    @property
    def default_params(self) -> ChainParams:
        """A limit of half the length, rounded up: 3 for 5 positions."""
        return ChainParams(max_steps_in_episode=(self.length + 1) // 2)

    def reset_env(
        self, key: jax.Array, params: ChainParams
    ) -> tuple[jax.Array, ChainState]:
        """Start anywhere, with equal chances."""
        del params
        position = jax.random.randint(key, (), 0, self.length, dtype=jnp.int32)
        return self._observe(position), ChainState(jnp.int32(0), position)

    def step_env(
        self, key: jax.Array, state: ChainState, action: jax.Array, params: ChainParams
    ) -> tuple[jax.Array, ChainState, jax.Array, jax.Array, Info]:
        """Walk one position to the right.

        Args:
            key: Random key, which is not used.
            state: State of the running episode.
            action: Action of the agent, which is not used.
            params: Numbers of the environment.
        """
        del key, action
        position = state.position + 1
        terminated = position >= self.length
        reward = jnp.where(terminated, params.reward, 0.0).astype(jnp.float32)
        next_state = ChainState(state.time + 1, position)
        return self._observe(position), next_state, reward, terminated, {}

    def action_space(self, params: ChainParams | None = None) -> Space:
        """Return a space of actions that do the same: two, or those of an interval."""
        del params
        return Box(-1.0, 1.0, (1,)) if self.continuous else Discrete(2)

    def observation_space(self, params: ChainParams | None = None) -> Box:
        """Return the space of a one-hot vector."""
        del params
        return Box(0.0, 1.0, (self.length,))

    def optimal_values(
        self, gamma: float, params: ChainParams | None = None
    ) -> np.ndarray:
        """Compute V `[length]` = reward * gamma^(length - 1 - i)."""
        params = self.default_params if params is None else params
        steps_to_go = np.arange(self.length - 1, -1, -1)
        return float(params.reward) * gamma**steps_to_go

    def merged_values(
        self, gamma: float, params: ChainParams | None = None, lam: float = 0.0
    ) -> np.ndarray:
        """Compute the values a learner settles on if truncation counts as termination.

        Position i is visited with equal frequency at the times
        t = 0 .. min(i, limit - 1), because starts are uniform. There the return is

            G(i, t) = 0                                           if t = limit - 1
                    = gamma ((1 - lam) V(i+1) + lam G(i+1, t+1))  otherwise

        except G(length - 1, t) = reward, and V(i) is the mean of G(i, t) over t.

        Args:
            gamma: Discount.
            params: Numbers of the chain.
            lam: Trace decay: 0 for one-step targets, 1 for Monte Carlo. Between them
                it supposes that rollouts hold whole episodes.

        Returns:
            V `[length]`.
        """
        params = self.default_params if params is None else params
        limit = int(params.max_steps_in_episode)
        values = np.zeros(self.length)
        later = np.full(limit + 1, float(params.reward))  # G(i+1, t) for every t.
        values[-1] = float(params.reward)
        for i in range(self.length - 2, -1, -1):
            returns = gamma * ((1 - lam) * values[i + 1] + lam * later[1:])
            returns[limit - 1] = 0.0
            values[i] = returns[: min(i, limit - 1) + 1].mean()
            later = np.append(returns, 0.0)
        return values

    def _observe(self, position: jax.Array) -> jax.Array:
        return jax.nn.one_hot(position, self.length, dtype=jnp.float32)
