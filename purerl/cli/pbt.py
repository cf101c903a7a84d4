"""`purerl pbt`: population-based training; a folder of rounds, the best schedule."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.table import Table

from purerl.cli import flags, settings
from purerl.cli.options import (
    CheckpointSeconds,
    ConfigSource,
    DryRun,
    FirstSeed,
    Lanes,
    NumSearches,
    Progress,
    SearchAxis,
    SearchFitness,
    SegmentUpdates,
    Tracking,
    option,
    read_trackers,
)
from purerl.cli.sweep import search_axes
from purerl.cli.train import base_config, default_folder
from purerl.config import ConfigError
from purerl.execution import dry_run
from purerl.metrics import decimals
from purerl.population.pbt import PBTOptions, make_search, pbt
from purerl.population.pbt_result import PBTResult
from purerl.population.result import Result
from purerl.population.schedule import Schedule
from purerl.runner.arguments import check_seconds, seeds_from
from purerl.space.labels import in_a_line
from purerl.storage import folders


@dataclasses.dataclass(kw_only=True)
class PBT:
    """Train a population whose worst members copy and perturb the best.

    With --out, the same command after a kill goes on, and ends with the same result.
    """

    axis: SearchAxis = ()
    population: Annotated[int, option("Number of members of a search.")] = 16
    rounds: Annotated[
        int | None, option("Most rounds that a run is cut into; 20 if not given.")
    ] = None
    ready_updates: Annotated[
        int | None, option("Updates of a round, in place of the number of rounds.")
    ] = None
    quantile: Annotated[
        float,
        option("Share of the members that are replaced, by copies of as many others."),
    ] = 0.2
    factors: Annotated[
        tuple[float, ...],
        option("Factors of which a random one perturbs a copied value."),
    ] = (0.8, 1.25)
    resample_probability: Annotated[
        float,
        option("Probability that a copied value is drawn anew and not perturbed."),
    ] = 0.25
    fitness: SearchFitness = "final_return"
    searches: NumSearches = 1
    first_seed: FirstSeed = 0
    out: Annotated[
        Path | None, option("Folder to write; runs/pbt-<env>-<time> if not given.")
    ] = None
    extend: Annotated[
        bool, option("Go on with a finished search in --out to more --total-timesteps.")
    ] = False
    lanes: Lanes = None
    segment_updates: SegmentUpdates = None
    checkpoint_seconds: CheckpointSeconds = 30.0
    dry_run: DryRun = False
    progress: Progress = True


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    base = base_config(argv)
    parsed = flags.parse(
        flags.parser_class(base, PBT, ConfigSource, Tracking), argv, "pbt"
    )
    settings.enable_compile_cache()
    config, axes = flags.read_config(parsed, base), search_axes(parsed.axis)
    asked = PBTOptions(
        population=parsed.population,
        num_rounds=parsed.rounds,
        ready_updates=parsed.ready_updates,
        quantile=parsed.quantile,
        factors=parsed.factors,
        resample_probability=parsed.resample_probability,
        fitness=parsed.fitness,
        searches=seeds_from(parsed.first_seed, parsed.searches, "searches"),
        extend=parsed.extend,
        segment_updates=parsed.segment_updates,
    )
    if parsed.extend and parsed.out is None:
        raise ConfigError("--extend goes on with what a folder holds: give its --out.")
    trackers = read_trackers(parsed)
    check_seconds("checkpoint_seconds", parsed.checkpoint_seconds)
    if parsed.dry_run:
        folders.check_out(parsed.out, "pbt")
        search = make_search(config, axes, asked, parsed.out)
        parts = [dry_run.whole_runs(search.space.bound, len(search.everyone))]
        dry_run.show(parts, parsed.lanes, parsed.segment_updates)
        return 0
    result = pbt(
        config,
        axes,
        out=parsed.out or default_folder(f"pbt-{config.env}"),
        lanes=parsed.lanes,
        checkpoint_seconds=parsed.checkpoint_seconds,
        trackers=trackers,
        progress=parsed.progress,
        **asked._asdict(),
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
    say_where(result, console)


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


def say_where(result: Result, console: Console) -> None:
    """Print how much was trained, and where everything is."""
    if result.out is None:
        return
    console.print(
        f"{result.training_steps:,} steps of training, {result.evaluation_steps:,} of "
        f"evaluation; written to {result.out}/ "
        f"(purerl.load_search({str(result.out)!r}); the best config is in best.yaml)",
        highlight=False,
        soft_wrap=True,
    )
