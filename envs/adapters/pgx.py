"""Games of Pgx (Koyamada et al. 2023) for one player; the only module with them."""

# Without the package pyright takes this file for it.
# pyright: reportAttributeAccessIssue=false
from __future__ import annotations

import inspect
from typing import Any

import jax
import jax.numpy as jnp
import pgx

from ..base import Array, EnvParams, Obs, Step
from ..spaces import Dict, Discrete, MultiBinary, Space
from ..wrappers.base import MASK
from .adapted import UNLIMITED, Adapted, SuiteState
from .packages import refused_options, unknown_name


class PgxEnvironment(Adapted):
    """A game of Pgx 2.6 for one player: MinAtar's, and 2048.

    * observation: bits `[10, 10, channels]`. Of 2048 they stand under `observation`
      beside the `action_mask`, because moves that change nothing are not allowed. In
      MinAtar all actions are.
    * reward: Pgx's. terminated: Pgx's. truncated: at `max_steps_in_episode`, which is
      100,000 where not given, because Pgx has no limit.

    Attributes:
        wrapped: Environment object of Pgx.
    """

    finite_observations = True

    def __init__(self, pgx_name: str, **options: Any) -> None:
        """Make the game.

        Args:
            pgx_name: Name of the game, such as `minatar-breakout`.
            **options: Keywords of its class, such as `sticky_action_prob`.

        Raises:
            ValueError: there is no such game or option, or it has several players.
        """
        if pgx_name not in pgx.available_envs():
            raise unknown_name("Pgx", pgx_name, pgx.available_envs())
        self.id, self.options = f"pgx/{pgx_name}", options
        kind = type(pgx.make(pgx_name))
        try:
            self.wrapped = kind(**options) if options else pgx.make(pgx_name)
        except TypeError as error:
            known = [name for name in inspect.signature(kind).parameters]
            raise refused_options(self.id, options, error, known) from None
        if self.wrapped.num_players > 1:
            raise ValueError(
                f"{self.id} is a game of {self.wrapped.num_players} players, and an "
                "environment has one agent: choose a game of MinAtar, or 2048."
            )
        self._has_mask = not pgx_name.startswith("minatar-")

    @property
    def default_params(self) -> EnvParams:
        """The time limit."""
        return EnvParams(UNLIMITED)

    def reset_env(self, key: Array, params: EnvParams) -> tuple[Obs, SuiteState]:
        """Start an episode; the key is consumed."""
        with jax.numpy_rank_promotion("allow"):
            first = self.wrapped.init(key)
        return self.first(self._shown(first), SuiteState(jnp.int32(0), first), params)

    def step_env(
        self, key: Array, state: SuiteState, action: Array, params: EnvParams
    ) -> Step:
        """Take one step without reset."""
        with jax.numpy_rank_promotion("allow"):
            last = self.wrapped.step(state.inner, action, key)
        after = SuiteState(state.time + 1, last)
        found = self._shown(last), after, last.rewards[0], last.terminated, {}
        return self.outcome(found, after, state, params)

    def action_space(self, params: Any = None) -> Discrete:
        """Return Pgx's actions."""
        return Discrete(self.wrapped.num_actions)

    def observation_space(self, params: Any = None) -> Space:
        """Return bits, beside the mask of actions where there is one."""
        bits = MultiBinary(self.wrapped.observation_shape)
        if not self._has_mask:
            return bits
        return Dict({"observation": bits, MASK: MultiBinary(self.wrapped.num_actions)})

    def _shown(self, state: Any) -> Obs:
        if not self._has_mask:
            return state.observation
        return {"observation": state.observation, MASK: state.legal_action_mask}
