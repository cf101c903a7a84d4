"""Checks of every field by itself, and overrides by name, before anything is traced."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from purerl.config.base import TrainConfig
from purerl.config.errors import (
    ConfigError,
    check_apart,
    check_known,
    check_mapping,
    how_to_read,
    shown,
)
from purerl.config.fields import (
    AUTO,
    NON_NEGATIVE,
    POSITIVE,
    Auto,
    as_float32,
    field_names,
    is_auto,
    is_number,
    is_part,
    is_real,
    may_be_none,
)
from purerl.types import Overrides, Schedule

MAX_ENV_STEPS = 2**32 - 1  # `env_steps` is an unsigned 32-bit counter.
_MAX_NUMBER = 2**31 - 1  # The largest whole number of a program.
_PLAIN = (int, bool, str, "int", "bool", "str")  # types of fields that hold no part
_MOMENTS = 256  # at which the course of a schedule is checked


def validate_fields(config: TrainConfig) -> None:
    """Check every field by itself.

    Raises:
        ConfigError: naming the field, the value, the constraint and the remedy.
    """
    for field in dataclasses.fields(config):
        validate_field(field, getattr(config, field.name))


def validate_field(field: dataclasses.Field, value: Any, name: str = "") -> None:
    """Check a field's value by itself; of a part, such as an optimiser, its numbers.

    Args:
        field: The field.
        value: Value of the field.
        name: Name of the field in messages, with dots; the field's own name where not
            given.

    Raises:
        ConfigError: naming the field, the value, the constraint and the remedy.
    """
    name = name or field.name
    if isinstance(value, Auto) and isinstance(field.default, Auto):
        return
    if is_part(value) and (
        field.metadata.get("pytree_node", True) or field.type in _PLAIN
    ):
        _validate_part(field, value, name)
        return
    if is_number(field) or field.type in (int, bool, "int", "bool"):
        _validate_number(field, value, name)
    check = field.metadata.get("check")
    # While something is traced, comparing an array of JAX would be traced too.
    known = np.asarray(value) if is_real(value) else value
    if check is not None and is_concrete(value):
        reason = "" if check.holds(known) else "."
        if not reason and is_number(field) and value is not None:
            number = as_float32(known)
            words = f", which counts as {number:g} in float32."
            reason = "" if check.holds(number) else words
        if reason:
            raise ConfigError(
                f"{name} {check.words}, got {shown(value)}{reason}{_default(field)} "
                f"{field.metadata['help']}"
            )


def _validate_part(owner: dataclasses.Field, part: Any, name: str) -> None:
    """Check the numbers inside a part, and where a schedule leads its field."""
    if owner.type in _PLAIN:
        raise ConfigError(f"{name} must be a plain value, got {shown(part)}.")
    if is_number(owner) and not isinstance(part, Schedule):
        raise ConfigError(
            f"{name} must be a number or a schedule, got {shown(part)}; for example "
            "purerl.schedules.Linear(3e-4, 0.0)."
        )
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        if "help" in field.metadata or is_part(value):
            validate_field(field, value, f"{name}.{field.name}")
    if is_number(owner):
        _validate_course(owner, part, name)


def _validate_course(field: dataclasses.Field, schedule: Schedule, name: str) -> None:
    """Check what a schedule makes of a field, at many moments of the run."""
    if not field.metadata.get("moves", True):
        reason = "it says itself how something moves"
        if field.metadata.get("stays"):
            reason = "what was learned means something else with another number"
        raise ConfigError(
            f"{name} cannot follow a schedule, got {schedule!r}: {reason}. Give a "
            "number."
        )
    if not all(map(is_concrete, jax.tree.leaves(schedule))):
        return
    shares = np.linspace(0.0, 1.0, _MOMENTS, endpoint=False, dtype=np.float32)
    try:
        with jax.ensure_compile_time_eval():
            course = np.asarray(jax.vmap(schedule)(jnp.asarray(shares)))
    except (TypeError, ValueError, NotImplementedError) as error:
        raise ConfigError(
            f"{name} is {schedule!r}, which failed on a share of the run: {error}"
        ) from error
    if course.shape != shares.shape:
        raise ConfigError(
            f"{name} is {schedule!r}, which must return one number for a share of the "
            f"run, and returned shape {course.shape[1:]}."
        )
    check = field.metadata.get("check")
    if check is POSITIVE and field.name.endswith("learning_rate"):
        check = NON_NEGATIVE  # A warm-up starts at a step of 0, and may.
    for share, value in zip(shares, course, strict=True):
        is_kept = check is None or check.holds(value)
        if not (math.isfinite(value) and is_kept):
            words = "must be finite" if is_kept or check is None else check.words
            raise ConfigError(
                f"{name} {words} in the whole run, and {schedule!r} makes it "
                f"{value:g} after {share:.1%} of it."
            )


def _validate_number(field: dataclasses.Field, value: Any, name: str) -> None:
    kind = {int: "int", float: "float", bool: "bool"}.get(field.type, field.type)  # type: ignore[call-overload]
    if not is_concrete(value) or (may_be_none(field) and value is None):
        return
    if kind == "bool" and not isinstance(value, bool):
        raise ConfigError(f"{name} must be True or False, got {shown(value)}.")
    if kind == "int" and (isinstance(value, bool) or not isinstance(value, int)):
        raise ConfigError(f"{name} must be a whole number, got {shown(value)}.")
    most = MAX_ENV_STEPS if name == "total_timesteps" else _MAX_NUMBER
    if kind == "int" and value > most:
        got = shown(value)
        raise ConfigError(f"{name} must be at most {most} (32 bits), got {got}.")
    if not is_number(field):
        return
    if not _is_number(value):
        rest = how_to_read(value)
        if field.metadata.get("pytree_node", True):
            rest += " A schedule may be, such as purerl.schedules.Linear(1e-3, 0.0)."
        raise ConfigError(f"{name} must be a number, got {shown(value)}.{rest}")
    if np.shape(value) != ():
        raise ConfigError(
            f"{name} must be a single number, got shape {np.shape(value)}. A sweep, or "
            f'jax.vmap(train, in_axes=(None, 0))(key, {{"{name}": values}}), trains '
            "several."
        )
    if not np.isfinite(as_float32(value)):
        raise ConfigError(
            f"{name} must be finite, got {shown(value)}.{_default(field)} "
            f"{field.metadata.get('help', '')}".rstrip()
        )


def _is_number(value: Any) -> bool:
    """Return whether a value is a real number, or an array of such."""
    if isinstance(value, int | float) or not is_real(value):
        return isinstance(value, int | float) and not isinstance(value, bool)
    return not jnp.issubdtype(value.dtype, np.bool_)


def _default(field: dataclasses.Field) -> str:
    """The sentence about a field's default; nothing where there is none."""
    missing = field.default is dataclasses.MISSING
    return "" if missing else f" Default: {field.default!r}."


def is_concrete(value: Any) -> bool:
    """Return whether a value can be looked at, because nothing traces it."""
    return not isinstance(value, Tracer)


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
    is_one = jax.tree_util.all_leaves([current])
    # What is called as a part is, but is none, gets the sentence of its own check.
    if (is_part(current) and not callable(value)) or (is_one and old != new):
        kind = "a number" if is_one else f"of the kind of {current!r}"
        raise ConfigError(
            f"override {path!r} must be {kind}, got {type(value).__name__}."
            f"{how_to_read(value)}"
        )
    if old != new:
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
