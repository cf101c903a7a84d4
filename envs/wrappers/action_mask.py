"""A mask of valid actions for an environment that knows it and does not show it."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..base import Obs
from ..spaces import Dict, MultiBinary
from .base import MASK, ObservationWrapper
from .inside import unwrap

Mask = Callable[[Any, Any], jax.Array]


@dataclasses.dataclass(unsafe_hash=True)
class ActionMask(ObservationWrapper):
    """An environment whose observations say which actions are valid.

    An observation `x` becomes `{"observation": x, "action_mask": mask}`, and one that
    is a dictionary gets the key beside its own. That is what agents of purerl read.

    The mask is a function of the state, because a first observation comes without an
    `info`: what an environment puts in `info["action_mask"]` it computes from its
    state.

    Attributes:
        env: Environment inside, whose actions are `Discrete` or `MultiDiscrete`.
        mask: Function `(state, params) -> bool [A]`, true for valid actions; of
            `MultiDiscrete(nvec)` it has `sum(nvec)` values, those of each component
            side by side. `params` are those of the episode, drawn ones among them.
    """

    mask: Mask = None  # type: ignore[assignment]

    def check(self) -> None:
        """Check the function and the actions.

        Raises:
            ValueError: there is no function, it takes other arguments, or the actions
                can have no mask.
        """
        needed = "ActionMask needs a function (state, params) -> bool [A]"
        if not callable(self.mask):
            raise ValueError(f"{needed}, got {self.mask!r}.")
        if not _takes_two(self.mask):
            raise ValueError(
                f"{needed}, got one that takes {inspect.signature(self.mask)}."
            )
        _size(self.env.action_space(self.env.default_params))

    @property
    def name(self) -> str:
        """The name of the environment inside, with `masked/` before it."""
        return f"masked/{self.env.name}"

    def observe(self, obs: Obs, state: Any, params: Any) -> dict[str, Any]:
        """Return the observation with the mask beside it.

        Args:
            obs: Observation of the environment inside.
            state: State that it belongs to.
            params: Numbers of the environment.
        """
        parts = obs if isinstance(obs, dict) else {"observation": obs}
        drawn = unwrap(self.env, params, state).params
        mask = jnp.asarray(self.mask(state, drawn)).astype(jnp.int8)
        return {**parts, MASK: mask}

    def observation_space(self, params: Any = None) -> Dict:
        """Return the space inside, and that of the mask."""
        space: Any = self.env.observation_space(self._params(params))
        parts = space.spaces if isinstance(space, Dict) else {"observation": space}
        size = _size(self.env.action_space(self._params(params)))
        return Dict({**parts, MASK: MultiBinary(size)})


def _takes_two(mask: Mask) -> bool:
    """Return whether a function can be called with a state and parameters."""
    try:
        signature = inspect.signature(mask)
    except (TypeError, ValueError):
        return True  # Nothing is known of it, as of some that are written in C.
    try:
        signature.bind(None, None)
    except TypeError:
        return False
    return True


def _size(actions: Any) -> int:
    """Return the number of values that a mask of the actions has."""
    if hasattr(actions, "n"):
        return int(actions.n)
    if hasattr(actions, "nvec"):
        return int(np.sum(actions.nvec))
    raise ValueError(
        f"actions must be Discrete or MultiDiscrete to have a mask, got {actions}."
    )
