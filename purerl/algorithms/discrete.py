"""Networks of actor-critics for discrete actions: logits, and values of all actions."""

from typing import Any

import flax.linen as nn

from purerl import networks
from purerl.algorithms import ensembles, network_config
from purerl.networks import composite


def discrete_networks(
    config: Any, shape: Any, num_actions: int
) -> tuple[nn.Module, nn.Module]:
    """Make a policy of logits, and critics of the values of all actions.

    Args:
        config: Config of the agent.
        shape: Shape of the features of one observation.
        num_actions: Number of actions.
    """
    actor = network_config.whole(config, "actor", shape)
    if actor is None:
        torso = network_config.torso_of(config, shape, "actor")
        actor = networks.CategoricalActor(torso, num_actions, config.actor_gain)
    if composite.has_mask(shape):
        actor = networks.Masked(actor)

    def make() -> nn.Module:
        own = network_config.whole(config, "critic", shape)
        if own is not None:
            return own
        sizes = config.critic_hidden_sizes or config.hidden_sizes
        torso = network_config.torso_of(config, shape, "critic", sizes)
        return networks.DiscreteCritic(torso, num_actions, gain=config.critic_gain)

    return actor, ensembles.make_critics(config, make)
