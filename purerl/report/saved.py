"""A run read from its files, for tables and pictures, also while it goes on."""

from pathlib import Path
from typing import Any

from purerl.config import ConfigError
from purerl.runner import manifest
from purerl.runner.result import RunResult, load_run
from purerl.runner.rows import read_diverged_at, read_members
from purerl.storage.checkpoint import steps
from purerl.streams import say
from purerl.train import bind
from purerl.types import HostMetrics


def read_result(folder: Path) -> RunResult:
    """Read a run's curves from its files, without its states and most of its config.

    Raises:
        ConfigError: no run there, nothing logged yet, or a file of rows that is damaged
            or missing.
    """
    stored = manifest.load_run(folder)
    seeds = tuple(stored["seeds"])
    update = max(steps(folder / "checkpoints"), default=0)
    records = read_members(folder / "metrics", seeds, update)
    train = records["train"]
    if not train:
        raise ConfigError(f"the run in {folder} has logged nothing yet.")
    return RunResult(
        config=manifest.task_config(stored),
        seeds=seeds,
        state=None,
        metrics=train,
        evaluation=records["evaluation"],
        finished=False,
        compile_seconds=0.0,
        train_seconds=0.0,
        train_steps=0,
        out=folder,
        diverged_at=read_diverged_at(stored, seeds, int(train["update"].max())),
    )


def read_run(folder: Path) -> RunResult:
    """Read the curves of a run and, where it has finished, its agents.

    Where its config cannot be made again here, a sentence says why, and the curves come
    without agents.

    Raises:
        ConfigError: as of `read_result`, or there is no checkpoint.
    """
    curves, stored = read_result(folder), manifest.load_run(folder)
    try:
        config = manifest.read_config(folder, stored)
        num_updates = bind(config, on_host=True).plan.num_updates
    except ConfigError as error:
        say(f"{error} Without it, {folder} is read without agents.")
        return curves._replace(finished=has_finished(stored, curves.metrics))
    saved = load_run(folder, config)
    finished = saved.update == num_updates
    state = saved.state if finished else None
    return curves._replace(config=config, state=state, finished=finished)


def has_finished(stored: dict[str, Any], metrics: HostMetrics) -> bool:
    """Return whether not even one update of a run is left to be done.

    Args:
        stored: Manifest of the run.
        metrics: Metrics of its members.
    """
    steps = int(metrics["env_steps"][0, -1])
    each = steps // int(metrics["update"][0, -1])
    return steps + each > stored["config"]["total_timesteps"]
