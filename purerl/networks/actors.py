"""Actors: from a torso's features to actions, or to a distribution of them."""

import flax.linen as nn
import jax.numpy as jnp

from purerl.networks.distributions import Gaussian
from purerl.networks.layers import Dense, note_activity
from purerl.types import Array

# The range of a log standard deviation that depends on the state.
LOG_STD_RANGE = (-20.0, 2.0)


class CategoricalActor(nn.Module):
    """Torso and logits; `gain` is that of the last layer, here and below."""

    torso: nn.Module
    num_outputs: int
    gain: float = 0.01

    @nn.compact
    def __call__(self, obs: Array) -> Array:
        """Logits `[..., n]`."""
        logits = Dense(self.num_outputs, self.gain)(self.torso(obs))
        note_activity(self, "Dense_0", logits)
        return logits


class GaussianActor(nn.Module):
    """Torso, mean, and a log standard deviation that does not depend on the state."""

    torso: nn.Module
    num_outputs: int
    log_std_init: float = 0.0
    gain: float = 0.01

    @nn.compact
    def __call__(self, obs: Array) -> Gaussian:
        """Mean and log standard deviation, `[..., A]` each."""
        mean = Dense(self.num_outputs, self.gain)(self.torso(obs))
        note_activity(self, "Dense_0", mean)
        start = nn.initializers.constant(self.log_std_init)
        log_std = self.param("log_std", start, (self.num_outputs,))
        return Gaussian(mean, jnp.broadcast_to(log_std, mean.shape))


class StateGaussianActor(nn.Module):
    """Torso, mean, and a log standard deviation that depends on the state.

    The log standard deviation is clipped, as in the code of Haarnoja et al. (2018).
    """

    torso: nn.Module
    num_outputs: int
    log_std_min: float = LOG_STD_RANGE[0]
    log_std_max: float = LOG_STD_RANGE[1]
    gain: float = 0.01
    log_std_init: float = 0.0

    @nn.compact
    def __call__(self, obs: Array) -> Gaussian:
        """Mean and log standard deviation, `[..., A]` each."""
        features = self.torso(obs)
        mean = Dense(self.num_outputs, self.gain)(features)
        log_std = Dense(self.num_outputs, self.gain)(features)
        if self.log_std_init:
            log_std = log_std + self.log_std_init
        return Gaussian(mean, jnp.clip(log_std, self.log_std_min, self.log_std_max))


class TanhActor(nn.Module):
    """Torso and one action in [-1, 1]: a deterministic policy."""

    torso: nn.Module
    num_outputs: int
    gain: float = 0.01

    @nn.compact
    def __call__(self, obs: Array) -> Array:
        """Actions `[..., A]`."""
        features = self.torso(obs)
        return nn.tanh(Dense(self.num_outputs, self.gain)(features))
