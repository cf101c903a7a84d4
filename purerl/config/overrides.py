"""Overrides: numbers of a config that are replaced by their (dotted) names."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from purerl.config.base import TrainConfig
from purerl.config.errors import (
    ConfigError,
    check_apart,
    check_known,
    check_mapping,
    how_to_read,
)
from purerl.config.fields import (
    AUTO,
    Auto,
    field_names,
    is_auto,
    is_part,
    may_be_none,
)
from purerl.config.validation import is_concrete, validate_field
from purerl.types import Overrides, Schedule


def apply_overrides(config: TrainConfig, overrides: Overrides | None) -> TrainConfig:
    """Replace dynamic fields by (dotted) name.

    Args:
        config: Config to start from; it is not changed.
        overrides: Name of a dynamic field -> value. Dots reach inside:
            `"env_params.length"`, `"policy_loss.clip_eps"`.

    Raises:
        ConfigError: no mapping, unknown or static field, a name inside another, or a
            value of another shape.
    """
    check_mapping("overrides", overrides, '{"learning_rate": 1e-3}')
    check_apart(overrides or {}, "the overrides name")
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
        if current is None and name != "env_params":
            raise ConfigError(
                f"override {path!r}: {name} is None, which has nothing inside; set "
                f"{name} in the config first. {field.metadata.get('help', '')}"
            )
        new = _replace_at(current, rest, value, path)
    else:
        if isinstance(field.default, Auto) and is_auto(value):
            value = AUTO  # The word, as people and files write it.
        new = value if _is_absence(field, value) else _same_shape(current, value, path)
        if is_concrete(new) and "help" in field.metadata:
            validate_field(field, new, path)  # A traced value cannot be looked at.
    return dataclasses.replace(node, **{name: new})  # type: ignore[type-var]


def _is_absence(field: dataclasses.Field, value: Any) -> bool:
    """Return whether a value is the `None` or the `auto` that a field may hold.

    It has no leaves, where a number has one: it is structure, and another program.
    """
    if value is None:
        return may_be_none(field) or field.default is None
    return isinstance(value, Auto) and isinstance(field.default, Auto)


def _same_shape(current: Any, value: Any, path: str) -> Any:
    """`value`, refused where its leaves have another shape than the current ones."""
    if current is None or isinstance(current, Mapping):
        return value
    if isinstance(current, Auto) or isinstance(current, Schedule):
        current = 0.0  # What it stands for is a number.
    if isinstance(value, Schedule) and jax.tree_util.all_leaves([current]):
        return value  # A number that begins to move.
    old, new = jax.tree.structure(current), jax.tree.structure(value)
    # What is called as a part is, but is none, gets the sentence of its own check.
    if is_part(current) and not callable(value):
        raise ConfigError(
            f"override {path!r} must be of the kind of {current!r}, got "
            f"{type(value).__name__}; its numbers are overridden by name, such as "
            f"{path + '.' + next(iter(field_names(current)), 'field')!r}."
            f"{how_to_read(value)}"
        )
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
