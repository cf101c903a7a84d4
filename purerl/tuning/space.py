"""What a study searches: axes of a sweep, their values by name, and points of them.

Nothing here knows Optuna: `purerl.tuning.samplers` makes its distributions of these.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from purerl import auto, serialise
from purerl.acting.environment import resolve_env
from purerl.algorithms import name_of
from purerl.config import ConfigError, TrainConfig, apply_overrides
from purerl.report.plots import tuning as plots
from purerl.sweeps.axes import Choice, Design, LogUniform, Uniform
from purerl.sweeps.groups import for_fields, group_points, resolve_point
from purerl.sweeps.labels import labels, plain

# Fields that set the task or the budget: scores under several of them say nothing.
FIXED = ("env", "total_timesteps")

Axis = Uniform | LogUniform | Choice


class Space:
    """Axes to search.

    A point maps the axes' names to values. A study stores a point as `params`: numbers
    as they are, and what is no number by its label (`"64-64"`, `"ClipDrift(...)"`).

    Attributes:
        config: The config of every trial, where no axis says otherwise.
        axes: Distributions by (dotted) name of the field; a list is a choice.
        names: Labels of each choice's values, by axis.
    """

    def __init__(self, config: TrainConfig, axes: Mapping[str, Any]) -> None:
        if not axes:
            raise ConfigError(
                "a study needs at least one axis, got none; for example "
                "{'learning_rate': purerl.loguniform(1e-4, 1e-2)}."
            )
        self.config = config
        # What `auto` stands for is the default that trials are compared with.
        self._own = auto.resolve(config, resolve_env(config))
        listed = {name: _axis(name, axis) for name, axis in axes.items()}
        self.axes = for_fields(config, listed)
        self.names: dict[str, list[Any]] = {
            name: _labels(name, axis)
            for name, axis in self.axes.items()
            if isinstance(axis, Choice)
        }
        self._check()

    def _check(self) -> None:
        """Try the ends of every axis, and every choice, under every algorithm."""
        for name in self.axes:
            if name in FIXED:
                raise ConfigError(
                    f"{name!r} cannot be tuned: scores of several of them do not "
                    "compare; fix it in the config, and run a study for each."
                )
        algorithm = self.axes.get("algorithm")
        kinds = algorithm.values if isinstance(algorithm, Choice) else [None]
        for kind in kinds:
            base = {} if kind is None else {"algorithm": kind}
            check_points(self.config, (base,))
            for name, axis in self.axes.items():
                values = axis.values if isinstance(axis, Choice) else tuple(axis)
                points = tuple({**base, name: value} for value in values)
                if name != "algorithm":
                    check_points(self.config, points)

    def drawn(self) -> dict[str, plots.Axis]:
        """Return how pictures show the axes, by name."""
        return {
            name: plots.Axis(
                name, isinstance(axis, LogUniform), list(self.names.get(name, []))
            )
            for name, axis in self.axes.items()
        }

    def point(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values that a trial's `params` name, in the order of the axes."""
        found = {}
        for name, axis in self.axes.items():
            value = params[name]
            if isinstance(axis, Choice):
                value = axis.values[self.names[name].index(value)]
            found[name] = value
        return found

    def default_params(self) -> dict[str, Any] | None:
        """Return the config's own values, or None where some lie outside the axes."""
        found = {}
        for name, axis in self.axes.items():
            value = _current(self._own, name)
            value = _place(axis, self.names.get(name, []), value)
            if value is None:
                return None
            found[name] = value
        return found

    def default_point(self) -> dict[str, Any]:
        """Return the config's own values of the axes, also those outside the axes."""
        params = self.default_params()
        if params is not None:
            return self.point(params)
        values = {name: _current(self._own, name) for name in self.axes}
        return {name: value for name, value in values.items() if value is not None}

    def outside(self) -> list[str]:
        """Return the axes in which the config's own value lies outside."""
        return [
            name
            for name, axis in self.axes.items()
            if _place(axis, self.names.get(name, []), _current(self._own, name)) is None
        ]

    def config_at(self, point: Mapping[str, Any]) -> TrainConfig:
        """Return the whole config of a point, as `purerl.run` takes it."""
        config, overrides = resolve_point(self.config, point)
        return apply_overrides(config, overrides)

    def to_dict(self) -> dict[str, Any]:
        """Return the axes as plain values."""
        return {name: _describe(name, axis) for name, axis in self.axes.items()}


def check_points(config: TrainConfig, points: Sequence[dict[str, Any]]) -> None:
    """Refuse points that cannot be trained.

    Raises:
        ConfigError: see `purerl.sweeps.groups.group_points`.
    """
    names = tuple(points[0])
    group_points(config, Design("zip", names, (len(points),), tuple(points)))


def _axis(name: str, axis: Any) -> Axis:
    if isinstance(axis, Uniform | LogUniform):
        return axis
    if isinstance(axis, Choice):
        axis = axis.values
    if hasattr(axis, "draw"):
        raise ConfigError(
            f"the axis {name!r} must have ends or values, got {type(axis).__name__}: "
            "use purerl.uniform, purerl.loguniform, purerl.choice or a list."
        )
    if isinstance(axis, str) or not hasattr(axis, "__iter__"):
        raise ConfigError(
            f"the axis {name!r} must be a list of values or a distribution, got "
            f"{axis!r}; for example purerl.loguniform(1e-4, 1e-2)."
        )
    values = tuple(plain(value) for value in axis)
    if not values:
        raise ConfigError(f"the axis {name!r} has no values.")
    return Choice(values)


def _labels(name: str, axis: Choice) -> list[Any]:
    found = labels(list(axis.values))
    twice = sorted({str(x) for x in found if found.count(x) > 1})
    if twice:
        raise ConfigError(
            f"the axis {name!r} has {', '.join(twice)} more than once; give each value "
            "once."
        )
    return found


def _current(config: TrainConfig, name: str) -> Any:
    """The config's own value of an axis; None where it says nothing."""
    if name == "algorithm":
        return name_of(config)
    node: Any = config
    for key in name.split("."):
        if isinstance(node, Mapping):
            node = node.get(key)
        else:
            node = getattr(node, key, None)
    return plain(node)


def _place(axis: Axis, names: Sequence[Any], value: Any) -> Any:
    """What a study stores for a value, or None where it is not on the axis."""
    if value is None:
        return None
    if isinstance(axis, Choice):
        written = serialise.plain(value, "")
        for name, choice in zip(names, axis.values, strict=True):
            choice = serialise.parse_loss(choice) if callable(value) else choice
            if serialise.plain(choice, "") == written:
                return name
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    is_whole = isinstance(axis.low, int) and isinstance(axis.high, int)
    if not axis.low <= value <= axis.high or (is_whole and value != int(value)):
        return None
    return int(value) if is_whole else float(value)


def _describe(name: str, axis: Axis) -> dict[str, Any]:
    if isinstance(axis, Choice):
        values = [serialise.plain(value, name) for value in axis.values]
        return {"kind": "choice", "values": values}
    kind = "uniform" if isinstance(axis, Uniform) else "loguniform"
    return {"kind": kind, "low": axis.low, "high": axis.high}
