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
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import auto
from purerl.config import (
    DECAY,
    FRACTION,
    NON_NEGATIVE,
    POSITIVE,
    POSITIVE_OR_NONE,
    ConfigError,
    TrainConfig,
    apply_overrides,
    check_apart,
    field_names,
)
from purerl.envs.base import Environment
from purerl.space.axes import value_at
from purerl.types import Array, Overrides, PyTree, Schedule

# What `evolve` may be: a name, several, or names with their scales.
Names = str | Sequence[str] | Mapping[str, str]

SCALES = ("auto", "linear", "log", "logit")
_SIGNED = (POSITIVE, POSITIVE_OR_NONE, NON_NEGATIVE)
_SHARES = (FRACTION, DECAY)


class Leaf(NamedTuple):
    """A part of the vector.

    Attributes:
        name: The name of the field with the path inside it.
        start: The value in the config, float32.
        scale: The scale: `linear`, `log` or `logit`.
    """

    name: str
    start: np.ndarray
    scale: str


class Genome:
    """Named leaves of a config as a vector `[D]`.

    Args:
        config: The config whose leaves are evolved.
        env: The environment, whose parameters may be evolved.
        evolve: The name of a field, several, or names with their scales; `env_params`
            alone means all its numbers.
        word: Name in messages of the argument that names the fields.

    Attributes:
        scales: Scales as asked for, by name of the field.
        values: Values of the config, by name of the field.
        leaves: Leaves in the order of the vector.
        size: The length of the vector, D.
    """

    def __init__(
        self, config: TrainConfig, env: Environment, evolve: Names, word: str = "evolve"
    ) -> None:
        config = auto.resolve(config, env)
        self.scales = _read_names(env, evolve, word)
        self.values: dict[str, PyTree] = {
            name: value_at(config, name, env, word) for name in self.scales
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
        starts = (
            leaf.start if leaf.scale == "linear" else np.zeros_like(leaf.start)
            for leaf in self.leaves
        )
        return np.concatenate([start.ravel() for start in starts])

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


def is_float(leaf: Any) -> bool:
    """Return whether a leaf is a floating-point number, or an array of them."""
    if isinstance(leaf, bool):
        return False
    if not isinstance(leaf, float | np.ndarray | np.generic | jax.Array):
        return False
    return jnp.issubdtype(jnp.result_type(leaf), jnp.floating)


def _read_names(env: Environment, evolve: Names, word: str) -> dict[str, str]:
    """Names of fields with their scales."""
    if isinstance(evolve, str):
        evolve = [part.strip() for part in evolve.split(",") if part.strip()]
    is_names = isinstance(evolve, Sequence | Mapping) and len(evolve) > 0
    if not is_names or not all(isinstance(name, str) for name in evolve):
        raise ConfigError(
            f"{word} must name at least one field of the config with float leaves, "
            f"such as 'value_loss' or 'learning_rate', got {evolve!r}."
        )
    if not isinstance(evolve, Mapping):
        evolve = dict.fromkeys(evolve, "auto")
    scale_of: dict[str, str] = {}
    for name, scale in evolve.items():
        if scale not in SCALES:
            raise ConfigError(
                f"{word}: the scale of {name} must be one of {', '.join(SCALES)}, got "
                f"{scale!r}."
            )
        inside = [name]
        if name == "env_params":
            params = env.default_params
            fields = [field.name for field in dataclasses.fields(params)]
            inside = [f"{name}.{x}" for x in fields if is_float(getattr(params, x))]
        scale_of.update(dict.fromkeys(inside, scale))
    if not scale_of:
        raise ConfigError(f"{word}: {env.name} has no parameters that are floats.")
    check_apart(scale_of, f"{word} names")
    return scale_of


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
    leaves = []
    for path, leaf in jax.tree_util.tree_flatten_with_path(value)[0]:
        if is_float(leaf):
            where = name + jax.tree_util.keystr(path)
            start = np.asarray(leaf, np.float32)
            chosen = _scale(where, start, scale, _check_at(config, name, path))
            leaves.append(Leaf(where, start, chosen))
    if leaves:
        return leaves
    raise ConfigError(
        f"{name} is {value!r}, which has no float leaves; only numbers with a fraction "
        "can be moved. A learned part has some: MLPValueLoss(), MLPDrift(), "
        "LearnedOptimiser()."
    )


def _scale(where: str, start: np.ndarray, scale: str, check: Any) -> str:
    """The scale of a leaf, checked against where it starts."""
    if not np.isfinite(start).all():
        raise ConfigError(f"{where} must be finite at the start, got {start}.")
    if scale == "auto":
        scale = "linear"
        if start.ndim == 0 and check in _SHARES:
            scale = "logit"
        elif start.ndim == 0 and (start > 0 or check in _SIGNED):
            scale = "log"
    if scale == "linear" and check in (*_SIGNED, *_SHARES):
        better = "logit" if check in _SHARES else "log"
        raise ConfigError(
            f"{where} has bounds, which a linear scale would leave; use "
            f"{better} or auto."
        )
    is_inside = (start > 0) if scale == "log" else (start > 0) & (start < 1)
    if scale != "linear" and not is_inside.all():
        ends = "above 0" if scale == "log" else "between 0 and 1"
        raise ConfigError(
            f"{where} starts at {start}, and a {scale} scale needs a start {ends}; set "
            "it in the config."
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
