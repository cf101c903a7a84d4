"""Environments of Navix (Pignatelli et al. 2024); the only module that imports it."""

# Without the package pyright takes this file for it.
# pyright: reportAttributeAccessIssue=false
from __future__ import annotations

import inspect
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import navix
import numpy as np
from navix.rendering.cache import RenderingCache

from ..base import Array, EnvParams
from ..options import one_of
from ..spaces import Box, Discrete
from .adapted import Suite, SuiteState
from .packages import check_name

_MOST = int(navix.entities.EntityIds.PLAYER)  # The largest of all kinds and colours.


class NavixEnvironment(Suite):
    """A grid of Navix 0.7 under this package's contract.

    * action: MiniGrid's, such as to turn, to go forward and to open a door.
    * observation: that of `observation_fn`, by default `symbolic`: uint8
      `[height, width, 3]`, kind, colour and state of what lies in each cell.
    * reward: Navix's. terminated: Navix's termination. truncated: at
      `max_steps_in_episode`, which is Navix's `max_steps`, 100 where not given.

    Attributes:
        wrapped: Environment object of Navix.
    """

    stochastic_transitions: ClassVar[bool] = False  # Navix's state holds a key.

    def __init__(self, navix_name: str, **options: Any) -> None:
        """Make the environment.

        Args:
            navix_name: Name of the environment, such as `Navix-Empty-5x5-v0`.
            **options: Keywords of `navix.make`; functions of Navix by name, such as
                `observation_fn="rgb"`.

        Raises:
            ValueError: there is no such environment, option or function.
        """
        check_name("Navix", navix_name, navix.registry())
        self.id = f"navix/{navix_name}"
        given = {name: _function(name, value) for name, value in options.items()}
        self.wrapped = navix.make(navix_name, **given)
        self.limit = self.wrapped.max_steps
        self.actions = Discrete(len(self.wrapped.action_set))
        seen = jax.eval_shape(self.wrapped.reset, jax.random.key(0)).observation
        is_drawn = "rgb" in self.wrapped.observation_fn.__name__
        least = 0 if jnp.issubdtype(seen.dtype, jnp.unsignedinteger) else -1  # A wall.
        most = 255 if is_drawn else _MOST
        self.observations = Box(least, most, seen.shape, seen.dtype)
        # Pictures of all cells, which the state would carry where nobody looks.
        self._cache = None if is_drawn else RenderingCache(np.zeros(0, np.uint8))  # type: ignore[arg-type]

    def begin(self, key: Array, params: EnvParams) -> Any:
        """Return Navix's first timestep; the key is consumed."""
        return self.wrapped.reset(key, self._cache)

    def advance(
        self, key: Array, timestep: Any, action: Array, params: EnvParams
    ) -> Any:
        """Return the next timestep; what is random in it is drawn from the state."""
        env = self.wrapped.replace(max_steps=params.max_steps_in_episode)
        return env._step(timestep, action)  # Its `step` resets by itself.

    def read(self, timestep: Any) -> tuple[Any, Any, Any]:
        """Return observation, reward, and Navix's termination."""
        return timestep.observation, timestep.reward, timestep.is_termination()

    def render(self, state: SuiteState, params: Any = None) -> np.ndarray:
        """Draw one state, uint8 `[height, width, 3]` on the host."""
        grid = state.inner.state
        with jax.numpy_rank_promotion("allow"):
            drawn = grid.replace(cache=RenderingCache.init(grid.grid))
            return np.asarray(navix.observations.rgb(drawn))


def _function(name: str, value: Any) -> Any:
    """A function of Navix by its name; any other option as it is."""
    kinds = {"reward_fn": navix.rewards, "termination_fn": navix.terminations}
    kinds |= {"observation_fn": navix.observations, "transitions_fn": navix.transitions}
    if name not in kinds or not isinstance(value, str):
        return value
    found = inspect.getmembers(kinds[name], inspect.isfunction)
    known = {  # But for helpers, which take other things than states.
        each: function
        for each, function in found
        if any("state" in taken for taken in inspect.signature(function).parameters)
    }
    one_of(name, value, known)
    return known[value]
