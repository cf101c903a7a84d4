"""The result of a sweep: labelled arrays over its axes and seeds."""

import contextlib
import json
import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from purerl import serialise
from purerl.config import ConfigError, TrainConfig, check_known, check_mapping
from purerl.execution.format import say, with_noun
from purerl.report import plots, sweep_data
from purerl.report.plots import Line, sweep_lines
from purerl.report.shown import Shown, View, stated
from purerl.runner import manifest
from purerl.runner.arguments import stored_folder
from purerl.runner.result import RENAMED, Best
from purerl.runner.trackers.base import (
    Member,
    Piece,
    TrackedRun,
    ended,
    files_of,
    name_of,
)
from purerl.runner.trackers.group import Group, Told
from purerl.serialise import env_name
from purerl.space import axes as labels
from purerl.space.axes import Design, column, config_at
from purerl.storage import checkpoint, folders
from purerl.sweeps import store
from purerl.sweeps.groups import digest, member_id, written
from purerl.train import make_algorithm, make_policy
from purerl.types import PyTree

if TYPE_CHECKING:
    import xarray as xr


class SweepResult(Shown):
    """A sweep's results, labelled by its axes; arrays are read when asked for.

    Args:
        config: The base config of every point.
        design: The axes and points.
        seeds: Seeds of every point.
        source: The members' arrays: those of a folder, or chunks in memory.
        out: The folder, if any.
        summary: Numbers about how the sweep was run.
        written: Points as the manifest holds them; those of the design where not given.

    Attributes:
        config: The base config of every point.
        design: The axes and points.
        seeds: Seeds of every point.
        written: Points as the manifest holds them.
        finished: Whether every member has been trained.
        out: The folder, if any.
        summary: Numbers about how the sweep was run. Over all processes: `members` of
            the sweep, `trained_members` and `env_steps` of this call, `train_seconds`
            of the slowest process, `steps_per_second`. Of this process: `compilations`,
            `compile_seconds`, and bytes of memory.
    """

    def __init__(
        self,
        config: TrainConfig,
        design: Design,
        seeds: Sequence[int],
        source: store.MemberStore,
        out: Path | None = None,
        summary: Mapping[str, Any] | None = None,
        written: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        self.config, self.design, self.seeds = config, design, tuple(seeds)
        self.out, self.summary = out, dict(summary or {})
        self._source = source
        # The points as they were written: a loss may not come back to the last bit.
        self.written = list(written or design.points)
        self._read: dict[str, xr.DataArray] = {}

    @cached_property
    def ids(self) -> list[list[str]]:
        """Ids of the members by point and seed; equal draws share one."""
        return [
            [member_id(point, seed) for seed in self.seeds] for point in self.written
        ]

    @property
    def num_finished(self) -> int:
        """The number of members that have been trained."""
        return sum(id in self._source for row in self.ids for id in row)

    @property
    def finished(self) -> bool:
        """True if every member has been trained."""
        return self.num_finished == sum(map(len, self.ids))

    @cached_property
    def names(self) -> dict[str, str]:
        """Name of a variable -> name of its array on disk.

        A training metric that is called like an axis, such as `policy_loss`, has the
        name `train_policy_loss`.
        """
        arrays = {}
        for name in self._source.names():  # Every file is opened.
            kind, _, metric = name.partition("/")
            if kind == "train":
                arrays[labels.variable_of(metric, self.design.names)] = name
            elif kind == "evaluation":
                arrays[f"evaluation_{RENAMED.get(metric, metric)}"] = name
            elif kind == "diverged_at":
                arrays[kind] = name
        return arrays

    def __getitem__(self, name: str) -> "xr.DataArray":
        """Return one variable over all points and seeds; NaN where there is nothing.

        Raises:
            ConfigError: no such variable.
        """
        if name in self.design.names:
            name = labels.variable_of(name, self.design.names)
        if name not in self._read:
            if not self.names:
                raise ConfigError("no member of the sweep has finished yet.")
            check_known(name, list(self.names), "the sweep")
            self._read[name] = self._variable(name)
        return self._read[name]

    @cached_property
    def dataset(self) -> "xr.Dataset":
        """All variables: `(*axes, seed, segment)`, `(*axes, seed, evaluation, ...)`."""
        import xarray as xr

        return xr.Dataset({name: self[name] for name in self.names}, attrs=self._attrs)

    @cached_property
    def _attrs(self) -> dict[str, str]:
        """What pictures are told of the sweep, the folder's config if there is one."""
        stored = {} if self.out is None else folders.load(self.out)
        config = stored.get("config") or serialise.to_dict(self.config)
        return {
            "config": json.dumps(config),
            "design": self.design.kind,
            "axes": json.dumps(list(self.design.names)),
        }

    def sel(self, point: Mapping[str, Any] | None = None, **axes: Any) -> "xr.Dataset":
        """Return the results at some values: `sel(learning_rate=3e-4, seed=7)`.

        A number with a fraction also selects a value that is the same but for rounding.
        In a zip or random design the points that match stay along
        `point`.

        Args:
            point: Values by name of the axis, for names with dots.
            axes: Values by name of the axis, as keywords.

        Raises:
            ConfigError: no such axis or value.
        """
        check_mapping("point", point, '{"policy_loss.clip_eps": 0.1}')
        dataset = self.dataset
        for name, value in {**(point or {}), **axes}.items():
            check_known(name, [*self.design.names, "seed"], "the sweep")
            index = self._where(dataset[name].values, name, value)
            dim = dataset[name].dims[0]
            dataset = dataset.isel({dim: index if dim == "point" else index[0]})
        return dataset

    def scores(self, metric: str = "episode_return") -> "xr.DataArray":
        """Return a number per member `(*axes, seed)`; NaN if it diverged or is missing.

        Args:
            metric: The metric's name. `episode_return` and `episode_length` are means
                of the last evaluation's episodes, of the last training row where
                nothing was evaluated; another metric is its last training row.
        """
        last = self[metric].isel(segment=0, drop=True)
        return last.copy(data=self._scores(metric).scores.reshape(last.shape))

    def _scores(self, metric: str) -> sweep_data.Scores:
        """A metric's last values, as tables and pictures have them."""
        import xarray as xr

        name = f"evaluation_{RENAMED.get(metric, metric)}"
        if metric not in RENAMED or name not in self.names:
            name = str(self[metric].name)
        names = {name, *sweep_data.BESIDE} & self.names.keys()
        part = xr.Dataset({name: self[name] for name in names}, attrs=self._attrs)
        return sweep_data.read_scores(part, name)

    def best(
        self,
        metric: str = "episode_return",
        mode: str = "max",
        *,
        env: Any = None,
    ) -> Best:
        """Return the point with the best mean score over its seeds.

        A member that diverged or is missing counts as the worst score of the sweep, or,
        where the highest `episode_return` is the best, as a lower training return that
        a member which did not diverge has had on its way.

        Args:
            metric: The metric that is compared, see `scores`.
            mode: Whether the highest score is the best (`max`) or the lowest one
                (`min`).
            env: The value of the axis `env` whose points are compared, where it has
                several: returns of different tasks do not compare.

        Raises:
            ConfigError: no member has a score, another mode, no such environment, or
                several and `env` is not given.
        """
        if mode not in ("max", "min"):
            raise ConfigError(f"mode must be max or min, got {mode!r}.")
        points, found = self.design.points, self._scores(metric)
        if env is None:
            found.check_one_task()
            where = np.arange(len(points))
        else:
            check_known(
                sweep_data.ENV, list(self.design.names), "the axes of the sweep"
            )
            values = np.asarray(column(points, sweep_data.ENV))
            where = self._where(values, sweep_data.ENV, env)
        sign = 1.0 if mode == "max" else -1.0
        if mode == "min":
            found = found._replace(scores=-found.scores, lowest=np.nan)
        known = np.isfinite(found.scores[where]).sum(1)
        if not known.any():
            of = "the sweep" if env is None else f"{env!r}"
            raise ConfigError(f"no member of {of} has a final {metric}.")
        means = found.means[where]
        # Of equal points one whose members all have scores comes first.
        point = points[int(where[np.lexsort((-known, -means))[0]])]
        return Best(point, float(sign * means.max()), self.config_at(point))

    def config_at(self, point: Mapping[str, Any]) -> TrainConfig:
        """Return the config that trains a point: `purerl.run(result.config_at(point))`.

        Raises:
            ConfigError: a point of fields that the config has not.
        """
        return config_at(self.config, point)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        """Hash of a point as it was given -> number of the point."""
        return {digest(written(x)): n for n, x in enumerate(self.design.points)}

    def state(self, point: Mapping[str, Any], seed: int) -> PyTree:
        """Return the final state of one member, on the host.

        Raises:
            ConfigError: the sweep kept no states, or has no such member.
        """
        # By the point as it was written: a loss may not come back to the last bit.
        number = self._numbers.get(digest(written(point)))
        known = point if number is None else self.written[number]
        flat = self._source.state(member_id(known, seed))
        if not flat:
            raise ConfigError(
                f"the sweep has no finished member {dict(point)}, {seed}, or kept no "
                "states (keep_states=True); train the member again: "
                "purerl.run(result.config_at(point), seeds=[seed])."
            )
        algorithm = make_algorithm(self.config_at(point))
        made = folders.made_with() if self.out is None else folders.load(self.out)
        with folders.keys_of(made):
            shapes = jax.eval_shape(algorithm.init, jax.random.key(0))
        members = checkpoint.unflatten(flat, shapes, self.out or Path("memory"))
        return jax.tree.map(lambda x: x[0], members)

    def policy(self, point: Mapping[str, Any], seed: int) -> Callable[..., Any]:
        """Return the trained policy of one member (see `purerl.make_policy`)."""
        from purerl.scale.host import to_device

        return make_policy(self.config_at(point), to_device(self.state(point, seed)))

    def lines(self, metric: str) -> dict[str, list[Line]]:
        """Return the best point of each environment as a line; see `Shown`."""
        return sweep_lines(self.dataset, metric)

    def view(self) -> View:
        """Return what the sweep tells of itself."""
        total = sum(map(len, self.ids))
        done = f"{self.num_finished:,} of {with_noun(total, 'member')}, "
        done += f"{with_noun(len(self.ids), 'point')} x "
        done += with_noun(len(self.seeds), "seed")
        facts = [stated(self.finished, done, self.out)]
        with contextlib.suppress(ConfigError):  # None is trained, or several tasks.
            best = self.best()
            facts.append(
                f"best: {labels.in_a_line(best.point)}; mean {best.score:,.4g}"
            )
        axes, env = ", ".join(self.design.names), env_name(self.config.env)
        where = "" if sweep_data.ENV in self.design.names else f" in {env}"
        return View(
            f"{axes}{where}", facts, self._draw, self._columns, "episode_return"
        )

    def _draw(self, ax: Any = None) -> plots.Picture:
        """Draw the best points, or that of each environment where there are several."""
        by = sweep_data.ENV if len(sweep_data.environments(self.dataset)) > 1 else None
        return plots.sweep_curves(self.dataset, by, ax=ax)

    def _columns(self) -> Any:
        """Axes, seed, final scores, and where it diverged, by member."""
        import xarray as xr

        data = {metric: self.scores(metric) for metric in RENAMED}
        data["diverged_at"] = self["diverged_at"]
        frame = xr.Dataset(data).to_dataframe().reset_index()
        return frame[[*self.design.names, "seed", *data]]

    def _variable(self, name: str) -> "xr.DataArray":
        """All members' rows of one array, filled up with NaN to the longest."""
        import xarray as xr

        rows = self._source.read(self.names[name])
        shapes = [row.shape for row in rows.values()]
        shape = tuple(max(sizes) for sizes in zip(*shapes, strict=True))
        # Counts are whole numbers, or doubles where some members are frozen.
        kinds = {row.dtype for row in rows.values()}
        kind = np.float32 if kinds == {np.dtype(np.float32)} else np.float64
        values = np.full((len(self.ids), len(self.seeds), *shape), np.nan, kind)
        for i, ids in enumerate(self.ids):
            for j, id in enumerate(ids):
                if id in rows:
                    row = rows[id]
                    values[(i, j, *map(slice, row.shape))] = row
        if name == "diverged_at":  # As that of a run; of a missing member -1 too.
            values = np.nan_to_num(values, nan=-1).astype(int)
        dims = _DIMS[len(shape)] if name.startswith("evaluation_") else ("segment",)
        dims = dims[: len(shape)]
        grid = values.reshape(*self.design.shape, *values.shape[1:])
        dims = (*self.design.dims, "seed", *dims)
        return xr.DataArray(grid, dims=dims, coords=self._coords(), name=name)

    def _coords(self) -> dict[str, Any]:
        is_grid = self.design.kind == "grid"
        return {
            "seed": list(self.seeds),
            **{
                name: list(dict.fromkeys(values)) if is_grid else ("point", values)
                for name, values in self._labels.items()
            },
        }

    def _where(self, values: np.ndarray, name: str, value: Any) -> np.ndarray:
        wanted = labels.label(labels.plain(value))
        if callable(value):  # a loss: networks are told apart by numbers
            wanted = labels.known_label(self.design.points, name, value) or wanted
        is_number = isinstance(wanted, int | float)
        if is_number and np.issubdtype(values.dtype, np.number):
            matches = values == wanted
            if not matches.any() and not isinstance(wanted, int):
                matches = np.isclose(values, wanted, rtol=1e-6, atol=0.0)
        else:
            matches = values.astype(str) == str(wanted)
        if not np.any(matches):
            listed = ", ".join(map(str, values[:12]))
            raise ConfigError(f"the sweep has no {name}={value!r}; it has {listed}.")
        return np.flatnonzero(matches)

    # What trackers are told: a member whole, as soon as its chunk has ended. Members
    # are numbered in the order of the results.

    def told(self) -> Told:
        """Return what trackers are told of the sweep: a nested run per member."""
        # The others are told when they end; a tracker may open the first one at once.
        config, first = json.loads(self._attrs["config"]), {0: self._member(0)}
        run = TrackedRun(
            name_of(self.out, "sweep"), config, first, self.out, is_sweep=True
        )
        files = files_of(
            self.out if self.finished else None,
            figures=("*.png",),
            sweep=(folders.CONFIG, folders.MANIFEST),
        )
        total = sum(map(len, self.ids))
        members = zlib.crc32(json.dumps(self.ids).encode())
        return Told(run, total, self.tell_folder, files, self.finished, members)

    def tell_folder(self, group: Group) -> None:
        """Tell trackers what any process or call has trained into the folder."""
        for path in store.chunk_paths(self.out) if self.out else ():
            self.tell(group, store.chunk_ids(path), path)

    def tell(self, group: Group, ids: Sequence[str], chunk: store.Chunk) -> None:
        """Tell of a chunk that has ended; a file is read when a tracker comes to it."""

        def load() -> Iterator[Piece]:
            with store.opened(chunk) as arrays:
                kept = {n: arrays[n] for n in arrays if n.startswith(TOLD)}
            for row, id in enumerate(ids):
                for number in self._places.get(id, ()):
                    yield self._ended(kept, row, number)

        group.add((n for id in ids for n in self._places.get(id, ())), load)

    @cached_property
    def _places(self) -> dict[str, list[int]]:
        """Numbers of the members by id; equal draws of a random design share one."""
        places: dict[str, list[int]] = {}
        for number, id in enumerate(id for row in self.ids for id in row):
            places.setdefault(id, []).append(number)
        return places

    @cached_property
    def _labels(self) -> dict[str, list[Any]]:
        """The label of every point by axis."""
        return {n: column(self.design.points, n) for n in self.design.names}

    @cached_property
    def _values(self) -> list[dict[str, Any]]:
        """The labels of every point, by axis."""
        names = self._labels.items()
        return [{n: x[place] for n, x in names} for place in range(len(self.ids))]

    @cached_property
    def _alike(self) -> Counter[str]:
        """How many points are written alike: numbers are rounded, and draws equal."""
        return Counter(map(labels.in_a_line, self._values))

    def _member(self, number: int) -> Member:
        place, seed = divmod(number, len(self.seeds))
        values, agent = self._values[place], self.seeds[seed]
        name = labels.in_a_line({**values, "seed": agent})
        if self._alike[labels.in_a_line(values)] > 1:
            name += f", point={place}"
        return Member(name, agent, values)

    def _ended(self, arrays: Mapping[str, np.ndarray], row: int, number: int) -> Piece:
        rows = [
            {"kind": kind, **told}
            for kind in TOLD
            for told in _rows(arrays, f"{kind}/", row)
        ]
        rows.sort(key=lambda told: told["env_steps"])
        return ended(number, self._member(number), rows)


def write_summary(result: SweepResult) -> None:
    """Write `summary.json` into the sweep's folder, if it has one."""
    if result.out is not None:
        numbers, finished = result.summary, result.num_finished
        facts = {"members": numbers["members"], "finished_members": finished}
        has_trained = numbers["trained_members"] > 0
        folders.write_summary(result.out, facts, numbers, has_trained)


TOLD = ("train", "evaluation")  # Kinds of rows that trackers are told.
_DIMS = {1: ("evaluation",), 2: ("evaluation", "episode")}


def load_sweep(folder: str | Path, config: TrainConfig | None = None) -> SweepResult:
    """Read a sweep's folder, also while it runs.

    Args:
        folder: The folder of the sweep, or one where several processes' files were put
            together.
        config: The base config in place of the stored one, where that names an
            environment object.

    Damaged files are named, and so is a folder that has lost some; their members are
    missing. Where the config names what is not known here, a sentence says why, and the
    metrics are read.

    Raises:
        ConfigError: no sweep there.
    """
    folder = stored_folder(folder)
    stored = folders.load_kind(folder, "sweep", store.FORMAT)
    points = tuple(stored["points"])
    try:
        points = tuple(
            {name: labels.read_value(value) for name, value in point.items()}
            for point in points
        )
        config = config or manifest.read_config(folder, stored)
    except ConfigError as error:
        say(f"{error} Without it, {folder} is read without agents.")
        config = manifest.task_config(stored)
    names, shape = tuple(stored["axes"]), tuple(stored["shape"])
    design = Design(stored["design"], names, shape, points)
    members = store.MemberStore.of(folder)
    for path in members.damaged:
        say(
            f"{path} is damaged, and its members are missing; run the sweep again: "
            "only they are trained anew"
        )
    about = config, design, stored["seeds"], members, folder
    result = SweepResult(*about, written=stored["points"])
    finished = 0
    with contextlib.suppress(ConfigError):  # A damaged summary counts nothing.
        finished = folders.read_summary(folder).get("finished_members", 0)
    if result.num_finished < finished and not members.damaged:
        say(
            f"{folder / 'chunks'} has {result.num_finished} of the {finished} members "
            f"that {folder / folders.SUMMARY} counts as finished; put the missing "
            "files back, or run the sweep again: only those members are trained anew"
        )
    return result


def _rows(
    arrays: Mapping[str, np.ndarray], kind: str, member: int
) -> Iterator[dict[str, Any]]:
    """A dict per segment or evaluation of a member, as far as it came to them."""
    columns = {
        name.removeprefix(kind): array[member]
        for name, array in arrays.items()
        if name.startswith(kind)
    }
    for index, steps in enumerate(columns.get("env_steps", ())):
        if math.isnan(steps):
            return
        row = {name: column[index].tolist() for name, column in columns.items()}
        yield {**row, "env_steps": int(steps)}


def told_of_sweep(folder: Path) -> Told:
    """Return what trackers are told of a sweep's folder."""
    return load_sweep(folder).told()
