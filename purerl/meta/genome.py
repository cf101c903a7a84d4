"""The genome: leaves of a config as one vector, and the vector as overrides.

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
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import auto
from purerl.acting.environment import Environment
from purerl.config import (
    DECAY,
    FRACTION,
    NON_NEGATIVE,
    POSITIVE,
    POSITIVE_OR_NONE,
    ConfigError,
    TrainConfig,
    apply_overrides,
    field_names,
)
from purerl.meta.names import Names, is_float, read_names, value_at
from purerl.types import Array, Overrides, PyTree, Schedule

_SIGNED = (POSITIVE, POSITIVE_OR_NONE, NON_NEGATIVE)
_SHARES = (FRACTION, DECAY)


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
        word: Name in messages of the argument that names the fields.

    Attributes:
        scales: Scales as asked for, by name of the field.
        values: Values of the config, by name of the field.
        leaves: Leaves in the order of the vector.
        size: The length of the vector, D.
    """

    def __init__(
        self,
        config: TrainConfig,
        env: Environment,
        evolve: Names,
        word: str = "evolve",
    ) -> None:
        config = auto.resolve(config, env)
        self.scales = read_names(config, env, evolve, word)
        self.values: dict[str, PyTree] = {
            name: value_at(config, env, name, word) for name in self.scales
        }
        self.leaves: list[Leaf] = []
        try:
            for name, value in self.values.items():
                self.leaves += _leaves(config, name, value, self.scales[name])
        except ConfigError as error:
            raise ConfigError(f"{word}: {error}") from None
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
        leaves, first = [], 0
        for leaf in self.leaves:
            part = vectors[:, first : first + leaf.start.size]
            first += leaf.start.size
            part = part.reshape(part.shape[0], *leaf.start.shape)
            leaves.append(_from_vector(part, leaf))
        evolved = iter(leaves)
        number = vectors.shape[0]

        def put(leaf: Any) -> Any:
            if is_float(leaf):
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
    # Rounding reaches the ends of an open interval, which no field takes.
    least, most = jnp.finfo(start.dtype).tiny, jnp.finfo(start.dtype).max
    if leaf.scale == "log":
        return jnp.clip(start * jnp.exp(part), least, most)
    if leaf.scale == "logit":
        share = jax.nn.sigmoid(jnp.log(start) - jnp.log1p(-start) + part)
        return jnp.clip(share, least, np.nextafter(np.float32(1), np.float32(0)))
    return part


def _leaves(config: TrainConfig, name: str, value: PyTree, scale: str) -> list[Leaf]:
    paths, _ = jax.tree_util.tree_flatten_with_path(value)
    leaves = []
    for path, leaf in paths:
        if not is_float(leaf):
            continue
        where = name + jax.tree_util.keystr(path)
        start = np.asarray(leaf, np.float32)
        chosen = _scale(where, start, scale, _check_at(config, name, path))
        leaves.append(Leaf(name, where, start, chosen))
    if not leaves:
        raise ConfigError(_no_leaves(name, value))
    return leaves


def _no_leaves(name: str, value: Any) -> str:
    if not name.endswith("_loss"):
        return (
            f"{name} is {value!r}, which has no float leaves; only fields that "
            "are numbers with a fraction can be moved."
        )
    learned = "MLPDrift" if name == "policy_loss" else "MLPValueLoss"
    return (
        f"{name} is {type(value).__name__}, which has no numbers to move; "
        f"start from a learned one: {name}=purerl.losses.{learned}.zeros(), or "
        f"--{name.replace('_', '-')} '{learned}()'."
    )


def _scale(where: str, start: np.ndarray, scale: str, check: Any) -> str:
    """The scale of a leaf, checked against where it starts."""
    if not np.isfinite(start).all():
        raise ConfigError(f"{where} must be finite at the start, got {start}.")
    if scale == "auto":
        if start.ndim > 0:
            scale = "linear"
        elif check in _SHARES:
            scale = "logit"
        elif start > 0 or check in _SIGNED:
            scale = "log"
        else:
            scale = "linear"
    if scale == "linear" and check in (*_SIGNED, *_SHARES):
        better = "logit" if check in _SHARES else "log"
        raise ConfigError(
            f"{where} has bounds, which a linear scale would leave; use "
            f"{better} or auto."
        )
    if scale == "log" and not (start > 0).all():
        raise ConfigError(
            f"{where} starts at {start} and moves on a log scale, which "
            "needs a positive start; set it in the config."
        )
    if scale == "logit" and not ((start > 0) & (start < 1)).all():
        raise ConfigError(
            f"{where} starts at {start} and moves on a logit scale, which "
            "needs a start between 0 and 1, ends excluded; set it in the config."
        )
    return scale


def _check_at(config: TrainConfig, name: str, path: Sequence[Any]) -> Any:
    """The constraint on a leaf: that of the field that holds it, inside parts too."""
    node, check = config, None
    inside = [getattr(key, "name", "") for key in path]
    for part in [*name.split("."), *inside]:
        if not dataclasses.is_dataclass(node) or part not in field_names(node):
            break  # a number of a tuple, a network, or of the environment
        field = next(f for f in dataclasses.fields(node) if f.name == part)
        # Where a schedule stands, its numbers are bounded as the field's would be.
        outer = check if isinstance(node, Schedule) else None
        check = field.metadata.get("check") or outer
        node = getattr(node, part)
    return check
