"""`purerl plot`: the learning curves of a run, from its files."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from purerl.cli import flags
from purerl.config import ConfigError, TrainConfig
from purerl.report import plots
from purerl.runner import manifest
from purerl.runner.loop import KINDS
from purerl.runner.result import RunResult
from purerl.runner.tracking import JsonlTracker, read_rows, stack_rows


@dataclasses.dataclass(kw_only=True)
class Plot:
    """Draw a run's learning curves from its metrics files, also while it goes on."""

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(help="Folder of the run.")]
    out: Annotated[
        Path | None, tyro.conf.arg(help="PNG to write; <run>/curve.png if not given.")
    ] = None


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the exit status."""
    options = flags.parse(Plot, argv, "plot")
    path = options.out or options.run / "curve.png"
    result = read_result(options.run)
    try:
        plots.learning_curve(result, path)
    except (OSError, ValueError) as error:  # ValueError: a name without a stem
        raise ConfigError(
            f"out: cannot write the picture {path} ({error}). Give a PNG in a folder "
            "that you may write to."
        ) from None
    print(f"written to {path}")
    return 0


def read_result(folder: Path) -> RunResult:
    """A run's curves from its files, without its states and most of its config.

    Raises:
        ConfigError: no run there, or nothing logged yet.
    """
    stored = manifest.load(folder)
    jsonl = JsonlTracker(folder / "metrics")
    records = {}
    for kind in KINDS:
        paths = [jsonl.path(kind, seed) for seed in stored["seeds"]]
        rows = [read_rows(path) if path.exists() else [] for path in paths]
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
