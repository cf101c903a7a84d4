"""Actors: from a torso's features to actions, or to a distribution of them."""

import flax.linen as nn
import jax.numpy as jnp

from purerl.networks.distributions import Gaussian
from purerl.networks.layers import Dense
from purerl.types import Array


class CategoricalActor(nn.Module):
    """Torso and logits."""

    torso: nn.Module
    num_outputs: int

    @nn.compact
    def __call__(self, obs: Array) -> Array:
        """Logits `[..., n]`."""
        return Dense(self.num_outputs, 0.01)(self.torso(obs))


class GaussianActor(nn.Module):
    """Torso, mean, and a log standard deviation that does not depend on the state."""

    torso: nn.Module
    num_outputs: int
    log_std_init: float = 0.0

    @nn.compact
    def __call__(self, obs: Array) -> Gaussian:
        """Mean and log standard deviation, `[..., A]` each."""
        mean = Dense(self.num_outputs, 0.01)(self.torso(obs))
        start = nn.initializers.constant(self.log_std_init)
        log_std = self.param("log_std", start, (self.num_outputs,))
        return Gaussian(mean, jnp.broadcast_to(log_std, mean.shape))


class StateGaussianActor(nn.Module):
    """Torso, mean, and a log standard deviation that depends on the state.

    The log standard deviation is clipped, as in the code of Haarnoja et al. (2018).
    """

    torso: nn.Module
    num_outputs: int
    log_std_min: float = -20.0
    log_std_max: float = 2.0

    @nn.compact
    def __call__(self, obs: Array) -> Gaussian:
        """Mean and log standard deviation, `[..., A]` each."""
        features = self.torso(obs)
        mean = Dense(self.num_outputs, 0.01)(features)
        log_std = Dense(self.num_outputs, 0.01)(features)
        return Gaussian(mean, jnp.clip(log_std, self.log_std_min, self.log_std_max))


class TanhActor(nn.Module):
    """Torso and one action in [-1, 1]: a deterministic policy."""

    torso: nn.Module
    num_outputs: int

    @nn.compact
    def __call__(self, obs: Array) -> Array:
        """Actions `[..., A]`."""
        features = self.torso(obs)
        return nn.tanh(Dense(self.num_outputs, 0.01)(features))
