"""Games of Pgx (Koyamada et al. 2023) for one player; the only module with them."""

# Without the package pyright takes this file for it.
# pyright: reportAttributeAccessIssue=false
from __future__ import annotations

from typing import Any

import pgx

from ..base import Array, EnvParams
from ..spaces import Dict, Discrete, MultiBinary
from ..wrappers.base import MASK
from .adapted import UNLIMITED, Suite
from .packages import check_name


class PgxEnvironment(Suite):
    """A game of Pgx 2.6 for one player: MinAtar's, and 2048.

    * observation: bits `[10, 10, channels]`. Of 2048 they stand under `observation`
      beside the `action_mask`, because moves that change nothing are not allowed. In
      MinAtar all actions are.
    * reward: Pgx's. terminated: Pgx's. truncated: at `max_steps_in_episode`, which is
      100,000 where not given, because Pgx has no limit.

    Attributes:
        wrapped: Environment object of Pgx.
    """

    def __init__(self, pgx_name: str, **options: Any) -> None:
        """Make the game.

        Args:
            pgx_name: Name of the game, such as `minatar-breakout`.
            **options: Keywords of its class, such as `sticky_action_prob`.

        Raises:
            ValueError: there is no such game or option, or it has several players.
        """
        check_name("Pgx", pgx_name, pgx.available_envs())
        self.id = f"pgx/{pgx_name}"
        made = pgx.make(pgx_name)
        self.wrapped = type(made)(**options) if options else made
        if self.wrapped.num_players > 1:
            raise ValueError(
                f"{self.id} is a game of {self.wrapped.num_players} players, and an "
                "environment has one agent: choose a game of MinAtar, or 2048."
            )
        self.limit = UNLIMITED
        self._has_mask = not pgx_name.startswith("minatar-")
        number = self.wrapped.num_actions
        bits = MultiBinary(self.wrapped.observation_shape)
        masked = {"observation": bits, MASK: MultiBinary(number)}
        self.actions = Discrete(number)
        self.observations = Dict(masked) if self._has_mask else bits

    def begin(self, key: Array, params: EnvParams) -> Any:
        """Return Pgx's first state; the key is consumed."""
        return self.wrapped.init(key)

    def advance(
        self, key: Array, timestep: Any, action: Array, params: EnvParams
    ) -> Any:
        """Return Pgx's next state; the key is consumed."""
        return self.wrapped.step(timestep, action, key)

    def read(self, timestep: Any) -> tuple[Any, Any, Any]:
        """Return the observation, with a mask where there is one, and the rest."""
        obs = timestep.observation
        if self._has_mask:
            obs = {"observation": obs, MASK: timestep.legal_action_mask}
        return obs, timestep.rewards[0], timestep.terminated
