"""The commands of the tools: sweep, pbt, halving, tune, compare.

The flags of such a command are the options of its tool, and the fields of the config.
"""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from purerl import serialise
from purerl.cli import flags, report, settings
from purerl.cli.train import base_config, default_folder
from purerl.comparison.api import CompareOptions, compare, planned
from purerl.comparison.result import Comparison
from purerl.config import ConfigError, TrainConfig
from purerl.execution import dry_run
from purerl.execution.format import program, quoted
from purerl.execution.memory import worker_limit
from purerl.population import halving as halvings
from purerl.population import pbt as populations
from purerl.population.search import Result
from purerl.report import sweep_data, tables
from purerl.runner.arguments import check_seeds
from purerl.scale import hosts
from purerl.scale.devices import make_workers
from purerl.storage import folders
from purerl.sweeps import loop as sweeps
from purerl.sweeps import plan as plans
from purerl.sweeps.plan import SweepOptions
from purerl.sweeps.result import SweepResult
from purerl.train import bind
from purerl.tuning import api as tuning
from purerl.tuning.options import TuneOptions
from purerl.tuning.result import TuneResult
from purerl.tuning.space import Space

WIDTH = 130  # The width of a comparison's table where the output is no terminal.
STOPPED = 130
# Kinds of folders that are not called as their tool is.
KINDS = {"compare": folders.COMPARISON}


@dataclasses.dataclass(frozen=True)
class Tool:
    """A tool as a command.

    Attributes:
        options: The dataclass of the tool's options.
        call: The function of the tool.
        plan: Prints what the tool would cost with some options.
        show: Prints a result, and writes its page.
        doc: What the command does.
        shared: Further dataclasses of flags.
    """

    options: type
    call: Callable[..., Any]
    plan: Callable[[Any], None]
    show: Callable[[Any], None]
    doc: str
    shared: tuple[type, ...] = ()

    def __call__(self, argv: Sequence[str]) -> int:
        """Run the command; return the exit status."""
        base = base_config(argv)
        name: str = self.options.tool
        shared = (flags.Dry, flags.ConfigSource, *self.shared)
        parser = flags.parser_class(base, self.options, *shared, doc=self.doc)
        parsed = flags.parse(parser, argv, name)
        settings.enable_compile_cache()
        if hasattr(parsed, "coordinator"):
            hosts.join(parsed.coordinator, parsed.num_processes, parsed.process)
        config = flags.read_config(parsed, base)
        given = {"config": config, **flags.read_options(self.options, parsed)}
        if given.get("extend") and parsed.out is None:
            raise ConfigError(
                "--extend goes on with what a folder holds: give its --out."
            )
        if parsed.dry_run:
            folders.check_out(parsed.out, KINDS.get(name, name))
            self.plan(self.options(**given))
            return 0
        given["out"] = parsed.out or new_folder(name, config)
        result = self.call(**given)
        if hosts.index() > 0:
            return 0
        if result.finished or self.options in (SweepOptions, TuneOptions):
            self.show(result)
        return 0 if result.finished else STOPPED


def new_folder(name: str, config: TrainConfig) -> Path:
    """Return a new folder for what a command trains.

    Raises:
        ConfigError: there are several processes, which would all make one.
    """
    if hosts.count() > 1:
        raise ConfigError(
            "several processes need a folder that all of them name alike; give --out."
        )
    return default_folder(f"{name}-{serialise.env_name(config.env)}")


# --- sweep ---


def show_plan(asked: SweepOptions) -> None:
    """Print the plan of a sweep with a folder, which is not made."""
    given = asked.of(SweepOptions) | {"out": asked.out or Path("runs"), "extend": False}
    planned = plans.plan(asked.config, **given)
    lines = sweeps.plan_lines(planned)
    Console().print(lines, highlight=False, markup=False, soft_wrap=True)


def show_sweep(result: SweepResult) -> None:
    """Print the best points; write report.html into the folder."""
    console = Console()
    if not result.names or not np.isfinite(result.scores()).any():
        console.print("no member has a score yet")
        return
    for name, part in sweep_data.by_environment(result.dataset).items():
        has_any = sweep_data.read_scores(part).has_any
        lacking = f"{name}: no member has a score yet"
        console.print(tables.best_table(part) if has_any else lacking)
    report.end(result.out)


SWEEP = Tool(
    SweepOptions,
    sweeps.sweep,
    show_plan,
    show_sweep,
    """Train every point of some axes with every seed, in as few programs as possible.

    Run the same command with --out FOLDER after a kill: it trains what is missing.
    """,
    (flags.Processes,),
)


# --- population-based training, halving ---


def _plan_pbt(asked: populations.PBTOptions) -> None:
    search = populations.make_search(asked)
    part = dry_run.whole_runs(search.space.bound, len(search.everyone))
    dry_run.show([part], asked.lanes, asked.segment_updates)


def show_pbt(result: populations.PBTResult) -> None:
    """Print the best member of each search, and how the best of all came about."""
    best = result.best()
    title = f"schedule of member {best.member} of search {best.seed}"
    _show_search(
        result, _best_members(result), _table(title, *tables.schedule_rows(best))
    )


def _show_search(result: Result, *shown: Table) -> None:
    for table in shown:
        Console().print(table)
    steps = f"{result.training_steps:,} steps of training, "
    steps += f"{result.evaluation_steps:,} of evaluation"
    report.end(result.out, steps, "the best config is in best.yaml")


PBT = Tool(
    populations.PBTOptions,
    populations.pbt,
    _plan_pbt,
    show_pbt,
    """Train a population whose worst members copy and perturb the best.

    With --out, the same command after a kill goes on, and ends with the same result.
    """,
)


def _plan_halving(asked: halvings.HalvingOptions) -> None:
    """Print the cost of the agents that start, and of the steps of all that go on."""
    made = halvings.make_search(asked)
    steps = sum(made.search.steps)
    part = dry_run.Part(made.space.bound, len(made.search_of), steps)
    dry_run.show([part], asked.lanes, asked.segment_updates)


def show_halving(result: halvings.HalvingResult) -> None:
    """Print how many went on at each rung, and the best member of each search."""
    title = "members of all searches trained up to each rung"
    rungs = _table(title, *tables.rung_rows(result.dataset))
    _show_search(result, rungs, _best_members(result))


HALVING = Tool(
    halvings.HalvingOptions,
    halvings.halving,
    _plan_halving,
    show_halving,
    """Train many random points, and drop all but the best at every rung.

    With --out, the same command after a kill goes on, and ends with the same result.
    """,
)


def _best_members(result: Result) -> Table:
    best = result.best_of_each()
    lost = "; of the others all members diverged" * (len(best) < len(result.seeds))
    return _table(f"best member of each search{lost}", *tables.member_rows(best))


def _table(title: str, headings: Sequence[str], rows: Sequence[Sequence]) -> Table:
    """Return a table whose numbers stand to the right."""
    table = Table(title=title)
    for name in headings:
        table.add_column(name, justify="right", overflow="fold")
    for row in rows:
        table.add_row(*map(str, row))
    return table


# --- tune ---


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
        console.print(tuning.best_table(result))
    if result.holdout is not None:
        console.print(tuning.holdout_table(result.holdout))
    for sentence in tuning.warnings(result):
        console.print(f"warning: {sentence}", markup=False, highlight=False)
    console.print(tuning.end_line(result), highlight=False)
    more = []
    if not result.finished and result.out:
        more.append(
            f"stopped; the same command with --out {quoted(result.out)} goes on"
        )
    if result.best_config and result.out:
        best = quoted(result.out / "best.yaml")
        more.append(f"train with the best: {program()} train --config {best}")
    report.end(result.out, *more)


TUNE = Tool(
    TuneOptions,
    tuning.tune,
    _plan_study,
    show_study,
    """Search for a better config: trials in batches, each one vmapped call.

    With --out the same command goes on after a kill, or with more trials. Run several
    times at once, with one --out or one --storage, it shares the trials.
    """,
)


# --- compare ---


def _plan_comparison(asked: CompareOptions) -> None:
    """Print the cost of every program."""
    worker_limit(asked.memory_limit, make_workers())
    seeds = len(check_seeds(asked.seeds))
    parts = [
        dry_run.whole_runs(part.bound, len(part.entries) * seeds)
        for part in planned(asked)
    ]
    dry_run.show(parts, asked.lanes, asked.segment_updates)


def show_comparison(result: Comparison) -> None:
    """Print the table and where everything is; write the page into the folder."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=max(console.width, WIDTH))
    console.print(result.table())
    report.end(result.out)


COMPARE = Tool(
    CompareOptions,
    compare,
    _plan_comparison,
    show_comparison,
    """Train with several settings on held-out seeds, and compare them in one table.

    --setting and --environment may be given several times: every setting trains in
    every environment. Run the same command again after a kill: it trains what is
    missing.
    """,
)
