"""The commands of the tools: sweep, pbt, halving, tune, compare, evolve.

The flags of such a command are the options of its tool, and the fields of the config.
"""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import purerl
from purerl import presets, serialise
from purerl.cli import flags, results, settings
from purerl.cli.train import Absent, base_config, default_folder, plan_of
from purerl.comparison.api import planned
from purerl.config import ConfigError, TrainConfig
from purerl.execution.dry_run import Part, whole_runs
from purerl.execution.format import format_count, program, quoted, with_noun
from purerl.execution.memory import worker_limit
from purerl.meta import presets as evolutions
from purerl.meta import training as evolved
from purerl.meta.setup import make_setup
from purerl.population import halving as halvings
from purerl.population import pbt as populations
from purerl.report import plots, sweep_data, tables
from purerl.report.page import train_command
from purerl.runner.arguments import check_seeds
from purerl.runner.options import option
from purerl.scale import hosts
from purerl.scale.devices import make_workers
from purerl.storage import folders
from purerl.sweeps import loop as sweeps
from purerl.sweeps import plan as plans
from purerl.train import bind
from purerl.tuning import api as tuning
from purerl.tuning.space import Space

WIDTH = 130  # The width of tables where the output is no terminal.
STOPPED = 130
# Kinds of folders that are not called as their tool is.
KINDS = {"compare": folders.COMPARISON, "evolve": "evolution"}
GOES_ON = "Run the same command with --out FOLDER after a kill: it goes on."
Planned = tuple[list[Part], str]
Shown = tuple[list[Table], list[str]]
Start = Callable[[Sequence[str]], tuple[TrainConfig, dict[str, Any]]]


@dataclasses.dataclass(frozen=True)
class Tool:
    """A tool as a command.

    Attributes:
        call: The function of the tool.
        plan: Returns the agents that the tool would train with some options, and a note
            on what their cost leaves out.
        show: Returns what is printed of a result, also of one that was stopped: tables,
            and sentences after them.
        shared: Further dataclasses of flags.
        start: Returns the config and the options whose values are the flags' defaults.
    """

    call: Any
    plan: Callable[[Any], Planned]
    show: Callable[[Any], Shown]
    shared: tuple[type, ...] = ()
    start: Start = lambda argv: (base_config(argv), {})

    def __call__(self, argv: Sequence[str]) -> int:
        """Run the command; return the exit status."""
        base, defaults = self.start(argv)
        options, about = self.call.options, self.call.__doc__.partition("\n\n")[0]
        classes = (*self.shared, flags.Dry, flags.ConfigSource)
        words: Any = {"doc": f"{about}\n\n{GOES_ON}", "defaults": defaults}
        parser = flags.parser_class(base, options, *classes, **words)
        parsed = flags.parse(parser, argv, options.tool)
        show_plan = plan_of(parsed)
        settings.enable_compile_cache()
        if hasattr(parsed, "coordinator"):
            hosts.join(parsed.coordinator, parsed.num_processes, parsed.process)
        config = flags.read_config(parsed, base)
        given = {"config": config, **flags.read_options(options, parsed)}
        if given.get("extend") and parsed.out is None:
            raise ConfigError("--extend goes on with what a folder holds: give --out.")
        if parsed.dry_run:
            kind: Any = KINDS.get(options.tool, options.tool)
            folders.check_out(parsed.out, kind)
            asked = options(**given)
            parts, note = self.plan(asked)
            if parts:
                show_plan(parts, asked, note)
            return 0
        if parsed.out is None and hosts.count() > 1:
            raise ConfigError("several processes need one folder; give --out.")
        env = serialise.env_name(config.env)
        given["out"] = parsed.out or default_folder(f"{options.tool}-{env}")
        result = self.call(**given)
        if hosts.index() > 0:
            return 0
        shown, sentences = self.show(result)
        console = Console()
        if not console.is_terminal:
            console = Console(width=max(console.width, WIDTH))
        console.print(*shown, sep="\n")
        results.end(result.out, *sentences)
        return 0 if result.finished else STOPPED


def _plan_sweep(asked: Any) -> Planned:
    """Print the plan of a sweep with a folder, which is not made."""
    given = asked.of(type(asked)) | {"out": asked.out or Path("runs"), "extend": False}
    planned = plans.plan(asked.config, **given)
    lines = sweeps.plan_lines(planned)
    Console().print(lines, highlight=False, markup=False, soft_wrap=True)
    return [], ""


def show_sweep(result: purerl.SweepResult) -> Shown:
    """Show the best points of each environment."""
    parts = sweep_data.by_environment(result.dataset) if result.names else {}
    known = [x for x in parts.values() if sweep_data.read_scores(x).has_any]
    return [tables.best_table(part) for part in known], []


def _plan_search(asked: Any) -> Planned:
    """The agents that start, and the steps of all that go on."""
    made = (populations if asked.tool == "pbt" else halvings).make_search(asked)
    steps = sum(made.search.steps)
    return [Part(made.space.bound, len(made.everyone), steps)], ""


def show_search(result: purerl.PBTResult | purerl.HalvingResult) -> Shown:
    """Show the best member of each search, and how it came about."""
    best, shown = result.best_of_each(), []
    if isinstance(result, purerl.HalvingResult):
        title = "members of all searches trained up to each rung"
        shown.append(tables.table(title, *tables.rung_rows(result.dataset)))
    lost = "; of the others all members diverged" * (len(best) < len(result.seeds))
    title = f"best member of each search{lost}"
    if best:
        shown.append(tables.table(title, *tables.member_rows(best)))
    if best and isinstance(result, purerl.PBTResult):
        first = result.best()
        title = f"schedule of member {first.member} of search {first.seed}"
        shown.append(tables.table(title, *tables.schedule_rows(first)))
    steps = f"{result.training_steps:,} steps of training, "
    steps += f"{result.evaluation_steps:,} of evaluation"
    return shown, [steps, *(["the best config is in best.yaml"] if best else [])]


def _plan_study(asked: Any) -> Planned:
    """A batch's agents, and the steps of all trials and of the comparison."""
    Space(asked.config, asked.axes).check_effects()
    seeds = len(check_seeds(asked.seeds))
    agents = asked.trials * seeds + 2 * asked.holdout_seeds
    study = whole_runs(bind(asked.config), agents)
    part = study._replace(agents=min(agents, asked.batch * seeds))
    return [part], "; trials that are pruned take less, and other settings other times"


def show_study(result: purerl.TuneResult) -> Shown:
    """Show the best trials, and the comparison with the default."""
    shown = []
    if result.best_row is not None:
        shown.append(tuning.best_table(result))
    if result.holdout is not None:
        shown.append(tuning.holdout_table(result.holdout))
    sentences = [f"warning: {sentence}" for sentence in tuning.warnings(result)]
    sentences.append(tuning.end_line(result))
    if not result.finished and result.out:
        folder = quoted(result.out)
        sentences.append(f"stopped; the same command with --out {folder} goes on")
    if result.best_config and result.out:
        best = quoted(result.out / "best.yaml")
        sentences.append(f"train with the best: {program()} train --config {best}")
    return shown, sentences


def _plan_comparison(asked: Any) -> Planned:
    """The agents of every program."""
    worker_limit(asked.memory_limit, make_workers())
    seeds, programs = len(check_seeds(asked.seeds)), planned(asked)
    return [whole_runs(part.bound, len(part.entries) * seeds) for part in programs], ""


def _plan_evolution(asked: Any) -> Planned:
    """The agents of a generation, and the steps of all generations."""
    setup = make_setup(asked)
    numbers = with_noun(setup.optimiser.genome.size, "number")
    note = f"; {with_noun(asked.generations, 'generation')}, for {numbers}"
    return evolved.planned(setup), note


def show_evolution(result: purerl.EvolutionResult) -> Shown:
    """Show what came out; write pictures into the folder."""
    numbers, folder, sentences = result.summary, result.out, list(result.view().facts)
    if not result.done or folder is None:
        return [], sentences
    sentences.append(
        f"compile {numbers['compile_seconds']:.1f} s; in all {numbers['agents']:,} "
        f"agents in {numbers['train_seconds']:.1f} s "
        f"({numbers['agents_per_second']:.3g} agents/s, "
        f"{format_count(numbers['steps_per_second'])} steps/s)"
    )
    for name, figure in {"evolution": result.plot(), **result.pictures()}.items():
        plots.save(figure, folder / f"{name}.png")
    learned, whole = result.learned, folder / "learned.yaml"
    parts = [*result.losses(learned), *result.optimisers(learned), "rule"]
    files = {name: folder / f"{name}.npz" for name in parts}
    commands = [train_command(learned, *x) for x in files.items() if x[1].exists()]
    if whole.exists():
        commands.append(f"{program()} train --config {quoted(whole)}")
    return [], sentences + [f"train with it: {command}" for command in commands]


@dataclasses.dataclass(kw_only=True)
class Evolution:
    """Presets are those of evolutions too."""

    preset: str | None = option(
        None,
        f"Preset of an evolution: {', '.join(evolutions.names())}; or of the config "
        f"alone, which the flags change: {', '.join(presets.names())}.",
    )


def _evolution(argv: Sequence[str]) -> tuple[TrainConfig, dict[str, Any]]:
    """The config and the options of a preset of an evolution, or a config alone."""
    name = flags.option_before_parsing(argv, "preset")
    if name not in evolutions.names():
        try:
            return base_config(argv), {}
        except ConfigError as error:
            if name is None or name in presets.names():
                raise
            known = f"Evolutions: {', '.join(evolutions.names())}."
            raise ConfigError(f"{error} {known}") from None
    for other in ("config", "algorithm"):
        if flags.option_before_parsing(argv, other):
            what = f"--preset {name} is a whole evolution"
            raise ConfigError(f"{what}; leave --{other} out.")
    values = evolutions.load(name)
    config, strategy = values.pop("config"), values.get("strategy", "")
    if not isinstance(strategy, str):
        inner = (f"{k}={v!r}" for k, v in strategy.items() if k != "name")
        values["strategy"] = f"{strategy.get('name', 'open-es')}({', '.join(inner)})"
    return config, values


main_sweep = Tool(purerl.sweep, _plan_sweep, show_sweep, (flags.Processes,))
main_pbt = Tool(purerl.pbt, _plan_search, show_search)
main_halving = Tool(purerl.halving, _plan_search, show_search)
main_tune = Tool(purerl.tune, _plan_study, show_study)
main_compare = Tool(
    purerl.compare, _plan_comparison, lambda result: ([result.table()], [])
)
main_evolve = Tool(
    purerl.evolve,
    _plan_evolution,
    show_evolution,
    (Evolution, flags.Processes, Absent),
    _evolution,
)
