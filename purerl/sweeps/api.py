"""purerl.sweep: axes and seeds in, labelled results out."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from purerl.config import ConfigError, TrainConfig
from purerl.precision import in_32_bits
from purerl.runner.arguments import as_folder, check_call, check_extend
from purerl.runner.trackers import Tracker, choose
from purerl.scale import hosts
from purerl.scale.devices import as_count, make_workers
from purerl.storage import folders
from purerl.sweeps.loop import SweepLoop, broadcast_outline
from purerl.sweeps.options import Options
from purerl.sweeps.plan import check_groups, list_points, make_outline
from purerl.sweeps.planner import worker_limit
from purerl.sweeps.result import SweepResult


@in_32_bits
def sweep(
    config: TrainConfig,
    axes: Mapping[str, Any] | None = None,
    *,
    seeds: int | Sequence[int] = 4,
    out: str | Path | None = None,
    design: str = "grid",
    num_points: int | None = None,
    design_seed: int = 0,
    extend: bool = False,
    lanes: int | str | None = None,
    segment_updates: int | None = None,
    chunk_blocks: int | None = None,
    memory_limit: str | float | None = None,
    keep_states: bool = False,
    trackers: Sequence[str | Tracker] | None = None,
    progress: bool = True,
) -> SweepResult:
    """Train every point of some axes with every seed, in as few programs as possible.

    Points that differ in dynamic fields only are one program, and run in blocks of
    lanes over all devices; static fields (layer sizes, `num_envs`, `env`,
    `algorithm`) make a group each. With `out`, every finished chunk is a file: the
    same call after a kill trains what is missing, and the result is bitwise that of an
    uninterrupted one. Under `jax.distributed` every process trains its part.

    Args:
        config: The config of every point, where no axis says otherwise.
        axes: Values by (dotted) name of the field, or in a random design a distribution
            (`purerl.uniform`, `purerl.loguniform`, `purerl.choice`). `algorithm` is a
            field too: what the other algorithm has in common is carried over.
        seeds: The number of seeds per point, which are then 0, 1, ..., or the seeds
            themselves.
        out: The folder to write; results stay in memory without one, which several
            processes cannot share.
        design: The kind of design: `grid`, `zip` or `random`.
        num_points: The number of points of a random design. Equal draws are trained
            once and appear at each of their points.
        design_seed: The seed of a random design's draws.
        extend: Whether `out` may hold a sweep of fewer points or seeds; the missing
            ones are trained.
        lanes: The width of a block, part of what fixes the bits: a number, `"auto"` to
            measure it (see `purerl.find_lanes`; few members get narrower ones), or a
            default by the population's size.
        segment_updates: Updates per compiled call, part of what fixes the bits. About a
            hundredth of the run where not given.
        chunk_blocks: The number of blocks that a worker holds, and a file keeps; what
            fits the memory where not given. It changes no bit.
        memory_limit: Bytes for training, such as `"2GB"`; most of what is free where
            not given.
        keep_states: Whether to keep the final states, to act with them or go on. A
            sweep that was started with it goes on with it.
        trackers: Trackers that are told of members as they finish, a nested run each:
            names (`mlflow`, `tensorboard`, `wandb`) or trackers (see
            `purerl.make_tracker`). A sweep that goes on does so with those that it was
            started with where none are given.
        progress: Whether to print the plan and show a progress bar.

    Raises:
        ConfigError: an axis or value that cannot be, a folder of another sweep (with
            what differs), memory that does not suffice; before anything is trained.
            A group that is compiled after others were trained raises it where there is
            a folder; without one the sweep ends with what was trained, and says so.
    """
    check_call("purerl.sweep", config)
    chunk_blocks = as_count("chunk_blocks", chunk_blocks)
    segment_updates = as_count("segment_updates", segment_updates)
    folder = as_folder("out", out)
    check_extend(extend, folder)
    if folder is None and hosts.count() > 1:
        raise ConfigError(
            f"out: a sweep of {hosts.count()} processes needs a folder: each trains a "
            "part and writes its own files, and none holds all results; give out."
        )

    # Of several processes the first one tells what it has seen of all of them.
    def choose_trackers() -> list[Tracker]:
        return choose(trackers, folder) if hosts.index() == 0 else []

    if isinstance(lanes, str) and lanes != "auto":
        raise ConfigError(f"lanes must be a number or 'auto', got {lanes!r}.")
    if not isinstance(lanes, str):
        lanes = as_count("lanes", lanes)
    axes = {} if axes is None else axes
    points = list_points(config, axes, seeds, design, num_points, design_seed)
    workers = make_workers()
    limit = worker_limit(memory_limit, workers)
    outline = make_outline(
        config, points, seeds, segment_updates, lanes, workers, limit
    )
    # A folder of before this was checked goes on, and can be read, as it began.
    if not folders.is_begun(folder):
        check_groups(outline.groups)
    options = Options(
        folder,
        lanes,
        segment_updates,
        chunk_blocks,
        # The least that any process has: all must cut the same chunks.
        float(hosts.all_min(limit)),
        keep_states,
        extend,
        hosts.run_on_all(choose_trackers),
    )
    return SweepLoop(broadcast_outline(outline), workers, options, progress).run()
