"""Networks of action values of every kind."""

from functools import partial
from typing import Any

import flax.linen as nn

from purerl import networks
from purerl.algorithms import network_config
from purerl.networks import composite


def num_outputs(config: Any) -> int | None:
    """Return the numbers that a network has for each action; None for one of means.

    Where `values` is implicit they are as many as the levels that it is given.
    """
    sizes = {"categorical": config.num_atoms, "quantile": config.num_quantiles}
    return sizes.get(config.values)


def has_stream(config: Any) -> bool:
    """Return whether the head has a hidden layer.

    Dueling has one in each stream. Noise has one, as a linear head alone would only add
    it to the values; and levels, which a linear head could only multiply.

    Args:
        config: Config of the agent, a `DQNConfig`.
    """
    return config.dueling or config.noisy or config.values == "implicit"


def make_network(config: Any, shape: Any, num_actions: int) -> nn.Module:
    """Make the network from observations to what is learned of each action.

    Args:
        config: Config of the agent, a `DQNConfig`.
        shape: Shape of the features of one observation.
        num_actions: Number of actions.
    """
    network = network_config.whole(config, "critic", shape)
    if network is None:
        is_plain = config.values == "expected" and not config.noisy
        make = _discrete_critic if is_plain else _return_critic
        network = make(config, shape, num_actions)
    # With distributions, the mask is put on their means later, see `dqn.values_of`.
    is_masked = composite.has_mask(shape) and config.values == "expected"
    return networks.Masked(network) if is_masked else network


def _discrete_critic(config: Any, shape: Any, num_actions: int) -> nn.Module:
    """The config's torso and a value per action, with the dueling split or without."""

    def make_stream() -> nn.Module:
        sizes = (network_config.stream_size(config),)
        product = networks.small_product
        return network_config.dense_layers(config, sizes, dot_general=product)

    return networks.DiscreteCritic(
        network_config.torso_of(
            config, shape, "critic", dot_general=networks.small_product
        ),
        num_actions,
        make_stream if config.dueling else None,
        networks.small_product,
        config.critic_gain,
        composite.has_mask(shape),
    )


def _return_critic(config: Any, shape: Any, num_actions: int) -> nn.Module:
    """The config's torso, and a head with noise or with distributions."""
    product = networks.small_product
    options: dict[str, Any] = {"dot_general": product}
    if config.noisy:
        options["sigma"] = config.noisy_sigma
    layer = networks.NoisyDense if config.noisy else networks.Dense

    def make_stream() -> nn.Module:
        sizes = (network_config.stream_size(config),)
        if not config.noisy:
            return network_config.dense_layers(config, sizes, dot_general=product)
        dense = partial(layer, scale=config.torso_gain, **options)
        return networks.NoisyMLP(sizes, config.activation, dense, config.layer_norm)

    return networks.ReturnCritic(
        network_config.torso_of(config, shape, "critic", dot_general=product),
        num_actions,
        1 if config.values == "implicit" else num_outputs(config),
        partial(layer, scale=config.critic_gain, **options),
        make_stream if has_stream(config) else None,
        config.dueling,
        composite.has_mask(shape),
        config.num_cosines,
    )
