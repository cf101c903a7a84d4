"""Two players with a memory of one round: exact discounted values of endless play.

A policy is five probabilities of action 0, as logits `[5]`: in the first round, and
after each outcome of the round before. An outcome is `(own action, other's action)`, in
the order 00, 01, 10, 11; where action 0 cooperates and 1 defects: CC, CD, DC, DD. Each
player counts outcomes from its own side.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

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

    Args:
        agent: `[5]` logits of the first player.
        opponent: `[5]` logits of the second player, counted from its own side.
        discount: `[]` gamma, at least 0 and less than 1.
    """
    first, chain = outcome_chain(agent, opponent)
    # Strictly diagonally dominant by columns, for any chain and any discount below 1.
    matrix = jnp.eye(4) - discount * chain.T
    return (1 - discount) * _solve_dominant(matrix, first)


def outcome_chain(agent: jax.Array, opponent: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the Markov chain of outcomes: first round `[4]`, transitions `[4, 4]`."""
    p = jax.nn.sigmoid(agent)
    q = jax.nn.sigmoid(opponent)
    # What the agent calls 01 is 10 to the opponent.
    q = jnp.concatenate([q[:2], q[3:4], q[2:3], q[4:]])
    chances = jnp.stack([p * q, p * (1 - q), (1 - p) * q, (1 - p) * (1 - q)], axis=1)
    return chances[0], chances[1:]


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
