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
from purerl.runner.loop import RunLoop
from purerl.runner.manifest import Options
from purerl.runner.result import RunResult
from purerl.runner.start import (
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
    for name, switch, instead in (
        ("resume", resume, "The folder of the run goes to out."),
        ("extend", extend, "The number of steps is total_timesteps of the config."),
        ("data_parallel", data_parallel, "An agent is spread over all devices."),
    ):
        check_switch(name, switch, instead)
    if extend and not resume:
        raise ConfigError(
            "extend=True goes on with a run: give resume=True and out=, its folder."
        )
    folder, source = as_folder("out", out), as_start(start)
    if resume:
        if folder is None:
            raise ConfigError("resume needs out: the folder of the run to go on with.")
        stored = manifest.load_run(folder)  # Before the lock, which makes a folder.
        config = manifest.with_values_of(stored, config)
        asked = {"lanes": lanes, "segment_updates": segment_updates}
        _check_kept(folder, stored, asked, data_parallel)
    config = with_values_of_start(source, config)
    bound = bind(config, on_host=True)
    if bound.env.on_host:
        _check_on_host(bound, lanes, data_parallel)
    require_number(bound, num_seeds(seeds), make_workers())
    members = check_seeds(seeds)
    segments = HOST_SEGMENTS if bound.env.on_host else SEGMENTS
    length = segment_updates or segment_length(bound, segments=segments)
    if data_parallel or bound.env.on_host:
        lanes = lanes or 1
    options = Options(
        lanes=lanes or _default_lanes(bound, len(members), length),
        length=length,
        spread=data_parallel,
        checkpoint_seconds=checkpoint_seconds,
        keep=keep_checkpoints or KEEP_CHECKPOINTS,
    )
    chosen = choose(trackers, folder if resume else None)
    begun = None if source is None or resume else read_start(source, bound, members)
    with locked(folder), folders.undone_if_empty(folder):
        if folder is not None and resume:
            options = _go_on(folder, bound, members, options, extend)
            if keep_checkpoints is not None:
                options = options._replace(keep=keep_checkpoints)
                folders.update(folder, {"keep_checkpoints": keep_checkpoints})
            described = manifest.load_run(folder).get("start")
            check_same_start(described, source)
            if described and not checkpoint.steps(folder / "checkpoints"):
                begun = read_again(described, bound, members)
        elif folder is not None:
            described = {} if begun is None else {"start": begun.described}
            manifest.check_new(folder)
            run = manifest.describe_run(bound.config, members, options)
            folders.write(folder, run | described)
        loop = RunLoop(bound, members, folder, options, chosen, progress, begun)
        return loop.run(resume)


def _check_kept(
    folder: Path, stored: dict[str, Any], asked: dict[str, Any], data_parallel: bool
) -> None:
    """Refuse to resume a run with another way of training than it began with.

    Raises:
        ConfigError: naming the option, both values and the remedy.
    """
    # The manifest has the number of devices, which is looked at later.
    kept = {**stored, "data_parallel": bool(stored["data_parallel"])}
    for name, value in {**asked, "data_parallel": data_parallel or None}.items():
        if value is not None and value != kept[name]:
            raise ConfigError(
                f"{name} must be {kept[name]}, got {value}: the run in {folder} has "
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


def _default_lanes(bound: Bound, num_members: int, length: int) -> int:
    """The width of a block where nobody asks for one."""
    workers = make_workers()
    lanes = default_lanes(num_members, workers)
    members_each = -(-num_members // len(workers))
    return fitting_lanes(bound, lanes, members_each, length, workers)


def _go_on(
    folder: Path, bound: Bound, seeds: tuple[int, ...], options: Options, extend: bool
) -> Options:
    """Check that a run may go on; it keeps its own lanes and length."""
    stored = manifest.load_run(folder)
    manifest.check_same(stored, bound.config, seeds, may_be_longer=extend)
    manifest.check_devices(stored)
    manifest.check_not_edited(folder, stored)
    folders.go_on(folder, stored)
    if extend:
        manifest.extend(folder, stored, bound.config)
    return options._replace(
        lanes=stored["lanes"],
        length=stored["segment_updates"],
        spread=bool(stored["data_parallel"]),
        keep=stored["keep_checkpoints"],
    )
