"""The common part of continuous control: the range of actions, its checks.

Policies, critics and the replay buffer know actions in [-1, 1] only; the environment
gets them scaled to its bounds.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from purerl import networks
from purerl.acting.environment import Environment
from purerl.acting.observe import obs_shape
from purerl.algorithms import ensembles, network_config
from purerl.config import ConfigError, TrainConfig
from purerl.envs.spaces import without_far_ends
from purerl.networks.distributions import (
    Gaussian,
    GaussianHead,
    check_real,
    is_discrete,
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
    if is_discrete(space):
        raise ConfigError(
            f"{type(config).__name__} needs continuous actions, got {space} of "
            f"{env.name}; use {instead if hasattr(space, 'n') else 'PPOConfig'}."
        )
    check_bounded_actions(config, env)


def check_bounded_actions(config: TrainConfig, env: Environment) -> None:
    """Refuse actions to whose bounds nothing can be scaled.

    Raises:
        ConfigError: naming the space and the remedy.
    """
    space: Any = env.action_space(env.default_params)
    if not hasattr(space, "low"):
        raise ConfigError(
            f"{type(config).__name__} needs actions of one box of numbers, got {space} "
            f"of {env.name}; use PPOConfig, or make them one box in a wrapper."
        )
    try:
        check_real(space)
    except ValueError as error:
        raise ConfigError(f"{env.name}: {error}") from None
    ends = map(without_far_ends, (space.low, space.high))
    if not all(np.all(np.isfinite(end)) for end in ends):
        raise ConfigError(
            f"{type(config).__name__} needs bounded actions, because it scales them "
            f"from [-1, 1], got {space} of {env.name}; bound them in a wrapper, or use "
            "PPOConfig."
        )


def check_gaussian(config: Any, env: Environment) -> None:
    """Refuse networks that do not fit a Gaussian policy and critics of its actions.

    Raises:
        ConfigError: naming the network, the shapes and the remedy.
    """
    num = dimensions(env)
    words = f"a pair of mean and log standard deviation of {num} numbers"
    check_networks(config, env, [(num,), (num,)], words, 0)


def dimensions(env: Environment) -> int:
    """Return the number of dimensions of an action."""
    space: Any = env.action_space(env.default_params)
    return int(np.prod(space.shape, dtype=int))


def check_networks(
    config: Any, env: Environment, outputs: Any, words: str, num_actions: int
) -> None:
    """Refuse networks that do not fit the observations, the policy or the actions.

    Args:
        config: Config of the agent.
        env: Environment, from `resolve_env`.
        outputs: Shapes of what the actor must return, see `networks.modules.check`.
        words: Words for these outputs in the message.
        num_actions: Number of values of a critic of observations alone; 0 for a critic
            of observations and actions.

    Raises:
        ConfigError: naming the network, the shapes and the remedy.
    """
    network_config.check_torsos(config, env, ("actor", "critic"))
    shape = obs_shape(env.observation_space(env.default_params))
    network_config.check_whole(config, "actor", [shape], outputs, words)
    judged = [shape] if num_actions else [shape, (dimensions(env),)]
    values = (num_actions,) if num_actions else ()
    said = f"values of {num_actions} actions" if num_actions else "one value each"
    quantiles = getattr(config, "num_quantiles", 0)
    if quantiles:
        values, said = (*values, quantiles), f"{quantiles} quantiles each"
    network_config.check_whole(config, "critic", judged, values, said)


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


def action_critics(config: Any, shape: Any) -> nn.Module:
    """Make the critics of observation and action: two, or as many as the config says.

    What is no vector, and what a torso of the user's own sees, is made features before
    it stands beside the action.

    Args:
        config: Config of the agent.
        shape: Shape of the features of one observation.
    """
    sizes = config.critic_hidden_sizes or config.hidden_sizes

    def make() -> nn.Module:
        own = network_config.whole(config, "critic", shape)
        if own is not None:
            return own
        return networks.ActionCritic(
            sizes,
            config.activation,
            config.layer_norm,
            network_config.encoder_of(config, shape),
            network_config.dtype_of(config),
            config.torso_gain,
            config.critic_gain,
            getattr(config, "num_quantiles", 0),
            getattr(config, "crossq", False),
        )

    return ensembles.make_critics(config, make)


def gaussian_actor(config: Any, shape: Any, num_actions: int) -> nn.Module:
    """Make a policy of mean and log standard deviation, which is clipped.

    Args:
        config: Config of the agent, with `log_std_min` and `log_std_max`.
        shape: Shape of the features of one observation.
        num_actions: A, dimensions of an action.
    """
    low, high = config.log_std_min, config.log_std_max

    def finish(outputs: Any) -> Gaussian:
        mean, log_std = outputs
        return Gaussian(mean, jnp.clip(log_std, low, high))

    own = network_config.whole(config, "actor", shape, finish)
    if own is not None:
        return own
    torso = network_config.torso_of(config, shape, "actor")
    if getattr(config, "crossq", False):
        torso = torso.clone(batch_norm=True)
    return networks.StateGaussianActor(torso, num_actions, low, high, config.actor_gain)


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
