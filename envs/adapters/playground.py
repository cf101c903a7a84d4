"""Environments of MuJoCo Playground (Zakka et al. 2025); the only module with them.

They are the DM Control suite, and robots that walk and grasp, whose files Playground
downloads with git when one of them is made for the first time.
"""

from __future__ import annotations

import subprocess
import warnings
from functools import cached_property
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from ..base import Array, EnvParams, Obs, Step
from ..spaces import Box, Dict, Space
from .adapted import Adapted, SuiteState
from .packages import importing, loading, refused_options, unknown_name

with warnings.catch_warnings(), importing():
    # What its dependencies announce is nothing that a user of Playground can act on.
    warnings.simplefilter("ignore")
    from mujoco_playground import registry


class PlaygroundEnvironment(Adapted):
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
        if playground_name not in registry.ALL_ENVS:
            raise unknown_name("Playground", playground_name, registry.ALL_ENVS)
        settings: Any = registry.get_default_config(playground_name)
        # Of these two Playground's wrapper for training makes something, and no step.
        idle = {"episode_length", "action_repeat"} & set(options)
        if idle:
            raise ValueError(
                f"options of playground/{playground_name} were {sorted(idle)}, of "
                "which its steps take no notice; set max_steps_in_episode, or "
                "env_wrappers=('ActionRepeat(2)',)."
            )
        # Robots that are made of files of their own say nothing of `impl`.
        asked = {**({"impl": impl} if "impl" in settings else {}), **options}
        try:
            with loading():
                self.wrapped = registry.load(playground_name, config_overrides=asked)
        except subprocess.CalledProcessError as error:
            raise ValueError(
                f"playground/{playground_name} needs files that git could not download "
                f"({error})."
            ) from None
        except (KeyError, TypeError) as error:
            id, known = f"playground/{playground_name}", sorted(settings)
            raise refused_options(id, asked, error, known) from None
        self.id = f"playground/{playground_name}"
        self.options = {"impl": impl, **options}
        limit = max_steps_in_episode
        self.limit = int(settings.episode_length if limit is None else limit)

    @property
    def default_params(self) -> EnvParams:
        """The time limit; the physics is not among the numbers."""
        return EnvParams(self.limit)

    def reset_env(self, key: Array, params: EnvParams) -> tuple[Obs, SuiteState]:
        """Start an episode from a fresh random state; the key is consumed."""
        with jax.numpy_rank_promotion("allow"):
            first = self.wrapped.reset(key)
        state = SuiteState(jnp.int32(0), first)
        return self.first(first.obs, state, params)

    def step_env(
        self, key: Array, state: SuiteState, action: Array, params: Any
    ) -> Step:
        """Take one step; what is random in it is drawn from the state."""
        before = state.inner
        # Playground writes into the dictionaries that it is given: hand it new ones.
        before = before.replace(metrics=dict(before.metrics), info=dict(before.info))
        with jax.numpy_rank_promotion("allow"):
            after = self.wrapped.step(before, action)
        carried = SuiteState(state.time + 1, after)
        found = after.obs, carried, after.reward, after.done > 0.5, {}
        return self.outcome(found, carried, state, params)

    def action_space(self, params: Any = None) -> Box:
        """Return numbers from -1 to 1."""
        return Box(-1.0, 1.0, (self.wrapped.action_size,))

    def observation_space(self, params: Any = None) -> Space:
        """Return a space of unbounded numbers, or several by name."""
        return self._space

    @cached_property
    def _space(self) -> Space:
        with jax.numpy_rank_promotion("allow"):
            obs = jax.eval_shape(self.wrapped.reset, jax.random.key(0)).obs
        if hasattr(obs, "shape"):
            return Box(-np.inf, np.inf, obs.shape)
        return Dict({name: Box(-np.inf, np.inf, x.shape) for name, x in obs.items()})
