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
experiments/results/opponent-shaping.json, the picture to docs/images; `--draw` prints
and draws them again.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from results import command, hardware
from rich.console import Console
from rich.table import Table

import purerl
from purerl import envs
from purerl.atomic import write_atomic
from purerl.contrib.matrix_games import (
    ALWAYS_SECOND,
    Lifetime,
    constant_lifetime,
    naive_lifetime,
    shaped_lifetime,
)
from purerl.report import statistics
from purerl.report.plots import style
from purerl.report.statistics import heading_of, mean_interval
from purerl.serialise import to_dict

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STORE = Path(__file__).parent / "results" / "opponent-shaping.json"
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "opponent-shaping.png"
LIFETIMES = 256
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


def train(config: purerl.PPOConfig, seeds: int) -> tuple[Any, float]:
    """Meta-agents `[S]` and the seconds that they took, compilation included."""
    began = time.perf_counter()
    keys = jax.random.split(jax.random.key(0), seeds)
    states = purerl.pmap(purerl.make_train(config), lanes=LANES)(keys).state
    jax.block_until_ready(states)
    return states, time.perf_counter() - began


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
        STUBBORN: (
            lambda _, key: constant_lifetime(game, ALWAYS_SECOND, key),
            blocks,
        ),
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
            "last_policy": _brief(getattr(lifetimes, side)[:, :, -1].mean((0, 1))),
        }
    return found


def _brief(values: np.ndarray) -> list[float]:
    return np.round(np.asarray(values, np.float64), 4).tolist()


def _mean(scores: np.ndarray) -> list[float]:
    """Mean and the ends of its interval."""
    found = statistics.estimate(scores, "mean")
    return _brief(np.array(found[:3]))


def verdict(name: str, players: dict[str, Any]) -> dict[str, bool]:
    """Return the claims of the study, decided by intervals alone (or ranges)."""
    _, low, _ = players[SHAPED]["agent"]["lifetime"]
    found = {"above two naive learners": low > players[NAIVE]["agent"]["lifetime"][2]}
    if name == "ipd":
        found["above mutual defection (-2)"] = low > -2
    if name == "pennies":
        found["above the game's value (0)"] = low > 0
    return found


def run_task(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Train, play and measure one game."""
    task = TASKS[name]
    config = config_of(task, options.updates)
    states, seconds = train(config, options.seeds)
    lifetimes = play(config, states, options.seeds, options.lifetimes)
    players = {player: measure(lived) for player, lived in lifetimes.items()}
    return {
        "env": task.id,
        "training_seconds": round(seconds, 1),
        "training_steps": config.total_timesteps,
        "config": to_dict(config),
        "players": players,
        "shows": verdict(name, players),
    }


def table(games: dict[str, Any], seeds: int, lifetimes: int) -> Table:
    """A row per game and player."""
    heading = heading_of(seeds)
    found = Table(
        title=f"payoff per round over a lifetime: mean ({heading}) of {seeds} "
        f"meta-agents, {lifetimes} fresh opponents each"
    )
    for header in ("game", "player"):
        found.add_column(header)
    for header in ("its payoff", "opponent's", "last game", "opponent's"):
        found.add_column(header, justify="right", no_wrap=True)
    for name, game in games.items():
        task = TASKS[name]
        for player, numbers in game["players"].items():
            cells = []
            for side in ("agent", "opponent"):
                values = np.array(numbers[side]["per_agent"])
                ends = mean_interval(values).text(3, heading)
                cells.append(f"{values.mean():,.3f} ({ends})")
            ends = [f"{numbers[s]['last_game'][0]:,.3f}" for s in ("agent", "opponent")]
            label = task.second if player == STUBBORN else player
            found.add_row(task.title, label, *cells, *ends)
        found.add_section()
    return found


def draw(games: dict[str, Any], path: Path) -> None:
    """Payoffs along the lifetime, a panel per game."""
    figure = style.new_figure(4.0 * len(games), 3.9)
    panels = figure.subplots(1, len(games), squeeze=False)[0]
    for axes, (name, game) in zip(panels, games.items(), strict=True):
        task = TASKS[name]
        for number, (player, numbers) in enumerate(game["players"].items()):
            colour = style.COLOURS[number]
            label = "always the second action" if player == STUBBORN else player
            _draw_curve(axes, numbers["agent"]["curve"], colour, "-", label)
            if player == SHAPED:
                opponent = numbers["opponent"]["curve"]
                _draw_curve(axes, opponent, colour, "--", "the meta-agent's opponent")
        top = axes.get_ylim()[1]
        axes.set_ylim(task.floor, min(top, 1.1))
        style.finish(axes, task.title, "updates of the opponent")
    panels[0].set_ylabel("payoff per round", color=style.INK)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=4,
        frameon=False,
        fontsize=9,
        labelcolor=style.INK,
    )
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path)


def _draw_curve(
    axes: "Axes", curve: dict[str, Any], colour: str, line: str, label: str
) -> None:
    games = np.arange(len(curve["value"]))
    axes.fill_between(
        games, curve["low"], curve["high"], color=colour, alpha=0.18, linewidth=0
    )
    axes.plot(
        games, curve["value"], color=colour, linestyle=line, linewidth=1.8, label=label
    )


def main() -> None:
    """Run the games that were asked for; write, draw and print their numbers."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--games", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--updates", type=int, default=300)
    parser.add_argument("--lifetimes", type=int, default=LIFETIMES)
    parser.add_argument("--dry", action="store_true", help="keep no numbers")
    parser.add_argument(
        "--draw", action="store_true", help="print and draw what was kept, no more"
    )
    options = parser.parse_args()
    console = Console(width=150)
    if options.draw:
        kept = json.loads(STORE.read_text())
        console.print(table(kept["games"], kept["seeds"], kept["lifetimes"]))
        draw(kept["games"], PICTURE)
        return
    games = {}
    for name in options.games:
        games[name] = run_task(name, options)
        seconds = games[name]["training_seconds"]
        console.print(f"{TASKS[name].title}: trained in {seconds:.0f} s")
    numbers = {
        "command": command(parser, options),
        "seeds": options.seeds,
        "lifetimes": options.lifetimes,
        "updates": options.updates,
        **hardware(),
        "games": games,
    }
    if not options.dry:
        STORE.parent.mkdir(exist_ok=True)
        write_atomic(STORE, json.dumps(numbers, indent=1) + "\n")
        draw(games, PICTURE)
    console.print(table(games, options.seeds, options.lifetimes))
    for name, game in games.items():
        for claim, holds in game["shows"].items():
            console.print(f"{TASKS[name].title}: {claim}: {'yes' if holds else 'NO'}")


if __name__ == "__main__":
    main()
