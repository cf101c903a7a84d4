"""A run read from its files, for tables and pictures, also while it goes on."""

from pathlib import Path

from purerl.config import ConfigError, TrainConfig
from purerl.runner import manifest
from purerl.runner.jsonl import JsonlFiles, read_rows, stack_rows
from purerl.runner.records import KINDS
from purerl.runner.result import RunResult


def read_result(folder: Path) -> RunResult:
    """Read a run's curves from its files, without its states and most of its config.

    Raises:
        ConfigError: no run there, nothing logged yet, or a file of rows that is damaged
            or missing.
    """
    stored = manifest.load_run(folder)
    jsonl = JsonlFiles(folder / "metrics")
    records = {}
    for kind in KINDS:
        paths = [jsonl.path(kind, seed) for seed in stored["seeds"]]
        rows = [read_rows(path) if path.exists() else [] for path in paths]
        missing = [str(path) for path in paths if not path.exists()]
        if missing and max(map(len, rows)) > 1:  # All are made by the first row.
            raise ConfigError(
                f"{missing[0]} is missing, and other seeds have rows; put back a copy "
                "of it, or of the whole folder."
            )
        shortest = min(map(len, rows))
        records[kind] = stack_rows([member[:shortest] for member in rows])
    if not records["train"]:
        raise ConfigError(f"the run in {folder} has logged nothing yet.")
    return RunResult(
        # All that a picture needs: the rest may name losses and algorithms that only
        # the program which trained them has registered.
        config=TrainConfig(env=stored["config"]["env"]),
        seeds=tuple(stored["seeds"]),
        state=None,
        metrics=records["train"],
        evaluation=records["evaluation"],
        finished=False,
        compile_seconds=0.0,
        train_seconds=0.0,
        train_steps=0,
        out=folder,
    )
