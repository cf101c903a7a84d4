"""Observations in another form."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..base import Obs
from ..spaces import Box, Discrete
from .base import ObservationWrapper, box_of, on_bounds


@dataclasses.dataclass(unsafe_hash=True)
class OneHotObservation(ObservationWrapper):
    """An observation out of N as a vector `[N]` with a single 1, float32.

    Attributes:
        env: The environment inside; its observations are discrete.
    """

    def check(self) -> None:
        """Check the observations.

        Raises:
            ValueError: they are not discrete.
        """
        space = self.env.observation_space(self.env.default_params)
        if not isinstance(space, Discrete):
            raise ValueError(
                f"OneHotObservation takes discrete observations, but {self.env.name} "
                f"observes {space}: leave it out."
            )

    def observe(self, obs: Obs, state: Any, params: Any) -> jax.Array:
        """Return the vector.

        Args:
            obs: Observation of the environment inside.
            state: State that it belongs to.
            params: Numbers of the environment.
        """
        del state
        space: Any = self.env.observation_space(params)
        return jax.nn.one_hot(obs, space.n, dtype=jnp.float32)

    def observation_space(self, params: Any = None) -> Box:
        """Return 0 .. 1 for each of the N."""
        space: Any = self.env.observation_space(self._params(params))
        return Box(0.0, 1.0, (space.n,))


@dataclasses.dataclass(unsafe_hash=True)
class FlattenObservation(ObservationWrapper):
    """An array as a vector of float32, row after row.

    Attributes:
        env: The environment inside; its observations are arrays.
    """

    def check(self) -> None:
        """Check the observations.

        Raises:
            ValueError: they are no arrays.
        """
        box_of(self.env, self.env.default_params, "FlattenObservation")

    def observe(self, obs: Obs, state: Any, params: Any) -> jax.Array:
        """Return the vector.

        Args:
            obs: Observation of the environment inside.
            state: State that it belongs to.
            params: Numbers of the environment.
        """
        del state, params
        return jnp.ravel(obs).astype(jnp.float32)

    def observation_space(self, params: Any = None) -> Box:
        """Return the bounds of the environment inside, in a row."""
        space = box_of(self.env, self._params(params), "FlattenObservation")
        low, high = (
            on_bounds(lambda xp, b: xp.ravel(b[0]).astype(xp.float32), bound)
            for bound in (space.low, space.high)
        )
        return Box(low, high, (int(np.prod(space.shape)),))
