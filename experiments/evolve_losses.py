"""A loss of PPO, evolved on CartPole-v1 and judged on held-out seeds and tasks."""

from pathlib import Path
from typing import Any

from frame import IMAGES, Asked, evolve_seconds, history, plain_rows, show_table

import purerl
from purerl.report import plots

HELD_OUT = ("Acrobot-v1", "Catch-bsuite")
SEEDS = 64  # That no evolution has seen.
# The options of an evolution, for `frame.options`.
OPTIONS: dict[str, Any] = {
    "population": 64,
    "rollouts": 1,
    "generations": 32,
    "sigma": 0.1,
}


def evolve(
    asked: Asked, config: purerl.PPOConfig, field: str, out: Path, **more: Any
) -> purerl.EvolutionResult:
    """Evolve a loss of PPO by Open-ES, or go on.

    Args:
        asked: The options of the command.
        config: What members train with; the loss that is started from is in it.
        field: Name of the loss.
        out: Folder of the evolution.
        **more: Other arguments of `purerl.evolve`.
    """
    strategy = purerl.OpenES(sigma=asked.sigma, learning_rate=asked.learning_rate)
    return purerl.evolve(
        config,
        field,
        strategy=strategy,
        population=asked.population,
        rollouts=asked.rollouts,
        generations=asked.generations,
        snapshot_every=8,
        out=out,
        **more,
    )


def judge(
    result: purerl.EvolutionResult, field: str, contestants: dict[str, Any], out: Path
) -> tuple[dict[str, Any], purerl.Comparison]:
    """Judge a loss along its evolution, and beside others also where it never was.

    Args:
        result: The evolution.
        field: Name of the loss.
        contestants: Settings that are judged at the end, by name.
        out: Folder of the evolution.

    Returns:
        The numbers that are kept, and the comparison at the end.
    """
    start: Any = result.config
    snapshots: dict[int, Any] = {0: start, **result.snapshots()}
    losses = {
        f"generation {number}": {field: getattr(each, field)}
        for number, each in sorted(snapshots.items())
    }
    place = out / "transfer"
    on_the_way = purerl.compare(start, losses, seeds=SEEDS, out=place)
    # Last: both share the folder, and the page of the evolution shows this one.
    judged = purerl.compare(
        start,
        contestants,
        environments=[{}, *HELD_OUT],
        seeds=SEEDS,
        out=place,
    )
    show_table(on_the_way.table())
    show_table(judged.table())
    config = purerl.serialise.to_dict(start)
    del config[field]  # thousands of numbers that the command draws again
    numbers = {
        "config": config,
        "settings": result.settings,
        "history": history(result),
        "generations": plain_rows(on_the_way.rows),
        "judged": plain_rows(judged.rows),
        "seconds": {"evolve": evolve_seconds(result)},
    }
    return numbers, judged


def draw(name: str, result: purerl.EvolutionResult, judged: purerl.Comparison) -> None:
    """Draw the evolution, its loss, and the judgement."""
    plots.save(result.plot(), IMAGES / f"evolution-{name}-curve.png")
    plots.save(result.plot_loss(), IMAGES / f"evolution-{name}.png")
    plots.save(judged.plot(), IMAGES / f"evolution-{name}-transfer.png")
