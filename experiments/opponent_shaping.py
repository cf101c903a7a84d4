"""Opponent shaping: PPO over whole lifetimes of a naive learner, in three games.

    python experiments/opponent_shaping.py [--games ipd pennies chicken] [--seeds 8]

The task is that of model-free opponent shaping (Lu et al. 2022): in every step the
meta-agent chooses a policy of an iterated matrix game, the opponent learns from that
game by a gradient step, and the meta-agent is paid for all of the opponent's lifetime.

Eight meta-agents are trained per game. Each is judged by its mode in 256 lifetimes of
opponents that it never met, beside two baselines against the same opponents: a second
naive learner, and the policy that always takes the second action (defect, tails,
straight). Payoffs are discounted averages per round, averaged over the lifetime;
the range is that of the meta-agents, and for the baselines of as many blocks of 256
lifetimes; of ten and more, the 95% interval of the mean. Numbers go to
experiments/results/opponent-shaping.json, the picture to docs/images.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from frame import IMAGES, interval_text, keep, options, show
from pictures import between, legend_below, style

import purerl
from purerl import envs
from purerl.contrib.matrix_games import (
    ALWAYS_SECOND,
    Lifetime,
    constant_lifetime,
    naive_lifetime,
    shaped_lifetime,
)
from purerl.report import statistics

NAME = "opponent-shaping"
LANES = 4
SHAPED, NAIVE, STUBBORN = "meta-agent", "naive learner", "always second action"


class Task(NamedTuple):
    """A game of the study.

    Attributes:
        id: Name of the environment.
        title: Name of the game in tables and pictures.
        second: Name of the second action.
        floor: Lower end of the payoffs in the picture.
    """

    id: str
    title: str
    second: str
    floor: float


TASKS = {
    "ipd": Task(
        "IteratedPrisonersDilemma-v0", "prisoner's dilemma", "always defect", -2.6
    ),
    "pennies": Task("MatchingPennies-v0", "matching pennies", "always tails", -1.1),
    "chicken": Task("Chicken-v0", "chicken", "always straight", -4.0),
}


def config_of(task: Task, updates: int) -> purerl.PPOConfig:
    """PPO in 64 games at once; a rollout is a lifetime."""
    return purerl.PPOConfig(
        env=task.id,
        total_timesteps=updates * 64 * 100,
        num_envs=64,
        num_steps=100,
        num_epochs=4,
        num_minibatches=8,
        learning_rate=1e-3,
        entropy_coef=0.0,
        gamma=0.99,
        hidden_sizes=(32, 32),
        log_std_init=-1.0,
        normalize_observations=True,
        normalize_rewards=True,
        num_evaluations=0,
    )


def play(
    config: purerl.PPOConfig, states: Any, seeds: int, lifetimes: int
) -> dict[str, Lifetime]:
    """Lifetimes `[S, L, T]` of the meta-agents and of both baselines.

    The same keys, so the same opponents, for all three; training never saw them.
    """
    game: Any = envs.make(str(config.env))
    algorithm = purerl.make_algorithm(config)
    keys = jax.random.split(jax.random.key(987_654), (seeds, lifetimes))

    def over_lifetimes(one: Callable[..., Lifetime]) -> Callable[..., Lifetime]:
        return jax.jit(jax.vmap(jax.vmap(one, (None, 0))))

    def shaped(state: Any, key: jax.Array) -> Lifetime:
        return shaped_lifetime(game, lambda obs: algorithm.act(state, obs), key)

    blocks = jnp.arange(seeds)
    players: dict[str, tuple[Any, Any]] = {
        SHAPED: (shaped, states),
        NAIVE: (lambda _, key: naive_lifetime(game, key), blocks),
        STUBBORN: (lambda _, key: constant_lifetime(game, ALWAYS_SECOND, key), blocks),
    }
    return {
        name: jax.device_get(over_lifetimes(one)(agents, keys))
        for name, (one, agents) in players.items()
    }


def measure(lifetimes: Lifetime) -> dict[str, Any]:
    """A player's means and intervals: of the lifetime, its last game, every game."""
    found: dict[str, Any] = {}
    for side in ("agent", "opponent"):
        payoffs = np.asarray(getattr(lifetimes.payoffs, side), np.float64)
        per_agent = payoffs.mean(1)  # [S, T]
        curve = statistics.curve(per_agent, "mean")
        found[side] = {
            "lifetime": _mean(per_agent.mean(1)),
            "last_game": _mean(per_agent[:, -1]),
            "per_agent": _brief(per_agent.mean(1)),
            "curve": {
                name: _brief(getattr(curve, name)) for name in ("value", "low", "high")
            },
        }
    return found


def _brief(values: Any) -> list[float]:
    return np.round(np.asarray(values, np.float64), 4).tolist()


def _mean(scores: np.ndarray) -> list[float]:
    """Mean and the ends of its interval."""
    return _brief(statistics.estimate(scores, "mean")[:3])


def verdict(name: str, players: dict[str, Any]) -> dict[str, bool]:
    """Return the claims of the study, decided by intervals alone (or ranges)."""
    _, low, _ = players[SHAPED]["agent"]["lifetime"]
    found = {"above two naive learners": low > players[NAIVE]["agent"]["lifetime"][2]}
    if name == "ipd":
        found["above mutual defection (-2)"] = low > -2
    if name == "pennies":
        found["above the game's value (0)"] = low > 0
    return found


def run_task(name: str, asked: Any) -> dict[str, Any]:
    """Train, play and measure one game."""
    task = TASKS[name]
    config = config_of(task, asked.updates)
    began = time.perf_counter()
    keys = jax.random.split(jax.random.key(0), asked.seeds)
    states = purerl.pmap(purerl.make_train(config), lanes=LANES)(keys).state
    jax.block_until_ready(states)
    seconds = time.perf_counter() - began
    print(f"{task.title}: trained in {seconds:.0f} s, with compilation", flush=True)
    lifetimes = play(config, states, asked.seeds, asked.lifetimes)
    players = {player: measure(lived) for player, lived in lifetimes.items()}
    return {
        "env": task.id,
        "training_seconds": round(seconds, 1),
        "training_steps": config.total_timesteps,
        "config": purerl.serialise.to_dict(config),
        "players": players,
        "shows": verdict(name, players),
    }


def show_games(games: dict[str, Any], seeds: int, lifetimes: int) -> None:
    """Print a row per game and player."""
    heading = statistics.heading_of(seeds)
    sides, rows = ("agent", "opponent"), []
    for name, game in games.items():
        for player, numbers in game["players"].items():
            means = [interval_text(numbers[x]["per_agent"], 3, heading) for x in sides]
            ends = [f"{numbers[x]['last_game'][0]:,.3f}" for x in sides]
            label = TASKS[name].second if player == STUBBORN else player
            rows.append([TASKS[name].title, label, *means, *ends])
    show(
        f"payoff per round over a lifetime: mean ({heading}) of {seeds} "
        f"meta-agents, {lifetimes} fresh opponents each",
        "game,player,its payoff,opponent's,last game,opponent's".split(","),
        rows,
    )


def picture(games: dict[str, Any]) -> Any:
    """Payoffs along the lifetime, a panel per game."""
    figure = style.new_figure(4.0 * len(games), 3.9)
    panels = figure.subplots(1, len(games), squeeze=False)[0]
    for axes, (name, game) in zip(panels, games.items(), strict=True):
        for number, (player, numbers) in enumerate(game["players"].items()):
            colour = style.COLOURS[number]
            label = "always the second action" if player == STUBBORN else player
            drawn = [(numbers["agent"], label, "-")]
            if player == SHAPED:
                drawn.append((numbers["opponent"], "the meta-agent's opponent", "--"))
            for side, words, line in drawn:
                curve, look = side["curve"], {"linestyle": line, "linewidth": 1.8}
                x, ends = np.arange(len(curve["value"])), (curve["low"], curve["high"])
                between(axes, x, curve["value"], ends, colour, words, **look)
        top = axes.get_ylim()[1]
        axes.set_ylim(TASKS[name].floor, min(top, 1.1))
        style.finish(axes, TASKS[name].title, "updates of the opponent")
    panels[0].set_ylabel("payoff per round", color=style.INK)
    legend_below(figure, panels[0], 4, fontsize=9)
    return figure


def main() -> None:
    """Run the games that were asked for; write, draw and print their numbers."""
    asked = options(
        __doc__,
        games=(list(TASKS), TASKS),
        seeds=8,
        updates=300,
        lifetimes=256,
        dry=(False, "keep no numbers"),
    )
    games = {name: run_task(name, asked) for name in asked.games}
    numbers = {n: getattr(asked, n) for n in ("seeds", "lifetimes", "updates")}
    keep(NAME, asked, {**numbers, "games": games})
    if not asked.dry:
        style.save(picture(games), IMAGES / f"{NAME}.png")
    show_games(games, asked.seeds, asked.lifetimes)
    for name, game in games.items():
        for claim, holds in game["shows"].items():
            print(f"{TASKS[name].title}: {claim}: {'yes' if holds else 'NO'}")


if __name__ == "__main__":
    main()
