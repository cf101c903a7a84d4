"""A naive learner: gradient ascent on its own value, as if the other stood still.

It differentiates the exact value V of endless play, not a sample of it, by its own
logits: theta <- theta + rate * dV / dtheta. V is the discounted sum, so it is
1 / (1 - gamma) times the average payoff.
"""

from __future__ import annotations

from typing import Any

import jax

from .play import Payoffs, average_payoffs


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


def both_learn(
    agent: jax.Array,
    opponent: jax.Array,
    payoffs: Payoffs,
    discount: Any,
    learning_rate: Any,
) -> tuple[jax.Array, jax.Array, Payoffs]:
    """Play one game and let both learn from it, at the same time and the same rate.

    Args:
        agent: `[5]` logits of the agent.
        opponent: `[5]` logits of the opponent, from its own side.
        payoffs: `[2, 2]` each, payoffs of one round; the row is the agent's action.
        discount: `[]` discount of the rounds of a game.
        learning_rate: `[]` learning rate of both players.

    Returns:
        Both players' logits after their updates, and the average payoffs before.
    """
    learnt, earned = opponent_learns(agent, opponent, payoffs, discount, learning_rate)
    # The same game seen from the other side.
    mirrored = Payoffs(payoffs.opponent.T, payoffs.agent.T)
    changed, _ = opponent_learns(opponent, agent, mirrored, discount, learning_rate)
    return changed, learnt, earned
