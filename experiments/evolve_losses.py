"""A loss of PPO, evolved on CartPole-v1 and judged on held-out seeds and tasks."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import frame

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
    asked: frame.Asked, config: purerl.PPOConfig, field: str, out: Path, **more: Any
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
    asked: frame.Asked,
    name: str,
    result: purerl.EvolutionResult,
    field: str,
    contestants: dict[str, Any],
    seconds: Mapping[str, float],
    **more: Any,
) -> purerl.Comparison:
    """Judge a loss along its evolution, and beside others also where it never was.

    Prints the tables; keeps the numbers, unless asked not to.

    Args:
        asked: The options of the command.
        name: Name of the file of the numbers.
        result: The evolution.
        field: Name of the loss.
        contestants: Settings that are judged at the end, by name.
        seconds: Seconds of what came before the evolution.
        **more: Further numbers.

    Returns:
        The comparison at the end.
    """
    start: Any = result.config
    began = asked.seconds()
    snapshots: dict[int, Any] = {0: start, **result.snapshots()}
    losses = {
        f"generation {number}": {field: getattr(each, field)}
        for number, each in sorted(snapshots.items())
    }
    assert result.out is not None
    shared: dict[str, Any] = {"seeds": SEEDS, "out": result.out / "transfer"}
    on_the_way = purerl.compare(start, losses, **shared)
    # Last: both share the folder, and the page of the evolution shows this one.
    environments = [{}, *HELD_OUT]
    judged = purerl.compare(start, contestants, environments=environments, **shared)
    frame.show_table(on_the_way.table())
    frame.show_table(judged.table())
    judging = asked.seconds() - began
    print(f"judged in {judging:.0f} s, after {began:.0f} s")
    config = purerl.serialise.to_dict(start)
    del config[field]  # thousands of numbers that the command draws again
    times = {"evolve": frame.evolve_seconds(result), **seconds, "judge": round(judging)}
    numbers = {
        "config": config,
        "settings": result.settings,
        "history": frame.history(result),
        "generations": frame.plain_rows(on_the_way.rows),
        "judged": frame.plain_rows(judged.rows),
        "seconds": times,
    }
    frame.keep(name, asked, numbers | more)
    return judged


def draw(name: str, result: purerl.EvolutionResult, judged: purerl.Comparison) -> None:
    """Draw the evolution, its loss, and the judgement."""
    plots.save(result.plot(), frame.IMAGES / f"evolution-{name}-curve.png")
    plots.save(result.plot_loss(), frame.IMAGES / f"evolution-{name}.png")
    plots.save(judged.plot(), frame.IMAGES / f"evolution-{name}-transfer.png")
