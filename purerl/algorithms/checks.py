"""Checks of configs that several algorithms make, before anything is traced."""

import dataclasses
from typing import Any

import numpy as np
from jax.core import Tracer

from purerl.acting.observe import obs_shape
from purerl.algorithms import network_config
from purerl.config import ConfigError, shown
from purerl.envs.base import Environment
from purerl.networks.distributions import is_discrete


def check_minibatches(config: Any) -> None:
    """Refuse a rollout that does not fall into minibatches of one size.

    Args:
        config: Config with `num_envs`, `num_steps` and `num_minibatches`.

    Raises:
        ConfigError: naming the sizes and the nearest number that fits.
    """
    size, parts = config.num_envs * config.num_steps, config.num_minibatches
    if size % parts == 0:
        return
    fits = [p for p in range(1, size + 1) if size % p == 0]
    below = max(p for p in fits if p < parts)
    above = min((p for p in fits if p > parts), default=below)
    raise ConfigError(
        f"num_envs * num_steps ({config.num_envs} * {config.num_steps} = {size}) "
        f"must be divisible by num_minibatches, got {parts}; "
        f"nearest: {below} or {above}."
    )


def check_standardised(samples: int, sizes: str) -> None:
    """Refuse advantages that are standardised one by one: each would be 0.

    Args:
        samples: Number of advantages that are standardised together.
        sizes: Names of the fields that it follows from, for the message.

    Raises:
        ConfigError: it is 1.
    """
    if samples == 1:
        raise ConfigError(
            f"normalize_advantages=True needs at least two samples, and {sizes} leaves "
            "one, whose advantage would be 0, so that the policy would never learn; "
            "give more samples, or normalize_advantages=False."
        )


def check_idle(config: Any, fields: tuple[str, ...], switch: str, on: str) -> None:
    """Refuse numbers of an option that is left off, so that nothing reads them.

    Numbers of one of several kinds, such as of `values` or `method`, are no such case:
    who compares the kinds gives the numbers of all in one config. Nor are those that a
    preset has beside its option, which can be left off again.

    Args:
        config: Config of the agent.
        fields: Names of the numbers.
        switch: Field that turns the option on, which it has not.
        on: Value of the switch that turns the option on.

    Raises:
        ConfigError: one of them is given: it is not what it is by default.
    """
    defaults = {f.name: f.default for f in dataclasses.fields(config)}
    for name in fields:
        value = getattr(config, name)
        if not isinstance(value, Tracer) and np.any(
            np.asarray(value) != defaults[name]
        ):
            raise ConfigError(
                f"{name}={shown(value)} has no effect with {switch}="
                f"{getattr(config, switch)!r}; set {on}, or leave this out."
            )


def check_hidden_sizes(sizes: tuple[int, ...]) -> None:
    """Refuse an agent without hidden layers.

    Raises:
        ConfigError: with an example.
    """
    if not sizes:
        raise ConfigError(
            "hidden_sizes must be at least one positive whole number, got (); for "
            "example (64, 64)."
        )


def check_action_values(config: Any, env: Environment) -> None:
    """Refuse environments whose actions or observations a Q-network cannot take.

    Args:
        config: Config with the fields of `NetworkConfig`.
        env: Environment, from `resolve_env`.

    Raises:
        ConfigError: actions are not discrete, or the torso does not fit.
    """
    check_action_value_network(config, env, check_discrete(config, env))


def check_discrete(config: Any, env: Environment) -> int:
    """Refuse environments without a value for every action; return their number.

    Args:
        config: Config with the fields of `NetworkConfig`.
        env: Environment, from `resolve_env`.

    Raises:
        ConfigError: actions are not discrete, or hidden sizes are none.
    """
    check_hidden_sizes(config.hidden_sizes)
    space: Any = env.action_space(env.default_params)
    if not hasattr(space, "n"):
        raise ConfigError(
            f"{type(config).__name__} needs {needed_for_values(space)}, got {space} of "
            f"{env.name}; use an algorithm with a policy, such as PPOConfig."
        )
    return int(space.n)


def needed_for_values(space: Any) -> str:
    """Return what actions an algorithm needs that has a value for every action.

    Args:
        space: Action space, which is another one.
    """
    return "one discrete action at a time" if is_discrete(space) else "discrete actions"


def instead_of_values(space: Any) -> str:
    """Return what learns in an action space that has no value for every action.

    Args:
        space: Action space.
    """
    if is_discrete(space):
        return (
            "PPOConfig, whose policy has a factor for each component, or a wrapper "
            "that numbers their combinations"
        )
    if hasattr(space, "spaces"):
        return "PPOConfig, whose policy has a factor for each part"
    return "SACConfig or TD3Config"


def check_action_value_network(
    config: Any, env: Environment, num_actions: int, outputs: int | None = None
) -> None:
    """Refuse a network that does not map observations to what each action is to have.

    Args:
        config: Config with the fields of `NetworkConfig`.
        env: Environment, from `resolve_env`.
        num_actions: Number of actions.
        outputs: Numbers that an action is to have; None for a value.

    Raises:
        ConfigError: naming the network, the shapes and the remedy.
    """
    network_config.check_torsos(config, env, ("critic",))
    shape = obs_shape(env.observation_space(env.default_params))
    if outputs is None:
        words, sizes = f"values of {num_actions} actions", (num_actions,)
    else:
        words = f"{outputs} numbers of the return of each of {num_actions} actions"
        sizes = (num_actions, outputs)
    network_config.check_whole(config, "critic", [shape], sizes, words)


def check_no_networks(config: Any) -> None:
    """Refuse to freeze parts of networks where an algorithm has none.

    Args:
        config: Config of an algorithm without networks.

    Raises:
        ConfigError: naming the parts.
    """
    if config.frozen:
        raise ConfigError(
            f"frozen must be () for {type(config).__name__}, which has no networks, "
            f"got {config.frozen!r}; leave it out."
        )
