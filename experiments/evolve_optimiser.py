"""A learned optimiser (after OPEN, Goldie et al. 2024), evolved from a tuned Adam.

    python experiments/evolve_optimiser.py [--out runs/evolve-optimiser]

First Adam is tuned: its step size, decays and epsilon are evolved over three tasks.
There the way forks. One branch goes on tuning these four numbers. The other puts a
`LearnedOptimiser` in Adam's place, which begins as that Adam, and evolves its weights
and the step size. Both branches have as many generations, members, tasks and steps, so
that what the network adds is what the second has above the first. All are judged on
held-out seeds, in the three tasks and in three that no branch has seen.

Prints the tables; writes experiments/results/evolve-optimiser.json and
docs/images/evolution-optimiser-*.png. The same command goes on with what was stopped.
"""

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

from results import command, hardware
from results_losses import plain_rows
from rich.console import Console

import purerl
from purerl.atomic import write_atomic
from purerl.cli.settings import enable_compile_cache
from purerl.meta.result import EvolutionResult
from purerl.optimisers import Adam, LearnedOptimiser
from purerl.report import plots
from purerl.serialise import to_dict

ROOT = Path(__file__).parents[1]
STORE = ROOT / "experiments" / "results" / "evolve-optimiser.json"
IMAGES = ROOT / "docs" / "images"
# The returns that count 0 and 1: of acting at random, about, and of having learned.
TASKS = {
    "CartPole-v1": (20.0, 500.0),
    "Acrobot-v1": (-500.0, -80.0),
    "Catch-bsuite": (-1.0, 1.0),
}
HELD_OUT = ("FourRooms-misc", "FrozenLake-misc", "Doors-v0")
TUNED = "tuned Adam"


def make_config(asked: argparse.Namespace) -> purerl.PPOConfig:
    """PPO with its defaults and small networks; evolution starts at its Adam."""
    return purerl.PPOConfig(
        env=next(iter(TASKS)),
        total_timesteps=asked.steps,
        hidden_sizes=(32, 32),
        num_evaluations=0,
        learning_rate=1e-3,
    )


def evolved(
    config: purerl.PPOConfig,
    what: str,
    strategy: str,
    generations: int,
    out: Path,
    asked: argparse.Namespace,
) -> EvolutionResult:
    """Evolve over the tasks; a snapshot is kept where the ways fork.

    Args:
        config: The config that is started from.
        what: Names of what is evolved.
        strategy: The strategy.
        generations: Generations in all.
        out: The folder.
        asked: Options of the command line.
    """
    return purerl.evolve(
        config,
        what,
        strategy=strategy,
        population=asked.population,
        generations=generations,
        environments=list(TASKS),
        baselines=TASKS,
        snapshot_every=asked.tuning,
        out=out,
    )


def settings_of(
    config: purerl.PPOConfig, fork: Any, tuned: Any, learned: Any
) -> dict[str, dict[str, Any]]:
    """Return step size and optimiser by name; the first is the baseline.

    Args:
        config: The config that everything started from.
        fork: The config where the ways fork.
        tuned: The config of the branch that went on with Adam.
        learned: The config of the branch with the network.
    """
    found = {
        TUNED: tuned,
        "learned": learned,
        "tuned Adam, at the fork": fork,
        "Adam, untuned": config,
    }
    return {
        name: {"learning_rate": x.learning_rate, "optimiser": x.optimiser}
        for name, x in found.items()
    }


def options() -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("runs/evolve-optimiser"))
    parser.add_argument("--steps", type=int, default=30_000, help="of an inner run")
    parser.add_argument("--population", type=int, default=24)
    parser.add_argument("--tuning", type=int, default=16, help="generations to fork")
    parser.add_argument("--generations", type=int, default=32, help="of each branch")
    parser.add_argument("--hidden", type=int, default=4, help="units of the network")
    parser.add_argument("--sigma", type=float, default=0.15)
    parser.add_argument("--seeds", type=int, default=32, help="held out, of each task")
    parser.add_argument("--dry", action="store_true", help="keep no numbers")
    return parser, parser.parse_args()


def main() -> None:
    """Evolve, judge, print and write."""
    parser, asked = options()
    enable_compile_cache()
    load, began = os.getloadavg()[0], time.perf_counter()
    config, what = make_config(asked), "learning_rate,optimiser"
    total = asked.tuning + asked.generations
    place = asked.out / "adam"
    adam = evolved(config, what, "cma-es(sigma=0.3)", total, place, asked)
    fork: Any = adam.snapshots()[asked.tuning]
    start = _as_network(fork, asked.hidden)
    strategy = f"sep-cma-es(sigma={asked.sigma})"
    place = asked.out / "learned"
    network = evolved(start, what, strategy, asked.generations, place, asked)
    evolved_at = time.perf_counter()
    judged = purerl.compare(
        config,
        settings_of(config, fork, adam.learned, network.learned),
        environments=[*TASKS, *HELD_OUT],
        seeds=asked.seeds,
        out=asked.out / "judged",
    )
    judge_seconds = time.perf_counter() - evolved_at
    branches = {"adam": adam, "learned": network}
    _show(branches, judged)
    print(f"evolved {evolved_at - began:.0f} s, judged {judge_seconds:.0f} s")
    if asked.dry:
        return
    found = {"fork": fork} | {name: x.learned for name, x in branches.items()}
    kept = {
        "command": command(parser, asked),
        "config": to_dict(config),
        **_kept(branches),
        "found": {name: _numbers(x) for name, x in found.items()},
        "judged": plain_rows(judged.rows),
        "load_before": round(load, 2),
        **hardware(),
    }
    kept["seconds"]["judge"] = round(judge_seconds)
    write_atomic(STORE, json.dumps(kept, indent=1) + "\n")
    picture = plots.optimiser_figure(network.learned.optimiser)  # type: ignore[attr-defined]
    plots.save(picture, IMAGES / "evolution-optimiser.png")
    plots.save(network.plot(), IMAGES / "evolution-optimiser-curve.png")
    plots.save(judged.plot(), IMAGES / "evolution-optimiser-judged.png")


def _show(branches: dict[str, EvolutionResult], judged: Any) -> None:
    """Print the table, and how far each branch came on what it was evolved on."""
    Console(width=150, highlight=False).print(judged.table())
    for name, result in branches.items():
        mean = [f"{x:.3f}" for x in result.history["mean"]]
        print(f"{name}: mean fitness by generation {' '.join(mean)}")
        print(f"{name}: {_numbers(result.learned)}")


def _kept(branches: dict[str, EvolutionResult]) -> dict[str, Any]:
    """Settings, histories and times of the evolutions, as plain values."""
    names = ("mean", "best", "std")
    return {
        "settings": {name: x.settings for name, x in branches.items()},
        "history": {
            branch: {name: x.history[name].tolist() for name in names}
            for branch, x in branches.items()
        },
        "seconds": {
            f"evolve {name}": round(float(x.history["seconds"].sum()))
            for name, x in branches.items()
        },
    }


def _as_network(config: Any, hidden: int) -> Any:
    """The config with a network in Adam's place that does what this Adam does."""
    adam: Adam = config.optimiser
    return config.replace(
        optimiser=LearnedOptimiser.make(hidden, b1=adam.b1, b2=adam.b2, eps=adam.eps)
    )


def _numbers(config: Any) -> dict[str, float]:
    found = config.optimiser
    return {
        "learning_rate": float(config.learning_rate),
        **{name: float(getattr(found, name)) for name in ("b1", "b2", "eps")},
    }


if __name__ == "__main__":
    main()
