"""Iterated matrix games whose opponent learns: environments for opponent shaping.

Two players with a memory of one round play a 2 x 2 game for ever; values are exact, no
sampling. A policy is five probabilities of action 0, as logits `[5]`: in the first
round, and after each outcome of the round before. An outcome is `(own action, other's
action)`, in the order 00, 01, 10, 11; where action 0 cooperates and 1 defects: CC, CD,
DC, DD. Each player counts outcomes from its own side.

The opponent climbs the gradient of its own value, as if the other stood still. One step
of the environment is one update of the opponent, an episode its whole lifetime. The
`*_lifetime` functions play lifetimes: against a shaper, and the baselines, where both
learn or one never changes.

The task is that of Lu et al. (2022), "Model-Free Opponent Shaping" (arXiv:2205.01447),
with naive learners (Foerster et al. 2018, "Learning with Opponent-Learning Awareness").
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from purerl.envs.base import Environment, EnvParams, EnvState, Info
from purerl.envs.spaces import Box

NUM_LOGITS = 5
# Unconditional policies are exact only in the limit; at 20 the rest is 2e-9.
_CERTAIN = 20.0
ALWAYS_FIRST = np.full(NUM_LOGITS, _CERTAIN, np.float32)
"""Logits of action 0 whatever happened: always cooperate, heads, swerve."""
ALWAYS_SECOND = -ALWAYS_FIRST
"""Logits of action 1 whatever happened: always defect, tails, straight."""
TIT_FOR_TAT = np.array([1, 1, -1, 1, -1], np.float32) * np.float32(_CERTAIN)
"""Logits of action 0 at first, then whatever the other did last."""


class Payoffs(NamedTuple):
    """The payoffs of the two players per round, or in total; float32.

    Attributes:
        agent: Payoff of the first player.
        opponent: Payoff of the second player.
    """

    agent: Any
    opponent: Any


def average_payoffs(
    agent: jax.Array, opponent: jax.Array, payoffs: Payoffs, discount: Any
) -> Payoffs:
    """Return the discounted average payoffs per round, in units of the payoffs.

        (1 - gamma) V = (1 - gamma) sum_t gamma^t E[r_t] = d . r,
        d = (1 - gamma) p_0^T (I - gamma P)^-1,

    with p_0 the outcomes of the first round, P the chain of outcomes that follows, and
    r the payoffs: the closed form that Foerster et al. (2018) differentiate.

    Args:
        agent: `[5]` logits of the first player.
        opponent: `[5]` logits of the second player, counted from its own side.
        payoffs: `[2, 2]` each, payoffs of one round: row the agent's action, column the
            opponent's.
        discount: `[]` gamma, at least 0 and less than 1.

    Returns:
        float32 `[]` each.
    """
    share = discounted_outcomes(agent, opponent, discount)
    return Payoffs(
        share @ jnp.reshape(payoffs.agent, 4), share @ jnp.reshape(payoffs.opponent, 4)
    )


def discounted_outcomes(
    agent: jax.Array, opponent: jax.Array, discount: Any
) -> jax.Array:
    """Return the discounted shares of rounds that end in 00, 01, 10, 11, `[4]`.

    They sum to 1. Arguments are those of `average_payoffs`.
    """
    p = jax.nn.sigmoid(agent)
    q = jax.nn.sigmoid(opponent)
    # What the agent calls 01 is 10 to the opponent.
    q = jnp.concatenate([q[:2], q[3:4], q[2:3], q[4:]])
    chances = jnp.stack([p * q, p * (1 - q), (1 - p) * q, (1 - p) * (1 - q)], axis=1)
    first, chain = chances[0], chances[1:]
    # Strictly diagonally dominant by columns, for any chain and any discount below 1.
    matrix = jnp.eye(4) - discount * chain.T
    return (1 - discount) * _solve_dominant(matrix, first)


def _solve_dominant(matrix: jax.Array, right: jax.Array) -> jax.Array:
    """Solve `matrix @ x = right`, `[n, n]` and `[n]`, without pivoting.

    Elimination of a diagonally dominant matrix needs no pivots. Written out it is a
    few products of numbers, which `vmap` makes wide; a library's solver is called per
    matrix.
    """
    table = jnp.concatenate([matrix, right[:, None]], axis=1)
    rows = np.arange(len(table))
    for k in rows:
        pivot = (table[k] / table[k, k])[None]
        below = table - table[:, k, None] * pivot
        table = jnp.where((rows == k)[:, None], pivot, below)
    return table[:, -1]


def opponent_learns(
    agent: jax.Array,
    opponent: jax.Array,
    payoffs: Payoffs,
    discount: Any,
    learning_rate: Any,
) -> tuple[jax.Array, Payoffs]:
    """Play one game and let the opponent learn from it.

    Args:
        agent: `[5]` logits of the agent.
        opponent: `[5]` logits of the opponent, from its own side.
        payoffs: `[2, 2]` each, payoffs of one round; the row is the agent's action.
        discount: `[]` discount of the rounds of a game.
        learning_rate: `[]` learning rate of the opponent's ascent on the discounted
            sum.

    Returns:
        The opponent's logits after its update, and the average payoffs of the game,
        which was played before it.
    """

    def value(own: jax.Array) -> tuple[jax.Array, Payoffs]:
        earned = average_payoffs(agent, own, payoffs, discount)
        return earned.opponent / (1 - discount), earned

    gradient, earned = jax.grad(value, has_aux=True)(opponent)
    return opponent + learning_rate * gradient, earned


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
    def terminal_limit(self) -> bool:  # type: ignore[override]
        """True where the end of a lifetime terminates the episode."""
        return self.terminal_lifetime

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
    title: ClassVar[str] = "IteratedPrisonersDilemma-v0"


@dataclasses.dataclass(unsafe_hash=True)
class MatchingPennies(MatrixGame):
    """Iterated matching pennies against a naive learner; actions heads, tails.

    Equal sides pay the agent 1 and cost the opponent 1; different sides the other way
    round. The rest is that of `MatrixGame`.
    """

    payoff: ClassVar[Table] = ((1.0, -1.0), (-1.0, 1.0))
    opponent_payoff: ClassVar[Table] = ((-1.0, 1.0), (1.0, -1.0))
    title: ClassVar[str] = "MatchingPennies-v0"


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
    title: ClassVar[str] = "Chicken-v0"


def _observe(agent: jax.Array, opponent: jax.Array) -> jax.Array:
    return jax.nn.sigmoid(jnp.concatenate([agent, opponent]))


class Lifetime(NamedTuple):
    """T games; policies are those with which a game was played.

    Attributes:
        payoffs: `[T]` float32 each, discounted average payoffs per round.
        agent: The agent's probabilities of action 0, float32 `[T, 5]`.
        opponent: The opponent's probabilities of action 0, counted from its own side,
            float32 `[T, 5]`.
    """

    payoffs: Payoffs
    agent: jax.Array
    opponent: jax.Array


def shaped_lifetime(
    game: MatrixGame,
    act: Callable[[jax.Array], jax.Array],
    key: jax.Array,
    params: MatrixGameParams | None = None,
) -> Lifetime:
    """Play one lifetime of the opponent against an agent that chooses every policy.

    Args:
        act: Policy of the agent, `(observation [10]) -> logits [5]`.
        key: Random key, consumed; the same key draws the same opponent in every
            function here.
        params: The numbers; the game's own where not given.
    """
    params = game.default_params if params is None else params
    num_games = int(params.max_steps_in_episode)

    def step(carry: tuple, unused: None) -> tuple[tuple, Lifetime]:
        del unused
        obs, state = carry
        seen, state, reward, _, info = game.step_env(key, state, act(obs), params)
        earned = Payoffs(reward, info["opponent_payoff"])
        # The agent's policy in this game, and the opponent's before its update.
        return (seen, state), Lifetime(earned, seen[:NUM_LOGITS], obs[NUM_LOGITS:])

    start = game.reset_env(jax.random.fold_in(key, 0), params)
    return jax.lax.scan(step, start, length=num_games)[1]


def constant_lifetime(
    game: MatrixGame,
    logits: Any,
    key: jax.Array,
) -> Lifetime:
    """Play one lifetime of the opponent against a policy that never changes.

    `ALWAYS_SECOND` is always defect, always tails, always straight; logits are
    clipped to the game's `max_logit`, as an agent's are.

    Args:
        logits: The policy, `[5]`.
        key: Random key, as in `shaped_lifetime`.
    """
    policy = jnp.asarray(logits, jnp.float32)
    return shaped_lifetime(game, lambda _: policy, key)


def naive_lifetime(game: MatrixGame, key: jax.Array) -> Lifetime:
    """Play one lifetime of two naive learners: the agent learns as its opponent does.

    Args:
        key: Random key, as in `shaped_lifetime`; it draws the agent, too.
    """
    params = game.default_params
    numbers = params.discount, params.opponent_learning_rate
    # The same game seen from the other side.
    mirrored = Payoffs(params.opponent_payoff.T, params.payoff.T)

    def step(
        policies: tuple[jax.Array, jax.Array], _: None
    ) -> tuple[tuple[jax.Array, jax.Array], Lifetime]:
        agent, opponent = policies
        learnt, earned = opponent_learns(agent, opponent, params.payoffs, *numbers)
        changed = opponent_learns(opponent, agent, mirrored, *numbers)[0]
        before = Lifetime(earned, jax.nn.sigmoid(agent), jax.nn.sigmoid(opponent))
        return (changed, learnt), before

    agent, opponent = (
        game.reset_env(jax.random.fold_in(key, number), params)[1].opponent
        for number in (1, 0)  # The opponent is that of `shaped_lifetime`.
    )
    length = int(params.max_steps_in_episode)
    return jax.lax.scan(step, (agent, opponent), length=length)[1]
