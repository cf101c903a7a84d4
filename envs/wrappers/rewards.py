"""Rewards of another size. Returns that are reported are sums of these, too."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from ..base import Info, Obs
from .base import Wrapper, check_number


@dataclasses.dataclass(unsafe_hash=True)
class RewardWrapper(Wrapper):
    """A wrapper that pays something else; nothing but the reward changes."""

    def pay(self, reward: jax.Array, params: Any) -> jax.Array:
        """Return what is paid in place of a reward `[]`."""
        raise NotImplementedError

    def step_env(
        self, key: jax.Array, state: Any, action: jax.Array, params: Any
    ) -> tuple[Obs, Any, jax.Array, jax.Array, Info]:
        """Take one step.

        Args:
            key: Random key, consumed.
            state: State of the running episode.
            action: Member of `action_space(params)`.
            params: Numbers of the environment.
        """
        obs, state, reward, *rest = self.env.step_env(key, state, action, params)
        # Whole numbers and Python's own become floats before they are changed.
        paid = self.pay(jnp.asarray(reward, jnp.float32), params)
        return obs, state, paid, *rest  # type: ignore[return-value]


@dataclasses.dataclass(unsafe_hash=True)
class ClipReward(RewardWrapper):
    """Rewards between two bounds, as Mnih et al. (2015) clip them to -1 .. 1.

    The bounds are the parameters `reward_low` and `reward_high`.

    Attributes:
        env: The environment inside.
        low: Default of `reward_low`.
        high: Default of `reward_high`.
    """

    low: float = -1.0
    high: float = 1.0
    adds_to_observations: ClassVar[bool] = False

    def check(self) -> None:
        """Check the bounds.

        Raises:
            ValueError: the lower one is not below the upper one.
        """
        _check_order({"low": self.low, "high": self.high})

    def check_numbers(self, numbers: Mapping[str, Any]) -> None:
        """Check `reward_low` and `reward_high`.

        Args:
            numbers: The bounds by their names.

        Raises:
            ValueError: the lower one is not below the upper one.
        """
        _check_order({name: numbers[name] for name in ("reward_low", "reward_high")})

    def numbers(self) -> dict[str, float]:
        """Return `reward_low` and `reward_high`."""
        low = check_number("ClipReward", "low", self.low, finite=False)
        high = check_number("ClipReward", "high", self.high, finite=False)
        return {"reward_low": low, "reward_high": high}

    def pay(self, reward: jax.Array, params: Any) -> jax.Array:
        """Return the reward within the bounds."""
        return jnp.clip(reward, params.reward_low, params.reward_high)


@dataclasses.dataclass(unsafe_hash=True)
class ScaleReward(RewardWrapper):
    """Rewards times a number, the parameter `reward_factor`.

    Attributes:
        env: The environment inside.
        factor: Default of `reward_factor`.
    """

    factor: float = 1.0
    adds_to_observations: ClassVar[bool] = False

    def numbers(self) -> dict[str, float]:
        """Return `reward_factor`."""
        return {"reward_factor": check_number("ScaleReward", "factor", self.factor)}

    def check_numbers(self, numbers: Mapping[str, Any]) -> None:
        """Check `reward_factor`.

        Args:
            numbers: The factor by its name.

        Raises:
            ValueError: it is not finite.
        """
        factor = numbers["reward_factor"]
        if not math.isfinite(factor):
            raise ValueError(
                f"ScaleReward: reward_factor must be finite, got {factor}."
            )

    def pay(self, reward: jax.Array, params: Any) -> jax.Array:
        """Return the reward times the number."""
        return reward * params.reward_factor


def _check_order(bounds: Mapping[str, Any]) -> None:
    (first, low), (second, high) = bounds.items()
    if not low < high:
        raise ValueError(
            f"ClipReward: {first} must be less than {second}, got {low!r} and {high!r}."
        )
