"""A sweep's dataset, read for tables and pictures.

The dataset (see `purerl.sweeps.result`) has one dimension per axis in a grid, and one
dimension `point` in zip and random designs. Here both become rows: a configuration has
values by axis and a score per seed.
"""

import itertools
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from purerl.config import ConfigError
from purerl.report.statistics import lowest_of, worst_of

if TYPE_CHECKING:
    import xarray as xr

SCORE = "evaluation_return"
ENV = "env"
RETURNS = (SCORE, "episode_return")
_DIMS = ("point", "seed", "segment", "evaluation", "episode")
# Variables beside a metric that say which of its values count.
BESIDE = (
    *("env_steps", "episode_return", "diverged_at"),
    *("evaluation_env_steps", "evaluation_length"),
)
_LOG_SPAN = 8.0
FEW = 4  # Fewer evaluations than this make no curve.
# Values are crowded if the median lies below this share of their span; 0.5 is even.
_CROWDED = 0.3


class Scores(NamedTuple):
    """Final scores of every configuration of a sweep.

    Attributes:
        names: Names of the axes.
        points: Values by name of the axis, for each of `P` configurations.
        scores: Final scores, `[P, S]`; NaN where a member diverged or is missing.
        diverged: Whether each member diverged, `[P, S]`.
        trained: Whether each member has rows, `[P, S]`; the others are yet to be
            trained.
        grid: Number of values of each axis in a grid; None in other designs.
        lowest: Lowest return that a member of each configuration has had on its way,
            `[P]`, where the scores are returns; else NaN.
    """

    names: tuple[str, ...]
    points: tuple[dict[str, Any], ...]
    scores: np.ndarray
    diverged: np.ndarray
    trained: np.ndarray
    grid: tuple[int, ...] | None
    lowest: np.ndarray | float = np.nan

    @property
    def filled(self) -> np.ndarray:
        """Scores where one that is missing is worth `statistics.worst_of`.

        The worst is that of its environment; NaN where this has no score.

        Raises:
            ConfigError: no member has a score.
        """
        if not self.has_any:
            raise ConfigError("no member of the sweep has a final score yet.")
        worst = np.zeros((len(self.points), 1))
        lowest = np.broadcast_to(self.lowest, len(worst))
        for task in self.tasks:
            scores = self.scores[task].reshape(-1, 1)
            worst[task] = worst_of(scores, np.fmin.reduce(lowest[task]))
        return np.where(np.isfinite(self.scores), self.scores, worst)

    @property
    def tasks(self) -> list[list[int]]:
        """Numbers of the configurations of each environment."""
        found: dict[Any, list[int]] = {}
        for index, point in enumerate(self.points):
            found.setdefault(point.get(ENV), []).append(index)
        return list(found.values())

    @property
    def has_any(self) -> bool:
        """True if any member has a score."""
        return bool(np.isfinite(self.scores).any())

    @property
    def means(self) -> np.ndarray:
        """Mean over seeds of each configuration, `[P]`, missing as the worst."""
        return self.filled.mean(1)

    @property
    def is_begun(self) -> np.ndarray:
        """True for each configuration of which a member has rows, `[P]`."""
        return np.any(self.trained, axis=1)

    @property
    def missing(self) -> str:
        """The number of members without rows, in words; empty where all have some."""
        number = int((~self.trained).sum())
        return f"{number:,} of {self.trained.size:,} members missing" if number else ""

    def ranking(self) -> np.ndarray:
        """Return configurations that have rows from best to worst by mean, `[<= P]`.

        Of equal ones those with more scores come first, as in `SweepResult.best`.

        Raises:
            ConfigError: no member has a score, or there are several environments.
        """
        self.check_one_task()
        known = np.isfinite(self.scores).sum(1)
        order = np.lexsort((-known, -self.means))  # the last key is the first
        return order[self.is_begun[order]]

    def check_one_task(self) -> None:
        """Refuse scores of several environments.

        Raises:
            ConfigError: the environment is an axis with several values.
        """
        names = self.values(ENV) if ENV in self.names else []
        if len(names) > 1:
            raise ConfigError(
                f"{ENV}: the sweep has {len(names)} environments ({', '.join(names)}), "
                "and returns of different tasks do not compare; take one of them, "
                f"best({ENV}={names[0]!r}) or result.sel({ENV}={names[0]!r}), or draw "
                f"a line for each, by={ENV!r}."
            )

    def values(self, name: str) -> list[Any]:
        """Return the values of an axis: ascending numbers, others in their order."""
        return in_order(point[name] for point in self.points)

    def by_value(self, name: str) -> dict[Any, list[int]]:
        """Return the configurations that have rows by their value of an axis."""
        found: dict[Any, list[int]] = {value: [] for value in self.values(name)}
        for index in np.flatnonzero(self.is_begun):
            found[self.points[index][name]].append(int(index))
        return {value: group for value, group in found.items() if group}

    def name(self, index: int) -> str:
        """Return a configuration in words: `learning_rate=1e-3, gamma=0.9`."""
        point = self.points[index]
        return ", ".join(f"{short(name)}={label(point[name])}" for name in self.names)


def axis_names(dataset: "xr.Dataset") -> tuple[str, ...]:
    """Return the names of the swept axes, without those of which a value was selected.

    Raises:
        ConfigError: it is no dataset of a sweep.
    """
    _check_sweep(dataset)
    names = json.loads(dataset.attrs["axes"])
    return tuple(n for n in names if n in dataset.coords and dataset[n].ndim)


def read_scores(dataset: "xr.Dataset", metric: str = SCORE) -> Scores:
    """Read the final scores of all configurations.

    Args:
        dataset: Dataset of a sweep.
        metric: Name of the variable. Evaluations are averaged over their episodes, and
            the last one counts, which is no score where a return of it is no number; of
            training the last known row counts. `evaluation_return` falls back to the
            training return of members that were never evaluated.

    Raises:
        ConfigError: no such variable, or no dataset of a sweep.
    """
    names, flat = axis_names(dataset), _flat(dataset, metric)
    values, is_known = _course(flat, metric_name(dataset, metric))
    final = _last(values.values, is_known.values)
    steps = flat["env_steps" if "env_steps" in flat else "evaluation_env_steps"]
    diverged = np.zeros(final.shape, bool)
    if "diverged_at" in flat:
        diverged = flat["diverged_at"].values >= 0
    lowest = np.full(len(final), np.nan)
    if metric in RETURNS and "episode_return" in flat:
        returns = flat["episode_return"].values
        lowest = [lowest_of(*of) for of in zip(returns, diverged, strict=True)]
        if metric == SCORE and "evaluation_env_steps" in flat:
            # An axis over `num_evaluations` may hold a zero.
            evaluated = flat["evaluation_env_steps"].notnull().any("evaluation")
            trained = _last(returns, np.isfinite(returns))
            final = np.where(evaluated, final, trained)
    final = np.where(diverged, np.nan, final).astype(np.float64)
    columns = [
        [v.item() if isinstance(v, np.generic) else v for v in dataset[name].values]
        for name in names
    ]
    is_grid = dataset.attrs.get("design", "grid") == "grid"
    is_grid = is_grid and "point" not in dataset.dims
    points = itertools.product(*columns) if is_grid else zip(*columns, strict=True)
    return Scores(
        names,
        tuple(dict(zip(names, point, strict=True)) for point in points),
        final,
        diverged,
        steps.notnull().any(str(steps.dims[2])).values,
        tuple(map(len, columns)) if is_grid else None,
        np.asarray(lowest),
    )


def rows(dataset: "xr.Dataset", metric: str = SCORE) -> tuple[np.ndarray, np.ndarray]:
    """Return a metric over training and its environment steps, `[P, S, T]` both.

    Evaluations are means over their episodes: NaN where a return is no number.

    Raises:
        ConfigError: see `read_scores`.
    """
    flat = _flat(dataset, metric)
    values, _ = _course(flat, metric_name(dataset, metric))
    is_evaluation = "evaluation" in values.dims
    steps = flat["evaluation_env_steps" if is_evaluation else "env_steps"].values
    return values.values, np.broadcast_to(steps, values.shape)


def _flat(dataset: "xr.Dataset", metric: str) -> "xr.Dataset":
    """What a metric is read from, with `point` in the place of the axes, and `seed`."""
    axes = axis_names(dataset)
    names = {metric_name(dataset, metric), *BESIDE}
    flat = dataset[[name for name in dataset.data_vars if name in names]]
    if "seed" not in flat.dims:
        flat = flat.expand_dims("seed")
    if "point" not in flat.dims:
        flat = flat.drop_vars(axes)
        flat = flat.stack(point=axes) if axes else flat.expand_dims("point")
    return flat.transpose(*_DIMS, missing_dims="ignore")


def _course(flat: "xr.Dataset", name: str) -> "tuple[xr.DataArray, xr.DataArray]":
    """A metric along training, and which of its points there are, `[P, S, T]` both.

    Members may have had fewer episodes or evaluations than others: the rest is NaN in
    all variables. A return that is NaN is none of these, and its evaluation counts.
    """
    values = flat[name]
    played = values.copy(data=np.isfinite(values.values))
    if "episode" not in values.dims:
        return values, played
    if "evaluation_length" in flat:
        played = flat["evaluation_length"].notnull()
    count = played.sum("episode")
    total = values.where(played, 0.0).sum("episode", skipna=False)
    return total / count.where(count > 0), played.any("episode")


def _last(values: np.ndarray, is_known: np.ndarray) -> np.ndarray:
    """The last known value of every member, `[P, S]` of `[P, S, T]`."""
    last = values.shape[2] - 1 - np.argmax(is_known[:, :, ::-1], axis=2)
    return np.take_along_axis(values, last[:, :, None], axis=2)[:, :, 0]


def metric_name(dataset: "xr.Dataset", metric: str) -> str:
    """Return the variable to read for a metric.

    Raises:
        ConfigError: there is none, or nothing at all yet.
    """
    _check_sweep(dataset)
    if not dataset.data_vars:
        raise ConfigError("no member of the sweep has finished yet.")
    if metric in dataset:
        return metric
    if metric == SCORE and "episode_return" in dataset:
        return "episode_return"
    known = ", ".join(sorted(str(name) for name in dataset.data_vars))
    raise ConfigError(f"metric: the sweep has no {metric!r}. It has: {known}.")


def curve_metric(dataset: "xr.Dataset") -> str:
    """Choose what to draw along training: evaluations, unless they are too few."""
    if dataset.sizes.get("evaluation", 0) >= FEW or "episode_return" not in dataset:
        return SCORE
    # Of long episodes none may have ended in training.
    has_ended = np.isfinite(dataset["episode_return"].values).any()
    return "episode_return" if has_ended else SCORE


def in_order(values: Iterable[Any]) -> list[Any]:
    """Return every value once: ascending numbers, others in their order."""
    found = list(dict.fromkeys(values))
    if all(isinstance(value, str) for value in found):
        return sorted(found, key=_natural)  # So 64-64 comes before 256-256.
    try:
        return sorted(found)
    except TypeError:
        return found


def _natural(text: str) -> list[tuple[bool, float, str]]:
    parts = re.findall(r"\d+|\D+", text)
    return [(not p.isdigit(), float(p) if p.isdigit() else 0.0, p) for p in parts]


def is_number(value: Any) -> bool:
    """Return whether it is a number and no flag."""
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def is_log(values: Sequence[Any]) -> bool:
    """Return whether numbers are better told apart on a logarithmic scale.

    They are if all are positive, span a factor of at least eight, and crowd at the low
    end of a linear scale.
    """
    numbers = np.unique(np.asarray(values, float))
    if len(numbers) < 2 or numbers[0] <= 0 or numbers[-1] / numbers[0] < _LOG_SPAN:
        return False
    middle = (np.median(numbers) - numbers[0]) / (numbers[-1] - numbers[0])
    return len(numbers) == 2 or bool(middle < _CROWDED)


def labels(values: Iterable[Any]) -> list[str]:
    """Return a label for each value, with as many digits as tell them apart."""
    values, names = list(values), list[str]()
    for digits in range(3, 18):
        names = [label(value, digits) for value in values]
        if len(set(names)) == len(set(values)):
            break
    return names


def significant(number: float, digits: int) -> int:
    """Return how many digits to write: more just below 1, as of 0.9995, a discount."""
    if not 0.9 <= abs(number) < 1.0:
        return digits
    return max(digits, digits - 2 - math.floor(math.log10(1.0 - abs(number))))


def label(value: Any, digits: int = 3) -> str:
    """Return a value in a few characters: `3e-4`, `0.95`, `64-64`."""
    if not is_number(value):
        return str(value)
    number = float(value)
    if isinstance(value, int | np.integer) and abs(number) < 1e6:
        return f"{int(value):,}"
    if number and np.isfinite(number) and not 1e-2 <= abs(number) < 1e5:
        short = {"precision": digits - 1, "unique": False, "trim": "-", "exp_digits": 1}
        text = np.format_float_scientific(number, **short)
        return text.replace("+", "").replace(".e", "e")
    if abs(number) < 1e3:
        return f"{number:.{significant(number, digits)}g}"
    return f"{number:,.{max(0, digits - 4)}f}"


def short(name: str) -> str:
    """Return the last part of a dotted name."""
    return name.rsplit(".", 1)[-1]


def configuration(dataset: "xr.Dataset") -> Mapping[str, Any]:
    """Return the base config of the sweep as plain values; empty if not stored."""
    return json.loads(dataset.attrs.get("config", "{}"))


def environments(dataset: "xr.Dataset") -> list[str]:
    """Return the names of the environments: the values of an axis, or the config's."""
    if ENV in dataset.coords:
        return list(dict.fromkeys(map(str, np.atleast_1d(dataset[ENV].values))))
    return [str(configuration(dataset).get(ENV, "sweep"))]


def by_environment(dataset: "xr.Dataset") -> dict[str, "xr.Dataset"]:
    """Return the part of each environment of a sweep by its name."""
    names = environments(dataset)
    if len(names) == 1:
        return {names[0]: dataset}
    values, is_listed = dataset[ENV].values.astype(str), "point" in dataset.dims
    places = {name: np.flatnonzero(values == name) for name in names}
    return {
        name: dataset.isel({"point": at} if is_listed else {ENV: at[0]})
        for name, at in places.items()
    }


def env_name(dataset: "xr.Dataset") -> str:
    """Return the name of the environment, for titles; the number of several."""
    names = environments(dataset)
    return names[0] if len(names) == 1 else f"{len(names)} environments"


def _check_sweep(dataset: "xr.Dataset") -> None:
    """Refuse another dataset, such as that of a comparison."""
    if "axes" not in dataset.attrs:
        raise ConfigError("dataset must be that of a sweep, got another one.")
