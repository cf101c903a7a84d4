"""What is asked of a study: its options, and the space of its axes.

Nothing here knows Optuna: `purerl.tuning.study` makes its distributions of these.
"""

import contextlib
import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np

from purerl import auto, serialise
from purerl.acting.environment import resolve_env
from purerl.algorithms import name_of
from purerl.config import ConfigError, TrainConfig, shortest
from purerl.report import plots
from purerl.runner.arguments import as_seed
from purerl.runner.options import FIXED, TOLD, Options, option, seeds_option
from purerl.scale.devices import as_count, required
from purerl.search.fitness import (
    FINAL_RETURN,
    TRAINING_CURVE,
    check_fitness,
    fitness_option,
)
from purerl.space.axes import (
    Axis,
    Choice,
    FieldAxes,
    LogUniform,
    axes_option,
    distinct_labels,
    ends,
    is_whole,
    plain,
    split,
    value_at,
    with_algorithm,
)
from purerl.sweeps.groups import Group, check_axes, group_points

KINDS = (FINAL_RETURN, TRAINING_CURVE)
SAMPLERS = ("tpe", "random")
PRUNERS = ("hyperband", "median")


@dataclasses.dataclass(frozen=True)
class TuneOptions(Options):
    """The options of `purerl.tune`."""

    tool: ClassVar[str] = "tune"

    config: TrainConfig
    axes: Mapping[str, Any] = axes_option(
        "Field that the study varies, NAME=VALUES; may be repeated: "
        "learning_rate=loguniform(1e-5,1e-2); gamma=uniform(0.9,0.999); "
        "num_epochs=uniform(1,8); hidden_sizes=(64,64),(256,256).",
        "Distributions by (dotted) name of the field: `purerl.uniform`, "
        "`purerl.loguniform`, `purerl.choice`, or a list of values.",
    )
    _: dataclasses.KW_ONLY
    trials: int = option(
        40,
        "Number of trials that are to finish: complete, pruned, or diverged.",
        check=as_count,
        keep=TOLD,
    )
    seeds: int | Sequence[int] = seeds_option(4, "Number of agents per trial.")
    sampler: str = option(
        "tpe",
        "Method that proposes trials.",
        kind=Literal["tpe", "random"],
        check=lambda name, value: check_fitness(value, SAMPLERS, name),
        keep=TOLD,
    )
    pruner: str | None = option(
        "hyperband",
        "Method that stops hopeless trials; hyperband is asynchronous successive "
        "halving in brackets.",
        kind=Literal["hyperband", "median", "none"],
        read=lambda name: None if name == "none" else name,
        check=lambda name, value: value and check_fitness(value, PRUNERS, name),
        keep=TOLD,
    )
    storage: str | None = option(
        None,
        "URL of an Optuna storage that several machines share; study.db in the folder "
        "if not given.",
    )
    study: str | None = option(
        None,
        "Name of the study in the storage; by environment and algorithm if not given.",
    )
    batch: int = option(
        8,
        "Number of trials that are trained side by side.",
        check=as_count,
        keep=TOLD,
    )
    fitness: Any = fitness_option(
        FINAL_RETURN,
        KINDS,
        "Score of a trial: final_return (the last one), training_curve (the mean of "
        "all), or a function of your own, package.module:function.",
        keep=FIXED,
    )
    reports: int = option(
        9,
        "Number of segments of a run, after each of which the pruner looks at a trial "
        "that has a new evaluation.",
        check=as_count,
        keep=FIXED,
    )
    seed: int = option(
        0, "Seed of the sampler.", flag="sampler_seed", check=as_seed, keep=FIXED
    )
    holdout_seeds: int = option(
        10,
        "Number of fresh seeds on which the best config and the default one are "
        "compared; 0 leaves the comparison out.",
        check=lambda name, value: required(name, value) if value != 0 else 0,
        keep=TOLD,
    )


# Most combinations of choices under which axes are tried that nothing seems to read.
COMBINATIONS = 64
# Fields that set the task or the budget: scores under several of them say nothing.
TASK = ("env", "total_timesteps")


class Space(FieldAxes):
    """Axes to search.

    A point maps the axes' names to values. A study stores a point as `params`: numbers
    as they are, and what is no number by its label (`"64-64"`, `"ClipDrift(...)"`).
    """

    def __init__(self, config: TrainConfig, axes: Mapping[str, Any]) -> None:
        super().__init__(config, axes)
        self._check()
        # What `auto` stands for is the default that trials are compared with.
        own = auto.resolve(config, resolve_env(config))
        self._own = {name: _current(own, name) for name in self.axes}
        self._places = {
            name: _place(axis, self.names.get(name, []), self._own[name])
            for name, axis in self.axes.items()
        }

    def _check(self) -> None:
        """Try the ends of every axis, and every choice, under every algorithm."""
        for name, axis in self.axes.items():
            if name in TASK:
                raise ConfigError(
                    f"{name!r} cannot be tuned: scores of several of them do not "
                    "compare; fix it in the config, and run a study for each."
                )
            if isinstance(axis, Choice):
                distinct_labels(name, axis.values)
        algorithm = self.axes.get("algorithm")
        kinds = algorithm.values if isinstance(algorithm, Choice) else [None]
        for kind in kinds:
            base = {} if kind is None else {"algorithm": kind}
            group_points(self.config, [base])
            for name, axis in self.axes.items():
                if name != "algorithm":
                    points = [{**base, name: value} for value in ends(axis)]
                    group_points(self.config, points)

    def check_effects(self) -> None:
        """Refuse axes that no trial reads, under none of the choices beside them.

        Raises:
            ConfigError: naming the axis, and why it has no effect.
        """
        chosen = {n: ends(a) for n, a in self.axes.items() if isinstance(a, Choice)}
        if math.prod(map(len, chosen.values())) > COMBINATIONS:
            return
        low = {name: ends(axis)[0] for name, axis in self.axes.items()}
        kind = low.get("algorithm", name_of(self.config))
        static, _ = split(with_algorithm(self.config, kind), low)

        def trained() -> Iterator[Group]:
            for values in itertools.product(*chosen.values()):
                point = low | dict(zip(chosen, values, strict=True))
                # A point that cannot be trained is a trial that fails.
                with contextlib.suppress(ConfigError):
                    yield from group_points(self.config, [point])

        check_axes(trained(), self.axes.keys() - static.keys())

    def drawn(self) -> dict[str, plots.Axis]:
        """Return how pictures show the axes, by name."""
        return {
            name: plots.Axis(isinstance(axis, LogUniform), self.names.get(name, []))
            for name, axis in self.axes.items()
        }

    def point(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values that a trial's `params` name, in the order of the axes."""
        values = {}
        for name, axis in self.axes.items():
            value = params[name]
            if isinstance(axis, Choice):
                value = axis.values[self.names[name].index(value)]
            values[name] = value
        return values

    def default_params(self) -> dict[str, Any] | None:
        """Return the config's own values, or None where some lie outside the axes."""
        return None if self.outside() else dict(self._places)

    def default_point(self) -> dict[str, Any]:
        """Return the config's own values of the axes, also those outside the axes."""
        if not self.outside():
            return self.point(self._places)
        unknown = (None, _NO_VALUE)
        return {n: x for n, x in self._own.items() if not any(x is y for y in unknown)}

    def outside(self) -> list[str]:
        """Return the axes in which the config's own value lies outside."""
        return [name for name, place in self._places.items() if place is None]


_NO_VALUE = object()  # In the place of a value that a config does not have.


def _current(config: TrainConfig, name: str) -> Any:
    """The config's own value of an axis; `_NO_VALUE` where it says nothing."""
    if name == "algorithm":
        return name_of(config)
    if "." not in name:
        return plain(getattr(config, name, _NO_VALUE))
    value = value_at(config, name)
    if value is None:
        return _NO_VALUE
    is_array = isinstance(value, np.generic | np.ndarray | jax.Array)
    if is_array and value.ndim == 0 and jnp.issubdtype(value.dtype, jnp.floating):
        return shortest(value)  # as somebody wrote it: 0.3, not a float32 of it
    return plain(value)


def _place(axis: Axis, names: Sequence[Any], value: Any) -> Any:
    """Return what a study stores for a value, or None if it is not on the axis."""
    if value is _NO_VALUE:
        return None
    if isinstance(axis, Choice):
        for name, choice in zip(names, axis.values, strict=True):
            choice = serialise.parse_part(choice) if callable(value) else choice
            if _is_same(serialise.plain(choice, ""), serialise.plain(value, "")):
                return name
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if is_whole(axis):
        is_on = axis.low <= value <= axis.high and value == int(value)
        return int(value) if is_on else None
    for end in axis:
        if _is_same(end, value):
            return float(end)
    return float(value) if axis.low <= value <= axis.high else None


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two values are one, as numbers with a fraction in 32 bits."""
    if type(one) is float and type(other) is float:
        return bool(np.float32(one) == np.float32(other))
    return one == other
