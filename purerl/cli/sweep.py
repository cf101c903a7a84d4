"""`purerl sweep`: axes and seeds in, a folder of labelled results out."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from rich.console import Console

from purerl.cli import flags, report, settings
from purerl.cli.options import (
    ConfigSource,
    DryRun,
    FirstSeed,
    MemoryLimit,
    Processes,
    Progress,
    Repeated,
    SegmentUpdates,
    Tracking,
    option,
    read_trackers,
)
from purerl.cli.train import base_config, default_folder
from purerl.config import ConfigError
from purerl.runner.arguments import seeds_from
from purerl.scale import hosts
from purerl.space.parse import parse
from purerl.storage import folders
from purerl.sweeps.api import sweep
from purerl.sweeps.console import plan_lines, plan_table
from purerl.sweeps.plan import plan
from purerl.sweeps.result import SweepResult


@dataclasses.dataclass(kw_only=True)
class Sweep:
    """Train every point of some axes with every seed, in as few programs as possible.

    Run the same command with --out FOLDER after a kill: it trains what is missing.
    """

    axis: Annotated[
        Repeated,
        option(
            "Field that the sweep varies, NAME=VALUES; may be repeated: "
            "learning_rate=1e-4,3e-4; learning_rate=geomspace(1e-4,1e-2,8); "
            "gamma=linspace(0.9,0.99,4); hidden_sizes=(64,64),(256,256); "
            "algorithm=ppo,dqn; in a random design loguniform(1e-5,1e-2), "
            "uniform(0.9,1.0), choice(4,8)."
        ),
    ] = ()
    seeds: Annotated[int, option("Agents per point.")] = 4
    first_seed: FirstSeed = 0
    design: Annotated[
        Literal["grid", "zip", "random"],
        option("Points of the axes: every combination, value by value, or draws."),
    ] = "grid"
    points: Annotated[int | None, option("Number of points of a random design.")] = None
    design_seed: Annotated[int, option("Seed of a random design's draws.")] = 0
    out: Annotated[
        Path | None, option("Folder to write; runs/sweep-<env>-<time> if not given.")
    ] = None
    extend: Annotated[
        bool,
        option("Train the points and seeds that a finished sweep in --out has not."),
    ] = False
    dry_run: DryRun = False
    lanes: Annotated[
        str | None, option("Agents per block: a number, or auto to measure the best.")
    ] = None
    segment_updates: SegmentUpdates = None
    chunk_blocks: Annotated[int | None, option("Number of blocks in a file.")] = None
    memory_limit: MemoryLimit = None
    keep_states: Annotated[bool, option("Keep the trained agents too.")] = False
    progress: Progress = True


SHARED = (ConfigSource, Tracking, Processes)


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    base = base_config(argv)
    parsed = flags.parse(flags.parser_class(base, Sweep, *SHARED), argv, "sweep")
    settings.enable_compile_cache()
    hosts.join(parsed.coordinator, parsed.num_processes, parsed.process)
    config = flags.read_config(parsed, base)
    axes = read_axes(parsed.axis)
    options: dict[str, Any] = {
        "seeds": seeds_from(parsed.first_seed, parsed.seeds),
        "design": parsed.design,
        "num_points": parsed.points,
        "design_seed": parsed.design_seed,
        "lanes": read_lanes(parsed.lanes),
        "segment_updates": parsed.segment_updates,
        "memory_limit": parsed.memory_limit,
        "chunk_blocks": parsed.chunk_blocks,
        "keep_states": parsed.keep_states,
    }
    trackers = read_trackers(parsed)
    if parsed.dry_run:  # A sweep of this command has a folder; its plan makes none.
        folders.check_out(parsed.out, "sweep")
        show_plan(plan(config, axes, out=parsed.out or Path("runs"), **options))
        return 0
    result = sweep(
        config,
        axes,
        out=_folder(parsed.out, str(config.env)),
        extend=parsed.extend,
        trackers=trackers,
        progress=parsed.progress,
        **options,
    )
    if hosts.index() > 0:
        return 0
    show(result)
    return 0 if result.finished else 130


def read_axes(texts: Sequence[str]) -> dict[str, Any]:
    """Read axes by name.

    Raises:
        ConfigError: one that cannot be read, or given twice.
    """
    axes: dict[str, Any] = {}
    for text in texts:
        name, values = parse(text)
        if name in axes:
            raise ConfigError(
                f"--axis {name} is given twice; list all its values in one, such as "
                f"{name}=1,2,3."
            )
        axes[name] = values
    return axes


def search_axes(texts: Sequence[str]) -> dict[str, Any]:
    """Read the axes of a search by name, of which there is at least one.

    Raises:
        ConfigError: none, one that cannot be read, or given twice.
    """
    if not texts:
        raise ConfigError(
            "a search needs at least one axis, got none; for example "
            '--axis "learning_rate=loguniform(1e-4,1e-2)".'
        )
    return read_axes(texts)


def read_lanes(text: str | None) -> int | str | None:
    """Read a number, `auto`, or None.

    Raises:
        ConfigError: anything else.
    """
    if text is None or text == "auto":
        return text
    try:
        return flags.whole_number(text)
    except ValueError:
        raise ConfigError(
            f"--lanes must be a positive number or auto, got {text!r}."
        ) from None


def _folder(out: Path | None, env: str) -> Path:
    if out is None and hosts.count() > 1:
        raise ConfigError(
            "several processes need a folder that all of them name alike; give --out."
        )
    return out or default_folder(f"sweep-{env}")


def show_plan(planned: Any) -> None:
    """Print a plan."""
    console = Console()
    console.print(plan_table(planned))
    console.print(plan_lines(planned), highlight=False)


def show(result: SweepResult) -> None:
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
        console.print(
            f"written to {result.out}/, with report.html; in Python "
            f"purerl.load_sweep({str(result.out)!r})",
            highlight=False,
            soft_wrap=True,
        )
