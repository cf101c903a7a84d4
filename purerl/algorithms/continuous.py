"""What actor-critics of continuous control share: the range of actions, its checks.

Policies, critics and the replay buffer know actions in [-1, 1] only; the environment
gets them scaled to its bounds.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl import networks
from purerl.acting.environment import Environment
from purerl.acting.observe import obs_shape
from purerl.config import ConfigError, TrainConfig
from purerl.networks.distributions import (
    Gaussian,
    GaussianHead,
    log_tanh_slope,
    make_head,
)
from purerl.types import Array


def validate(config: TrainConfig, env: Environment, instead: str) -> None:
    """Refuse what an actor with actions in [-1, 1] cannot act or learn in.

    Args:
        config: Config of the algorithm.
        env: Environment, from `resolve_env`.
        instead: Configs for discrete actions, for the message.

    Raises:
        ConfigError: naming the space, the constraint and the remedy.
    """
    space = env.action_space(env.default_params)
    if hasattr(space, "n"):
        raise ConfigError(
            f"{type(config).__name__} needs continuous actions, got {space} of "
            f"{env.name}; use {instead}."
        )
    check_bounded_actions(config, env)
    check_vectors(config, env)


def check_bounded_actions(config: TrainConfig, env: Environment) -> None:
    """Refuse actions to whose bounds nothing can be scaled.

    Raises:
        ConfigError: naming the space and the remedy.
    """
    space: Any = env.action_space(env.default_params)
    if not (np.all(np.isfinite(space.low)) and np.all(np.isfinite(space.high))):
        raise ConfigError(
            f"{type(config).__name__} needs bounded actions, because it scales them "
            f"from [-1, 1], got {space} of {env.name}; bound them in a wrapper, or use "
            "PPOConfig."
        )


def check_vectors(config: TrainConfig, env: Environment) -> None:
    """Refuse observations that do not fit beside an action in one vector.

    Raises:
        ConfigError: naming the shape and the remedy.
    """
    try:
        shape = obs_shape(env.observation_space(env.default_params))
    except ValueError as error:
        raise ConfigError(f"{env.name}: {error}") from None
    if len(shape) != 1:
        raise ConfigError(
            f"{type(config).__name__} needs observations that are vectors, got {shape} "
            f"of {env.name}; flatten them in a wrapper."
        )


def action_range(space: Any) -> GaussianHead:
    """Return how actions in [-1, 1] become the environment's: see `to_env`."""
    head: Any = make_head(space, "gaussian")
    return head


def random_action(
    key: Array, shape: tuple[int, ...] = (), *, num_actions: int
) -> Array:
    """Draw uniform actions `[*shape, A]` in [-1, 1].

    Args:
        key: Random key, consumed.
        shape: Leading axes of the actions.
        num_actions: A, dimensions of an action.
    """
    return jax.random.uniform(key, (*shape, num_actions), minval=-1.0, maxval=1.0)


def twin_critics(config: Any) -> networks.Twin:
    """Make two critics of observation and action.

    Args:
        config: Config with `hidden_sizes`, `critic_hidden_sizes`, `activation` and
            `layer_norm`.
    """
    make: Callable[[], networks.ActionCritic] = partial(
        networks.ActionCritic,
        config.critic_hidden_sizes or config.hidden_sizes,
        config.activation,
        config.layer_norm,
    )
    return networks.Twin(make)


def squash(outputs: Gaussian, noise: Array) -> tuple[Array, Array]:
    """Squash actions into [-1, 1]; return them and their log-densities there.

        a = tanh(u),   u = mu + sigma e
        log pi(a) = sum_j [log N(e_j; 0, 1) - log sigma_j - log(1 - tanh(u_j)^2)]

    The Gaussian's density is taken of the noise, so nothing is divided by a standard
    deviation that rounding has swallowed.

    Args:
        outputs: `[..., A]` each, outputs of the policy.
        noise: `[..., A]` standard normal noise e.

    Returns:
        Actions `[..., A]`, log-densities `[...]`.
    """
    raw = outputs.mean + jnp.exp(outputs.log_std) * noise
    log_normal = -0.5 * (jnp.square(noise) + np.log(2 * np.pi)) - outputs.log_std
    return jnp.tanh(raw), (log_normal - log_tanh_slope(raw)).sum(-1)
