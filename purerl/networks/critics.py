"""Critics: from a torso's features to values of states or actions."""

from collections.abc import Callable
from functools import partial
from typing import Any

import flax.linen as nn
import jax.numpy as jnp

from purerl.networks.layers import Dense
from purerl.networks.torsos import MLP
from purerl.types import Array


class Critic(nn.Module):
    """Torso and one value."""

    torso: nn.Module

    @nn.compact
    def __call__(self, obs: Array) -> Array:
        """State values `[...]`."""
        return Dense(1, 1.0)(self.torso(obs))[..., 0]


class DiscreteCritic(nn.Module):
    """Torso and one value per action, with the dueling split as an option.

    Q(s, a) = V(s) + A(s, a) - mean_b A(s, b)     (Wang et al. 2016, eq. 9)

    There `V` and `A` are streams on the torso's features, each with a hidden layer of
    its own: as linear functions of the same features, their sum would be another
    parametrisation of one linear layer.

    Attributes:
        torso: Torso of the observations.
        num_actions: Number n of actions.
        make_stream: Function that returns the hidden layer of a stream; without it
            there is no split.
        dot_general: Product of the last layers; `jax.lax.dot_general` if None.
    """

    torso: nn.Module
    num_actions: int
    make_stream: Callable[[], nn.Module] | None = None
    dot_general: Any = None

    @nn.compact
    def __call__(self, obs: Array) -> Array:
        """Action values `[..., n]`."""
        features = self.torso(obs)
        dense = partial(Dense, dot_general=self.dot_general)
        if self.make_stream is None:
            return dense(self.num_actions)(features)
        advantage = dense(self.num_actions)(self.make_stream()(features))
        value = dense(1)(self.make_stream()(features))
        return value + advantage - advantage.mean(-1, keepdims=True)


class ActionCritic(nn.Module):
    """Value of an observation and a continuous action, side by side in the torso."""

    hidden_sizes: tuple[int, ...]
    activation: str
    layer_norm: bool = False

    @nn.compact
    def __call__(self, obs: Array, action: Array) -> Array:
        """Action values `[...]` of vectors `[..., O]` and actions `[..., A]`."""
        torso = MLP(self.hidden_sizes, self.activation, 1, self.layer_norm)
        features = torso(jnp.concatenate([obs, action], -1))
        return Dense(1, 1.0)(features)[..., 0]


class Twin(nn.Module):
    """Two networks of one kind with parameters of their own (Fujimoto et al. 2018).

    Two, not one with a leading axis: where only one of them is used, the compiler drops
    the other, and a CPU multiplies two plain matrices faster than a batch of two.

    Attributes:
        make: Function that returns a network.
    """

    make: Callable[[], nn.Module]

    @nn.compact
    def __call__(self, *inputs: Array) -> tuple[Array, Array]:
        """What each makes of the same inputs."""
        return self.make()(*inputs), self.make()(*inputs)
