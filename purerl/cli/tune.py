"""`purerl tune`: axes and a number of trials in, the best config out."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from rich.console import Console

from purerl.cli import flags, report, settings
from purerl.cli.options import (
    ConfigSource,
    DryRun,
    FirstSeed,
    Lanes,
    Progress,
    Repeated,
    Tracking,
    option,
    read_trackers,
)
from purerl.cli.sweep import search_axes
from purerl.cli.train import base_config, default_folder
from purerl.config import TrainConfig
from purerl.execution import dry_run
from purerl.execution.format import program, quoted
from purerl.runner.arguments import check_seeds, seeds_from
from purerl.search.fitness import check_fitness
from purerl.storage import folders
from purerl.train import bind
from purerl.tuning.api import read_counts, tune
from purerl.tuning.console import best_table, end_line, holdout_table, warnings
from purerl.tuning.pool import KINDS
from purerl.tuning.result import TuneResult
from purerl.tuning.space import Space


@dataclasses.dataclass(kw_only=True)
class Tune:
    """Search for a better config: trials in batches, each one vmapped call.

    With --out the same command goes on after a kill, or with more trials. Run several
    times at once, with one --out or one --storage, it shares the trials.
    """

    axis: Annotated[
        Repeated,
        option(
            "Field that the study varies, NAME=VALUES; may be repeated: "
            "learning_rate=loguniform(1e-5,1e-2); gamma=uniform(0.9,0.999); "
            "num_epochs=uniform(1,8); hidden_sizes=(64,64),(256,256)."
        ),
    ] = ()
    trials: Annotated[int, option("Number of trials that are to finish.")] = 40
    seeds: Annotated[int, option("Number of agents per trial.")] = 4
    first_seed: FirstSeed = 0
    sampler: Annotated[
        Literal["tpe", "random", "cmaes"], option("Method that proposes trials.")
    ] = "tpe"
    pruner: Annotated[
        Literal["hyperband", "median", "none"],
        option("Method that stops hopeless trials."),
    ] = "hyperband"
    storage: Annotated[
        str | None,
        option(
            "URL of an Optuna storage that several machines share; OUT/study.db if "
            "not given."
        ),
    ] = None
    study: Annotated[str | None, option("Name of the study in the storage.")] = None
    out: Annotated[
        Path | None, option("Folder to write; runs/tune-<env>-<time> if not given.")
    ] = None
    batch: Annotated[int, option("Number of trials that are trained side by side.")] = 8
    fitness: Annotated[
        str,
        option(
            "Score of a trial: final_return (the last one), or training_curve (the "
            "mean of all)."
        ),
    ] = "final_return"
    reports: Annotated[
        int, option("Number of times that the pruner looks at a trial.")
    ] = 9
    sampler_seed: Annotated[int, option("Seed of the sampler.")] = 0
    holdout_seeds: Annotated[
        int,
        option(
            "Number of fresh seeds on which the best config and the default one are "
            "compared; 0 leaves the comparison out."
        ),
    ] = 10
    lanes: Lanes = None
    dry_run: DryRun = False
    progress: Progress = True


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    base = base_config(argv)
    parsed = flags.parse(
        flags.parser_class(base, Tune, ConfigSource, Tracking), argv, "tune"
    )
    fitness = check_fitness(parsed.fitness, KINDS)
    settings.enable_compile_cache()
    config = flags.read_config(parsed, base)
    trackers = read_trackers(parsed)
    if parsed.dry_run:
        folders.check_out(parsed.out, "tune")
        Space(config, search_axes(parsed.axis)).check_effects()
        note = "; trials that are pruned take less, and other settings other times"
        dry_run.show([_cost(config, parsed)], parsed.lanes, note=note)
        return 0
    result = tune(
        config,
        search_axes(parsed.axis),
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
        trackers=trackers,
        progress=parsed.progress,
    )
    show(result)
    return 0 if result.finished else 130


def _cost(config: TrainConfig, parsed: Any) -> dry_run.Part:
    """The agents of a batch, and the steps of all trials and of the comparison.

    Raises:
        ConfigError: what the study itself would refuse.
    """
    counts = read_counts(
        trials=parsed.trials,
        batch=parsed.batch,
        reports=parsed.reports,
        holdout_seeds=parsed.holdout_seeds,
        seed=parsed.sampler_seed,
    )
    seeds = len(check_seeds(seeds_from(parsed.first_seed, parsed.seeds)))
    agents = counts["trials"] * seeds + 2 * counts["holdout_seeds"]
    study = dry_run.whole_runs(bind(config), agents)
    return study._replace(agents=min(agents, counts["batch"] * seeds))


def show(result: TuneResult) -> None:
    """Print the best trials, the comparison with the default, warnings; write the page.

    Args:
        result: The result of the study.
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
        report.write(result.out)
        best = quoted(result.out / "best.yaml")
        use = f" ({program()} train --config {best})" if result.best_config else ""
        console.print(
            f"written to {result.out}/, with report.html{use}",
            highlight=False,
            soft_wrap=True,
            markup=False,
        )
