"""The wrapper that adds the share of the time limit that is over to observations."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from ..base import Obs
from ..spaces import Box, Dict
from .base import ObservationWrapper, on_bounds, vector_or_dict
from .inside import unwrap

_KEY = "time"


@dataclasses.dataclass(unsafe_hash=True)
class TimeObservation(ObservationWrapper):
    """The share of the time limit that is over, after the observation.

    An observation that is a dictionary gets it under the key `time`, `[1]` float32.

    `time / max_steps_in_episode` is 0 at the reset and 1 in the last observation of an
    episode that is truncated. Pardo et al. (2018), "Time limits in reinforcement
    learning": where an episode really ends at the limit, the time left belongs to the
    state. (purerl bootstraps at time limits, so that it mostly needs no such number.)

    Attributes:
        env: The environment inside; its observations are vectors of floats, or
            dictionaries.
    """

    def check(self) -> None:
        """Check that there is a time, a limit and a place for their ratio.

        Raises:
            ValueError: naming what is missing.
        """
        params = self.env.default_params
        vector_or_dict(self.env, params, "TimeObservation", _KEY)
        key = jax.eval_shape(lambda: jax.random.key(0))
        state = jax.eval_shape(self.env.reset_env, key, params)[1]
        for owner, name in ((state, "time"), (params, "max_steps_in_episode")):
            if not hasattr(owner, name):
                raise ValueError(
                    "TimeObservation shows state.time / params.max_steps_in_episode, "
                    f"but {self.env.name} has no {name}."
                )

    def observe(self, obs: Obs, state: Any, params: Any) -> Obs:
        """Return the observation and the share.

        Args:
            obs: Observation of the environment inside.
            state: State that it belongs to.
            params: Numbers of the environment.
        """
        # A level, and a number that is drawn at the reset, has its own limit.
        limit = unwrap(self.env, params, state).params.max_steps_in_episode
        share = jnp.asarray(state.time, jnp.float32) / limit
        if isinstance(obs, dict):
            return {**obs, _KEY: share[None]}
        return jnp.append(obs, share.astype(obs.dtype))

    def observation_space(self, params: Any = None) -> Box | Dict:
        """Return the space of the environment inside, and 0 .. 1."""
        params = self._params(params)
        space = vector_or_dict(self.env, params, "TimeObservation", _KEY)
        if isinstance(space, Dict):
            return Dict({**space.spaces, _KEY: Box(0.0, 1.0, (1,))})
        low = on_bounds(lambda xp, b: xp.append(b[0], 0.0), space.low)
        high = on_bounds(lambda xp, b: xp.append(b[0], 1.0), space.high)
        return Box(low, high, (space.shape[0] + 1,), space.dtype)
