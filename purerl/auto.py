"""Fields that follow the task: what `auto` stands for, once the environment is known.

A field whose default is `config.AUTO` has no value of its own. `TrainConfig.automatic`
says which one it takes in an environment, and `resolve` puts it in: in `train.bind`,
before a config is checked and before its structure is read. Values that somebody has
given stay. `Bound.at` resolves again after the overrides, so that a field which follows
another (`epsilon_steps` follows `epsilon_fraction`) follows it in a sweep too. Learners
resolve what they are given, which changes nothing after `train.bind`.
"""

import dataclasses
from typing import Any, TypeVar

from purerl.config import AUTO, Auto, ConfigError, TrainConfig, is_auto
from purerl.envs.base import Environment
from purerl.types import Overrides

ConfigT = TypeVar("ConfigT", bound=TrainConfig)


def resolve(config: ConfigT, env: Environment) -> ConfigT:
    """Return the config with a value in every field that was `auto`.

    The word stays where it is one of a field's own choices, as in `policy` and `torso`.

    Args:
        config: Config as it was given; leaves may be traced.
        env: Environment of the config, from `resolve_env`.

    Raises:
        ConfigError: the config's class says nothing about one of them.
    """
    names = [
        field.name
        for field in dataclasses.fields(config)
        if isinstance(getattr(config, field.name), Auto)
    ]
    if not names:
        return config
    values = config.automatic(env)
    for name in names:
        if name not in values:
            raise ConfigError(
                f"{name} is auto, but {type(config).__name__}.automatic has no value "
                "for it; give one, or add it there."
            )
    return config.replace(**{name: values[name] for name in names})


# Fields that are read only where another one is `auto`.
FOLLOWED = {"epsilon_fraction": "epsilon_steps"}


def check_overrides(asked: TrainConfig, overrides: Overrides | None) -> None:
    """Refuse to override what nothing follows.

    Raises:
        ConfigError: naming the field that was given in its place.
    """
    for name, follower in FOLLOWED.items():
        if name not in (overrides or {}):
            continue
        given = (overrides or {}).get(follower, getattr(asked, follower, AUTO))
        if not is_auto(given):
            raise ConfigError(
                f"override {name!r} has no effect: {follower} is given, and wins. Use "
                f"config.replace({follower}='auto'), or override {follower} alone."
            )


def values(asked: TrainConfig, config: TrainConfig) -> dict[str, Any]:
    """Return what `auto` stood for, by name, in the order of the fields.

    Args:
        config: Config that `resolve` made of what was asked for.
    """
    return {
        field.name: getattr(config, field.name)
        for field in dataclasses.fields(config)
        if isinstance(getattr(asked, field.name), Auto)
        and not isinstance(getattr(config, field.name), Auto)
    }
