"""`purerl evolve`: evolve a loss, an optimiser, hyperparameters or physics."""

import dataclasses
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console

from purerl import presets
from purerl.cli import absent, flags, report, settings
from purerl.cli.flags import Algorithm, ConfigFile, Processes, option
from purerl.cli.tools import new_folder
from purerl.cli.train import base_config
from purerl.config import ConfigError, TrainConfig
from purerl.contrib.hardware.estimate import Device
from purerl.execution import dry_run
from purerl.execution.format import format_count, program, quoted, with_noun
from purerl.meta import presets as evolutions
from purerl.meta import store
from purerl.meta.evolve import evolve
from purerl.meta.result import EvolutionResult
from purerl.meta.setup import EvolveOptions, make_setup
from purerl.meta.training import planned
from purerl.runner import manifest
from purerl.scale import hosts
from purerl.storage import folders


@dataclasses.dataclass(kw_only=True)
class Source:
    """What the command starts from: a config, a preset, or a folder."""

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
    resume: Annotated[Path | None, option("Folder of an evolution to go on with.")] = (
        None
    )


DOC = """Evolve leaves of a config so that what is trained with them is worth most.

Run the same command again after a kill, or --resume its folder: it goes on.
"""
SHARED = (Source, flags.Dry, Processes, absent.Absent)

# With --resume these may be given; all else is the evolution's own.
_RESUME = (
    "resume",
    "generations",
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
)


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    base, defaults = _start(argv)
    parser = flags.parser_class(
        base, EvolveOptions, *SHARED, doc=DOC, defaults=defaults
    )
    parsed = flags.parse(parser, argv, "evolve")
    device = absent.device_of(parsed)
    settings.enable_compile_cache()
    hosts.join(parsed.coordinator, parsed.num_processes, parsed.process)
    given = flags.read_options(EvolveOptions, parsed)
    if parsed.resume:
        given |= _resumed(parsed, argv)
    elif not parsed.evolve:
        raise ConfigError(
            "say what to evolve, such as --evolve value_loss, or take a preset: "
            f"{', '.join(evolutions.names())}."
        )
    else:
        given["config"] = flags.read_config(parsed, base)
    if parsed.dry_run:
        folders.check_out(parsed.resume or parsed.out, "evolution")
        _show_estimate(EvolveOptions(**given), parsed, device)
        return 0
    given["out"] = given["out"] or new_folder("evolve", given["config"])
    result = evolve(**given)
    if hosts.index() == 0 and result.done:
        show(result)
    return 0 if result.done >= given["generations"] else 130


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
    config, strategy = values.pop("config"), values.get("strategy", "")
    if not isinstance(strategy, str):
        values["strategy"] = _strategy_text(strategy)
    return config, values


def _strategy_text(values: dict[str, Any]) -> str:
    inner = ", ".join(f"{k}={v!r}" for k, v in values.items() if k != "name")
    return f"{values.get('name', 'open-es')}({inner})"


def _resumed(parsed: Any, argv: Sequence[str]) -> dict[str, Any]:
    """Return the options of the evolution in the folder of `--resume`."""
    flags.check_resume(argv, _RESUME, "an evolution")
    stored = store.load(parsed.resume)
    more = any(word.startswith("--generations") for word in argv)
    return {
        **stored["settings"],
        "config": manifest.read_config(parsed.resume, stored),
        "out": parsed.resume,
        "lanes": stored["lanes_asked"],
        "segment_updates": stored["segment_updates"],
        "generations": parsed.generations if more else stored["generations"],
    }


def _show_estimate(asked: EvolveOptions, parsed: Any, device: Device | None) -> None:
    setup = make_setup(asked)
    if device is not None:
        bounds, agents = setup.bounds, setup.runs_each
        absent.show(device, bounds, agents, parsed, asked.generations)
        return
    numbers = with_noun(setup.optimiser.genome.size, "number")
    note = f"; {asked.generations:,} generations, for {numbers}"
    dry_run.show(planned(setup), asked.lanes, asked.segment_updates, note)


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
    files = {n: folder / f"{n}.npz" for n in result.losses(learned)}
    files |= {n: folder / f"{n}.npz" for n in result.optimisers(learned)}
    commands = [train_command(learned, name, file) for name, file in files.items()]
    if (folder / "rule.npz").exists():
        commands.append(train_command(learned, "rule", folder / "rule.npz"))
    whole = folder / "learned.yaml"
    if whole.exists():
        commands.append(f"{program()} train --config {quoted(whole)}")
    report.end(folder, *(f"train with it: {command}" for command in commands))
