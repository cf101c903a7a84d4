"""The common part of `purerl compare` and `purerl transfer`: options, costs, output."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from rich.console import Console

from purerl.cli import changes, flags, report
from purerl.cli.options import (
    ConfigSource,
    DryRun,
    FirstSeed,
    Lanes,
    MemoryLimit,
    Progress,
    SegmentUpdates,
    Tracking,
    option,
    read_trackers,
)
from purerl.comparison.api import DEFAULT_SEEDS, MEASURES
from purerl.comparison.result import Comparison
from purerl.comparison.training import Part
from purerl.config import TrainConfig
from purerl.execution import dry_run
from purerl.report.comparison import WORDS
from purerl.runner.arguments import as_seed, seeds_from
from purerl.scale.devices import make_workers
from purerl.storage import folders
from purerl.sweeps.planner import worker_limit

WIDTH = 130  # The width of the table where the output is no terminal.


@dataclasses.dataclass(kw_only=True)
class Common:
    """Options of every command that compares on held-out seeds."""

    seeds: Annotated[int, option("Number of held-out seeds.")] = DEFAULT_SEEDS
    first_seed: FirstSeed = 0
    seed: Annotated[
        int, option("Seed whose key the held-out seeds' keys come from.")
    ] = 0
    measures: Annotated[
        tuple[str, ...], option(f"Scores to compare by, of {', '.join(WORDS)}.")
    ] = MEASURES
    lanes: Lanes = None
    segment_updates: SegmentUpdates = None
    memory_limit: MemoryLimit = None
    dry_run: DryRun = False
    progress: Progress = True


class Arguments(NamedTuple):
    """A command as it was read: its options, the config and the environments.

    Attributes:
        parsed: The options by name: the command's own, those of `Common`, and the
            fields of the config.
        config: The config to train with.
        environments: Changes of the config by name, one for every `--env`.
    """

    parsed: Any
    config: TrainConfig
    environments: list[dict[str, Any]]


def read(
    argv: Sequence[str],
    options: type,
    base_of: Callable[[Sequence[str]], TrainConfig],
) -> Arguments:
    """Read the words of a command.

    Args:
        argv: The words after the command's name.
        options: A dataclass of the command's own options, called as the command is.
        base_of: A function that says, from the words, which config the flags start
            from.

    Raises:
        ConfigError: a word that cannot be read.
    """
    rest, texts = changes.take_environments(argv)
    base = base_of(rest)
    parser = flags.parser_class(base, options, Common, ConfigSource, Tracking)
    parsed = flags.parse(parser, rest, options.__name__.lower())
    config = flags.read_config(parsed, base)
    environments = [changes.read_environment(config, text) for text in texts]
    if environments:
        config = config.replace(env=environments[0]["env"])
    return Arguments(parsed, config, environments)


def keywords(parsed: Any) -> dict[str, Any]:
    """Return the arguments of `purerl.compare` that the options of `Common` say.

    They are asked for before a dry run, which refuses what the command refuses.

    Raises:
        ConfigError: a number or a tracker that cannot be.
    """
    as_seed("seed", parsed.seed)
    worker_limit(parsed.memory_limit, make_workers())
    names = ("seed", "measures", "lanes", "segment_updates", "memory_limit", "progress")
    seeds = seeds_from(parsed.first_seed, parsed.seeds)
    named = {name: getattr(parsed, name) for name in names}
    return {"seeds": seeds, "trackers": read_trackers(parsed), **named}


def show_plan(parts: Sequence[Part], parsed: Any) -> None:
    """Print what a comparison would cost here, a line per program.

    Args:
        parts: The parts that would be trained.
        parsed: The options of the command.
    """
    wholes = [
        dry_run.whole_runs(part.group.bound, part.agents(parsed.seeds))
        for part in parts
    ]
    dry_run.show(wholes, parsed.lanes, parsed.segment_updates)


def show(result: Comparison, folder: Path) -> None:
    """Print the table and where everything is; write the page into the folder.

    Args:
        result: The comparison.
        folder: The folder that holds it.
    """
    console = Console()
    if not console.is_terminal:
        console = Console(width=max(console.width, WIDTH))
    console.print(result.table())
    report.write(folder, kind=folders.COMPARISON)
    console.print(
        f"written to {folder}/, with report.html; in Python "
        f"purerl.load_comparison({str(folder)!r})",
        highlight=False,
        soft_wrap=True,
    )
