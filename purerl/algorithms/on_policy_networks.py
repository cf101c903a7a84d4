"""The actor and the critic of a config, on torsos of their own or on a shared one."""

from typing import Any

import flax.linen as nn

from purerl import networks
from purerl.algorithms import network_config
from purerl.algorithms.on_policy_config import OnPolicyConfig
from purerl.networks import composite
from purerl.networks.distributions import Head

CRITIC_CORE = "critic_core"
"""The name of the parameters of a memory that is the critic's own."""

CRITICS = ("critic", CRITIC_CORE)
"""The names of all parameters that are the critic's own."""


def on_features(network: nn.Module, shape: Any) -> nn.Module:
    """Return a network with the same head, which takes what `inputs` returns."""
    if isinstance(network, networks.Masked):
        return network.clone(module=on_features(network.module, shape))
    heads = composite.head_shape(1, shape)
    return network.clone(torso=composite.viewed(networks.Features(), heads))


def make_actor(
    config: OnPolicyConfig,
    head: Head,
    shape: Any,
    torso: nn.Module | None = None,
) -> nn.Module:
    """Make the network from observations to what the head takes.

    Args:
        config: Config of the agent.
        head: Distribution of the actions.
        shape: Shape of the features of one observation.
        torso: Torso to use in place of the config's own.
    """
    finish = None if head.is_discrete else _as_gaussian
    actor = network_config.whole(config, "actor", shape, finish)
    if actor is None:
        torso = torso or network_config.torso_of(config, shape, "actor")
        actor = _on_torso(config, head, torso)
    return networks.Masked(actor) if composite.has_mask(shape) else actor


def _on_torso(config: OnPolicyConfig, head: Head, torso: nn.Module) -> nn.Module:
    """The actor of a config on a torso."""
    num, gain = head.num_outputs, config.actor_gain
    if head.is_discrete:
        return networks.CategoricalActor(torso, num, gain)
    if config.state_dependent_std:
        return networks.StateGaussianActor(
            torso, num, gain=gain, log_std_init=config.log_std_init
        )
    return networks.GaussianActor(torso, num, config.log_std_init, gain)


def make_critic(
    config: OnPolicyConfig, shape: Any, torso: nn.Module | None = None
) -> nn.Module:
    """Make the network from observations to values.

    Args:
        config: Config of the agent.
        shape: Shape of the features of one observation.
        torso: Torso to use in place of the config's own.
    """
    own = network_config.whole(config, "critic", shape)
    if own is not None:
        return own
    torso = torso or network_config.torso_of(config, shape, "critic")
    return networks.Critic(torso, config.critic_gain)


def _as_gaussian(outputs: Any) -> networks.Gaussian:
    return networks.Gaussian(*outputs)
