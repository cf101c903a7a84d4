"""KArmedBandit-v0: the testbed of Sutton and Barto (2018), chapter 2."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import struct

from purerl.envs.base import Environment, EnvParams, EnvState, Info
from purerl.envs.options import whole_number
from purerl.envs.spaces import Discrete


@struct.dataclass
class BanditState(EnvState):
    """The problem of the episode.

    Attributes:
        values: `[k]` float32, the expected reward of every arm.
    """

    values: jax.Array


@struct.dataclass
class BanditParams(EnvParams):
    """Numbers of the testbed.

    Attributes:
        max_steps_in_episode: Pulls of an episode.
        value_mean: Mean of the normal distribution of which the arms' values are drawn.
        value_std: Standard deviation of that distribution.
        reward_std: Standard deviation of a reward around the value of its arm.
        walk_std: Standard deviation of the step that every value takes after each pull;
            0 for a stationary problem.
        problem: Number of the problem. With -1 every episode draws new values; with a
            number from 0 on the values are drawn of that number alone, so that all
            episodes, evaluations too, begin with the same ones.
    """

    max_steps_in_episode: int | jax.Array = 1_000
    value_mean: float | jax.Array = 0.0
    value_std: float | jax.Array = 1.0
    reward_std: float | jax.Array = 1.0
    walk_std: float | jax.Array = 0.0
    problem: int | jax.Array = -1


@dataclasses.dataclass(unsafe_hash=True)
class KArmedBandit(Environment[BanditState, BanditParams]):
    """Pull one of k arms; an episode is one problem, with values of its own.

    * observation: int32 `[]`, always 0.
    * action: the arm, 0 .. k - 1.
    * reward: normal around the arm's value, with `reward_std`.
    * terminated: never. truncated: after `max_steps_in_episode` pulls.
    * start: the values are drawn of a normal distribution with `value_mean` and
      `value_std`. Sutton and Barto's exercise 2.5 has a random walk: `value_std=0` and
      `walk_std=0.01`.

    Attributes:
        num_arms: Number k of arms.
    """

    num_arms: int = 10

    title: ClassVar[str] = "KArmedBandit-v0"

    def __post_init__(self) -> None:
        """Check the number of arms.

        Raises:
            ValueError: it is no whole number of at least 2: with one arm there is
                nothing to choose.
        """
        self.num_arms = whole_number("num_arms", self.num_arms, least=2)

    @property
    def default_params(self) -> BanditParams:
        """Values of N(0, 1), rewards of N(value, 1), 1,000 pulls."""
        return BanditParams()

    def reset_env(
        self, key: jax.Array, params: BanditParams
    ) -> tuple[jax.Array, BanditState]:
        """Draw the values of the arms."""
        problem, impl = jnp.asarray(params.problem, jnp.int32), jax.random.key_impl(key)
        own = jax.random.fold_in(jax.random.key(0, impl=impl), problem)
        words = jnp.where(problem < 0, *map(jax.random.key_data, (key, own)))
        normal = jax.random.normal(
            jax.random.wrap_key_data(words, impl=impl), (self.num_arms,)
        )
        values = params.value_mean + params.value_std * normal
        return jnp.int32(0), BanditState(jnp.int32(0), values.astype(jnp.float32))

    def step_env(
        self,
        key: jax.Array,
        state: BanditState,
        action: jax.Array,
        params: BanditParams,
    ) -> tuple[jax.Array, BanditState, jax.Array, jax.Array, Info]:
        """Pull an arm; the values walk afterwards.

        Args:
            key: Random key, consumed.
            state: State of the running episode.
            action: The arm.
            params: Numbers of the environment.
        """
        noise = jax.random.normal(key, (1 + self.num_arms,))
        reward = state.values[action] + params.reward_std * noise[0]
        values = state.values + params.walk_std * noise[1:]
        next_state = BanditState(state.time + 1, values.astype(jnp.float32))
        terminated = jnp.bool_(False)
        return jnp.int32(0), next_state, reward.astype(jnp.float32), terminated, {}

    def arm_values(
        self, state: BanditState, params: BanditParams | None = None
    ) -> jax.Array:
        """Return the expected reward of every arm in a state, `[k]`.

        The largest is the optimal value. An algorithm may report how often it takes the
        best arm; it must not learn from this.
        """
        del params
        return state.values

    def action_space(self, params: BanditParams | None = None) -> Discrete:
        """Return the space of actions, one for each arm."""
        del params
        return Discrete(self.num_arms)

    def observation_space(self, params: BanditParams | None = None) -> Discrete:
        """Return a space of one observation: nothing is seen."""
        del params
        return Discrete(1)
