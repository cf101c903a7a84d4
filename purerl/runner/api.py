"""purerl.run: one agent per seed, trained segment by segment."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from purerl.config import ConfigError, TrainConfig
from purerl.execution.memory import fitting_lanes, require_number
from purerl.execution.programs import SEGMENTS, segment_length
from purerl.runner import manifest
from purerl.runner.arguments import as_folder, check_seeds, check_switch, num_seeds
from purerl.runner.loop import RunLoop
from purerl.runner.options import Flag, Saved, option, seeds_option, tool
from purerl.runner.result import RunResult
from purerl.runner.start import (
    NETWORKS,
    Start,
    as_start,
    check_same_start,
    parse_start,
    read_again,
    read_start,
    with_values_of_start,
)
from purerl.runner.trackers import choose
from purerl.scale import hosts
from purerl.scale.devices import as_count, default_lanes, make_workers
from purerl.storage import checkpoint, folders
from purerl.storage.lock import locked
from purerl.train import Bound, bind

# Segments of a run whose environments are stepped on the host: an update each, so that
# Ctrl-C and a checkpoint wait for one only, but no more rows than can be kept.
HOST_SEGMENTS = 10_000
KEEP_CHECKPOINTS = 3


def _as_resume(name: str, value: Any) -> bool | str:
    if isinstance(value, str) and value == "auto":
        return value
    check_switch(name, value, "Or 'auto'. The folder of the run goes to out.")
    return bool(value)


def _as_extend(name: str, value: Any) -> bool:
    check_switch(name, value, "The number of steps is total_timesteps of the config.")
    return bool(value)


def _as_spread(name: str, value: Any) -> bool:
    check_switch(name, value, "An agent is spread over all devices.")
    return bool(value)


def _read_start(run: str | None, parts: str) -> Start | None:
    """Return the agents that `--from` and `--from-parts` name, or None."""
    if run is not None:
        return parse_start(run, parts)
    if parts != NETWORKS:
        raise ConfigError(
            f"--from-parts {parts} says what is taken over from another run: give "
            "--from RUN with it."
        )
    return None


@dataclasses.dataclass(frozen=True)
class RunOptions(Saved):
    """The options of `purerl.run`."""

    tool: ClassVar[str] = "run"

    config: TrainConfig
    _: dataclasses.KW_ONLY
    seeds: int | Sequence[int] = seeds_option(1, "Number of agents.")
    out: str | Path | None = option(
        None,
        "Folder to write; runs/<env>-<time> if not given.",
        doc="The folder to write; nothing is written without one.",
        kind=Path | None,
        check=as_folder,
    )
    resume: bool | Literal["auto"] = option(
        False,
        "Folder of a run to go on with; auto for that of --out, if it holds one.",
        doc="Whether to go on with the run in `out`; `'auto'` does so if there is one, "
        "and begins it if there is none, as a job does that may be started again.",
        kind=Path | None,
        absent=None,
        check=_as_resume,
    )
    extend: bool = option(
        False,
        "Steps in all up to which the run of --resume is trained.",
        doc="Whether, with `resume`, to go on to the `total_timesteps` of this config, "
        "which may be more than the run was started with, also where it had finished. "
        "What follows the share of the run that is done, such as an annealed learning "
        "rate, follows the longer run from there on.",
        kind=int | None,
        absent=None,
        check=_as_extend,
    )
    start: str | Path | Start | None = option(
        None,
        "Begin with the agents in a run's folder, seed by seed, or with one.",
        doc="The folder of a run whose agents' networks the agents begin with, seed by "
        "seed; `purerl.Start` says what else is taken over, and from which agent. The "
        "folder of this run says what it began with.",
        flag="from_run",
        word="from",
        metavar="RUN[:SEED]",
        kind=str | None,
        also=(
            Flag(
                "Parts of the agents that are taken over from --from: networks, all "
                "(to go on), or names of parts, such as actor.torso.",
                "from_parts",
                str,
                NETWORKS,
            ),
        ),
        read=_read_start,
        check=lambda name, value: as_start(value),
    )
    segment_updates: int | None = option(
        None,
        "Updates per compiled call, part of what fixes the bits; about a hundredth of "
        "the run if not given, one where environments are on the host.",
        check=as_count,
    )
    keep_checkpoints: int | None = option(
        None,
        "Number of newest checkpoints to keep; if not given, 3, or what the run had.",
        check=as_count,
    )
    data_parallel: bool = option(
        False,
        "Spread each agent's environments over all devices.",
        check=_as_spread,
    )

    def __post_init__(self) -> None:
        if self.extend is True and not self.resume:
            raise ConfigError(
                "extend=True goes on with a run: give resume=True and out=, its folder."
            )
        super().__post_init__()
        if self.resume and self.out is None:
            raise ConfigError("resume needs out: the folder of the run to go on with.")


@tool(RunOptions)
def run(asked: RunOptions) -> RunResult:
    """Train one agent per seed, with progress, metrics, checkpoints and resume.

    A run that was interrupted or killed and then resumed ends with the same bits as
    one that was not. Ctrl-C finishes the segment, saves, and says how to go on; a
    second one stops at once.

    Where environments are stepped on the host (`env="gymnasium/CartPole-v1"`), agents
    take turns, and a resumed run begins new episodes, so that its bits are others. What
    an environment raises there is raised here, with notes that say in which agent and
    update, and how to go on from the last update, which is saved.

    Functions that look at agents while they train (`observe`, `metrics`) are given to
    `purerl.make_train`, whose `train(key, overrides, start)` goes on from a state.

    Raises:
        ConfigError: a config that cannot be trained, a folder that cannot be written
            or resumed, a damaged checkpoint, agents to start from that do not fit,
            several processes.
    """
    hosts.require_one(
        "a run of purerl.run",
        "Train seeds in several processes with purerl.sweep(config, seeds=..., "
        "out=...): each process takes a part, and one folder holds all results.",
    )
    folder, config, source = asked.folder, asked.config, asked.start
    assert source is None or isinstance(source, Start)
    is_begun = asked.resume is True or (
        asked.resume == "auto" and folders.is_begun(folder)
    )
    if is_begun:
        stored = manifest.load_run(folder)  # Before the lock, which makes a folder.
        config = manifest.with_values_of(stored, config)
        _check_kept(stored, asked)
    bound = bind(with_values_of_start(source, config), on_host=True)
    if bound.env.on_host:
        _check_on_host(bound, asked)
    require_number(bound, num_seeds(asked.seeds), make_workers())
    seeds = check_seeds(asked.seeds)
    trackers = choose(asked.trackers, folder if is_begun else None)
    begun = None if source is None or is_begun else read_start(source, bound, seeds)
    if not is_begun:
        asked = _with_widths(asked, bound, len(seeds))
    with locked(folder), folders.undone_if_empty(folder):
        if is_begun:
            stored = manifest.go_on(folder, bound.config, seeds, asked.extend)
            asked = _as_stored(asked, stored)
            check_same_start(stored.get("start"), source)
            if "start" in stored and not checkpoint.steps(folder / "checkpoints"):
                begun = read_again(stored["start"], bound, seeds)
        elif folder is not None:
            described = {} if begun is None else {"start": begun.described}
            manifest.check_new(folder)
            about = manifest.describe_run(bound.config, seeds, asked)
            folders.write(folder, about | described)
        return RunLoop(bound, seeds, asked, trackers, begun).run(is_begun)


def _check_kept(stored: dict[str, Any], asked: RunOptions) -> None:
    """Refuse to resume a run with another way of training than it began with.

    Raises:
        ConfigError: naming the option, both values and the remedy.
    """
    # The manifest has the number of devices, which is looked at later.
    kept = {**stored, "data_parallel": bool(stored["data_parallel"])}
    for name in ("lanes", "segment_updates", "data_parallel"):
        value = getattr(asked, name)
        if value not in (None, False) and value != kept[name]:
            raise ConfigError(
                f"{name} must be {kept[name]}, got {value}: the run in {asked.out} has "
                "begun so, and its numbers depend on it. Leave it out to resume."
            )


def _check_on_host(bound: Bound, asked: RunOptions) -> None:
    """Refuse options of compiled programs that have their environments in them.

    Raises:
        ConfigError: naming the option and the remedy.
    """
    env = bound.env.name
    if asked.data_parallel:
        raise ConfigError(
            f"data_parallel must be False with env={env!r}: its environments are "
            "stepped on the host, and are not spread over devices."
        )
    if asked.lanes not in (None, 1):
        raise ConfigError(
            f"lanes must be left out with env={env!r}, got {asked.lanes}: its "
            "environments are stepped on the host, and agents take turns."
        )


def _as_stored(asked: RunOptions, stored: dict[str, Any]) -> RunOptions:
    """The options with those that the run has begun with, which it keeps."""
    kept = {name: stored[name] for name in manifest.KEPT}
    kept["data_parallel"] = bool(kept["data_parallel"])
    if asked.keep_checkpoints not in (None, kept["keep_checkpoints"]):
        kept["keep_checkpoints"] = asked.keep_checkpoints
        folders.update(asked.folder, {"keep_checkpoints": asked.keep_checkpoints})
    return dataclasses.replace(asked, **kept)


def _with_widths(asked: RunOptions, bound: Bound, num_members: int) -> RunOptions:
    """The options with the width of a block and of a segment, where none is given."""
    segments = HOST_SEGMENTS if bound.env.on_host else SEGMENTS
    length = asked.segment_updates or segment_length(bound, segments=segments)
    lanes = asked.lanes
    if lanes is None and (asked.data_parallel or bound.env.on_host):
        lanes = 1
    elif lanes is None:
        workers = make_workers()
        members_each = -(-num_members // len(workers))
        default = default_lanes(num_members, workers)
        lanes = fitting_lanes(bound, default, members_each, length, workers)
    keep = asked.keep_checkpoints or KEEP_CHECKPOINTS
    return dataclasses.replace(
        asked, lanes=lanes, segment_updates=length, keep_checkpoints=keep
    )
