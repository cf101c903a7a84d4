"""A point in a config: which fields it sets, and what config comes of it."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import serialise
from purerl.acting.environment import bind_params, resolve_env
from purerl.algorithms import config_class, name_of
from purerl.config import (
    ENV_FIELDS,
    TASK_FIELDS,
    ConfigError,
    TrainConfig,
    apply_overrides,
    check_apart,
    check_known,
    check_mapping,
    field_names,
    is_number,
)
from purerl.envs.base import Environment
from purerl.randomisation import is_random
from purerl.runner.arguments import check_call
from purerl.runner.options import Repeated, option
from purerl.space.axes import (
    Axis,
    Choice,
    LogUniform,
    Uniform,
    labels,
    literal,
    read_axis,
    to_dict,
)
from purerl.types import Overrides


def split(
    config: TrainConfig, point: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a point sets of static and of dynamic fields, parts parsed.

    Raises:
        ConfigError: a name that is no field.
    """
    fields = {field.name: field for field in dataclasses.fields(config)}
    static, dynamic = {}, {}
    for name, value in point.items():
        first = name.split(".")[0]
        if name != "algorithm":
            check_known(first, list(fields), type(config).__name__)
        if name == "algorithm" or not fields[first].metadata.get("pytree_node", True):
            static[name] = value
        elif isinstance(value, str):
            dynamic[name] = _read(fields[first], name, value)
        else:
            dynamic[name] = value
    return static, dynamic


def _read(field: dataclasses.Field, name: str, text: str) -> Any:
    """Return the value of a text: a part, a number, or inside a part either of them."""
    if name == field.name:
        return serialise.parse_value(field, text)
    if field.name == "env_params":
        return serialise.parse_params(text)
    return serialise.parse_part(text)


def with_static(
    config: TrainConfig, static: Mapping[str, Any], dynamic: Mapping[str, Any]
) -> TrainConfig:
    """Return a config with static fields set; one dot reaches into a mapping.

    Its environment is randomised if it is under the dynamic fields: whether numbers of
    an environment are drawn is structure.

    Raises:
        ConfigError: a dot into a field that holds no mapping.
    """
    for name, value in static.items():
        if name == "algorithm":
            continue
        first, dot, inner = name.partition(".")
        if dot:
            mapping = getattr(config, first)
            if not isinstance(mapping, Mapping):
                raise ConfigError(
                    f"the axis {name!r}: {first} has nothing inside; sweep {first}."
                )
            value = {**mapping, inner: value}
        config = config.replace(**{first: value})
    named = {n: v for n, v in dynamic.items() if n.split(".")[0] == "env_params"}
    params = apply_overrides(config, named).env_params if named else config.env_params
    is_same = is_random(params) == is_random(config.env_params)
    return config if is_same else config.replace(env_params=params)


def resolve_point(
    config: TrainConfig, point: Mapping[str, Any]
) -> tuple[TrainConfig, Overrides]:
    """Return the config of a point's group, and the point's overrides of it."""
    base = with_algorithm(config, point.get("algorithm", name_of(config)))
    static, dynamic = split(base, point)
    return with_static(base, static, dynamic), dynamic


def config_at(config: TrainConfig, point: Mapping[str, Any]) -> TrainConfig:
    """Return the whole config of a point, as `purerl.run` takes it.

    Of a folder that was read without the module of its parts there is the task alone.
    """
    if type(config) is TrainConfig:
        return config
    base, overrides = resolve_point(config, point)
    return apply_overrides(base, overrides)


def with_algorithm(config: TrainConfig, name: str) -> TrainConfig:
    """Return another algorithm's config for the task of `config`.

    The environment, the number of steps and the evaluations stay as they are; only
    where there are no wrappers, those without which an algorithm cannot train are
    added. Another field that both have is carried over where it is not its class's
    default; where it is, it takes the other class's default.

    Raises:
        ConfigError: no such algorithm.
    """
    if name == name_of(config):
        return config
    cls = config_class(name)
    shared = {
        field: getattr(config, field)
        for field in field_names(cls)
        if field in field_names(config)
        and (field in TASK_FIELDS or not _is_default(config, field))
    }
    if not shared["env_wrappers"]:  # PLR brings the wrapper that it needs.
        del shared["env_wrappers"]
    return cls(**shared)


def _is_default(config: TrainConfig, name: str) -> bool:
    default = serialise.plain(getattr(type(config)(), name), name)
    return serialise.plain(getattr(config, name), name) == default


AXES = '{"learning_rate": purerl.loguniform(1e-4, 1e-2)}'


class FieldAxes:
    """The axes of a search: at least one, over the fields of a config.

    Attributes:
        config: The config of everything that is trained, where no axis says otherwise.
        axes: Distributions by (dotted) name of the field; a list is a choice.
        names: Labels of each choice's values, by axis.
    """

    def __init__(self, config: TrainConfig, axes: Mapping[str, Any]) -> None:
        check_call("a search", config)
        check_mapping("axes", axes, AXES)
        if not axes:
            raise ConfigError(
                f"a search needs at least one axis, got none; for example {AXES}."
            )
        self.config = config
        read = {name: read_axis(name, axis) for name, axis in axes.items()}
        self.axes: dict[str, Axis] = for_fields(config, read)
        self.names: dict[str, list[Any]] = {
            name: labels(axis.values)
            for name, axis in self.axes.items()
            if isinstance(axis, Choice)
        }

    def config_at(self, point: Mapping[str, Any]) -> TrainConfig:
        """Return the whole config of a point, as `purerl.run` takes it."""
        return config_at(self.config, point)

    def to_dict(self) -> dict[str, Any]:
        """Return the axes as plain values."""
        return to_dict(self.axes)


def for_fields(config: TrainConfig, axes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the axes, where distributions over fields with a fraction draw fractions.

    `uniform(0, 1)` of a learning rate is not 0 or 1, as it is of a number of layers.

    Raises:
        ConfigError: the name of an axis is inside another's.
    """
    check_apart(axes, "the axes name")
    return {
        name: type(axis)(float(axis.low), float(axis.high))
        if isinstance(axis, Uniform | LogUniform) and _has_fraction(config, name)
        else axis
        for name, axis in axes.items()
    }


def value_at(
    config: TrainConfig, name: str, env: Environment | None = None, word: str = ""
) -> Any:
    """Return the config's value under a dotted name; None if it has none.

    Numbers of the environment are those that it has with the config's put in.

    Args:
        config: The config.
        name: The name of a field, with dots for what is inside it.
        env: The config's environment, if it has been made.
        word: Name of the argument that names it, if what there is not is refused.

    Raises:
        ConfigError: there is no such value, and a word was given.
    """
    first, *rest = name.split(".")
    if word:
        check_known(first, field_names(config), f"{word}: {type(config).__name__}")
    value: Any = getattr(config, first, None)
    if first == "env_params":
        value = bind_params(env or resolve_env(config), config.env_params)
    for part in rest:
        kind = type(value).__name__
        if isinstance(value, Mapping):
            known, value = list(value), value.get(part)
        else:
            known = field_names(value) if dataclasses.is_dataclass(value) else []
            value = getattr(value, part, None)
        if word:
            check_known(part, known, f"{word}: {name}: {kind}")
    return value


def _has_fraction(config: TrainConfig, name: str) -> bool:
    """Return whether a number under a dotted name may have a fraction."""
    above, _, last = name.rpartition(".")
    value = value_at(config, name)
    if isinstance(value, np.generic | np.ndarray | jax.Array):
        return jnp.issubdtype(value.dtype, jnp.floating)
    if isinstance(value, float) or name.split(".")[0] == "env_params":
        return isinstance(value, float)  # A parameter keeps its type.
    # A value such as 1, None or `auto` does not say what may take its place.
    owner = value_at(config, above) if above else config
    field = getattr(owner, "__dataclass_fields__", {}).get(last)
    return field is not None and (is_number(field) or isinstance(field.default, float))


# A name, changes of the config by name (and `name`, what to call it), or a config.
Environments = Sequence[str | Mapping[str, Any] | TrainConfig]
# What a config that stands for an environment says to configs of other algorithms.
CARRIED_FIELDS = (*ENV_FIELDS, "total_timesteps")


class Task(NamedTuple):
    """An environment in which everything that is compared trains.

    Attributes:
        name: The environment's name.
        config: The config in this environment.
        changes: What it changes of the config, by name of the field.
    """

    name: str
    config: TrainConfig
    changes: dict[str, Any]


def read_environments(config: TrainConfig, environments: Environments) -> list[Task]:
    """Return the environments in their order; the config's own where none are given.

    Where two have one name, all are numbered.

    Raises:
        ConfigError: an entry of another kind, or an unknown field.
    """
    if isinstance(environments, str | Mapping | TrainConfig):
        environments = [environments]
    tasks = []
    for entry in environments or [{}]:
        if isinstance(entry, TrainConfig) and type(entry) is type(config):
            changes = {field: getattr(entry, field) for field in CARRIED_FIELDS}
            name, changed = serialise.env_name(entry.env), entry
        elif isinstance(entry, str | Mapping):
            changes = {"env": entry} if isinstance(entry, str) else dict(entry)
            name = changes.pop("name", None)
            changed = config.replace(**changes)
            name = str(name or serialise.env_name(changed.env))
        else:
            raise ConfigError(
                "environments takes names, changes of the config by name, and "
                f"{type(config).__name__}s, got {entry!r}."
            )
        tasks.append(Task(name, changed, changes))
    if len({task.name for task in tasks}) < len(tasks):
        tasks = [
            task._replace(name=f"{task.name} #{n}") for n, task in enumerate(tasks)
        ]
    return tasks


def environments_option() -> Any:
    """Return the option of the environments in which a tool trains."""
    return option(
        (),
        "Environment to train in, with changes of the config after semicolons: "
        "'Acrobot-v1; total_timesteps=2e5'; may be repeated. The config's own if not "
        "given.",
        doc="Environments: names; changes of the config by name, as in "
        '`{"env": "Acrobot-v1", "total_timesteps": 200_000}`, with `name` to call them '
        "otherwise; or configs. The config's own where none are given.",
        flag="environment",
        kind=Repeated,
        read=parse_environments,
    )


def parse_environments(texts: Sequence[str]) -> list[dict[str, Any]]:
    """Read environments such as `Acrobot-v1; total_timesteps=2e5`.

    Raises:
        ConfigError: one that cannot be read.
    """
    environments = []
    for text in texts:
        env, _, rest = text.partition(";")
        changes = read_changes("--environment", text, rest)
        named = {"name": text.strip()} if changes else {}
        environments.append({"env": env.strip(), **changes, **named})
    return environments


def read_changes(flag: str, text: str, changes: str) -> dict[str, Any]:
    """Read values by name from `name=value; name=value`."""
    values: dict[str, Any] = {}
    for piece in filter(None, map(str.strip, changes.split(";"))):
        name, equals, value = (part.strip() for part in piece.partition("="))
        if not equals or name in values:
            raise ConfigError(
                f"{flag} {text!r}: between semicolons stands name=value, each name "
                f"once, got {piece!r}."
            )
        values[name] = literal(value)
    return values
