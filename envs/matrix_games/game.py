"""IteratedPrisonersDilemma-v0, MatchingPennies-v0, Chicken-v0: a learner to be shaped.

The meta-game of Lu et al. (2022, section 4): a step sets the agent's whole policy for
one game, and the opponent learns from that game.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from ..base import Environment, EnvParams, EnvState, Info
from ..spaces import Box
from .learner import opponent_learns
from .play import NUM_LOGITS, Payoffs

Table = tuple[tuple[float, float], tuple[float, float]]


@struct.dataclass
class MatrixGameState(EnvState):
    """The opponent between two games.

    Attributes:
        opponent: `[5]` float32, logits of the opponent.
    """

    opponent: jax.Array


@struct.dataclass(kw_only=True)
class MatrixGameParams(EnvParams):
    """Numbers of a meta-game.

    Attributes:
        max_steps_in_episode: Number of games of a lifetime: updates of the opponent.
        payoff: The agent's payoff of a round, `[2, 2]`: row its own action, column the
            opponent's.
        opponent_payoff: The opponent's payoff of a round, `[2, 2]`: row the agent's
            action, column the opponent's own.
        discount: Discount of the rounds of one game, at least 0 and less than 1.
        opponent_learning_rate: Learning rate of the opponent's ascent on its discounted
            sum of payoffs.
        opponent_init_std: Standard deviation of the opponent's first logits.
        max_logit: Actions are clipped to +- this; 6 is a probability of 0.9975.
    """

    payoff: np.ndarray | jax.Array
    opponent_payoff: np.ndarray | jax.Array
    max_steps_in_episode: int | jax.Array = 100
    discount: float | jax.Array = 0.96
    opponent_learning_rate: float | jax.Array = 1.0
    opponent_init_std: float | jax.Array = 1.0
    max_logit: float | jax.Array = 6.0

    @property
    def payoffs(self) -> Payoffs:
        """The payoff tables of both players."""
        return Payoffs(self.payoff, self.opponent_payoff)


@dataclasses.dataclass(unsafe_hash=True)
class MatrixGame(Environment[MatrixGameState, MatrixGameParams]):
    """Choose a policy of an iterated 2 x 2 game against an opponent that learns.

    * action: float32 `[5]`, logits of the agent's action 0 in the first round and after
      the outcomes 00, 01, 10, 11 of the round before (own action first).
    * observation: float32 `[10]`, probabilities of action 0, first the agent's five in
      the game just played, then the opponent's five after its update, counted from its
      own side. Before the first game the agent's are 1/2.
    * reward: the agent's discounted average payoff per round of the game, before the
      opponent's update; `info["opponent_payoff"]` is the opponent's.
    * terminated: never. truncated: at the end of the opponent's lifetime, so that an
      agent values what a longer one would pay. With `terminal_lifetime` it terminates
      there instead: the task has that many games, as in the authors' PPO.
    * start: the opponent's logits are normal.

    Subclasses say what the game pays.

    Attributes:
        terminal_lifetime: Whether the end of a lifetime terminates the episode.
    """

    terminal_lifetime: bool = False

    stochastic_transitions: ClassVar[bool] = False
    payoff: ClassVar[Table]
    opponent_payoff: ClassVar[Table]
    learning_rate: ClassVar[float] = 1.0

    @property
    def default_params(self) -> MatrixGameParams:
        """A lifetime of 100 games of discount 0.96."""
        return MatrixGameParams(
            payoff=np.array(self.payoff, np.float32),
            opponent_payoff=np.array(self.opponent_payoff, np.float32),
            opponent_learning_rate=self.learning_rate,
        )

    def reset_env(
        self, key: jax.Array, params: MatrixGameParams
    ) -> tuple[jax.Array, MatrixGameState]:
        """Draw an opponent that has learnt nothing yet."""
        opponent = params.opponent_init_std * jax.random.normal(key, (NUM_LOGITS,))
        unseen = jnp.zeros(NUM_LOGITS)
        return _observe(unseen, opponent), MatrixGameState(jnp.int32(0), opponent)

    def step_env(
        self,
        key: jax.Array,
        state: MatrixGameState,
        action: jax.Array,
        params: MatrixGameParams,
    ) -> tuple[jax.Array, MatrixGameState, jax.Array, jax.Array, Info]:
        """Play a game with the policy `action`; then the opponent learns from it.

        Args:
            key: Random key, which is not used.
            state: State of the running episode.
            action: Action of the agent.
            params: Numbers of the environment.
        """
        del key
        agent = jnp.clip(action, -params.max_logit, params.max_logit)
        opponent, earned = opponent_learns(
            agent,
            state.opponent,
            params.payoffs,
            params.discount,
            params.opponent_learning_rate,
        )
        next_state = MatrixGameState(state.time + 1, opponent)
        info = {"opponent_payoff": earned.opponent}
        return (
            _observe(agent, opponent),
            next_state,
            earned.agent,
            self.terminal_lifetime & (next_state.time >= params.max_steps_in_episode),
            info,
        )

    def action_space(self, params: MatrixGameParams | None = None) -> Box:
        """Return the space of five logits."""
        params = self.default_params if params is None else params
        return Box(-params.max_logit, params.max_logit, (NUM_LOGITS,))

    def observation_space(self, params: MatrixGameParams | None = None) -> Box:
        """Return the space of ten probabilities."""
        del params
        return Box(0.0, 1.0, (2 * NUM_LOGITS,))


@dataclasses.dataclass(unsafe_hash=True)
class IteratedPrisonersDilemma(MatrixGame):
    """Iterated prisoner's dilemma against a naive learner; actions cooperate, defect.

    Both cooperate: -1 each. Both defect: -2 each. One defects: 0 for it, -3 for the
    other. Two naive learners end in mutual defection. The rest is that of `MatrixGame`.
    """

    payoff: ClassVar[Table] = ((-1.0, -3.0), (0.0, -2.0))
    opponent_payoff: ClassVar[Table] = ((-1.0, 0.0), (-3.0, -2.0))

    @property
    def name(self) -> str:
        """The name, `IteratedPrisonersDilemma-v0`."""
        return "IteratedPrisonersDilemma-v0"


@dataclasses.dataclass(unsafe_hash=True)
class MatchingPennies(MatrixGame):
    """Iterated matching pennies against a naive learner; actions heads, tails.

    Equal sides pay the agent 1 and cost the opponent 1; different sides the other way
    round. The rest is that of `MatrixGame`.
    """

    payoff: ClassVar[Table] = ((1.0, -1.0), (-1.0, 1.0))
    opponent_payoff: ClassVar[Table] = ((-1.0, 1.0), (1.0, -1.0))

    @property
    def name(self) -> str:
        """The name, `MatchingPennies-v0`."""
        return "MatchingPennies-v0"


@dataclasses.dataclass(unsafe_hash=True)
class ChickenGame(MatrixGame):
    """Iterated game of chicken against a naive learner; actions swerve, straight.

    Both swerve: 0. One goes straight: 1 for it, -1 for the other. Both go straight:
    -100 each, so the opponent learns at a hundredth of the other games' rate. The rest
    is that of `MatrixGame`.
    """

    payoff: ClassVar[Table] = ((0.0, -1.0), (1.0, -100.0))
    opponent_payoff: ClassVar[Table] = ((0.0, 1.0), (-1.0, -100.0))
    learning_rate: ClassVar[float] = 0.01

    @property
    def name(self) -> str:
        """The name, `Chicken-v0`."""
        return "Chicken-v0"


def _observe(agent: jax.Array, opponent: jax.Array) -> jax.Array:
    return jax.nn.sigmoid(jnp.concatenate([agent, opponent]))
