"""The commands of the tools: sweep, pbt, halving, tune, compare, transfer.

The flags of such a command are the options of its tool, and the fields of the config.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from purerl.cli import flags, report, settings
from purerl.cli.flags import ConfigSource, Processes
from purerl.cli.train import base_config, default_folder
from purerl.comparison.api import CompareOptions, check_out, compare, planned
from purerl.comparison.result import Comparison
from purerl.comparison.settings import read_environment, take_environments
from purerl.config import ConfigError, TrainConfig
from purerl.execution import dry_run
from purerl.execution.format import program, quoted
from purerl.execution.memory import worker_limit
from purerl.metrics import decimals
from purerl.population import halving as halvings
from purerl.population import pbt as populations
from purerl.population.result import Result
from purerl.population.schedules import Schedule
from purerl.runner.arguments import check_seeds
from purerl.scale import hosts
from purerl.scale.devices import make_workers
from purerl.space.labels import in_a_line
from purerl.storage import folders
from purerl.sweeps.console import plan_lines, plan_table
from purerl.sweeps.loop import sweep
from purerl.sweeps.options import SweepOptions
from purerl.sweeps.plan import plan
from purerl.sweeps.result import SweepResult
from purerl.train import bind
from purerl.tuning.api import tune
from purerl.tuning.console import best_table, end_line, holdout_table, warnings
from purerl.tuning.options import TuneOptions
from purerl.tuning.result import TuneResult
from purerl.tuning.space import Space

WIDTH = 130  # The width of a comparison's table where the output is no terminal.
STOPPED = 130


@dataclasses.dataclass(kw_only=True)
class Dry:
    """The flag of commands that can say what they would cost."""

    dry_run: flags.DryRun = False


class Tool(NamedTuple):
    """A tool as a command.

    Attributes:
        options: The dataclass of the tool's options.
        call: The function of the tool.
        doc: What the command does.
        plan: Prints what the tool would cost with some options.
        show: Prints a result, and writes its page.
    """

    options: type
    call: Callable[..., Any]
    doc: str
    plan: Callable[[Any], None]
    show: Callable[[Any], None]


def main(tool: Tool, argv: Sequence[str]) -> int:
    """Run the command of a tool; return the exit status."""
    base, name = base_config(argv), tool.options.tool
    shared = [Dry, ConfigSource]
    if tool.options is SweepOptions:
        shared.append(Processes)
    parser = flags.parser_class(base, tool.options, *shared, doc=tool.doc)
    parsed = flags.parse(parser, argv, name)
    settings.enable_compile_cache()
    if hasattr(parsed, "coordinator"):
        hosts.join(parsed.coordinator, parsed.num_processes, parsed.process)
    config = flags.read_config(parsed, base)
    given = {"config": config, **flags.read_options(tool.options, parsed)}
    if given.get("extend") and parsed.out is None:
        raise ConfigError("--extend goes on with what a folder holds: give its --out.")
    if parsed.dry_run:
        folders.check_out(parsed.out, name)
        tool.plan(tool.options(**given))
        return 0
    result = tool.call(**{**given, "out": parsed.out or _folder(name, config)})
    if hosts.index() > 0:
        return 0
    if result.finished or tool.options in (SweepOptions, TuneOptions):
        tool.show(result)
    return 0 if result.finished else STOPPED


def _folder(name: str, config: TrainConfig) -> Path:
    """A new folder for what the command trains."""
    if hosts.count() > 1:
        raise ConfigError(
            "several processes need a folder that all of them name alike; give --out."
        )
    return default_folder(f"{name}-{config.env}")


def say(console: Console, text: str) -> None:
    """Print a text as it is, its lines as long as they are."""
    console.print(text, highlight=False, soft_wrap=True, markup=False)


# --- sweep ---


def main_sweep(argv: Sequence[str]) -> int:
    """Run `purerl sweep`; return the exit status."""
    doc = (
        "Train every point of some axes with every seed, in as few programs as "
        "possible.\n\nRun the same command with --out FOLDER after a kill: it trains "
        "what is missing."
    )
    return main(Tool(SweepOptions, sweep, doc, show_plan, show_sweep), argv)


def show_plan(asked: SweepOptions) -> None:
    """Print the plan of a sweep with a folder, which is not made."""
    given = asked.of(SweepOptions) | {"out": asked.out or Path("runs"), "extend": False}
    planned = plan(asked.config, **given)
    console = Console()
    console.print(plan_table(planned))
    console.print(plan_lines(planned), highlight=False)


def show_sweep(result: SweepResult) -> None:
    """Print the best points; write report.html into the folder."""
    from purerl.report.sweep_data import by_environment, read_scores
    from purerl.report.tables import best_table

    console = Console()
    if not result.names or not np.isfinite(result.scores()).any():
        console.print("no member has a score yet")
        return
    for name, part in by_environment(result.dataset).items():
        if read_scores(part).has_any:
            console.print(best_table(part))
        else:
            console.print(f"{name}: no member has a score yet")
    if result.out is not None:
        report.write(result.out)
        say(
            console,
            f"written to {result.out}/, with report.html; in Python "
            f"purerl.load_sweep({str(result.out)!r})",
        )


# --- population-based training, halving ---


def main_pbt(argv: Sequence[str]) -> int:
    """Run `purerl pbt`; return the exit status."""
    doc = (
        "Train a population whose worst members copy and perturb the best.\n\nWith "
        "--out, the same command after a kill goes on, and ends with the same result."
    )
    options, call = populations.PBTOptions, populations.pbt
    return main(Tool(options, call, doc, _plan_pbt, show_pbt), argv)


def _plan_pbt(asked: populations.PBTOptions) -> None:
    search = populations.make_search(asked)
    part = dry_run.whole_runs(search.space.bound, len(search.everyone))
    dry_run.show([part], asked.lanes, asked.segment_updates)


def show_pbt(result: populations.PBTResult) -> None:
    """Print the best member of each search, and how the best of all came about."""
    console = Console()
    console.print(best_members(result))
    best = result.best()
    console.print(schedule_table(best.schedule.merged(), best.seed, best.member))
    _say_where(result, console)


def main_halving(argv: Sequence[str]) -> int:
    """Run `purerl halving`; return the exit status."""
    doc = (
        "Train many random points, and drop all but the best at every rung.\n\nWith "
        "--out, the same command after a kill goes on, and ends with the same result."
    )
    options, call = halvings.HalvingOptions, halvings.halving
    return main(Tool(options, call, doc, _plan_halving, show_halving), argv)


def _plan_halving(asked: halvings.HalvingOptions) -> None:
    """Print the cost of the agents that start, and of the steps of all that go on."""
    made = halvings.make_search(asked)
    steps = sum(made.search.steps)
    part = dry_run.Part(made.space.bound, len(made.search_of), steps)
    dry_run.show([part], asked.lanes, asked.segment_updates)


def show_halving(result: halvings.HalvingResult) -> None:
    """Print how many went on at each rung, and the best member of each search."""
    console = Console()
    console.print(rungs_table(result))
    console.print(best_members(result))
    _say_where(result, console)


def rungs_table(result: halvings.HalvingResult) -> Table:
    """Return a row per bracket: members that were trained up to each rung."""
    from purerl.report.tables import rung_rows

    headings, rows = rung_rows(result.dataset)
    table = Table(title="members of all searches trained up to each rung")
    for heading in headings:
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*map(str, row))
    return table


def best_members(result: Result) -> Table:
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
    """Return a table with a row per piece of a schedule."""
    table = Table(title=f"schedule of member {member} of search {seed}")
    table.add_column("from update", justify="right")
    table.add_column("hyperparameters")
    for first, values in zip(schedule.first_updates, schedule.values, strict=True):
        table.add_row(f"{first:,}", in_a_line(values))
    return table


def _say_where(result: Result, console: Console) -> None:
    if result.out is not None:
        say(
            console,
            f"{result.training_steps:,} steps of training, "
            f"{result.evaluation_steps:,} of evaluation; written to {result.out}/ "
            f"(purerl.load_search({str(result.out)!r}); the best config is in "
            "best.yaml)",
        )


# --- tune ---


def main_tune(argv: Sequence[str]) -> int:
    """Run `purerl tune`; return the exit status."""
    doc = (
        "Search for a better config: trials in batches, each one vmapped call.\n\nWith "
        "--out the same command goes on after a kill, or with more trials. Run several "
        "times at once, with one --out or one --storage, it shares the trials."
    )
    return main(Tool(TuneOptions, tune, doc, _plan_study, show_study), argv)


def _plan_study(asked: TuneOptions) -> None:
    """Print the cost of a batch's agents, of all trials and of the comparison."""
    Space(asked.config, asked.axes).check_effects()
    seeds = len(check_seeds(asked.seeds))
    agents = asked.trials * seeds + 2 * asked.holdout_seeds
    study = dry_run.whole_runs(bind(asked.config), agents)
    part = study._replace(agents=min(agents, asked.batch * seeds))
    note = "; trials that are pruned take less, and other settings other times"
    dry_run.show([part], asked.lanes, note=note)


def show_study(result: TuneResult) -> None:
    """Print the best trials, the comparison with the default; write the page."""
    console = Console()
    if result.best_row is not None:
        console.print(best_table(result))
    if result.holdout is not None:
        console.print(holdout_table(result.holdout))
    for sentence in warnings(result):
        console.print(f"warning: {sentence}", markup=False, highlight=False)
    console.print(end_line(result), highlight=False)
    if not result.finished:
        where = f"--out {quoted(result.out)}"
        say(console, f"stopped; the same command with {where} goes on")
    if result.out is not None:
        report.write(result.out)
        best = quoted(result.out / "best.yaml")
        use = f" ({program()} train --config {best})" if result.best_config else ""
        say(console, f"written to {result.out}/, with report.html{use}")


# --- compare ---


def main_compare(argv: Sequence[str]) -> int:
    """Run `purerl compare`; return the exit status."""
    doc = (
        "Train with several settings on held-out seeds, and compare them in one table."
        "\n\n--setting and --env may be given several times: every setting trains in "
        "every environment. Run the same command again after a kill: it trains what is "
        "missing."
    )
    parsed, given = read_comparison(argv, base_config, CompareOptions, doc=doc)
    if not given["settings"]:
        raise ConfigError(
            "say what to compare, such as --setting 'own:' --setting "
            "'fast: learning_rate=1e-3'."
        )
    folder = (
        None if parsed.dry_run else parsed.out or _folder("compare", given["config"])
    )
    return run_comparison(parsed, given, folder)


def read_comparison(
    argv: Sequence[str],
    base_of: Callable[[Sequence[str]], TrainConfig],
    *options: type,
    doc: str = "",
) -> tuple[Any, dict[str, Any]]:
    """Read the words of a command that compares.

    Returns:
        The values of the flags, and the options of the tool by name.
    """
    words, texts = take_environments(argv)
    base, tool = base_of(words), options[-1]
    parser = flags.parser_class(base, *options, Dry, ConfigSource, doc=doc)
    name = "compare" if len(options) == 1 else "transfer"
    parsed = flags.parse(parser, words, name)
    config = flags.read_config(parsed, base)
    environments = [read_environment(config, text) for text in texts]
    if environments:
        config = config.replace(env=environments[0]["env"])
    settings.enable_compile_cache()
    given = flags.read_options(tool, parsed)
    return parsed, {**given, "config": config, "environments": environments}


def run_comparison(parsed: Any, given: Mapping[str, Any], folder: Path | None) -> int:
    """Compare, print the table and write the page; or print what it would cost.

    Args:
        parsed: The values of the flags.
        given: The options of `purerl.compare`, by name.
        folder: The folder to write; None for a dry run.
    """
    if folder is None:
        check_out(parsed.out)
        worker_limit(given["memory_limit"], make_workers())
        asked = CompareOptions(**given)
        seeds = len(check_seeds(asked.seeds))
        parts = [
            dry_run.whole_runs(part.group.bound, part.agents(seeds))
            for part in planned(asked)
        ]
        dry_run.show(parts, asked.lanes, asked.segment_updates)
        return 0
    show_comparison(compare(**{**given, "out": folder}), folder)
    return 0


def show_comparison(result: Comparison, folder: Path) -> None:
    """Print the table and where everything is; write the page into the folder."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=max(console.width, WIDTH))
    console.print(result.table())
    report.write(folder, kind=folders.COMPARISON)
    say(
        console,
        f"written to {folder}/, with report.html; in Python "
        f"purerl.load_comparison({str(folder)!r})",
    )
