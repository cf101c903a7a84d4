"""`purerl train`, `plan` and `lanes`: agents, and what their training takes."""

import dataclasses
import re
import time
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from purerl import presets, serialise
from purerl.algorithms import config_class, name_of
from purerl.cli import flags, settings
from purerl.cli.flags import ConfigSource
from purerl.config import ConfigError, TrainConfig
from purerl.contrib.hardware import estimate as estimates
from purerl.execution import dry_run
from purerl.execution.format import (
    format_bytes,
    format_duration,
    program,
    quoted,
    with_noun,
)
from purerl.execution.memory import require_listing
from purerl.execution.programs import segment_length
from purerl.runner import manifest
from purerl.runner.arguments import check_seeds, num_seeds
from purerl.runner.options import memory_limit_option, option
from purerl.runner.result import RunResult, summary
from purerl.runner.run import RunOptions, run
from purerl.runner.start import Start, read_start, with_values_of_start
from purerl.scale.devices import use_all_cores
from purerl.sweeps import plan
from purerl.train import bind


@dataclasses.dataclass(kw_only=True)
class Absent:
    """The option of commands that plan for a device that is not here."""

    device: str | None = option(
        None,
        "Device to estimate for, without running anything: "
        f"{', '.join(estimates.names())}, or a YAML file that describes one.",
    )


Show = Callable[[Sequence[dry_run.Part], Any, str], None]


def plan_of(parsed: Any) -> Show:
    """Return what shows the cost of agents: here, or on the device that flags name.

    Raises:
        ConfigError: there is no such device, or nothing is planned.
    """
    name = getattr(parsed, "device", None)
    if name is None:
        return show_cost
    if not parsed.dry_run:
        raise ConfigError(f"--device {name} is for a plan: add --dry-run.")
    return partial(show_estimate, estimates.load_device(name))


def show_cost(parts: Sequence[dry_run.Part], asked: Any, note: str = "") -> None:
    """Print what agents would take here; `asked` are the options of the tool."""
    dry_run.show(parts, asked.lanes, getattr(asked, "segment_updates", None), note)


def show_estimate(
    device: estimates.Device, parts: Sequence[dry_run.Part], asked: Any, note: str = ""
) -> None:
    """Print estimates of agents on a device, and how they are made."""
    console, total = Console(highlight=False, soft_wrap=True, markup=False), 0.0
    for bound, agents, env_steps, _ in parts:
        length = segment_length(bound, asked.segment_updates)
        cost = estimates.estimate(bound, agents, length, device, asked.lanes)
        console.print("\n".join(estimates.lines(bound.env.name, cost)))
        total += cost.seconds * env_steps / cost.env_steps
    console.print("\n".join(estimates.how(device)))
    if note:
        console.print(f"about {format_duration(total)} in all{note}")


def parser(base: TrainConfig) -> type:
    """Return the dataclass of the command's flags, whose defaults are a config's."""
    doc = "Train agents, one per seed, in one compiled program; writes a run's folder."
    shared = (flags.Dry, ConfigSource, Absent)
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
        what = f"--algorithm {algorithm} contradicts {source}"
        raise ConfigError(f"{what}, whose algorithm is {name_of(base)}.")
    return base


def main_plan(argv: Sequence[str]) -> int:
    """Say what training with the same flags would take; return the exit status."""
    return main_train([*argv, "--dry-run"], "plan")


def main_train(argv: Sequence[str], name: str = "train") -> int:
    """Run the command; return the exit status."""
    started = time.perf_counter()
    base = base_config(argv)
    parsed = flags.parse(parser(base), argv, name)
    show_plan = plan_of(parsed)
    if parsed.data_parallel:
        use_all_cores()
    settings.enable_compile_cache()
    given = flags.read_options(RunOptions, parsed)
    if parsed.resume and parsed.resume != AUTO_FOLDER:
        given |= _resumed(parsed, argv)
    elif parsed.extend is not None:
        raise ConfigError("--extend is for a run that there is: give --resume FOLDER.")
    else:
        given |= {"config": flags.read_config(parsed, base), "extend": False}
        given["resume"] = "auto" if parsed.resume else False
        if parsed.dry_run:
            asked = RunOptions(**given)
            show_plan([planned(asked)], asked, "")
            return 0
        if not (parsed.out or parsed.resume):
            given["out"] = default_folder(serialise.env_name(given["config"].env))
    result = run(**given)
    if not result.finished:
        return 130
    if result.train_steps == 0:
        if result.out is not None and not (result.out / manifest.CURVE).exists():
            _draw(result)  # A kill came after the last checkpoint and before it.
        more = f"{program()} train --resume {quoted(result.out)} --extend STEPS"
        line = f"More steps: {more}"
        if not parsed.progress:  # With it, the run has said so.
            line = f"the run in {result.out} had finished already. {line}"
        print(line)
        return 0
    show(result, time.perf_counter() - started)
    return 0


def planned(asked: RunOptions) -> dry_run.Part:
    """Return what a run would train.

    Raises:
        ConfigError: what the run itself would refuse.
    """
    start = asked.start
    assert start is None or isinstance(start, Start)
    bound = bind(with_values_of_start(start, asked.config))
    if asked.folder is not None:
        manifest.check_new(asked.folder)
    steps = bound.plan.num_updates * bound.plan.steps_per_update
    require_listing(num_seeds(asked.seeds), steps)
    seeds = check_seeds(asked.seeds)
    begun = None if start is None else read_start(start, bound, seeds)
    return dry_run.whole_runs(bound, len(seeds), begun.first_update if begun else 0)


AUTO_FOLDER = Path("auto")
# What may change when a run goes on; all else is the run's own.
RESUME_FLAGS = (
    *("resume", "extend", "checkpoint-seconds", "keep-checkpoints", "progress"),
    *("track", "tracking-uri"),
)


def _resumed(parsed: Any, argv: Sequence[str]) -> dict[str, Any]:
    """Return the options of the run in the folder of `--resume`."""
    for word in argv:
        name = word.partition("=")[0].replace("_", "-").removeprefix("--")
        if word.startswith("--") and name.removeprefix("no-") not in RESUME_FLAGS:
            what = f"--{name} cannot be given with --resume"
            raise ConfigError(f"{what}: a run goes on as it was started.")
    folder = parsed.resume
    stored = manifest.load_run(folder)
    if stored["data_parallel"]:
        use_all_cores()
    config = manifest.read_config(folder, stored)
    if parsed.extend is not None:
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
    times = summary(result)
    lines = [
        f"compile {times['compile_seconds']:.1f} s, "
        f"training {times['train_seconds']:.1f} s "
        f"({times['steps_per_second']:,} steps/s over all agents), "
        f"total {total_seconds:.1f} s"
    ]
    if result.out is not None:
        lines.append(f"written to {result.out}/")
    console.print("\n".join(lines), highlight=False, soft_wrap=True)


def _draw(result: RunResult) -> None:
    """Draw the curve into the run's folder, if it has one."""
    from purerl.report import plots

    if result.out is not None:
        plots.learning_curve(result).save(result.out / manifest.CURVE)


# The width of blocks.


@dataclasses.dataclass(kw_only=True)
class FindLanes:
    """Measure training throughput over lane widths, for `--lanes`."""

    widths: tuple[int, ...] = option(
        (), "Widths to measure; powers of two if not given."
    )
    seconds: float = option(2.0, "Seconds of measurement per width.")
    memory_limit: str | None = memory_limit_option()


def main_lanes(argv: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    base = base_config(argv)
    parser = flags.parser_class(base, FindLanes, flags.ConfigSource)
    parsed = flags.parse(parser, argv, "lanes")
    settings.enable_compile_cache()
    rates = plan.find_lanes(
        flags.read_config(parsed, base),
        widths=sorted(parsed.widths) or None,
        memory_limit=parsed.memory_limit,
        seconds=parsed.seconds,
    )
    best = max(rate.steps_per_second for rate in rates)
    for rate in rates:
        print(
            f"{with_noun(rate.lanes, 'lane')}: {rate.steps_per_second:,.0f} steps/s "
            f"with all workers busy ({rate.steps_per_second / best:.0%} of the best), "
            f"{format_bytes(rate.memory)} a worker, "
            f"compiled in {rate.compile_seconds:.1f} s"
        )
    print(f"fastest: --lanes {plan.best_of(rates)}")
    return 0
