"""Environments of MuJoCo Playground (Zakka et al. 2025); the only module with them.

They are the DM Control suite, and robots that walk and grasp, whose files Playground
downloads with git when one of them is made for the first time.
"""

from __future__ import annotations

import subprocess
from functools import cached_property
from typing import Any, ClassVar

import jax
import numpy as np

from ..base import Array, EnvParams
from ..spaces import Box, Dict, Space
from .adapted import Suite
from .packages import check_name, importing, loading, refused_options

with importing():
    from mujoco_playground import registry


class PlaygroundEnvironment(Suite):
    """An environment of MuJoCo Playground 0.2 under this package's contract.

    * action: float32 `[A]` in [-1, 1], as all of Playground's learners give them.
    * observation: an array, or a dictionary of them, such as `state` and
      `privileged_state`.
    * terminated: Playground's `done`. truncated: at `max_steps_in_episode`, which is
      Playground's `episode_length` unless it is given. Every reset is fresh.
      Playground's wrapper for training returns to one cached state.

    Attributes:
        wrapped: Environment object of Playground.
    """

    stochastic_transitions: ClassVar[bool] = False

    def __init__(
        self,
        playground_name: str,
        max_steps_in_episode: int | None = None,
        impl: str = "jax",
        **options: Any,
    ) -> None:
        """Load the environment.

        Args:
            playground_name: Name of the environment, such as `CartpoleSwingup`.
            max_steps_in_episode: Time limit; Playground's own where not given.
            impl: Implementation of the physics: `jax` anywhere, or `warp` on a GPU of
                NVIDIA.
            **options: Other entries of Playground's config, such as `ctrl_dt`.

        Raises:
            ValueError: there is no such environment or option, or its files cannot be
                downloaded.
        """
        check_name("Playground", playground_name, registry.ALL_ENVS)
        self.id = f"playground/{playground_name}"
        settings: Any = registry.get_default_config(playground_name)
        # Of these two Playground's wrapper for training makes something, and no step.
        idle = {"episode_length", "action_repeat"} & set(options)
        if idle:
            raise ValueError(
                f"options of {self.id} were {sorted(idle)}, of which its steps take no "
                "notice; set max_steps_in_episode, or "
                "env_wrappers=('ActionRepeat(2)',)."
            )
        # Robots that are made of files of their own say nothing of `impl`.
        asked = {**({"impl": impl} if "impl" in settings else {}), **options}
        try:
            with loading():
                self.wrapped = registry.load(playground_name, config_overrides=asked)
        except subprocess.CalledProcessError as error:
            raise ValueError(
                f"{self.id} needs files that git could not download ({error})."
            ) from None
        except KeyError as error:
            raise refused_options(self.id, asked, error, sorted(settings)) from None
        limit = max_steps_in_episode
        self.limit = int(settings.episode_length if limit is None else limit)
        self.actions = Box(-1.0, 1.0, (self.wrapped.action_size,))

    def begin(self, key: Array, params: EnvParams) -> Any:
        """Return Playground's fresh random state; the key is consumed."""
        return self.wrapped.reset(key)

    def advance(
        self, key: Array, timestep: Any, action: Array, params: EnvParams
    ) -> Any:
        """Return the next state; what is random in it is drawn from the state."""
        # Playground writes into the dictionaries that it is given: hand it new ones.
        new = {"metrics": dict(timestep.metrics), "info": dict(timestep.info)}
        return self.wrapped.step(timestep.replace(**new), action)

    def read(self, timestep: Any) -> tuple[Any, Any, Any]:
        """Return observation, reward, and Playground's `done`."""
        return timestep.obs, timestep.reward, timestep.done > 0.5

    @cached_property
    def observations(self) -> Space:  # type: ignore[override]
        """A space of unbounded numbers, or several by name."""
        with jax.numpy_rank_promotion("allow"):
            obs = jax.eval_shape(self.wrapped.reset, jax.random.key(0)).obs
        if hasattr(obs, "shape"):
            return Box(-np.inf, np.inf, obs.shape)
        return Dict({name: Box(-np.inf, np.inf, x.shape) for name, x in obs.items()})
