"""Sentences about a training, before it begins and when it stops."""

from collections.abc import Sequence
from pathlib import Path

from purerl import auto
from purerl.config import TrainConfig
from purerl.execution.commands import has_imported, program
from purerl.execution.format import quoted, with_noun
from purerl.runner import manifest
from purerl.runner.seeds import seeds_text
from purerl.train import Bound
from purerl.types import Overrides


def evaluations(bound: Bound) -> str:
    """Say how many evaluations a run has, and how long they may be.

    If there are fewer than asked for, also why.
    """
    config, planned = bound.config, len(bound.plan.evaluate_after)
    if not planned:
        return "no evaluations"
    episodes = with_noun(config.eval_episodes, "episode")
    most = with_noun(bound.plan.eval_max_steps, "step")
    words = f"{with_noun(planned, 'evaluation')} of {episodes} of at most {most}"
    if planned == config.num_evaluations:
        return words
    reason = (
        "an update each"
        if planned == bound.plan.num_updates
        else f"{planned} affordable within eval_share={config.eval_share:g}"
    )
    return f"{words} ({config.num_evaluations} asked for, {reason})"


def notes(bound: Bound, overrides: Sequence[Overrides] = ()) -> list[str]:
    """Return what a person should know before a training begins, a line each.

    Args:
        bound: Config, environment and plan.
        overrides: Overrides with which some of its members are trained.
    """
    automatic = [
        auto.values(bound.asked, bound.at(values)) for values in overrides or [{}]
    ]
    named = {name for values in overrides for name in values}
    words = [
        f"{name}={_plain(value)}"
        for name, value in automatic[0].items()
        # The axes say what the members differ in.
        if name not in named and all(other.get(name) == value for other in automatic)
    ]
    lines = [f"auto: {', '.join(words)}"] if words else []
    return [*lines, bound.env.note] if bound.env.note else lines


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def how_to_go_on(config: TrainConfig, seeds: tuple[int, ...], folder: Path) -> str:
    """Say how to go on with a run that was saved.

    Args:
        config: Config of the run.
        seeds: Seeds of its agents.
        folder: Folder of the run.
    """
    if manifest.is_rebuildable(config) or has_imported():
        return f"Go on with: {program()} train --resume {quoted(folder)}"
    # The command line knows nothing of what this program brought along.
    return (
        "Go on with the same config, from Python: purerl.run(config, "
        f"seeds={seeds_text(seeds)}, out={str(folder)!r}, resume=True)"
    )
