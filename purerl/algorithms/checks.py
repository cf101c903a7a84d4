"""Checks of configs that several algorithms make, before anything is traced."""

from typing import Any

from purerl import networks
from purerl.acting.environment import Environment
from purerl.acting.observe import obs_shape
from purerl.config import ConfigError


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


def check_hidden_sizes(sizes: Any) -> None:
    """Refuse what are no sizes of hidden layers.

    Raises:
        ConfigError: with an example.
    """
    is_sizes = isinstance(sizes, tuple) and all(type(n) is int for n in sizes)
    if not is_sizes or not sizes or min(sizes) < 1:
        raise ConfigError(
            f"hidden_sizes must be at least one positive whole number, got {sizes!r}; "
            "for example (64, 64)."
        )


def check_action_values(config: Any, env: Environment) -> None:
    """Refuse environments whose actions or observations a Q-network cannot take.

    Args:
        config: Config with `hidden_sizes`, `torso` and `activation`.
        env: Environment, from `resolve_env`.

    Raises:
        ConfigError: actions are not discrete, or the torso does not fit.
    """
    check_hidden_sizes(config.hidden_sizes)
    params = env.default_params
    space = env.action_space(params)
    if not hasattr(space, "n"):
        raise ConfigError(
            f"{type(config).__name__} needs discrete actions, got {space} of "
            f"{env.name}; use an algorithm with a policy, such as PPOConfig."
        )
    try:
        shape = obs_shape(env.observation_space(params))
        networks.make_torso(config.torso, shape, (1,), config.activation)
    except ValueError as error:
        raise ConfigError(f"{env.name}: {error}") from None
