"""One decision for several steps."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from ..base import Info, Obs, select_tree
from .base import Wrapper, check_count


@dataclasses.dataclass(unsafe_hash=True)
class ActionRepeat(Wrapper):
    """A wrapper that takes every action n times and adds up the rewards.

    It stops within the n steps where the episode terminates or its time limit is
    reached. The limit stays one of the environment inside: `max_steps_in_episode`
    counts its steps, of which an agent decides every n-th.

    Attributes:
        env: The environment inside.
        n: Number of steps for which an action is taken.
    """

    n: int = 4
    adds_to_observations: ClassVar[bool] = False

    def check(self) -> None:
        """Check the number.

        Raises:
            ValueError: it is no whole number of at least 1.
        """
        check_count("ActionRepeat", "n", self.n)

    @property
    def time_per_step(self) -> int:
        """N times that of the environment inside."""
        return self.n * self.env.time_per_step

    def step_env(
        self, key: jax.Array, state: Any, action: jax.Array, params: Any
    ) -> tuple[Obs, Any, jax.Array, jax.Array, Info]:
        """Take up to n steps.

        Args:
            key: Random key, consumed.
            state: State of the running episode.
            action: Member of `action_space(params)`.
            params: Numbers of the environment.
        """

        def key_of(number: Any) -> jax.Array:
            return jax.random.fold_in(key, number)

        def again(last: tuple, number: jax.Array) -> tuple[tuple, None]:
            _, state, reward, terminated, _ = last
            is_over = terminated | self.env.is_truncated(state, params)
            obs, state, more, terminated, info = self.env.step_env(
                key_of(number), state, action, params
            )
            paid = reward + jnp.asarray(more, jnp.float32)
            new = (obs, state, paid, terminated, info)
            return select_tree(is_over, last, new), None

        obs, state, reward, terminated, info = self.env.step_env(
            key_of(0), state, action, params
        )
        # Truth values would not add up, and bytes would begin anew after 255.
        reward = jnp.asarray(reward, jnp.float32)
        first = (obs, state, reward, terminated, info)
        return jax.lax.scan(again, first, jnp.arange(1, self.n))[0]
