"""The door to `envs`: from what the config names to an environment and its numbers."""

import math
from collections.abc import Mapping
from typing import Any

import jax
from jax.core import Tracer

from purerl import envs
from purerl.config import ConfigError, TrainConfig, check_mapping, shown, thaw
from purerl.envs.base import EVALUATION_STEPS, Environment, StepError
from purerl.envs.checker import EnvCheckError, check_types
from purerl.envs.params import TIME_LIMIT, check_wrappers, put_in
from purerl.envs.wrappers import Randomised, RandomisedOnce
from purerl.envs.wrappers.randomised import distributions
from purerl.randomisation import (
    check_distribution,
    check_groups,
    is_distribution,
    is_random,
)
from purerl.types import PyTree


def resolve_env(config: TrainConfig) -> Environment:
    """Make the environment that `config.env` names or is, with its wrappers.

    Raises:
        ConfigError: unknown id (with near names), bad options, an object that does
            not keep the contract, or a wrapper that is unknown or does not fit.
    """
    check_mapping("env_kwargs", config.env_kwargs, '{"backend": "spring"}')
    if isinstance(config.env, str):
        try:
            env = envs.make(config.env, **thaw(config.env_kwargs or {}))
        except (ValueError, TypeError) as error:
            raise ConfigError(str(error)) from None
    else:
        if config.env_kwargs:
            raise ConfigError(
                "env_kwargs must be left out where env is an object, got "
                f"{shown(config.env_kwargs)} for {config.env!r}: it is made already."
            )
        try:
            env = envs.adapt(config.env)
        except (ValueError, TypeError) as error:
            raise ConfigError(f"env: {error}") from None
    if env.on_host:
        _check_on_host(config, env)
        return env
    try:
        env = envs.wrap(env, wrappers_of(config))
        if is_random(config.env_params):
            each = config.randomise_per == "environment"
            env = RandomisedOnce(env) if each else Randomised(env)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    has_no_pool = isinstance(env, RandomisedOnce) or env.resets_by_itself
    if config.reset_scheme == "pool" and has_no_pool:
        raise ConfigError(
            f"reset_scheme='pool' draws starts that all environments share, and "
            f"{env.name} resets by itself, or differs by randomise_per='environment'. "
            "Use reset_scheme='fresh'."
        )
    bind_params(env, config.env_params)
    return env


def _check_on_host(config: TrainConfig, env: Any) -> None:
    """Refuse what only environments inside a compiled program have.

    Raises:
        ConfigError: naming the field and the remedy.
    """
    asked = {
        "env_wrappers": (wrappers_of(config), env.wrapped_by),
        "env_params": (
            config.env_params,
            f"{env.taken_by} takes env_kwargs",
        ),
        "reset_scheme": (config.reset_scheme != "fresh", "use reset_scheme='fresh'"),
    }
    for field, (is_given, remedy) in asked.items():
        if is_given:
            raise ConfigError(
                f"{field} must be left out with env={config.env!r}, which is stepped "
                f"on the host, got {getattr(config, field)!r}; {remedy}."
            )


def wrappers_of(config: TrainConfig) -> tuple[str, ...]:
    """Return the texts of a config's wrappers; one alone may stand as it is.

    Raises:
        ConfigError: they are no texts.
    """
    texts: Any = config.env_wrappers
    texts = (texts,) if isinstance(texts, str) else texts
    if not isinstance(texts, tuple | list) or not all(
        isinstance(text, str) for text in texts
    ):
        raise ConfigError(
            f"env_wrappers must be texts, got {texts!r}; for example "
            '("FrameStack(4)",). A wrapper that is an object goes around env itself.'
        )
    return tuple(texts)


def is_built_in(config: TrainConfig) -> bool:
    """Return whether every process can make a config's environment from its names.

    Not of an object, nor of what this program alone has registered.
    """
    return (
        isinstance(config.env, str)
        and envs.source_of(config.env) != "registered"
        and envs.wrappers.are_built_in(wrappers_of(config))
    )


def bind_params(env: Environment, values: Any) -> PyTree:
    """Return the environment's parameters with `values` put in.

    Args:
        env: The environment.
        values: None, a mapping of names to values (nested where the parameters are),
            or a whole parameter structure.

    Raises:
        ConfigError: an unknown name, another shape, choices of one group that have not
            equally many values, a number that a wrapper refuses, or a distribution in
            the place of what was a number when the environment was made.
    """
    if not isinstance(env, Randomised) and is_random(values):
        raise ConfigError(
            f"env_params of {env.name} holds a distribution where the config has a "
            "number. Put the distribution into the config; its numbers are overridden "
            "by name, such as 'env_params.length.low'."
        )
    if values is None:
        return env.default_params
    owner = f"env_params of {env.name}"
    if isinstance(values, Mapping):
        check_mapping("env_params", values, '{"length": 0.5}')
    try:
        params = put_in(env.default_params, values, owner, check_distribution)
        check_groups(distributions(params), owner)
        check_wrappers(env, params, owner)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return params


def with_params(config: TrainConfig, env: Environment) -> TrainConfig:
    """Return the config with all numbers of the environment, as algorithms take it."""
    if config.env_params is None:
        return config
    return config.replace(env_params=bind_params(env, config.env_params))


def check_contract(config: TrainConfig, env: Environment) -> None:
    """Refuse what reset and step return where it is not what training can take.

    Shapes are evaluated, and nothing is computed. An environment that this package
    makes by its name is known to keep its word, and costs nothing here.

    Raises:
        ConfigError: see `envs.checker.check_types`.
    """
    if env.on_host or is_built_in(config):
        return
    try:
        check_types(env, bind_params(env, config.env_params))
    except (StepError, EnvCheckError) as error:
        raise ConfigError(f"env: {error} envs.check(env) tests the rest.") from None


def time_limit(config: TrainConfig, env: Environment) -> int:
    """Return the longest evaluation episode in steps, a number fixed before tracing.

    It is `eval_max_steps`, or else the environment's time limit, `EVALUATION_STEPS` at
    most. Steps are the agent's, of which one may be several of the environment's.

    Raises:
        ConfigError: there are evaluations, and the time limit that bounds them is
            traced, so that nobody knows how long they may be.
    """
    if config.eval_max_steps > 0:
        return config.eval_max_steps
    # Inside a traced program too, a number that is not traced stays a number.
    with jax.ensure_compile_time_eval():
        params = bind_params(env, config.env_params)
        limit: Any = getattr(params, TIME_LIMIT, None)
        if is_distribution(limit):
            limit = limit.ends()[1]  # Nothing that is drawn is longer.
            limit = limit if isinstance(limit, Tracer) else math.ceil(limit)
    if isinstance(limit, Tracer):
        if config.num_evaluations > 0:
            raise ConfigError(
                "env_params.max_steps_in_episode is traced or vmapped. Set "
                "eval_max_steps to the largest limit, or num_evaluations=0."
            )
        return EVALUATION_STEPS
    if limit is None or int(limit) < 1:
        return EVALUATION_STEPS
    return min(-(-int(limit) // env.time_per_step), EVALUATION_STEPS)
