"""purerl.run: one agent per seed, trained segment by segment."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from purerl.config import ConfigError, TrainConfig
from purerl.execution.memory import fitting_lanes, require_number
from purerl.execution.programs import SEGMENTS, segment_length
from purerl.precision import in_32_bits
from purerl.runner import manifest
from purerl.runner.arguments import (
    as_folder,
    check_call,
    check_seconds,
    check_seeds,
    check_switch,
    num_seeds,
)
from purerl.runner.loop import Options, RunLoop
from purerl.runner.result import RunResult
from purerl.runner.start import (
    Begun,
    Start,
    as_start,
    check_same_start,
    read_again,
    read_start,
    with_values_of_start,
)
from purerl.runner.trackers import Tracker, choose
from purerl.scale import hosts
from purerl.scale.devices import as_count, default_lanes, make_workers
from purerl.storage import checkpoint, folders
from purerl.storage.lock import locked
from purerl.train import Bound, bind

# Segments of a run whose environments are stepped on the host: an update each, so that
# Ctrl-C and a checkpoint wait for one only, but no more rows than can be kept.
HOST_SEGMENTS = 10_000
KEEP_CHECKPOINTS = 3


@in_32_bits
def run(
    config: TrainConfig,
    *,
    seeds: int | Sequence[int] = 1,
    out: str | Path | None = None,
    resume: bool = False,
    extend: bool = False,
    start: str | Path | Start | None = None,
    lanes: int | None = None,
    segment_updates: int | None = None,
    checkpoint_seconds: float = 30.0,
    keep_checkpoints: int | None = None,
    data_parallel: bool = False,
    trackers: Sequence[str | Tracker] | None = None,
    progress: bool = True,
) -> RunResult:
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

    Args:
        config: The config of every agent.
        seeds: The number of seeds, which are then 0, 1, ..., or the seeds themselves.
        out: The folder to write; nothing is written without one.
        resume: Whether to go on with the run in `out`.
        extend: Whether, with `resume`, to go on to the `total_timesteps` of this
            config, which may be more than the run was started with, also where it had
            finished. What follows the share of the run that is done, such as an
            annealed learning rate, follows the longer run from there on.
        start: The folder of a run whose agents' networks the agents begin with, seed
            by seed; `purerl.Start` says what else is taken over, and from which agent.
            The folder of this run says what it began with.
        lanes: Agents per block (see `purerl.pmap`), part of what fixes the bits.
        segment_updates: Updates per compiled call, part of what fixes the bits. About a
            hundredth of the run where not given; one, where environments are on the
            host and the run has at most 10,000.
        checkpoint_seconds: The least time between checkpoints, or ten times what the
            last one took where that is longer; 0 saves after every segment.
        keep_checkpoints: The number of last checkpoints that stay; 3, or of a resumed
            run its own, where not given.
        data_parallel: Whether to spread every agent's environments over all devices.
        trackers: More places to write metrics to, beside JSON lines: names (`mlflow`,
            `tensorboard`, `wandb`), or trackers (see `purerl.make_tracker`). A resumed
            run goes on with those that it was started with where none are given.
        progress: Whether to show the progress.

    Raises:
        ConfigError: a config that cannot be trained, a folder that cannot be written
            or resumed, a damaged checkpoint, agents to start from that do not fit,
            several processes.
    """
    check_call("purerl.run", config)
    hosts.require_one(
        "a run of purerl.run",
        "Train seeds in several processes with purerl.sweep(config, seeds=..., "
        "out=...): each process takes a part, and one folder holds all results.",
    )
    lanes = as_count("lanes", lanes)
    segment_updates = as_count("segment_updates", segment_updates)
    keep_checkpoints = as_count("keep_checkpoints", keep_checkpoints)
    check_seconds("checkpoint_seconds", checkpoint_seconds)
    _check_switches(resume, extend, data_parallel)
    folder, source = as_folder("out", out), as_start(start)
    if resume and folder is not None:
        stored = manifest.load_run(folder)  # Before the lock, which makes a folder.
        asked = {"lanes": lanes, "segment_updates": segment_updates}
        asked["data_parallel"] = data_parallel or None
        # The manifest has the number of devices, which is looked at later.
        kept = {**stored, "data_parallel": bool(stored["data_parallel"])}
        _check_kept(folder, kept, asked)
        config = manifest.with_values_of(stored, config)
    config = with_values_of_start(source, config)
    bound = bind(config, on_host=True)
    if bound.env.on_host:
        _check_on_host(bound, lanes, data_parallel)
    require_number(bound, num_seeds(seeds), make_workers())
    members = check_seeds(seeds)
    segments = HOST_SEGMENTS if bound.env.on_host else SEGMENTS
    length = segment_updates or segment_length(bound, segments=segments)
    options = Options(
        lanes=lanes
        or (
            1
            if data_parallel or bound.env.on_host
            else _default_lanes(bound, len(members), length)
        ),
        length=length,
        spread=data_parallel,
        checkpoint_seconds=checkpoint_seconds,
        keep=keep_checkpoints or KEEP_CHECKPOINTS,
    )
    chosen = choose(trackers, folder if resume else None)
    begun = None if source is None or resume else read_start(source, bound, members)
    with locked(folder), folders.undone_if_empty(folder):
        options = _open_folder(
            folder, bound.config, members, options, resume, extend, begun
        )
        if resume and folder is not None:
            if keep_checkpoints is not None:
                options = options._replace(keep=keep_checkpoints)
                folders.update(folder, {"keep_checkpoints": keep_checkpoints})
            begun = _begun_with(folder, source, bound, members)
        loop = RunLoop(bound, members, folder, options, chosen, progress, begun)
        return loop.run(resume)


def _check_switches(resume: bool, extend: bool, data_parallel: bool) -> None:
    """Refuse switches that are given a folder or a number.

    Raises:
        ConfigError: naming the switch, and where the folder or the number belongs.
    """
    check_switch("resume", resume, "The folder of the run goes to out.")
    check_switch(
        "extend", extend, "The number of steps in all is total_timesteps of the config."
    )
    check_switch(
        "data_parallel", data_parallel, "An agent is spread over all devices there are."
    )


def _check_kept(folder: Path, stored: dict[str, Any], asked: dict[str, Any]) -> None:
    """Refuse to resume a run with another way of training than it began with.

    Args:
        folder: The folder of the run.
        stored: The manifest of the run.
        asked: Options by name; None stands for the run's own.

    Raises:
        ConfigError: naming the option, both values and the remedy.
    """
    for name, value in asked.items():
        if value is not None and value != stored[name]:
            raise ConfigError(
                f"{name} must be {stored[name]}, got {value}: the run in {folder} has "
                "begun so, and its numbers depend on it. Leave it out to resume."
            )


def _check_on_host(bound: Bound, lanes: int | None, data_parallel: bool) -> None:
    """Refuse options of compiled programs that have their environments in them.

    Raises:
        ConfigError: naming the option and the remedy.
    """
    env = bound.env.name
    if data_parallel:
        raise ConfigError(
            f"data_parallel must be False with env={env!r}: its environments are "
            "stepped on the host, and are not spread over devices."
        )
    if lanes not in (None, 1):
        raise ConfigError(
            f"lanes must be left out with env={env!r}, got {lanes}: its environments "
            "are stepped on the host, and agents take turns."
        )


def _begun_with(
    folder: Path, source: Start | None, bound: Bound, members: tuple[int, ...]
) -> Begun | None:
    """Return the agents that a run had begun with, if it has to begin again."""
    described = manifest.load_run(folder).get("start")
    check_same_start(described, source)
    if described is None or checkpoint.steps(folder / "checkpoints"):
        return None
    return read_again(described, bound, members)


def _default_lanes(bound: Bound, num_members: int, length: int) -> int:
    """The width of a block where nobody asks for one."""
    workers = make_workers()
    lanes = default_lanes(num_members, workers)
    members_each = -(-num_members // len(workers))
    return fitting_lanes(bound, lanes, members_each, length, workers)


def _open_folder(
    folder: Path | None,
    config: TrainConfig,
    seeds: tuple[int, ...],
    options: Options,
    resume: bool,
    extend: bool,
    begun: Begun | None,
) -> Options:
    """Create or check the folder; a resumed run keeps its own lanes and length."""
    if extend and not resume:
        raise ConfigError(
            "extend=True goes on with a run: give resume=True and out=, its folder."
        )
    if folder is None:
        if resume:
            raise ConfigError("resume needs out: the folder of the run to go on with.")
        return options
    if not resume:
        description = manifest.describe_run(
            config, seeds, options.lanes, options.length, options.spread, options.keep
        )
        if begun is not None:
            description["start"] = begun.described
        manifest.create(folder, description)
        return options
    stored = manifest.load_run(folder)
    manifest.check_not_edited(folder, stored)
    manifest.check_same(stored, config, seeds, may_be_longer=extend)
    manifest.check_devices(stored)
    folders.require_writable(folder)
    folders.finish(folder, stored)
    manifest.finish_extension(folder, stored)
    if extend:
        manifest.extend(folder, stored, config)
    return options._replace(
        lanes=stored["lanes"],
        length=stored["segment_updates"],
        spread=bool(stored["data_parallel"]),
        keep=stored["keep_checkpoints"],
    )
