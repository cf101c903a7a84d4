"""Whole lifetimes of a learning opponent: against a shaper, and the baselines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.core import Tracer

from .game import MatrixGame, MatrixGameParams
from .learner import both_learn
from .play import NUM_LOGITS, Payoffs


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
    *,
    num_games: int | None = None,
) -> Lifetime:
    """Play one lifetime of the opponent against an agent that chooses every policy.

    Args:
        game: The environment.
        act: Policy of the agent, `(observation [10]) -> logits [5]`.
        key: Random key, consumed; the same key draws the same opponent in every
            function here.
        params: The numbers; the game's own where not given.
        num_games: T; the lifetime in `params` where not given.

    Raises:
        ValueError: `num_games` is not positive.
    """
    params = game.default_params if params is None else params
    num_games = _count(num_games, params)

    def step(carry: tuple, unused: None) -> tuple[tuple, Lifetime]:
        del unused
        obs, state = carry
        seen, state, reward, _, info = game.step_env(key, state, act(obs), params)
        earned = Payoffs(reward, info["opponent_payoff"])
        # The agent's policy in this game, and the opponent's before its update.
        return (seen, state), Lifetime(earned, seen[:NUM_LOGITS], obs[NUM_LOGITS:])

    start = game.reset_env(_opponent_key(key), params)
    return jax.lax.scan(step, start, length=num_games)[1]


def constant_lifetime(
    game: MatrixGame,
    logits: Any,
    key: jax.Array,
    params: MatrixGameParams | None = None,
    *,
    num_games: int | None = None,
) -> Lifetime:
    """Play one lifetime of the opponent against a policy that never changes.

    `play.ALWAYS_SECOND` is always defect, always tails, always straight; logits are
    clipped to the game's `max_logit`, as an agent's are.

    Args:
        game: The environment.
        logits: The policy, `[5]`.
        key: Random key, as in `shaped_lifetime`.
        params: Numbers of the game, as in `shaped_lifetime`.
        num_games: Number of games, as in `shaped_lifetime`.

    Raises:
        ValueError: `num_games` is not positive, or the policy has another shape.
    """
    if jnp.shape(logits) != (NUM_LOGITS,):
        raise ValueError(
            f"logits have shape {jnp.shape(logits)}, expected ({NUM_LOGITS},): one for "
            "the first round and one after each of the outcomes 00, 01, 10, 11."
        )
    policy = jnp.asarray(logits, jnp.float32)
    return shaped_lifetime(game, lambda _: policy, key, params, num_games=num_games)


def naive_lifetime(
    game: MatrixGame,
    key: jax.Array,
    params: MatrixGameParams | None = None,
    *,
    num_games: int | None = None,
) -> Lifetime:
    """Play one lifetime of two naive learners: the agent learns as its opponent does.

    Args:
        game: The environment.
        key: Random key, as in `shaped_lifetime`; it draws the agent, too.
        params: Numbers of the game, as in `shaped_lifetime`.
        num_games: Number of games, as in `shaped_lifetime`.

    Raises:
        ValueError: `num_games` is not positive.
    """
    params = game.default_params if params is None else params
    num_games = _count(num_games, params)

    def step(
        policies: tuple[jax.Array, jax.Array], _: None
    ) -> tuple[tuple[jax.Array, jax.Array], Lifetime]:
        agent, opponent = policies
        *learnt, earned = both_learn(
            agent,
            opponent,
            params.payoffs,
            params.discount,
            params.opponent_learning_rate,
        )
        before = Lifetime(earned, jax.nn.sigmoid(agent), jax.nn.sigmoid(opponent))
        return (learnt[0], learnt[1]), before

    keys = (_agent_key(key), _opponent_key(key))
    starts = [game.reset_env(k, params)[1].opponent for k in keys]
    return jax.lax.scan(step, (starts[0], starts[1]), length=num_games)[1]


def _opponent_key(key: jax.Array) -> jax.Array:
    return jax.random.fold_in(key, 0)


def _agent_key(key: jax.Array) -> jax.Array:
    return jax.random.fold_in(key, 1)


def _count(num_games: int | None, params: MatrixGameParams) -> int:
    count = params.max_steps_in_episode if num_games is None else num_games
    if isinstance(count, Tracer):
        raise ValueError(
            "the lifetime in params is traced, so the number of games is not known: "
            "give num_games."
        )
    if int(count) < 1:
        raise ValueError(f"num_games must be at least 1, got {count}.")
    return int(count)
