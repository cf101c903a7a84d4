"""A finished sweep in a tracker: one outer run, one nested run per point and seed."""

import contextlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from purerl.config import ConfigError
from purerl.runner.trackers import make_tracker
from purerl.runner.trackers.base import Member, TrackedRun, Tracker
from purerl.runner.trackers.members import Ended

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
            `evaluation_rows` (of evaluations, in the same form; a list per metric holds
            its episodes). See `dataset_points`.
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
    members: dict[int, Member] = {}
    run = TrackedRun(name, config, members, path, is_sweep=True)
    number = 0
    try:
        for number, point in enumerate(points, 1):
            end = ended(number - 1, point)
            members[end.number] = end.member
            if number == 1:  # A tracker may open its first member when it begins.
                tracker.begin(run)
            for kind, row in end.rows:
                tracker.log(kind, end.number, row)
            tracker.flush()
            tracker.end_member(end.number)
        if not number:
            raise ConfigError(
                "points is empty: the sweep has no finished member to track."
            )
        for target, source in files_of(path).items():
            tracker.artifact(source, target)
    except BaseException as error:
        if members:
            stopped = isinstance(error, KeyboardInterrupt)
            with contextlib.suppress(Exception):  # The first failure is to be told.
                tracker.close("interrupted" if stopped else "failed")
        raise
    tracker.close("finished")
    return number


def ended(number: int, point: Point) -> Ended:
    """Return a member as trackers are told it, from what `track_points` takes.

    Args:
        number: Number of the member.
        point: The member as a dict: `params`, `seed`, `rows` and `evaluation_rows`.

    Raises:
        ConfigError: a point without params or seed.
    """
    if not {"params", "seed"} <= set(point):
        raise ConfigError(
            f"points[{number}] has {', '.join(point) or 'nothing'}; it needs params "
            "and seed, and may have rows and evaluation_rows."
        )
    values = ", ".join(f"{k}={_brief(v)}" for k, v in point["params"].items())
    seed = f"seed={point['seed']}"
    text = f"{values}, {seed}" if values else seed
    rows = [("train", dict(row)) for row in point.get("rows", ())]
    rows += [("evaluation", dict(row)) for row in point.get("evaluation_rows", ())]
    rows.sort(key=lambda row: row[1][_STEPS])
    return Ended(number, Member(text, int(point["seed"]), dict(point["params"])), rows)


def _brief(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def files_of(folder: Path | None) -> dict[str, Path]:
    """Return the files of a folder that trackers keep, by the name under which."""
    if folder is None:
        return {}
    pictures = sorted(folder.glob("*.png"))
    figures = {f"figures/{path.name}": path for path in pictures}
    plain = [folder / name for name in ("config.yaml", "manifest.json")]
    return figures | {f"sweep/{path.name}": path for path in plain if path.exists()}


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
    rows = []
    for index, steps in enumerate(columns.get(_STEPS, ())):
        if math.isnan(steps):
            break
        row = {name: column[index].tolist() for name, column in columns.items()}
        rows.append({**row, _STEPS: int(steps)})
    return rows
