"""A run read from its files, for tables and pictures, also while it goes on."""

from pathlib import Path

from purerl.config import ConfigError, TrainConfig
from purerl.runner import manifest
from purerl.runner.divergence import read_diverged_at
from purerl.runner.jsonl import read_members
from purerl.runner.records import KINDS
from purerl.runner.result import RunResult


def read_result(folder: Path) -> RunResult:
    """Read a run's curves from its files, without its states and most of its config.

    Raises:
        ConfigError: no run there, nothing logged yet, or a file of rows that is damaged
            or missing.
    """
    stored = manifest.load_run(folder)
    seeds = tuple(stored["seeds"])
    records = {kind: read_members(folder / "metrics", kind, seeds) for kind in KINDS}
    train = records["train"]
    if not train:
        raise ConfigError(f"the run in {folder} has logged nothing yet.")
    return RunResult(
        # All that a picture needs: the rest may name losses and algorithms that only
        # the program which trained them has registered.
        config=TrainConfig(env=stored["config"]["env"]),
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
