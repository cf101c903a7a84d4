"""The names of what is evolved: fields of a config, parameters of an environment."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl.acting.environment import Environment, bind_params
from purerl.config import (
    ConfigError,
    TrainConfig,
    check_apart,
    check_known,
    field_names,
    part_kind,
)
from purerl.types import PyTree

SCALES = ("auto", "linear", "log", "logit")


# What `evolve` may be: a name, several, or names with their scales.
Names = str | Sequence[str] | Mapping[str, str]


def read_names(
    config: TrainConfig, env: Environment, evolve: Names, word: str = "evolve"
) -> dict[str, str]:
    """Read names of fields with their scales; `env_params` alone means all its numbers.

    Args:
        config: The config, whose fields may be evolved.
        env: The environment, whose parameters may be evolved.
        evolve: A name, several, or names with their scales.
        word: Name in messages of the argument that names the fields.

    Raises:
        ConfigError: none, one given twice or inside another, or an unknown scale.
    """
    if not isinstance(evolve, str | Sequence | Mapping):
        raise ConfigError(
            f"{word} must be names of fields of the config, got {evolve!r}."
        )
    if isinstance(evolve, str):
        evolve = [part.strip() for part in evolve.split(",") if part.strip()]
    scales = (
        dict(evolve) if isinstance(evolve, Mapping) else dict.fromkeys(evolve, "auto")
    )
    odd = [name for name in scales if not isinstance(name, str)]
    if odd:
        raise ConfigError(
            f"{word} must be names of fields of the config, got {odd[0]!r} among them."
        )
    if not scales:
        raise ConfigError(
            f"{word} must name at least one field of the config with float leaves, "
            "such as 'value_loss' or 'learning_rate'."
        )
    for name, scale in scales.items():
        if scale not in SCALES:
            raise ConfigError(
                f"{word}: the scale of {name} must be one of {', '.join(SCALES)}, got "
                f"{scale!r}."
            )
    if not isinstance(evolve, Mapping) and len(scales) != len(evolve):
        raise ConfigError(f"{word} names a field twice: {', '.join(evolve)}.")
    scale_of: dict[str, str] = {}
    for name, scale in scales.items():
        if name == "env_params":
            scale_of.update(dict.fromkeys(_numbers_of(env, word), scale))
        else:
            scale_of[name] = scale
    check_apart(scale_of, f"{word} names")
    return scale_of


def _numbers_of(env: Environment, word: str) -> list[str]:
    params = env.default_params
    names = [
        f"env_params.{field.name}"
        for field in dataclasses.fields(params)
        if is_float(getattr(params, field.name))
    ]
    if not names:
        raise ConfigError(f"{word}: {env.name} has no parameters that are floats.")
    return names


def value_at(
    config: TrainConfig, env: Environment, name: str, word: str = "evolve"
) -> PyTree:
    """Return what the config, or its environment's parameters, have under a name.

    Args:
        config: The config.
        env: The environment.
        name: Name of a field, dotted where it lies inside one.
        word: Name in messages of the argument that named the field.

    Raises:
        ConfigError: there is nothing of that name.
    """
    first, *rest = name.split(".")
    check_known(first, field_names(config), f"{word}: {type(config).__name__}")
    value: Any = getattr(config, first)
    if first == "env_params":
        value = bind_params(env, config.env_params)
    for part in rest:
        known = _names_in(value)
        if part == "params" and part not in known and part_kind(first) == "optimiser":
            raise ConfigError(
                f"{word}: {name}: {type(value).__name__} has no weights; start from a "
                f"network: {first}=purerl.optimisers.LearnedOptimiser(), or "
                f"--{first.replace('_', '-')} 'LearnedOptimiser()'."
            )
        check_known(part, known, f"{word}: {name}: {type(value).__name__}")
        value = value[part] if isinstance(value, Mapping) else getattr(value, part)
    return value


def _names_in(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return list(value)
    return field_names(value) if dataclasses.is_dataclass(value) else []


def is_float(leaf: Any) -> bool:
    """Return whether a leaf is a floating-point number, or an array of them."""
    if isinstance(leaf, bool) or isinstance(leaf, str) or leaf is None:
        return False
    if not isinstance(leaf, float | np.ndarray | np.generic | jax.Array):
        return False
    return jnp.issubdtype(jnp.result_type(leaf), jnp.floating)
