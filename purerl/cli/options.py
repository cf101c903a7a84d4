"""Options that several commands share, and how they are read.

An option alone is a type with its help; its default stands in the command. Options that
always go together are a dataclass, which a command gives to `flags.parser_class`.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from purerl import presets
from purerl.algorithms import ALGORITHMS
from purerl.config import ConfigError
from purerl.runner.arguments import split_seed
from purerl.runner.trackers import TRACKERS, Tracker, make_tracker
from purerl.runner.trackers import read_trackers as make_trackers


def option(text: str) -> object:
    """Return what makes an option of a field.

    Args:
        text: The help of the option, which can be read without any other.
    """
    return tyro.conf.arg(help=text)


Repeated = tyro.conf.UseAppendAction[tuple[str, ...]]
"""The type of an option that may be given several times."""

RunOrAgent = Annotated[
    tyro.conf.Positional[str],
    tyro.conf.arg(metavar="RUN[:SEED]", help="Folder of a run, or one of its agents."),
]
AgentSeed = Annotated[
    int | None, option("Seed of the one agent that is taken, as RUN:SEED says it too.")
]
Algorithm = Annotated[str, option(f"Algorithm, one of {', '.join(ALGORITHMS)}.")]
ConfigFile = Annotated[
    Path | None, option("YAML file of the config that the flags change.")
]
FirstSeed = Annotated[int, option("Number of the first seed; the others follow it.")]
EpisodeSeed = Annotated[int, option("Random seed of the episodes.")]
SearchAxis = Annotated[
    Repeated,
    option(
        "Dynamic field that the search varies, NAME=VALUES; may be repeated: "
        "learning_rate=loguniform(1e-5,1e-2); gamma=uniform(0.9,0.999); "
        "entropy_coef=0,0.01,0.1."
    ),
]
SearchFitness = Annotated[
    str,
    option(
        "Score that members are compared by: final_return (of planned evaluations if "
        "there are any, else of training), or evaluation (of fresh episodes)."
    ),
]
NumSearches = Annotated[int, option("Number of searches, independent of one another.")]
Lanes = Annotated[
    int | None,
    option("Agents per block of a compiled call; what suits the device if not given."),
]
SegmentUpdates = Annotated[
    int | None, option("Updates per compiled call; chosen if not given.")
]
MemoryLimit = Annotated[
    str | None,
    option("Bytes for training, such as 2GB; most of what is free if not given."),
]
CheckpointSeconds = Annotated[
    float,
    option(
        "Least number of seconds between two checkpoints, or ten times what the last "
        "one took where that is longer; 0 saves as often as there is something new."
    ),
]
DryRun = Annotated[bool, option("Say what the command would cost here, and stop.")]
Progress = Annotated[bool, option("Show the progress.")]


@dataclasses.dataclass(kw_only=True)
class ConfigSource:
    """Options of the config that a command starts from."""

    algorithm: Algorithm = "ppo"
    preset: Annotated[
        str | None,
        option(f"Preset that the flags change: {', '.join(presets.names())}."),
    ] = None
    config: ConfigFile = None


@dataclasses.dataclass(kw_only=True)
class Tracking:
    """Options of the trackers that are told while a command runs."""

    track: Annotated[
        Repeated,
        option(
            f"Tracker that is told while it runs: {', '.join(TRACKERS)}; may be "
            "repeated."
        ),
    ] = ()
    tracking_uri: Annotated[
        str | None,
        option(
            "Address of MLflow's store; MLFLOW_TRACKING_URI, else "
            "sqlite:///mlflow.db, if not given."
        ),
    ] = None


@dataclasses.dataclass(kw_only=True)
class Processes:
    """Options of commands that several processes run together."""

    coordinator: Annotated[
        str | None,
        option("Address of process 0, host:port, where SLURM or MPI do not say it."),
    ] = None
    num_processes: Annotated[
        int | None,
        option("Number of processes in all, where SLURM or MPI do not say it."),
    ] = None
    process: Annotated[
        int | None,
        option("Number of this process, where SLURM or MPI do not say it."),
    ] = None


def read_trackers(parsed: Any) -> list[str | Tracker] | None:
    """Read what `--track` and `--tracking-uri` ask for; None where it is nothing.

    They are asked for before a dry run, which refuses what the command refuses.

    Args:
        parsed: The options of the command, with those of `Tracking`.

    Raises:
        ConfigError: an address without MLflow, or trackers that cannot be made.
    """
    names: Sequence[str] = parsed.track
    uri = parsed.tracking_uri
    if uri is not None and "mlflow" not in names:
        raise ConfigError(
            f"--tracking-uri {uri} is the address of MLflow's store; add --track "
            "mlflow, or leave it out."
        )
    trackers = [
        make_tracker(name, uri=uri) if name == "mlflow" and uri else name
        for name in names
    ]
    make_trackers(trackers)  # By its name alone each is made again, as it was before.
    return trackers or None


def read_agent(parsed: Any) -> tuple[Path, int | None]:
    """Read the folder of a run, and the seed that `RUN:SEED` or `--seed` names.

    Args:
        parsed: The options of the command, with `run` and `seed`.

    Raises:
        ConfigError: both name one.
    """
    run, seed = split_seed(parsed.run)
    if seed is not None and parsed.seed is not None:
        raise ConfigError(
            f"--seed is {parsed.seed}, and {parsed.run} names a seed already; give one "
            "of them."
        )
    return run, parsed.seed if seed is None else seed
