"""`purerl tune`: axes and a number of trials in, the best config out."""

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console

from purerl import presets
from purerl.algorithms import ALGORITHMS
from purerl.cli import flags, report, settings
from purerl.cli.sweep import read_axes
from purerl.cli.train import base_config, default_folder
from purerl.execution import dry_run
from purerl.execution.format import quoted
from purerl.runner.seeds import check_seeds, seeds_from
from purerl.search.fitness import check_fitness
from purerl.storage import folders
from purerl.train import bind
from purerl.tuning.api import tune
from purerl.tuning.console import best_table, end_line, holdout_table, warnings
from purerl.tuning.pool import KINDS
from purerl.tuning.result import TuneResult
from purerl.tuning.space import Space


def _arg(text: str) -> object:
    return tyro.conf.arg(help=text)


@dataclasses.dataclass(kw_only=True)
class Tune:
    """Search for a better config: trials in batches, each one vmapped call.

    With --out the same command goes on after a kill, or with more trials. Run several
    times at once, with one --out or one --storage, it shares the trials.
    """

    axis: Annotated[
        tyro.conf.UseAppendAction[tuple[str, ...]],
        _arg(
            "NAME=VALUES, once per axis: learning_rate=loguniform(1e-5,1e-2); "
            "gamma=uniform(0.9,0.999); num_epochs=uniform(1,8); "
            "hidden_sizes=(64,64),(256,256)."
        ),
    ] = ()
    algorithm: Annotated[str, _arg(f"One of {', '.join(ALGORITHMS)}.")] = "ppo"
    preset: Annotated[
        str | None, _arg(f"Start from a preset: {', '.join(presets.names())}.")
    ] = None
    config: Annotated[Path | None, _arg("Start from a YAML file.")] = None
    trials: Annotated[int, _arg("Trials that are to finish.")] = 40
    seeds: Annotated[int, _arg("Agents per trial.")] = 4
    first_seed: Annotated[int, _arg("Seed of the first one.")] = 0
    sampler: Annotated[
        Literal["tpe", "random", "cmaes"], _arg("What proposes trials.")
    ] = "tpe"
    pruner: Annotated[
        Literal["hyperband", "median", "none"], _arg("What stops hopeless ones.")
    ] = "hyperband"
    storage: Annotated[
        str | None,
        _arg("Optuna storage URL shared by several machines; OUT/study.db if not."),
    ] = None
    study: Annotated[str | None, _arg("Name of the study in the storage.")] = None
    out: Annotated[
        Path | None, _arg("Folder to write; runs/tune-<env>-<time> if not given.")
    ] = None
    batch: Annotated[int, _arg("Trials that are trained side by side.")] = 8
    fitness: Annotated[
        str, _arg("final_return: the last score; training_curve: the mean of all.")
    ] = "final_return"
    reports: Annotated[int, _arg("Times at which the pruner looks at a trial.")] = 9
    sampler_seed: Annotated[int, _arg("Seed of the sampler.")] = 0
    holdout_seeds: Annotated[
        int, _arg("Fresh seeds that compare best and default; 0 leaves it out.")
    ] = 10
    lanes: Annotated[int | None, _arg("Agents per block.")] = None
    track: Annotated[
        tyro.conf.UseAppendAction[tuple[str, ...]],
        _arg("Tell a tracker every trial: mlflow, tensorboard or wandb; repeatable."),
    ] = ()
    dry_run: Annotated[bool, _arg("Say what it would cost here, and stop.")] = False
    progress: Annotated[bool, _arg("Say how it goes.")] = True


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    base = base_config(argv)
    parsed = flags.parse(flags.parser_class(base, Tune), argv, "tune")
    fitness = check_fitness(parsed.fitness, KINDS)
    settings.enable_compile_cache()
    config = flags.read_config(parsed, base)
    if parsed.dry_run:
        folders.check_out(parsed.out, "tune")
        Space(config, read_axes(parsed.axis))  # refuses axes that do not fit
        seeds = len(check_seeds(parsed.seeds))
        agents = parsed.trials * seeds + 2 * parsed.holdout_seeds
        study = dry_run.whole_runs(bind(config), agents)
        part = study._replace(agents=min(agents, parsed.batch * seeds))
        note = "; trials that are pruned take less, and other settings other times"
        dry_run.show([part], parsed.lanes, note=note)
        return 0
    result = tune(
        config,
        read_axes(parsed.axis),
        trials=parsed.trials,
        seeds=seeds_from(parsed.first_seed, parsed.seeds),
        sampler=parsed.sampler,
        pruner=None if parsed.pruner == "none" else parsed.pruner,
        storage=parsed.storage,
        study=parsed.study,
        out=parsed.out or default_folder(f"tune-{config.env}"),
        batch=parsed.batch,
        fitness=fitness,
        reports=parsed.reports,
        seed=parsed.sampler_seed,
        holdout_seeds=parsed.holdout_seeds,
        lanes=parsed.lanes,
        trackers=list(parsed.track) or None,
        progress=parsed.progress,
    )
    show(result, shlex.join(["purerl", "tune", *argv]))
    return 0 if result.finished else 130


def show(result: TuneResult, command: str = "") -> None:
    """Print the best trials, the comparison with the default, warnings; write the page.

    Args:
        result: The result of the study.
        command: The command that started the study.
    """
    console = Console()
    if result.best_row is not None:
        console.print(best_table(result))
    if result.holdout is not None:
        console.print(holdout_table(result.holdout))
    for sentence in warnings(result):
        console.print(f"warning: {sentence}", markup=False, highlight=False)
    console.print(end_line(result), highlight=False)
    if not result.finished:
        console.print(
            f"stopped; the same command with --out {quoted(result.out)} goes on",
            highlight=False,
            soft_wrap=True,
            markup=False,
        )
    if result.out is not None:
        report.write(result.out, result.out / "report.html", command)
        best = quoted(result.out / "best.yaml")
        use = f" (purerl train --config {best})" if result.best_config else ""
        console.print(
            f"written to {result.out}/, with report.html{use}",
            highlight=False,
            soft_wrap=True,
            markup=False,
        )
