"""Actions that sometimes do not arrive."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from ..base import Info, Obs
from .base import MASK, Wrapper, WrapperState, check_number


@struct.dataclass
class StickyActionsState(WrapperState):
    """The state of the environment inside, and what was done.

    Attributes:
        action: Action that was executed last, a pytree where it has several parts.
        is_first: `[]` bool, whether no action has been executed in this episode.
        mask: The `action_mask` of the last observation, true for the actions that may
            be repeated; None where observations have none.
    """

    action: Any
    is_first: jax.Array
    mask: jax.Array | None


@dataclasses.dataclass(unsafe_hash=True)
class StickyActions(Wrapper):
    """A wrapper that with some probability repeats the action before.

    Machado et al. (2018), "Revisiting the Arcade Learning Environment", section 5.1,
    with a probability of 0.25. The first action of an episode is always executed,
    because there is no action without effect that every environment has. Where the
    observations of the environment inside have an `action_mask`, no action is repeated
    that has become invalid: the new one is executed then. Of a `MultiDiscrete` action
    all components have to be valid.

    The probability is the parameter `sticky_probability`.

    Attributes:
        env: The environment inside.
        probability: Default of `sticky_probability`, between 0 and 1.
    """

    probability: float = 0.25
    has_state: ClassVar[bool] = True
    adds_to_observations: ClassVar[bool] = False

    def check(self) -> None:
        """Check the probability.

        Raises:
            ValueError: it is no probability.
        """
        _check_probability("probability", self.probability)

    def check_numbers(self, numbers: Mapping[str, Any]) -> None:
        """Check `sticky_probability`.

        Args:
            numbers: The probability by its name.

        Raises:
            ValueError: it is no probability.
        """
        _check_probability("sticky_probability", numbers["sticky_probability"])

    def numbers(self) -> dict[str, float]:
        """Return `sticky_probability`."""
        probability = check_number("StickyActions", "probability", self.probability)
        return {"sticky_probability": probability}

    @property
    def stochastic_transitions(self) -> bool:  # type: ignore[override]
        """Always: chance decides which action is executed."""
        return True

    def reset_env(self, key: jax.Array, params: Any) -> tuple[Obs, StickyActionsState]:
        """Start an episode; the key is consumed."""
        obs, inner = self.env.reset_env(key, params)
        nothing = _zeros(self.action_space(params))
        return obs, StickyActionsState(
            inner, nothing, jnp.asarray(True), self._mask(obs, params)
        )

    def step_env(
        self, key: jax.Array, state: StickyActionsState, action: jax.Array, params: Any
    ) -> tuple[Obs, StickyActionsState, jax.Array, jax.Array, Info]:
        """Take one step with the new action or the one before.

        Args:
            key: Random key, consumed.
            state: State of the running episode.
            action: Member of `action_space(params)`.
            params: Numbers of the environment.
        """
        key_stick, key_step = jax.random.split(key)
        sticks = jax.random.bernoulli(key_stick, params.sticky_probability)
        sticks = sticks & ~state.is_first
        if state.mask is not None:
            space = self.action_space(params)
            sticks = sticks & is_valid(state.action, state.mask, space)
        action = jax.tree.map(
            lambda old, new: jnp.where(sticks, old, jnp.asarray(new, old.dtype)),
            state.action,
            action,
        )
        obs, inner, *rest = self.env.step_env(key_step, state.inner, action, params)
        is_first = jnp.zeros_like(state.is_first)
        after = StickyActionsState(inner, action, is_first, self._mask(obs, params))
        return obs, after, *rest  # type: ignore[return-value]

    def _mask(self, obs: Obs, params: Any) -> jax.Array | None:
        """Return the mask of the next action, None where an observation has none.

        Only `Discrete` and `MultiDiscrete` actions have masks.
        """
        space = self.action_space(params)
        can_have = hasattr(space, "n") or hasattr(space, "nvec")
        return obs.get(MASK) if can_have and isinstance(obs, dict) else None


def is_valid(action: jax.Array, mask: jax.Array, space: Any) -> jax.Array:
    """Return whether a mask allows an action, all components of a `MultiDiscrete`.

    Args:
        action: The action, `[]` or of the shape of `nvec`.
        mask: Values `[A]`; of a `MultiDiscrete`, those of its components side by side.
        space: The space of the actions.
    """
    sizes = np.reshape(getattr(space, "nvec", ()), -1)
    if not sizes.size:
        return mask[action] != 0
    offsets = np.cumsum(sizes) - sizes
    return jnp.all(mask[offsets + jnp.reshape(action, -1)] != 0)


def _check_probability(name: str, value: Any) -> None:
    if not 0 <= value <= 1:
        raise ValueError(
            f"StickyActions: {name} must lie between 0 and 1, got {value!r}; Machado "
            "et al. (2018) take 0.25."
        )


def _zeros(space: Any) -> Any:
    """Zeros in the place of every array of a member of a space."""
    parts = getattr(space, "spaces", None)
    if parts is None:
        return jnp.zeros(space.shape, space.dtype)
    if isinstance(parts, dict):
        return {key: _zeros(part) for key, part in parts.items()}
    return tuple(map(_zeros, parts))
