"""`purerl pbt`: population-based training; a folder of rounds, the best schedule."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

from purerl import presets, serialise
from purerl.algorithms import ALGORITHMS
from purerl.cli import flags, settings
from purerl.cli.sweep import read_axes
from purerl.cli.train import base_config, default_folder
from purerl.config import ConfigError
from purerl.execution import dry_run
from purerl.metrics import decimals
from purerl.population.fitness import KINDS
from purerl.population.pbt import pbt
from purerl.population.pbt_result import PBTResult
from purerl.population.result import Result
from purerl.population.schedule import Schedule
from purerl.population.searches import read_searches
from purerl.population.space import Space
from purerl.runner.seeds import check_seeds, seeds_from
from purerl.search.fitness import check_fitness
from purerl.space.labels import in_a_line
from purerl.storage import folders


def _arg(text: str) -> object:
    return tyro.conf.arg(help=text)


AXIS_HELP = (
    "NAME=VALUES, once per axis, of dynamic fields: "
    "learning_rate=loguniform(1e-5,1e-2); gamma=uniform(0.9,0.999); "
    "entropy_coef=0,0.01,0.1."
)
FITNESS_HELP = (
    "final_return: planned evaluations, else training returns; evaluation: fresh ones."
)


@dataclasses.dataclass(kw_only=True)
class PBT:
    """Train a population whose worst members copy and perturb the best.

    With --out, the same command after a kill goes on, and ends with the same result.
    """

    axis: Annotated[tyro.conf.UseAppendAction[tuple[str, ...]], _arg(AXIS_HELP)] = ()
    algorithm: Annotated[str, _arg(f"One of {', '.join(ALGORITHMS)}.")] = "ppo"
    preset: Annotated[
        str | None, _arg(f"Start from a preset: {', '.join(presets.names())}.")
    ] = None
    config: Annotated[Path | None, _arg("Start from a YAML file.")] = None
    population: Annotated[int, _arg("Members of a search.")] = 16
    rounds: Annotated[
        int | None, _arg("Rounds of the run, at most; 20 if not given.")
    ] = None
    ready_updates: Annotated[
        int | None, _arg("In place of --rounds: updates between two exploits.")
    ] = None
    quantile: Annotated[float, _arg("Share replaced, and share copied.")] = 0.2
    factors: Annotated[tuple[float, ...], _arg("Of which one perturbs a value.")] = (
        0.8,
        1.25,
    )
    resample_probability: Annotated[float, _arg("Of a new draw instead.")] = 0.25
    fitness: Annotated[str, _arg(FITNESS_HELP)] = "final_return"
    searches: Annotated[
        int | None, _arg("Searches, independent of one another; 1 if not given.")
    ] = None
    first_seed: Annotated[int, _arg("Seed of the first one.")] = 0
    seeds: Annotated[int | None, _arg("The old name of --searches.")] = None
    out: Annotated[
        Path | None, _arg("Folder to write; runs/pbt-<env>-<time> if not given.")
    ] = None
    extend: Annotated[
        bool, _arg("Go on with the search in --out to more --total-timesteps.")
    ] = False
    lanes: Annotated[int | None, _arg("Members per block of the compiled call.")] = None
    segment_updates: Annotated[int | None, _arg("Updates per compiled call.")] = None
    checkpoint_seconds: Annotated[float, _arg("Least time between saves.")] = 30.0
    track: Annotated[
        tyro.conf.UseAppendAction[tuple[str, ...]],
        _arg("Tell a tracker every milestone: mlflow, tensorboard or wandb."),
    ] = ()
    dry_run: Annotated[bool, _arg("Say what it would cost here, and stop.")] = False
    progress: Annotated[bool, _arg("Show the progress bar.")] = True


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    base = base_config(argv)
    parsed = flags.parse(flags.parser_class(base, PBT), argv, "pbt")
    fitness = check_fitness(parsed.fitness, KINDS)
    searches = read_searches(parsed.searches, parsed.seeds, "--")
    settings.enable_compile_cache()
    config = flags.read_config(parsed, base)
    if parsed.dry_run:
        folders.check_out(parsed.out, "pbt")
        agents = parsed.population * len(check_seeds(searches, "--searches"))
        space = Space(config, read_axes(parsed.axis))
        parts = [dry_run.whole_runs(space.bound, agents)]
        dry_run.show(parts, parsed.lanes, parsed.segment_updates)
        return 0
    result = pbt(
        config,
        read_axes(parsed.axis),
        population=parsed.population,
        num_rounds=parsed.rounds,
        ready_updates=parsed.ready_updates,
        quantile=parsed.quantile,
        factors=parsed.factors,
        resample_probability=parsed.resample_probability,
        fitness=fitness,
        searches=seeds_from(parsed.first_seed, searches, "searches"),
        out=parsed.out or default_folder(f"pbt-{config.env}"),
        extend=parsed.extend,
        lanes=parsed.lanes,
        segment_updates=parsed.segment_updates,
        checkpoint_seconds=parsed.checkpoint_seconds,
        trackers=list(parsed.track) or None,
        progress=parsed.progress,
    )
    if not result.finished:
        return 130
    show(result)
    return 0


def show(result: PBTResult) -> None:
    """Print the best member of each search, and how the best of all came about."""
    console = Console()
    console.print(best_table(result))
    best = result.best()
    console.print(schedule_table(best.schedule.merged(), best.seed, best.member))
    write_summary(result, console)


def best_table(result: Result) -> Table:
    """Return a row per search: its best member's score and final hyperparameters."""
    table = Table(title="best member of each search")
    for header in ("seed", "member", "score"):
        table.add_column(header, justify="right")
    table.add_column("hyperparameters at the end")
    for seed in result.seeds:
        try:
            best = result.best(seed)
        except ConfigError:
            table.add_row(str(seed), "-", "-", "all of its members diverged")
            continue
        cells = (str(seed), str(best.member), f"{best.score:,.{decimals(best.score)}f}")
        table.add_row(*cells, in_a_line(best.point))
    return table


def schedule_table(schedule: Schedule, seed: int, member: int) -> Table:
    """Return a table with a row per piece of a schedule.

    Args:
        schedule: The schedule.
        seed: The seed of the search that found it.
        member: The number of the member that ended with it.
    """
    table = Table(title=f"schedule of member {member} of search {seed}")
    table.add_column("from update", justify="right")
    table.add_column("hyperparameters")
    for first, values in zip(schedule.first_updates, schedule.values, strict=True):
        table.add_row(f"{first:,}", in_a_line(values))
    return table


def write_summary(result: Result, console: Console) -> None:
    """Write summary.json beside the records, and say where everything is."""
    if result.out is None:
        return
    best = result.best()
    numbers = result.summary | {
        "best_score": best.score,
        "best_seed": best.seed,
        "best_member": best.member,
        "best": {n: serialise.plain(v, n) for n, v in best.point.items()},
    }
    text = json.dumps(numbers, indent=2)
    serialise.write_atomic(result.out / "summary.json", text)
    serialise.to_yaml(best.config, result.out / "best.yaml")
    console.print(
        f"{result.training_steps:,} steps of training, {result.evaluation_steps:,} of "
        f"evaluation; written to {result.out}/ "
        f"(purerl.load_search({str(result.out)!r}); the best config is in best.yaml)",
        highlight=False,
        soft_wrap=True,
    )
