"""`purerl halving`: successive halving and Hyperband; a folder of rungs, the best."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

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
from purerl.cli.pbt import best_table, say_where
from purerl.cli.sweep import search_axes
from purerl.cli.train import base_config, default_folder
from purerl.execution import dry_run
from purerl.population.halving import DEFAULT_ETA, HalvingOptions, halving, make_search
from purerl.population.halving_result import HalvingResult
from purerl.population.halving_search import HalvingSearch
from purerl.runner.arguments import check_seconds, seeds_from
from purerl.storage import folders


@dataclasses.dataclass(kw_only=True)
class Halving:
    """Train many random points, and drop all but the best at every rung.

    With --out, the same command after a kill goes on, and ends with the same result.
    """

    axis: SearchAxis = ()
    points: Annotated[
        int | None,
        option(
            "Number of points that start in the first bracket; eta^rungs if not given."
        ),
    ] = None
    eta: Annotated[int, option("Share 1/eta of a rung's best points that go on.")] = (
        DEFAULT_ETA
    )
    min_updates: Annotated[
        int | None,
        option(
            "Updates up to the first rung; about U/eta^3 of a run's U if not given."
        ),
    ] = None
    brackets: Annotated[
        Literal["hyperband", "one"],
        option("All brackets of Hyperband, or the one of successive halving."),
    ] = "hyperband"
    fitness: SearchFitness = "evaluation"
    searches: NumSearches = 1
    first_seed: FirstSeed = 0
    out: Annotated[
        Path | None, option("Folder to write; runs/halving-<env>-<time> if not given.")
    ] = None
    lanes: Lanes = None
    segment_updates: SegmentUpdates = None
    checkpoint_seconds: CheckpointSeconds = 30.0
    dry_run: DryRun = False
    progress: Progress = True


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    base = base_config(argv)
    parsed = flags.parse(
        flags.parser_class(base, Halving, ConfigSource, Tracking), argv, "halving"
    )
    settings.enable_compile_cache()
    config, axes = flags.read_config(parsed, base), search_axes(parsed.axis)
    asked = HalvingOptions(
        num_points=parsed.points,
        eta=parsed.eta,
        min_updates=parsed.min_updates,
        brackets=parsed.brackets,
        fitness=parsed.fitness,
        searches=seeds_from(parsed.first_seed, parsed.searches, "searches"),
        segment_updates=parsed.segment_updates,
    )
    trackers = read_trackers(parsed)
    check_seconds("checkpoint_seconds", parsed.checkpoint_seconds)
    if parsed.dry_run:
        folders.check_out(parsed.out, "halving")
        part = _cost(make_search(config, axes, asked, parsed.out))
        dry_run.show([part], parsed.lanes, parsed.segment_updates)
        return 0
    result = halving(
        config,
        axes,
        out=parsed.out or default_folder(f"halving-{config.env}"),
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


def _cost(made: HalvingSearch) -> dry_run.Part:
    """The agents that start, and the steps of all that go on."""
    return dry_run.Part(made.space.bound, len(made.search_of), sum(made.search().steps))


def show(result: HalvingResult) -> None:
    """Print how many went on at each rung, and the best member of each search."""
    console = Console()
    console.print(rungs_table(result))
    console.print(best_table(result))
    say_where(result, console)


def rungs_table(result: HalvingResult) -> Table:
    """Return a row per bracket: members that were trained up to each rung."""
    from purerl.report.tables import rung_rows

    headings, rows = rung_rows(result.dataset)
    table = Table(title="members of all searches trained up to each rung")
    for heading in headings:
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*map(str, row))
    return table
