"""`purerl train`: agents, progress, a table, a picture, a folder."""

import re
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from purerl import presets, serialise
from purerl.algorithms import config_class, name_of
from purerl.cli import absent, flags, settings
from purerl.cli.flags import ConfigSource
from purerl.config import ConfigError, TrainConfig
from purerl.contrib.hardware.estimate import Device
from purerl.execution import dry_run
from purerl.execution.format import program, quoted
from purerl.execution.memory import require_listing
from purerl.runner import manifest
from purerl.runner.arguments import check_seeds, num_seeds
from purerl.runner.result import RunResult, summary
from purerl.runner.run import RunOptions, run
from purerl.runner.start import (
    Start,
    read_start,
    with_values_of_start,
)
from purerl.scale.devices import use_all_cores
from purerl.train import bind


def parser(base: TrainConfig) -> type:
    """Return the dataclass of the command's flags, whose defaults are a config's."""
    doc = "Train agents, one per seed, in one compiled program; writes a run's folder."
    shared = (flags.Dry, ConfigSource, absent.Absent)
    return flags.parser_class(base, RunOptions, *shared, doc=doc)


def base_config(argv: Sequence[str]) -> TrainConfig:
    """Return the config whose values are the flags' defaults.

    Raises:
        ConfigError: an unknown preset or algorithm, a file that cannot be read, or an
            algorithm that is not the one of the preset or file.
    """
    preset = flags.option_before_parsing(argv, "preset")
    path = flags.option_before_parsing(argv, "config")
    algorithm = flags.option_before_parsing(argv, "algorithm")
    if preset and path:
        raise ConfigError("give --preset or --config, not both.")
    if not preset and not path:
        return config_class(algorithm or "ppo")()
    source = f"--preset {preset}" if preset else f"--config {path}"
    base = presets.load(preset) if preset else serialise.from_yaml(path or "")
    if algorithm and algorithm != name_of(base):
        raise ConfigError(
            f"--algorithm {algorithm} contradicts {source}, whose algorithm is "
            f"{name_of(base)}. Leave one of them out."
        )
    return base


def main_plan(argv: Sequence[str]) -> int:
    """Say what training with the same flags would take; return the exit status."""
    return main([*argv, "--dry-run"], "plan")


def main(argv: Sequence[str], name: str = "train") -> int:
    """Run the command; return the exit status."""
    started = time.perf_counter()
    base = base_config(argv)
    parsed = flags.parse(parser(base), argv, name)
    device = absent.device_of(parsed)
    if parsed.data_parallel:
        use_all_cores()
    settings.enable_compile_cache()
    given = flags.read_options(RunOptions, parsed)
    if parsed.resume and parsed.resume != AUTO_FOLDER:
        given |= _resumed(parsed, argv)
    elif parsed.extend is not None:
        raise ConfigError(
            "--extend is for a run that there is: give --resume FOLDER with it, or "
            "--total-timesteps for a new run."
        )
    else:
        given |= {"config": flags.read_config(parsed, base), "extend": False}
        given["resume"] = "auto" if parsed.resume else False
        if parsed.dry_run:
            show_cost(RunOptions(**given), parsed, device)
            return 0
        if not (parsed.out or parsed.resume):
            given["out"] = default_folder(serialise.env_name(given["config"].env))
    result = run(**given)
    if not result.finished:
        return 130
    if result.train_steps == 0:
        if result.out is not None and not (result.out / manifest.CURVE).exists():
            _draw(result)  # A kill came after the last checkpoint and before it.
        print(
            f"the run in {result.out} had finished already; nothing was trained. "
            f"More steps: {program()} train --resume {quoted(result.out)} --extend "
            "STEPS"
        )
        return 0
    show(result, time.perf_counter() - started)
    return 0


def show_cost(asked: RunOptions, parsed: Any, device: Device | None) -> None:
    """Print what a run would take, here or on a device that is not here."""
    start = asked.start
    assert start is None or isinstance(start, Start)
    bound = bind(with_values_of_start(start, asked.config))
    if asked.folder is not None:
        manifest.check_new(asked.folder)
    steps = bound.plan.num_updates * bound.plan.steps_per_update
    require_listing(num_seeds(asked.seeds), steps)
    seeds = check_seeds(asked.seeds)
    begun = None if start is None else read_start(start, bound, seeds)
    if device is not None:
        absent.show(device, [bound], len(seeds), parsed)
        return
    done = begun.first_update if begun else 0
    parts = [dry_run.whole_runs(bound, len(seeds), done)]
    dry_run.show(parts, asked.lanes, asked.segment_updates)


AUTO_FOLDER = Path("auto")
# What may change when a run goes on; all else is the run's own.
RESUME_FLAGS = (
    "resume",
    "extend",
    "checkpoint-seconds",
    "keep-checkpoints",
    "progress",
    "track",
    "tracking-uri",
)


def _resumed(parsed: Any, argv: Sequence[str]) -> dict[str, Any]:
    """Return the options of the run in the folder of `--resume`."""
    flags.check_resume(argv, RESUME_FLAGS, "a run")
    folder = parsed.resume
    stored = manifest.load_run(folder)
    if stored["data_parallel"]:
        use_all_cores()
    config = manifest.read_config(folder, stored)
    if parsed.extend is not None:
        if parsed.extend < 1:
            raise ConfigError(
                "--extend must be the steps of the longer run, from its beginning, got "
                f"{parsed.extend}."
            )
        config = config.replace(total_timesteps=parsed.extend)
    return {
        "config": config,
        "seeds": stored["seeds"],
        "out": folder,
        "resume": True,
        "extend": parsed.extend is not None,
        "data_parallel": bool(stored["data_parallel"]),
    }


def default_folder(env: str) -> Path:
    """Return a new folder under `runs/`, named by what it holds and when it began.

    Four letters end its name, as the jobs of an array begin in the same second.
    """
    name = re.sub(r"[^\w.-]+", "-", env.lower()).strip("-")
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return Path("runs") / f"{name}-{stamp}-{uuid.uuid4().hex[:4]}"


def show(result: RunResult, total_seconds: float) -> None:
    """Draw the curve; print the table and the times."""
    from purerl.report import tables

    _draw(result)  # First: what is printed may have no reader.
    console = Console()
    console.print(tables.run_table(result))
    numbers = summary(result)
    console.print(
        f"compile {numbers['compile_seconds']:.1f} s, "
        f"training {numbers['train_seconds']:.1f} s "
        f"({numbers['steps_per_second']:,} steps/s over all agents), "
        f"total {total_seconds:.1f} s",
        highlight=False,
    )
    if result.out is not None:
        console.print(f"written to {result.out}/", highlight=False, soft_wrap=True)


def _draw(result: RunResult) -> None:
    """Draw the curve into the run's folder, if it has one."""
    from purerl.report import plots

    if result.out is not None:
        plots.learning_curve(result).save(result.out / manifest.CURVE)
