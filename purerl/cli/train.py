"""`purerl train`: agents, progress, a table, a picture, a folder."""

import atexit
import contextlib
import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from purerl import presets, serialise
from purerl.algorithms import config_class, name_of
from purerl.cli import absent, flags, settings
from purerl.cli.flags import ConfigSource, DryRun, FirstSeed, option, read_trackers
from purerl.config import ConfigError, TrainConfig
from purerl.contrib.hardware.device import Device
from purerl.execution import dry_run
from purerl.execution.format import program, quoted
from purerl.execution.memory import require_number
from purerl.runner import manifest
from purerl.runner.api import run
from purerl.runner.arguments import check_seconds, check_seeds, seeds_from
from purerl.runner.options import Saved
from purerl.runner.result import RunResult, summary
from purerl.runner.start import (
    NETWORKS,
    Start,
    parse_start,
    read_start,
    with_values_of_start,
)
from purerl.scale.devices import as_count, make_workers, use_all_cores
from purerl.storage import folders
from purerl.train import bind


@dataclasses.dataclass(kw_only=True)
class Train:
    """Train agents, one per seed, in one compiled program; writes a run's folder."""

    resume: Annotated[Path | None, option("Folder of a run to go on with.")] = None
    extend: Annotated[
        int | None,
        option("Steps in all up to which the run of --resume is trained."),
    ] = None
    from_run: Annotated[
        str | None,
        tyro.conf.arg(
            name="from",
            metavar="RUN[:SEED]",
            help="Begin with the agents in a run's folder, seed by seed, or with one.",
        ),
    ] = None
    from_parts: Annotated[
        str,
        option(
            "Parts of the agents that are taken over from --from: networks, all (to "
            "go on), or names of parts, such as actor.torso."
        ),
    ] = NETWORKS
    seeds: Annotated[int, option("Number of agents.")] = 1
    first_seed: FirstSeed = 0
    out: Annotated[
        Path | None, option("Folder to write; runs/<env>-<time> if not given.")
    ] = None
    keep_checkpoints: Annotated[
        int | None, option("Number of newest checkpoints to keep; 3 if not given.")
    ] = None
    data_parallel: Annotated[
        bool, option("Spread each agent's environments over all devices.")
    ] = False
    dry_run: DryRun = False


SHARED = (Saved, ConfigSource, absent.Absent)


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


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    started = time.perf_counter()
    base = base_config(argv)
    parsed = flags.parse(flags.parser_class(base, Train, *SHARED), argv, "train")
    device = absent.device_of(parsed)
    if parsed.data_parallel:
        use_all_cores()
    settings.enable_compile_cache()
    if parsed.resume:
        _check_resume_flags(argv)
        result = _resume(parsed)
    else:
        if parsed.extend is not None:
            raise ConfigError(
                "--extend is for a run that there is: give --resume FOLDER with it, or "
                "--total-timesteps for a new run."
            )
        config, start = flags.read_config(parsed, base), _start(parsed)
        trackers = read_trackers(parsed)
        if parsed.dry_run:
            return _show_cost(config, parsed, start, device)
        result = run(
            config,
            seeds=seeds_from(parsed.first_seed, parsed.seeds),
            out=parsed.out or default_folder(str(config.env)),
            start=start,
            lanes=parsed.lanes,
            segment_updates=parsed.segment_updates,
            checkpoint_seconds=parsed.checkpoint_seconds,
            keep_checkpoints=parsed.keep_checkpoints,
            data_parallel=parsed.data_parallel,
            trackers=trackers,
            progress=parsed.progress,
        )
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


def _start(parsed: Any) -> Start | None:
    """Return the agents that --from and --from-parts name, or None."""
    if parsed.from_run is None:
        if parsed.from_parts != NETWORKS:
            raise ConfigError(
                f"--from-parts {parsed.from_parts} says what is taken over from "
                "another run: give --from RUN with it."
            )
        return None
    return parse_start(parsed.from_run, parsed.from_parts)


def _show_cost(
    config: TrainConfig, parsed: Any, start: Start | None, device: Device | None
) -> int:
    check_seconds("checkpoint_seconds", parsed.checkpoint_seconds)
    as_count("keep_checkpoints", parsed.keep_checkpoints)
    bound = bind(with_values_of_start(start, config))
    if parsed.out is not None:
        folders.check_writable(parsed.out)
        manifest.check_new(parsed.out)
    seeds = seeds_from(parsed.first_seed, parsed.seeds)
    if device is None:
        require_number(bound, parsed.seeds, make_workers())
    members = check_seeds(seeds)
    begun = None if start is None else read_start(start, bound, members)
    if device is not None:
        absent.show(device, [bound], len(members), parsed)
        return 0
    done = begun.first_update if begun else 0
    parts = [dry_run.whole_runs(bound, len(members), done)]
    dry_run.show(parts, parsed.lanes, parsed.segment_updates)
    return 0


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


def _check_resume_flags(argv: Sequence[str]) -> None:
    for word in argv:
        name = word.partition("=")[0].replace("_", "-").removeprefix("--")
        if word.startswith("--") and name.removeprefix("no-") not in RESUME_FLAGS:
            raise ConfigError(
                f"--{name} cannot be given with --resume: a run goes on as it was "
                "started. Leave it out, or start another run."
            )


def _resume(parsed: Any) -> RunResult:
    folder = parsed.resume
    assert folder is not None
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
    return run(
        config,
        seeds=stored["seeds"],
        out=folder,
        resume=True,
        extend=parsed.extend is not None,
        checkpoint_seconds=parsed.checkpoint_seconds,
        keep_checkpoints=parsed.keep_checkpoints,
        data_parallel=bool(stored["data_parallel"]),
        trackers=read_trackers(parsed),
        progress=parsed.progress,
    )


def default_folder(env: str) -> Path:
    """Make a new folder under `runs/`; where nothing is written, it goes at the exit.

    It is made at once, because many commands may begin in the same second, as the jobs
    of an array do.
    """
    name = env.replace("/", "-").lower()
    stem = f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    folder, number = Path("runs") / stem, 1
    if not folder.parent.exists():  # At the exit the last to be registered goes first.
        atexit.register(_remove_unused, folder.parent)
    while not _is_claimed(folder):
        number += 1
        folder = Path("runs") / f"{stem}-{number}"
    atexit.register(_remove_unused, folder)
    return folder


def _is_claimed(folder: Path) -> bool:
    """Make a folder; return whether this process made it, or no process can."""
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        return False
    except OSError:  # Whoever writes to it says why, with the remedy.
        return True
    return True


def _remove_unused(folder: Path) -> None:
    """Remove a folder in which there is nothing."""
    with contextlib.suppress(OSError):
        folder.rmdir()


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
        plots.learning_curve(result, result.out / manifest.CURVE)
