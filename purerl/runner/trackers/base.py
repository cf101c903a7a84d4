"""The base of all trackers: an object that is told about a run between segments."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import util
from pathlib import Path
from typing import Any, NamedTuple

from purerl.config import ConfigError
from purerl.metrics import is_defined

Row = dict[str, Any]
AXES = ("env_steps", "update", "generation")


class Member(NamedTuple):
    """One curve of a run or a sweep.

    Attributes:
        name: Name that people see, `seed=3`.
        seed: Seed of the agent; None where the member is several agents.
        params: Values by which the member differs from its neighbours: a sweep's point,
            nothing in a run.
    """

    name: str
    seed: int | None
    params: Mapping[str, Any]

    @property
    def labels(self) -> dict[str, Any]:
        """The values by which the member differs from its neighbours, and its seed."""
        seed = {} if self.seed is None else {"seed": self.seed}
        return {**self.params, **seed}


class TrackedRun(NamedTuple):
    """The facts that a tracker is told when a run or a sweep begins.

    Attributes:
        name: Name that people see.
        config: Config as plain values (`purerl.serialise.to_dict`).
        members: Members by the number that `log` names them with: in a run the seed, in
            a sweep the number of the point.
        folder: Folder of the run, if it writes one.
        id: The identity that the tracker itself gave to an earlier call of the same
            run, where that left off.
        is_sweep: Whether members differ in more than their seed.
        axis: Name of the number of a row that its charts lie over.
        kind: Kind of what is tracked where it is neither a run nor a sweep,
            `evolution`.
        replaces: The identity that the tracker gave to an earlier call of the same run
            whose rows hold no longer: they come again and are others.
    """

    name: str
    config: Mapping[str, Any]
    members: dict[int, Member]
    folder: Path | None = None
    id: str | None = None
    is_sweep: bool = False
    axis: str = "env_steps"
    kind: str = ""
    replaces: str | None = None


def name_of(folder: Path | None, kind: str) -> str:
    """Return the name that people see: that of the folder, or one with the time."""
    return (
        folder.resolve().name if folder else f"{kind}-{time.strftime('%Y%m%d-%H%M%S')}"
    )


def describe(
    folder: Path | None, config: Mapping[str, Any], seeds: Iterable[int]
) -> TrackedRun:
    """Describe a run to trackers.

    Args:
        folder: Folder of the run, if it writes one.
        config: Config as plain values (`purerl.serialise.to_dict`).
        seeds: Seeds of its agents.
    """
    members = {seed: Member(f"seed={seed}", seed, {}) for seed in seeds}
    return TrackedRun(name_of(folder, "run"), config, members, folder)


class Piece(NamedTuple):
    """What trackers are told at once: the rows of an update, or a member that ended.

    Attributes:
        number: Its number, by which it is known which trackers have it; of a member,
            that with which `Tracker.log` names it.
        rows: Rows with their `kind`, in the order of their steps, each with the number
            of its member.
        ended: The member that has ended, as people see it.
    """

    number: int
    rows: Sequence[tuple[int, Row]]
    ended: Member | None = None


def ended(number: int, member: Member, rows: Iterable[Row]) -> Piece:
    """Return a member that has ended, from its rows with their `kind`."""
    return Piece(number, [(number, row) for row in rows], member)


def files_of(
    folder: Path | None, **names: Sequence[str]
) -> Callable[[Path], dict[str, Path]]:
    """Return what makes the files of a folder that trackers keep, if they are there.

    Args:
        folder: The folder, if there is one.
        **names: Names of files, or patterns such as `*.png`, by the name of the folder
            in which trackers keep them.
    """

    def files(drawn: Path) -> dict[str, Path]:
        del drawn
        return {
            f"{under}/{path.name}": path
            for under, patterns in (names.items() if folder else ())
            for pattern in patterns
            for path in sorted(folder.glob(pattern))  # type: ignore[union-attr]
        }

    return files


class Tracker:
    """A place to write metrics to. Subclasses write `log`; the rest may stay as it is.

    Attributes:
        name: Name in sentences and in `trackers.json`.
        id: Identity under which `begin` can go on with the same run, kept in
            `trackers.json`.
        background: Whether a thread of its own calls it. Training waits for every call
            of one that says no, which so acts between two segments.
        stop: Whether a call is to stop as after Ctrl-C. A tracker sets it in any of its
            calls. `purerl.run` reads it before every segment, sweeps before every chunk
            and in their end, searches and evolutions before every step, studies before
            every report, comparisons between blocks of agents.
    """

    name = "tracker"
    id: str | None = None
    background = True
    stop = False

    @property
    def options(self) -> dict[str, Any]:
        """Keyword arguments of `make_tracker` that make this tracker again; plain."""
        return {}

    def begin(self, run: TrackedRun) -> None:
        """Begin a run, or go on with it where `run.id` is set."""

    def log(self, member: int, step: int, row: Row) -> None:
        """Take one row of a member.

        Args:
            member: Number of the member, see `TrackedRun.members`; in a run the seed.
            step: Its place on the axis, environment steps in a run.
            row: Names and numbers; `kind` is `train`, `evaluation` or `evolution`.
        """
        raise NotImplementedError

    def flush(self) -> None:
        """Write what was logged: the rows of one segment or of several.

        What was logged before counts as written when this returns; in a tracker that
        has no `flush` of its own, when `log` returns.
        """

    def end_member(self, member: int) -> None:
        """End a member: no more of its rows will come."""

    def artifact(self, path: Path, name: str) -> None:
        """Keep a file with the run, under `name` (`figures/curve.png`)."""

    def close(self, status: str = "finished") -> None:
        """Close a run that has `finished`, was `interrupted`, or has `failed`.

        A tracker that has failed itself is closed as `failed` too, and it is called no
        more; an error of that call counts no more.
        """

    def where(self) -> str:
        """Return a sentence about how to look at what was written; it may be empty."""
        return ""


def scalars(row: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Return a row's numbers, under the names that trackers show: `train/value_loss`.

    A list holds an evaluation's episodes: its mean stands under the name itself, its
    extremes under `..._min` and `..._max`. `env_steps` is the axis, `update` the same
    axis in another unit, and `generation` that of an evolution; none makes a chart.
    What is undefined is left out (returns where no episode ended, losses of a warm-up);
    a NaN of a segment that learned stays: the run has diverged.
    """
    kind = row["kind"]
    for name, value in row.items():
        if name in AXES or isinstance(value, str | bool):
            continue
        if isinstance(value, list):
            known = [float(v) for v in value if v is not None and not math.isnan(v)]
            if known:
                yield f"{kind}/{name}", sum(known) / len(known)
                yield f"{kind}/{name}_min", min(known)
                yield f"{kind}/{name}_max", max(known)
            continue
        number = math.nan if value is None else float(value)
        if not math.isnan(number) or is_defined(name, row):
            yield f"{kind}/{name}", number


def flat_params(values: Mapping[str, Any], limit: int = 250) -> dict[str, str]:
    """Flatten a config to names and short texts: `env_params.length` -> `0.7`.

    A loss is one text, `ClipDrift(clip_eps=0.2)`; long arrays are cut at `limit`.
    """
    texts: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, Mapping) and "type" in value:
            inner = ", ".join(f"{k}={v}" for k, v in value.items() if k != "type")
            text = f"{value['type']}({inner})"
        elif isinstance(value, Mapping) and value:
            nested = {f"{name}.{key}": inner for key, inner in value.items()}
            texts.update(flat_params(nested, limit))
            continue
        else:
            text = str(value)
        texts[name] = text if len(text) <= limit else text[: limit - 1] + "…"
    return texts


def require(name: str, packages: Sequence[str]) -> None:
    """Refuse a tracker of which a package is not installed.

    Raises:
        ConfigError: saying how to install it.
    """
    for package in packages:
        try:
            is_there = util.find_spec(package) is not None
        except (ImportError, ValueError):  # None in sys.modules: not to be imported
            is_there = False
        if not is_there:
            raise ConfigError(
                f"tracker {name!r} needs the package {package}, which is not "
                "installed; install it with: pip install 'purerl[tracking]'"
            )


class Entry(NamedTuple):
    """A tracker by name: the module, imported when it is made, the class, its needs."""

    module: str
    cls: str
    packages: tuple[str, ...] = ()


_HERE = "purerl.runner.trackers"
TRACKERS = {
    "mlflow": Entry(
        f"{_HERE}.mlflow", "MLflowTracker", ("mlflow", "sqlalchemy", "alembic")
    ),
    "tensorboard": Entry(
        f"{_HERE}.tensorboard", "TensorBoardTracker", ("tensorboardX",)
    ),
    "wandb": Entry(f"{_HERE}.wandb", "WandbTracker", ("wandb",)),
}
