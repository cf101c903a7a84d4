"""An environment with its numbers, and a step of it that resets nothing."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from purerl.config import ConfigError, check_mapping
from purerl.envs.base import Environment, outcome
from purerl.envs.params import check_wrappers, put_in
from purerl.envs.wrappers.randomised import Randomised, distributions
from purerl.randomisation import check_distribution, check_groups, corners, is_random
from purerl.types import PyTree


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
            "number, and the program is made for numbers. Put the distribution into "
            "the config; its numbers are overridden by name, such as "
            "'env_params.length.low'."
        )
    if values is None:
        return env.default_params
    owner = f"env_params of {env.name}"
    if isinstance(values, Mapping):
        check_mapping("env_params", values, '{"length": 0.5}')

    # As they are given: inside a traced program all bound parameters are traced.
    def given(name: str, default: Any) -> Any:
        if isinstance(values, Mapping):
            return values.get(name, default)
        return getattr(values, name)

    try:
        params = put_in(env.default_params, values, owner, check_distribution)
        check_groups(distributions(params), owner)
        check_wrappers(env, given, owner, corners)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return params


def step_without_reset(
    env: Environment, params: PyTree, key: jax.Array, state: PyTree, action: jax.Array
) -> tuple[Any, PyTree, jax.Array, jax.Array, jax.Array]:
    """Take one step of one environment, which leaves an ended episode as it ended.

    An environment that can only step with a reset returns the next episode's state
    with the last one's observation: enough for those who look at nothing after the end,
    and for others see `keeps_last_state`.

    Args:
        env: Environment to step.
        params: Numbers of the environment.
        key: Random key, consumed.
        state: State of the running episode.
        action: Action of the environment.

    Returns:
        `obs, state, reward, terminated, truncated`, the flags never both true.
    """
    obs, state, reward, terminated, truncated, _ = outcome(
        env, key, state, action, params
    )
    reward = jnp.asarray(reward, jnp.float32)
    return obs, state, reward, terminated, truncated & ~terminated
