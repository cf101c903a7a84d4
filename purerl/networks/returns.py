"""Critics of discrete actions with several outputs for each: distributions of returns.

They also carry what `DiscreteCritic` does not have: noisy layers, and a hidden layer of
the head without the dueling split.
"""

from collections.abc import Callable

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from purerl.networks.composite import MASK, mean_of_valid
from purerl.networks.layers import Dense
from purerl.types import Array, PyTree


class CosineEmbedding(nn.Module):
    """Features of levels of a distribution (Dabney et al. 2018b, eq. 4).

        phi_j(t) = relu(sum_i cos(pi i t) w_ij + b_j),    i = 0 .. num_cosines - 1

    Attributes:
        features: Number of features F.
        num_cosines: Number of cosines; 64 in the paper.
    """

    features: int
    num_cosines: int = 64

    @nn.compact
    def __call__(self, levels: Array) -> Array:
        """Features `[..., F]` of levels `[...]` between 0 and 1."""
        number = jnp.arange(self.num_cosines, dtype=jnp.float32)
        number = number.reshape((1,) * levels.ndim + (-1,))
        waves = jnp.cos(np.pi * number * levels[..., None])
        return nn.relu(Dense(self.features, float(np.sqrt(2)))(waves))


class ReturnCritic(nn.Module):
    """Torso, and several outputs for each action, with the dueling split as an option.

    With the split every output is that of the value plus the advantage minus the mean
    advantage over the actions, output by output (Hessel et al. 2018, section "The
    Integrated Agent"). Given levels, the features are multiplied by their embedding
    before the head, and there is an output for each level (Dabney et al. 2018b, 3.1).

    Attributes:
        torso: Torso of the observations.
        num_actions: Number n of actions.
        num_outputs: Number K of outputs for each action, 1 where levels are given; None
            for one output without an axis K.
        make_dense: Function from a number of units to the head's last layer.
        make_stream: Function that returns a hidden layer of the head; None for none.
        dueling: Whether there is the split, a stream for each part.
        masked: Whether observations have a mask of valid actions, which alone are in
            the mean of the split.
        num_cosines: Number of cosines in the embedding of levels.
    """

    torso: nn.Module
    num_actions: int
    num_outputs: int | None
    make_dense: Callable[[int], nn.Module]
    make_stream: Callable[[], nn.Module] | None = None
    dueling: bool = False
    masked: bool = False
    num_cosines: int = 64

    @nn.compact
    def __call__(self, obs: PyTree, levels: Array | None = None) -> Array:
        """Outputs `[..., n, K]` or `[..., n]`; for levels `[..., M]` K is M."""
        features = self.torso(obs)
        if levels is not None:
            lead = (1,) * (features.ndim - levels.ndim)
            levels = levels.reshape(lead + levels.shape)
            embedding = CosineEmbedding(features.shape[-1], self.num_cosines)
            features = features[..., None, :] * embedding(levels)
        outputs = self._head(features, self.num_actions, levels is not None)
        if self.dueling:
            value = self._head(features, 1, levels is not None)
            outputs = value + outputs - self._mean(outputs, obs)
        outputs = jnp.swapaxes(outputs, -1, -2)
        return outputs[..., 0] if self.num_outputs is None else outputs

    def _head(self, features: Array, size: int, has_levels: bool) -> Array:
        """Outputs `[..., K, size]` of features `[..., F]`, of levels `[..., K, F]`."""
        hidden = features if self.make_stream is None else self.make_stream()(features)
        number = self.num_outputs or 1
        outputs = self.make_dense(number * size)(hidden)
        if has_levels:
            return outputs
        return outputs.reshape(*outputs.shape[:-1], number, size)

    def _mean(self, outputs: Array, obs: PyTree) -> Array:
        """The mean over the valid actions, `[..., K, 1]`."""
        if self.masked:
            return mean_of_valid(outputs, obs[MASK][..., None, :])
        return outputs.mean(-1, keepdims=True)
