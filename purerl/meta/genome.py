"""What is evolved: leaves of a config as one vector, and the vector as overrides.

Any field or sub-tree of a config with float leaves can be evolved: a learned loss, the
two numbers of `DPODrift`, a set of hyperparameters, the environment's physics. A
strategy sees a vector of numbers without bounds; a *scale* says what they mean:

* `linear`: the number itself. Networks, and whatever may be negative.
* `log`: `start * exp(z)`, for numbers that must stay positive. A step of 0.1 is 10%.
* `logit`: `sigmoid(logit(start) + z)`, for fractions.

`auto` takes `linear` for arrays, `logit` for fields that must lie between 0 and 1,
`log` for other numbers that start positive, and else `linear`.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import auto
from purerl.acting.environment import Environment, bind_params
from purerl.config import (
    FRACTION,
    NON_NEGATIVE,
    POSITIVE,
    ConfigError,
    TrainConfig,
    apply_overrides,
    check_known,
    field_names,
)
from purerl.types import Array, Overrides, PyTree

SCALES = ("auto", "linear", "log", "logit")
# What `evolve` may be: a name, several, or names with their scales.
Names = str | Sequence[str] | Mapping[str, str]


class Leaf(NamedTuple):
    """A part of the vector.

    Attributes:
        field: The name of the field as it was asked for.
        name: The name of the field with the path inside it.
        start: The value in the config, float32.
        scale: The scale: `linear`, `log` or `logit`.
    """

    field: str
    name: str
    start: np.ndarray
    scale: str


class Genome:
    """Named leaves of a config as a vector `[D]`.

    Args:
        config: The config whose leaves are evolved.
        env: The environment, whose parameters may be evolved.
        evolve: The name of a field, several, or names with their scales.

    Attributes:
        scales: Scales as asked for, by name of the field.
        values: Values of the config, by name of the field.
        leaves: Leaves in the order of the vector.
        size: The length of the vector, D.
    """

    def __init__(self, config: TrainConfig, env: Environment, evolve: Names) -> None:
        config = auto.resolve(config, env)
        self.scales = read_names(config, env, evolve)
        self.values: dict[str, PyTree] = {
            name: _value_at(config, env, name) for name in self.scales
        }
        self.leaves: list[Leaf] = []
        for name, value in self.values.items():
            self.leaves += _leaves(config, name, value, self.scales[name])
        self.size = sum(leaf.start.size for leaf in self.leaves)
        apply_overrides(config, self.values)  # A static field is refused here.

    def start(self) -> np.ndarray:
        """Return the vector `[D]` of the config's own values, float32."""
        return np.concatenate(
            [
                leaf.start.ravel()
                if leaf.scale == "linear"
                else np.zeros(leaf.start.size, np.float32)
                for leaf in self.leaves
            ]
        )

    def decode(self, vectors: Array) -> Overrides:
        """Return overrides of a population `[P, D]`, leaves `[P, ...]`; traceable."""
        found, first = [], 0
        for leaf in self.leaves:
            part = vectors[:, first : first + leaf.start.size]
            first += leaf.start.size
            part = part.reshape(part.shape[0], *leaf.start.shape)
            found.append(_from_vector(part, leaf))
        evolved = iter(found)
        number = vectors.shape[0]

        def put(leaf: Any) -> Any:
            if _is_float(leaf):
                return next(evolved)
            return jnp.broadcast_to(jnp.asarray(leaf), (number, *np.shape(leaf)))

        return {name: jax.tree.map(put, value) for name, value in self.values.items()}

    def solution(self, vector: np.ndarray) -> Overrides:
        """Return overrides of one vector `[D]`, on the host, for `apply_overrides`."""
        many = jax.jit(self.decode)(np.asarray(vector, np.float32)[None])
        return jax.tree.map(lambda x: np.asarray(x)[0], many)

    def describe(self) -> dict[str, Any]:
        """Return names, scales and sizes as plain values."""
        return {
            name: {
                "scale": scale,
                "leaves": [
                    [leaf.name, list(leaf.start.shape), leaf.scale]
                    for leaf in self.leaves
                    if leaf.field == name
                ],
            }
            for name, scale in self.scales.items()
        }


def _from_vector(part: Array, leaf: Leaf) -> Array:
    start = jnp.broadcast_to(jnp.asarray(leaf.start), part.shape)
    if leaf.scale == "log":
        return start * jnp.exp(part)
    if leaf.scale == "logit":
        return jax.nn.sigmoid(jnp.log(start) - jnp.log1p(-start) + part)
    return part


def read_names(config: TrainConfig, env: Environment, evolve: Names) -> dict[str, str]:
    """Read names of fields with their scales; `env_params` alone means all its numbers.

    Args:
        config: The config, whose fields may be evolved.
        env: The environment, whose parameters may be evolved.
        evolve: A name, several, or names with their scales.

    Raises:
        ConfigError: none, one given twice or inside another, or an unknown scale.
    """
    if not isinstance(evolve, str | Sequence | Mapping):
        raise ConfigError(
            f"evolve must be names of fields of the config, got {evolve!r}."
        )
    if isinstance(evolve, str):
        evolve = [part.strip() for part in evolve.split(",") if part.strip()]
    scales = (
        dict(evolve) if isinstance(evolve, Mapping) else dict.fromkeys(evolve, "auto")
    )
    if not scales:
        raise ConfigError(
            "evolve must name at least one field of the config with float leaves, such "
            "as 'value_loss' or 'learning_rate'."
        )
    for name, scale in scales.items():
        if scale not in SCALES:
            raise ConfigError(
                f"evolve: the scale of {name} must be one of {', '.join(SCALES)}, got "
                f"{scale!r}."
            )
    if not isinstance(evolve, Mapping) and len(scales) != len(evolve):
        raise ConfigError(f"evolve names a field twice: {', '.join(evolve)}.")
    found: dict[str, str] = {}
    for name, scale in scales.items():
        if name == "env_params":
            found.update(dict.fromkeys(_numbers_of(env), scale))
        else:
            found[name] = scale
    for name in found:
        inside = [other for other in found if other.startswith(f"{name}.")]
        if inside:
            raise ConfigError(
                f"evolve names {name} and {inside[0]}, which is inside it; leave one "
                "of them out."
            )
    return found


def _numbers_of(env: Environment) -> list[str]:
    params = env.default_params
    names = [
        f"env_params.{field.name}"
        for field in dataclasses.fields(params)
        if _is_float(getattr(params, field.name))
    ]
    if not names:
        raise ConfigError(f"evolve: {env.name} has no parameters that are floats.")
    return names


def _value_at(config: TrainConfig, env: Environment, name: str) -> PyTree:
    """What the config, or its environment's parameters, have under a dotted name."""
    first, *rest = name.split(".")
    check_known(first, field_names(config), f"evolve: {type(config).__name__}")
    value: Any = getattr(config, first)
    if first == "env_params":
        value = bind_params(env, config.env_params)
    for part in rest:
        known = _names_in(value)
        check_known(part, known, f"evolve: {name}: {type(value).__name__}")
        value = value[part] if isinstance(value, Mapping) else getattr(value, part)
    return value


def _names_in(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return list(value)
    return field_names(value) if dataclasses.is_dataclass(value) else []


def _leaves(config: TrainConfig, name: str, value: PyTree, scale: str) -> list[Leaf]:
    paths, _ = jax.tree_util.tree_flatten_with_path(value)
    check = _check_of(config, name)
    found = []
    for path, leaf in paths:
        if not _is_float(leaf):
            continue
        where = name + jax.tree_util.keystr(path)
        start = np.asarray(leaf, np.float32)
        chosen = _scale(where, start, scale, check)
        found.append(Leaf(name, where, start, chosen))
    if not found:
        raise ConfigError(_no_leaves(name, value))
    return found


def _no_leaves(name: str, value: Any) -> str:
    if not name.endswith("_loss"):
        return (
            f"evolve: {name} is {value!r}, which has no float leaves; only fields that "
            "are numbers with a fraction can be evolved."
        )
    learned = "MLPDrift" if name == "policy_loss" else "MLPValueLoss"
    return (
        f"evolve: {name} is {type(value).__name__}, which has no numbers to evolve; "
        f"start from a learned one: {name}=purerl.losses.{learned}.zeros(), or "
        f"--{name.replace('_', '-')} '{learned}()'."
    )


def _scale(where: str, start: np.ndarray, scale: str, check: Any) -> str:
    """The scale of a leaf, checked against where it starts."""
    if not np.isfinite(start).all():
        raise ConfigError(f"evolve: {where} must be finite at the start, got {start}.")
    if scale == "auto":
        if start.ndim > 0:
            scale = "linear"
        elif check is FRACTION:
            scale = "logit"
        elif start > 0 or check in (POSITIVE, NON_NEGATIVE):
            scale = "log"
        else:
            scale = "linear"
    if scale == "linear" and check in (POSITIVE, NON_NEGATIVE, FRACTION):
        better = "logit" if check is FRACTION else "log"
        raise ConfigError(
            f"evolve: {where} has bounds, which a linear scale would leave; use "
            f"{better} or auto."
        )
    if scale == "log" and not (start > 0).all():
        raise ConfigError(
            f"evolve: {where} starts at {start} and is evolved on a log scale, which "
            "needs a positive start; set it in the config."
        )
    if scale == "logit" and not ((start > 0) & (start < 1)).all():
        raise ConfigError(
            f"evolve: {where} starts at {start} and is evolved on a logit scale, which "
            "needs a start between 0 and 1, ends excluded; set it in the config."
        )
    return scale


def _check_of(config: TrainConfig, name: str) -> Any:
    fields = {field.name: field for field in dataclasses.fields(config)}
    field = fields.get(name)
    return field.metadata.get("check") if field is not None else None


def _is_float(leaf: Any) -> bool:
    if isinstance(leaf, bool) or isinstance(leaf, str) or leaf is None:
        return False
    if not isinstance(leaf, float | np.ndarray | np.generic | jax.Array):
        return False
    return jnp.issubdtype(jnp.result_type(leaf), jnp.floating)
