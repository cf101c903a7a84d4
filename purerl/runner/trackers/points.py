"""A finished sweep in a tracker: one outer run, one nested run per point and seed."""

import contextlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from purerl.config import ConfigError
from purerl.runner.trackers import make_tracker
from purerl.runner.trackers.base import Member, TrackedRun, Tracker

if TYPE_CHECKING:
    import xarray as xr

Point = Mapping[str, Any]
_STEPS = "env_steps"


def track_points(
    tracker: str | Tracker,
    points: Iterable[Point],
    *,
    name: str,
    config: Mapping[str, Any],
    folder: str | Path | None = None,
) -> int:
    """Write the members of a finished sweep into a tracker, one after the other.

    Args:
        tracker: Name of a tracker, or one that has not begun.
        points: Members, a dict each, read one at a time (so a generator may read
            files): `params` (values by which the point differs, by name), `seed`,
            `rows` (of training: `env_steps` and metrics, as in `metrics/train`), and
            `evaluation_rows` (the same of evaluations; a list per metric holds its
            episodes). See `dataset_points`.
        name: Name of the sweep.
        config: Config of the sweep's base, plain values (`purerl.serialise.to_dict`).
        folder: Folder of the sweep; its pictures and `config.yaml` are kept with it.

    Returns:
        How many members were written.

    Raises:
        ConfigError: a point without params or seed, an unknown tracker, or no points.
    """
    if isinstance(tracker, str):
        tracker = make_tracker(tracker)
    path = Path(folder) if folder is not None else None
    run = TrackedRun(name, config, {}, path, is_sweep=True)
    return write_points(tracker, points, run)


def write_points(
    tracker: Tracker,
    points: Iterable[Point],
    run: TrackedRun,
    first: int = 0,
    on_member: Callable[[int], None] = lambda number: None,
) -> int:
    """Write the members of a sweep that a tracker lacks; see `track_points`.

    Args:
        tracker: Tracker that has not begun.
        points: Points of all members.
        run: The description of the sweep for the tracker, without members; `id` where
            it goes on.
        first: Number of the members that it has already.
        on_member: Function that is called with the number of members that the tracker
            has, after each.

    Returns:
        How many members were written.

    Raises:
        ConfigError: a point without params or seed, or no points.
    """
    members: dict[int, Member] = {}
    run, point, number, has_begun = run._replace(members=members), None, -1, False
    try:
        for number, point in enumerate(points):
            if number < first:
                continue
            members[number] = _member(number, point)
            if not has_begun:  # A tracker may open its first member when it begins.
                tracker.begin(run)
                has_begun = True
            _write(tracker, number, point)
            on_member(number + 1)
        if point is None:
            raise ConfigError(
                "points is empty: the sweep has no finished member to track."
            )
        if not has_begun:  # It has all members, and perhaps not all files.
            members[number] = _member(number, point)
            tracker.begin(run)
        _keep_files(tracker, run.folder)
    except BaseException as error:
        if has_begun:
            stopped = isinstance(error, KeyboardInterrupt)
            with contextlib.suppress(Exception):  # The first failure is to be told.
                tracker.close("interrupted" if stopped else "failed")
        raise
    tracker.close("finished")
    return max(0, number + 1 - first)


def _member(number: int, point: Point) -> Member:
    if not {"params", "seed"} <= set(point):
        raise ConfigError(
            f"points[{number}] has {', '.join(point) or 'nothing'}; it needs params "
            "and seed, and may have rows and evaluation_rows."
        )
    values = ", ".join(f"{k}={_brief(v)}" for k, v in point["params"].items())
    seed = f"seed={point['seed']}"
    text = f"{values}, {seed}" if values else seed
    return Member(text, int(point["seed"]), dict(point["params"]))


def _brief(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _write(tracker: Tracker, number: int, point: Point) -> None:
    rows = [(row[_STEPS], "train", row) for row in point.get("rows", ())]
    rows += [
        (row[_STEPS], "evaluation", row) for row in point.get("evaluation_rows", ())
    ]
    for _, kind, row in sorted(rows, key=lambda item: item[0]):
        tracker.log(kind, number, dict(row))
    tracker.flush()
    tracker.end_member(number)


def _keep_files(tracker: Tracker, folder: Path | None) -> None:
    if folder is None:
        return
    for path in sorted(folder.glob("*.png")):
        tracker.artifact(path, f"figures/{path.name}")
    for name in ("config.yaml", "manifest.json"):
        if (folder / name).exists():
            tracker.artifact(folder / name, f"sweep/{name}")


def dataset_points(dataset: "xr.Dataset") -> Iterator[Point]:
    """Return the members of a sweep's dataset, as `track_points` takes them.

    Args:
        dataset: The dataset `SweepResult.dataset`: variables `(*axes, seed, segment)`
            and `evaluation_<name>` `(*axes, seed, evaluation, ...)`, names of the axes
            in the attribute `axes`.

    Yields:
        A dict per member that has been trained.
    """
    names = json.loads(dataset.attrs["axes"])
    outer = [str(d) for d in dataset[_STEPS].dims if d != "segment"]
    train = [n for n in dataset.data_vars if "segment" in dataset[n].dims]
    evaluated = [n for n in dataset.data_vars if "evaluation" in dataset[n].dims]
    stacked = dataset.stack(member_=outer).reset_index("member_")
    for index in range(stacked.sizes["member_"]):
        member = stacked.isel(member_=index)
        rows = _rows(member, {str(n): str(n) for n in train}, "segment")
        if not rows:
            continue
        short = {str(n): str(n).removeprefix("evaluation_") for n in evaluated}
        yield {
            "params": {n: member[n].item() for n in names},
            "seed": int(member["seed"].item()),
            "rows": rows,
            "evaluation_rows": _rows(member, short, "evaluation"),
        }


_LONG = {"return": "episode_return", "length": "episode_length"}


def _rows(member: "xr.Dataset", names: Mapping[str, str], dim: str) -> list[Point]:
    """A dict per index along `dim`, as far as its `env_steps` are numbers."""
    columns = {_LONG.get(new, new): member[old].values for old, new in names.items()}
    found = []
    for index, steps in enumerate(columns.get(_STEPS, ())):
        if math.isnan(steps):
            break
        row = {name: column[index].tolist() for name, column in columns.items()}
        found.append({**row, _STEPS: int(steps)})
    return found
