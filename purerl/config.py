"""Configs: frozen dataclasses whose static fields are structure and leaves numbers.

A field made with `static` fixes shapes or the program and is read before tracing. A
field made with `dynamic` is a leaf: it may be traced, vmapped and overridden by name.
"""

import dataclasses
import difflib
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self, TypeVar, dataclass_transform

import jax
import numpy as np
from flax import struct
from flax.core import FrozenDict
from jax.core import Tracer

from purerl.types import Overrides

MAX_ENV_STEPS = 2**32 - 1  # `env_steps` is an unsigned 32-bit counter.


@jax.tree_util.register_static
class Auto(str):
    """The value of a field that follows the task: see `TrainConfig.automatic`.

    It is the word `auto`, and no leaf: a config that holds it passes through `jax.jit`.
    """


AUTO = Auto("auto")


class ConfigError(ValueError):
    """A config that cannot be trained: says the field, value, constraint, remedy."""


class Check(NamedTuple):
    """A range check and the sentence that reports its violation."""

    holds: Callable[[Any], bool]
    words: str


POSITIVE = Check(lambda x: x > 0, "must be greater than 0")
NON_NEGATIVE = Check(lambda x: x >= 0, "must be 0 or greater")
FRACTION = Check(lambda x: 0 <= x <= 1, "must lie between 0 and 1")


def one_of(*choices: str) -> Check:
    """Make a check that the value is one of `choices`."""
    return Check(lambda x: x in choices, f"must be one of {', '.join(choices)}")


def static(default: Any, help: str, check: Check | None = None) -> Any:
    """Declare a field that is structure: it fixes shapes or the program.

    Args:
        default: Value where none is given.
        help: Sentence for command lines and documentation.
        check: Constraint on the value, if there is one.
    """
    return _field(default, help, check, pytree_node=False)


def dynamic(default: Any, help: str, check: Check | None = None) -> Any:
    """Declare a field that is a number (or a pytree of numbers): it can be vmapped.

    Args:
        default: Value where none is given.
        help: Sentence for command lines and documentation.
        check: Constraint on the value, if there is one.
    """
    return _field(default, help, check, pytree_node=True)


def _field(default: Any, help: str, check: Check | None, *, pytree_node: bool) -> Any:
    metadata = {"help": help, "check": check, "pytree_node": pytree_node}
    if type(default).__hash__ is None or dataclasses.is_dataclass(default):
        return dataclasses.field(default_factory=lambda: default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


ConfigT = TypeVar("ConfigT")


@dataclass_transform(frozen_default=True)
def config_dataclass(cls: type[ConfigT]) -> type[ConfigT]:
    """Apply `flax.struct.dataclass`, but keep the config's own `replace`."""
    replace = cls.replace  # type: ignore[attr-defined]
    cls = struct.dataclass(cls)
    cls.replace = replace  # type: ignore[attr-defined]
    return cls


@config_dataclass
class TrainConfig:
    """Fields that every algorithm has."""

    env: Any = static("CartPole-v1", "Environment id, or an environment object.")
    env_kwargs: Any = static(
        FrozenDict(), "Keyword arguments of envs.make, such as backend=spring."
    )
    env_params: Any = dynamic(
        None, "Environment parameters by name; what is not named keeps its default."
    )
    total_timesteps: int = static(
        500_000, "Environment steps of one agent, over all its environments.", POSITIVE
    )
    num_envs: int = static(
        4, "Environments that one agent steps in parallel.", POSITIVE
    )
    gamma: float = dynamic(0.99, "Discount per step.", FRACTION)
    learning_rate: float = dynamic(2.5e-4, "Step size of Adam.", POSITIVE)
    num_evaluations: int = static(
        10,
        "Evaluations of the deterministic policy; the last is at the end.",
        NON_NEGATIVE,
    )
    eval_episodes: int = static(16, "Episodes of one evaluation.", POSITIVE)
    eval_max_steps: int = static(
        0,
        "Longest evaluation episode; 0 takes the environment's time limit.",
        NON_NEGATIVE,
    )
    eval_share: float = static(
        0.1,
        "Evaluations are dropped until their steps are at most this share of "
        "training's (the last one always stays).",
        FRACTION,
    )
    reset_scheme: str = static(
        "fresh",
        "fresh: every episode starts from its own reset. pool: from one of "
        "reset_pool_size resets drawn anew for every rollout (cheaper for physics).",
        one_of("fresh", "pool"),
    )
    reset_pool_size: int = static(
        64, "Resets drawn per rollout when reset_scheme is pool.", POSITIVE
    )

    @property
    def steps_per_update(self) -> int:
        """Environment steps of one update, over all environments of an agent."""
        raise NotImplementedError(
            f"{type(self).__name__} must have a property steps_per_update: the "
            "environment steps of one update, such as self.num_envs * self.num_steps."
        )

    @property
    def sequential_steps(self) -> int:
        """Operations of one update that wait for one another; weighs evaluations."""
        raise NotImplementedError(
            f"{type(self).__name__} must have a property sequential_steps: environment "
            "and gradient steps of one update that wait for one another, such as "
            "self.num_steps + self.num_epochs * self.num_minibatches."
        )

    def automatic(self, env: Any) -> dict[str, Any]:
        """Return what the fields whose default is `AUTO` stand for, by name.

        It is asked before anything is traced, and again with the overrides put in:
        see `purerl.auto.resolve`. A value that somebody has given is never replaced.

        Args:
            env: The environment, from `resolve_env`.
        """
        del env
        return {}

    def __post_init__(self) -> None:
        # Normalise what people write: 5e5 for an integer, lists, plain dicts, "auto".
        for field in dataclasses.fields(self):
            if isinstance(field.default, Auto) and is_auto(getattr(self, field.name)):
                object.__setattr__(self, field.name, AUTO)
        for field in static_fields(self):
            value = getattr(self, field.name)
            is_whole = isinstance(value, np.integer) or (
                isinstance(value, float) and value.is_integer()
            )
            if field.type in (int, "int") and is_whole:
                object.__setattr__(self, field.name, int(value))
            elif isinstance(value, list):
                object.__setattr__(self, field.name, tuple(value))
            elif isinstance(value, dict):
                object.__setattr__(self, field.name, FrozenDict(value))

    def replace(self, **changes: Any) -> Self:
        """Return a copy with `changes`; an unknown name is refused with a guess."""
        for name in changes:
            check_known(name, field_names(self), f"{type(self).__name__}")
        return dataclasses.replace(self, **changes)


def static_fields(config: Any) -> list[dataclasses.Field]:
    """Return the fields that are structure."""
    return [
        field
        for field in dataclasses.fields(config)
        if not field.metadata.get("pytree_node", True)
    ]


def field_names(config: Any) -> list[str]:
    """Return names of all fields of a config (or config class)."""
    return [field.name for field in dataclasses.fields(config)]


def check_known(name: str, known: list[str], owner: str) -> None:
    """Refuse a name that is not among the known ones.

    Args:
        name: Name that was given.
        known: Names that there are.
        owner: What has these names, for the message.

    Raises:
        ConfigError: with a guess at what was meant.
    """
    if name in known:
        return
    guess = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {guess[0]!r}?" if guess else ""
    raise ConfigError(
        f"{owner} has no field {name!r}.{hint} Fields: {', '.join(sorted(known))}."
    )


def validate_fields(config: TrainConfig) -> None:
    """Check every field by itself.

    Raises:
        ConfigError: naming the field, the value, the constraint and the remedy.
    """
    for field in dataclasses.fields(config):
        validate_field(field, getattr(config, field.name))
    if config.total_timesteps > MAX_ENV_STEPS:
        raise ConfigError(
            f"total_timesteps must be at most {MAX_ENV_STEPS} (a 32-bit counter), got "
            f"{config.total_timesteps}. Split the run in several."
        )


def is_auto(value: Any) -> bool:
    """Return whether a field's value is `AUTO`, or that word."""
    return isinstance(value, str) and value == AUTO


def number_of(config: TrainConfig, name: str) -> int:
    """Return a whole number of a config that is needed before the task is known.

    Raises:
        ConfigError: it is `auto`.
    """
    value = getattr(config, name)
    if is_auto(value):
        raise ConfigError(
            f"{name} is auto: it follows the task. purerl.resolve(config) gives the "
            "config with the number that it stands for."
        )
    return value


def validate_field(field: dataclasses.Field, value: Any) -> None:
    """Check a field's value by itself.

    Raises:
        ConfigError: naming the field, the value, the constraint and the remedy.
    """
    if isinstance(value, Auto) and isinstance(field.default, Auto):
        return
    if field.type in (int, float, bool, "int", "float", "bool"):
        _validate_number(field, value)
    check = field.metadata.get("check")
    if check is not None and _is_concrete(value) and not check.holds(value):
        raise ConfigError(
            f"{field.name} {check.words}, got {value!r}. "
            f"Default: {field.default!r}. {field.metadata['help']}"
        )


def _validate_number(field: dataclasses.Field, value: Any) -> None:
    kind = {int: "int", float: "float", bool: "bool"}.get(field.type, field.type)  # type: ignore[call-overload]
    if not _is_concrete(value):
        return
    if kind == "bool" and not isinstance(value, bool):
        raise ConfigError(f"{field.name} must be True or False, got {value!r}.")
    if kind == "int" and (isinstance(value, bool) or not isinstance(value, int)):
        raise ConfigError(f"{field.name} must be a whole number, got {value!r}.")
    if kind == "float":
        if isinstance(value, bool) or not isinstance(
            value, int | float | np.number | np.ndarray | jax.Array
        ):
            raise ConfigError(f"{field.name} must be a number, got {value!r}.")
        if np.shape(value) != ():
            raise ConfigError(
                f"{field.name} must be a single number, got shape {np.shape(value)}. "
                "Train several values with jax.vmap(train, in_axes=(None, 0))(key, "
                f'{{"{field.name}": values}}).'
            )
        if not math.isfinite(float(value)):
            raise ConfigError(
                f"{field.name} must be finite, got {value!r}. "
                f"Default: {field.default!r}."
            )


def _is_concrete(value: Any) -> bool:
    return not isinstance(value, Tracer)


def apply_overrides(config: TrainConfig, overrides: Overrides | None) -> TrainConfig:
    """Replace dynamic fields by (dotted) name.

    Args:
        config: Config to start from; it is not changed.
        overrides: Name of a dynamic field -> value. Dots reach inside:
            `"env_params.length"`, `"policy_loss.clip_eps"`.

    Raises:
        ConfigError: unknown or static field, or a value of another shape.
    """
    for path, value in (overrides or {}).items():
        config = _replace_at(config, path.split("."), value, path)
    return config


def _replace_at(node: Any, keys: list[str], value: Any, path: str) -> Any:
    name, rest = keys[0], keys[1:]
    if node is None or isinstance(node, Mapping):
        # `env_params` by name: checked against the environment when it is bound.
        inner = dict(node or {})
        inner[name] = _replace_at(inner.get(name), rest, value, path) if rest else value
        return inner
    if not dataclasses.is_dataclass(node):
        raise ConfigError(f"override {path!r}: {name!r} is not inside a structure.")
    owner = f"override {path!r}: {type(node).__name__}"
    check_known(name, field_names(node), owner)
    field = next(f for f in dataclasses.fields(node) if f.name == name)
    if not field.metadata.get("pytree_node", True):
        raise ConfigError(
            f"{path!r} is static: it fixes shapes or the program, so it cannot be "
            f"overridden or vmapped. Use config.replace({name}=...) and a new "
            "make_train for each value."
        )
    current = getattr(node, name)
    if rest:
        new = _replace_at(current, rest, value, path)
    else:
        new = _same_shape(current, value, path)
        if _is_concrete(new) and "help" in field.metadata:
            validate_field(field, new)  # A traced value cannot be looked at.
    return dataclasses.replace(node, **{name: new})  # type: ignore[type-var]


def _same_shape(current: Any, value: Any, path: str) -> Any:
    """`value`, refused where its leaves have another shape than the current ones."""
    if current is None or isinstance(current, Mapping):
        return value
    if isinstance(current, Auto):
        current = 0.0  # What it stands for is a number.
    old, new = jax.tree.structure(current), jax.tree.structure(value)
    if old != new:
        # By its structure alone, a loss without numbers would be taken for a number.
        if jax.tree_util.all_leaves([current]):
            raise ConfigError(
                f"override {path!r} must be a number, got {type(value).__name__}."
            )
        return value  # Another kind of loss: its shapes are its own.
    pairs = zip(jax.tree.leaves(current), jax.tree.leaves(value), strict=True)
    for mine, theirs in pairs:
        if np.shape(mine) != np.shape(theirs):
            raise ConfigError(
                f"override {path!r} has shape {np.shape(theirs)}, expected "
                f"{np.shape(mine)}. To train one agent per value, use jax.vmap(train, "
                "in_axes=(None, 0))(key, overrides)."
            )
    return value
