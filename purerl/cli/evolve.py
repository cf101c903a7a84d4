"""`purerl evolve`: evolve a loss, an optimiser, hyperparameters or physics."""

import dataclasses
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import yaml
from rich.console import Console
from rich.table import Table

from purerl import presets
from purerl.cli import absent, flags, report, settings
from purerl.cli.flags import (
    Algorithm,
    CheckpointSeconds,
    ConfigFile,
    DryRun,
    Lanes,
    MemoryLimit,
    Processes,
    Progress,
    SegmentUpdates,
    Tracking,
    option,
    read_trackers,
)
from purerl.cli.train import base_config, default_folder
from purerl.config import ConfigError, TrainConfig
from purerl.contrib.hardware.device import Device
from purerl.execution.format import format_count, program, quoted, with_noun
from purerl.execution.memory import worker_limit
from purerl.meta import fitness as fitness_of
from purerl.meta import presets as evolutions
from purerl.meta import store
from purerl.meta.evolve import check_snapshots, evolve
from purerl.meta.result import EvolutionResult
from purerl.meta.setup import EvolutionSettings, check_whole_runs, make_setup
from purerl.meta.strategy import PRESETS, read_strategy
from purerl.meta.training import Estimate, estimate
from purerl.runner import manifest
from purerl.runner.arguments import check_seconds
from purerl.scale import hosts
from purerl.scale.devices import as_count, make_workers, required
from purerl.storage import folders


@dataclasses.dataclass(kw_only=True)
class Evolve:
    """Evolve leaves of a config so that what is trained with them is worth most.

    Run the same command again after a kill, or --resume its folder: it goes on.
    """

    evolve: Annotated[
        str,
        option(
            "Fields to evolve, with commas between their names: value_loss; "
            "policy_loss; optimiser.params; learning_rate,entropy_coef; "
            "env_params.length."
        ),
    ] = ""
    strategy: Annotated[
        str,
        option(
            f"Evolution strategy: {', '.join(PRESETS)}, cma-es, sep-cma-es, snes, "
            "pgpe, simple-ga, or another one of evosax; options follow its name in "
            "brackets: open-es(sigma=0.05)."
        ),
    ] = "open-es"
    population: Annotated[int, option("Number of members of a generation.")] = 64
    generations: Annotated[int, option("Number of generations in all.")] = 100
    rollouts: Annotated[int, option("Number of training runs of a member.")] = 1
    fitness: Annotated[
        str,
        option(f"Score of a training run, one of {', '.join(fitness_of.KINDS)}."),
    ] = "training_curve"
    environments: Annotated[
        tuple[str, ...],
        option("Environments to train in; the config's own if not given."),
    ] = ()
    baselines: Annotated[
        tuple[float, ...],
        option("Return of each environment that counts as 1; measured if not given."),
    ] = ()
    seed: Annotated[int, option("Seed of everything that is random.")] = 0
    truncation: Annotated[
        int | None,
        option(
            "Updates of a run in a generation, for persistent-es and noise-reuse-es."
        ),
    ] = None
    algorithm: Algorithm = "ppo"
    preset: Annotated[
        str | None,
        option(
            f"Preset of an evolution: {', '.join(evolutions.names())}; or of the "
            "config alone, which the flags change: "
            f"{', '.join(presets.names())}."
        ),
    ] = None
    config: ConfigFile = None
    out: Annotated[
        Path | None, option("Folder to write; runs/evolve-<env>-<time> if not given.")
    ] = None
    resume: Annotated[Path | None, option("Folder of an evolution to go on with.")] = (
        None
    )
    dry_run: DryRun = False
    lanes: Lanes = None
    segment_updates: SegmentUpdates = None
    chunk_blocks: Annotated[int | None, option("Number of blocks a worker holds.")] = (
        None
    )
    memory_limit: MemoryLimit = None
    checkpoint_seconds: CheckpointSeconds = 30.0
    snapshot_every: Annotated[
        int | None, option("Generations between two snapshots; 16 if not given.")
    ] = None
    progress: Progress = True


SHARED = (Tracking, Processes, absent.Absent)

# With --resume these may be given; all else is the evolution's own.
_RESUME = (
    "resume",
    "generations",
    "chunk-blocks",
    "memory-limit",
    "checkpoint-seconds",
    "snapshot-every",
    "coordinator",
    "num-processes",
    "process",
    "track",
    "tracking-uri",
    "progress",
    "dry-run",
    "device",
    "compile",
)


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    base, defaults = _start(argv)
    parsed = flags.parse(
        flags.parser_class(base, _with_defaults(defaults), *SHARED),
        argv,
        "evolve",
    )
    device = absent.device_of(parsed)
    settings.enable_compile_cache()
    hosts.join(parsed.coordinator, parsed.num_processes, parsed.process)
    if parsed.resume:
        config, what, run = _resumed(parsed, argv)
    else:
        config, what = flags.read_config(parsed, base), _asked(parsed)
        run = {
            name: getattr(parsed, name)
            for name in ("lanes", "segment_updates", "generations")
        }
    trackers = read_trackers(parsed)
    check_seconds("checkpoint_seconds", parsed.checkpoint_seconds)
    if parsed.dry_run:
        folders.check_out(parsed.resume or parsed.out, "evolution")
        _show_estimate(config, what, run, parsed, device)
        return 0
    result = evolve(
        config,
        out=parsed.resume or _folder(parsed.out, str(config.env)),
        chunk_blocks=parsed.chunk_blocks,
        memory_limit=parsed.memory_limit,
        checkpoint_seconds=parsed.checkpoint_seconds,
        snapshot_every=parsed.snapshot_every,
        trackers=trackers,
        progress=parsed.progress,
        **what,
        **run,
    )
    if hosts.index() == 0 and result.done:
        show(result)
    return 0 if result.done >= run["generations"] else 130


def _start(argv: Sequence[str]) -> tuple[TrainConfig, dict[str, Any]]:
    """The config and the options that the flags start from."""
    name = flags.option_before_parsing(argv, "preset")
    resume = flags.option_before_parsing(argv, "resume")
    if resume:
        return manifest.read_config(Path(resume), store.load(Path(resume))), {}
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
            raise ConfigError(
                f"--preset {name} is a whole evolution; leave --{other} out."
            )
    values = evolutions.load(name)
    config = values.pop("config")
    return config, values


def _with_defaults(defaults: dict[str, Any]) -> type:
    """The options, with a preset's values as their defaults."""
    fields = []
    for field in dataclasses.fields(Evolve):
        value = defaults.get(field.name, field.default)
        if field.name == "strategy" and not isinstance(value, str):
            value = _strategy_text(value)
        fields.append((field.name, field.type, dataclasses.field(default=value)))
    namespace = {"__doc__": Evolve.__doc__}
    return dataclasses.make_dataclass(
        "Evolve", fields, namespace=namespace, kw_only=True
    )


def _strategy_text(values: dict[str, Any]) -> str:
    inner = ", ".join(f"{k}={v!r}" for k, v in values.items() if k != "name")
    return f"{values.get('name', 'open-es')}({inner})"


def _asked(parsed: Any) -> dict[str, Any]:
    if not parsed.evolve:
        raise ConfigError(
            "say what to evolve, such as --evolve value_loss, or take a preset: "
            f"{', '.join(evolutions.names())}."
        )
    return {
        "evolve": parsed.evolve,
        "strategy": read_strategy(parsed.strategy),
        "population": parsed.population,
        "rollouts": parsed.rollouts,
        "fitness": parsed.fitness,
        "environments": parsed.environments,
        "baselines": parsed.baselines or None,
        "seed": parsed.seed,
        "truncation": parsed.truncation,
    }


def _resumed(parsed: Any, argv: Sequence[str]) -> tuple[Any, dict, dict]:
    """Config, settings and the rest of a folder's evolution."""
    for word in argv:
        name = word.partition("=")[0].replace("_", "-").removeprefix("--")
        if word.startswith("--") and name.removeprefix("no-") not in _RESUME:
            raise ConfigError(
                f"--{name} cannot be given with --resume: an evolution goes on as it "
                "was started. Leave it out, or start another."
            )
    stored = store.load(parsed.resume)
    config = manifest.read_config(parsed.resume, stored)
    more = any(word.startswith("--generations") for word in argv)
    run = {
        "lanes": stored["lanes_asked"],
        "segment_updates": stored["segment_updates"],
        "generations": parsed.generations if more else stored["generations"],
    }
    return config, stored["settings"], run


def _folder(out: Path | None, env: str) -> Path:
    if out is None and hosts.count() > 1:
        raise ConfigError(
            "several processes need a folder that all of them name alike; give --out."
        )
    return out or default_folder(f"evolve-{env}")


def _show_estimate(
    config: TrainConfig, what: dict, run: dict, parsed: Any, device: Device | None
) -> None:
    as_count("segment_updates", run["segment_updates"])
    as_count("chunk_blocks", parsed.chunk_blocks)
    check_snapshots(parsed.snapshot_every)
    setup = make_setup(config, EvolutionSettings(**what))
    if parsed.resume is None:
        setup.optimiser.check_fields()
    generations = required("generations", run["generations"])
    check_whole_runs(setup, generations, run["segment_updates"])
    if device is not None:
        agents = setup.population * setup.rollouts
        absent.show(device, setup.bounds, agents, parsed, generations)
        return
    workers = make_workers()
    limit = worker_limit(parsed.memory_limit, workers)
    cost = estimate(setup, generations, workers, limit, run["lanes"])
    console = Console()
    console.print(estimate_table(cost, setup.settings))


def estimate_table(cost: Estimate, what: dict[str, Any]) -> Table:
    """Return the cost of an evolution as a table."""
    table, hours = Table(show_header=False, box=None), cost.hours
    strategy = {
        name: value
        for name, value in what["strategy"].items()
        if name != "options" and value is not None
    }
    rows = {
        "evolve": (
            f"{with_noun(cost.numbers, 'number')} of {', '.join(what['evolve'])}"
        ),
        "strategy": yaml.safe_dump(strategy, default_flow_style=True, width=72).strip(),
        "population": (
            f"{what['population']:,} x {with_noun(what['rollouts'], 'rollout')}"
        ),
        "generations": f"{cost.generations:,}",
        "agents": f"{cost.agents:,}",
        "environment steps": format_count(cost.env_steps),
        "measured here": f"{format_count(cost.steps_per_second)} steps/s "
        f"({with_noun(cost.lanes, 'lane')})",
        "estimated hours": f"{hours:,.0f}" if hours >= 10 else f"{hours:.2g}",
    }
    for name, text in rows.items():
        table.add_row(name, text)
    return table


def show(result: EvolutionResult) -> None:
    """Print what came out; write pictures and the page into the folder."""
    from purerl.report import plots
    from purerl.report.page_comparison import train_command

    say = partial(Console().print, highlight=False, soft_wrap=True)
    history, numbers, folder = result.history, result.summary, result.out
    say(
        f"generation {result.done:,}/{result.generations:,}: mean "
        f"{history['mean'][-1]:.4g}, best {history['best'][-1]:.4g}; best of all "
        f"{result.best_fitness:.4g} in generation {result.best_generation + 1:,}; "
        f"{with_noun(int(history['failed'].sum()), 'member')} failed"
    )
    say(
        f"compile {numbers['compile_seconds']:.1f} s; in all {numbers['agents']:,} "
        f"agents in {numbers['train_seconds']:.1f} s "
        f"({numbers['agents_per_second']:.3g} agents/s, "
        f"{format_count(numbers['steps_per_second'])} steps/s)"
    )
    if folder is None:
        return
    plots.save(result.plot(), folder / "evolution.png")
    for name, figure in result.pictures().items():
        plots.save(figure, folder / f"{name}.png")
    learned = result.learned
    for name in (*result.losses(learned), *result.optimisers(learned), "rule"):
        file = folder / f"{name}.npz"
        verb = "learn" if name == "rule" else "train"
        if name != "rule" or file.exists():
            say(f"{verb} with it: {train_command(learned, name, file)}")
    whole = folder / "learned.yaml"
    if whole.exists():
        say(
            "train with all that was learned: "
            f"{program()} train --config {quoted(whole)}"
        )
    report.write(folder)
    say(
        f"written to {folder}/, with report.html; in Python "
        f"purerl.load_evolution({str(folder)!r})"
    )
