"""Critics: from a torso's features to values of states or actions."""

from collections.abc import Callable
from functools import partial
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from purerl.networks.batch_norm import COLLECTION as STATISTICS
from purerl.networks.composite import MASK, mean_of_valid
from purerl.networks.layers import Dense, note_activity
from purerl.networks.torsos import MLP
from purerl.types import Array


class Critic(nn.Module):
    """Torso and one value; `gain` is that of the last layer."""

    torso: nn.Module
    gain: float = 1.0

    @nn.compact
    def __call__(self, obs: Array) -> Array:
        """State values `[...]`."""
        value = Dense(1, self.gain)(self.torso(obs))
        note_activity(self, "Dense_0", value)
        return value[..., 0]


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
        gain: Gain of the last layers.
        masked: Whether observations have a mask of valid actions, which alone are in
            the mean of the split.
    """

    torso: nn.Module
    num_actions: int
    make_stream: Callable[[], nn.Module] | None = None
    dot_general: Any = None
    gain: float = 1.0
    masked: bool = False

    @nn.compact
    def __call__(self, obs: Any) -> Array:
        """Action values `[..., n]`."""
        features = self.torso(obs)
        dense = partial(Dense, scale=self.gain, dot_general=self.dot_general)
        if self.make_stream is None:
            return dense(self.num_actions)(features)
        advantage = dense(self.num_actions)(self.make_stream()(features))
        value = dense(1)(self.make_stream()(features))
        if self.masked:
            return value + advantage - mean_of_valid(advantage, obs[MASK])
        return value + advantage - advantage.mean(-1, keepdims=True)


class ActionCritic(nn.Module):
    """Value of an observation and a continuous action, side by side in an MLP.

    Attributes:
        hidden_sizes: Units of each layer of the MLP.
        activation: After each layer, one of `ACTIVATIONS`.
        layer_norm: Whether to normalise before each activation.
        encoder: Torso of the observation alone, for what is no vector.
        dtype: Type of the computation; None for float32.
        torso_gain: Gain of the MLP's kernels.
        gain: Gain of the last layer.
        num_quantiles: Number Q of quantiles of the return; 0 for its mean alone.
        batch_norm: Whether to normalise inputs and layers by batches, see `MLP`.
    """

    hidden_sizes: tuple[int, ...]
    activation: str
    layer_norm: bool = False
    encoder: nn.Module | None = None
    dtype: Any = None
    torso_gain: float = float(np.sqrt(2))
    gain: float = 1.0
    num_quantiles: int = 0
    batch_norm: bool = False

    @nn.compact
    def __call__(self, obs: Array, action: Array) -> Array:
        """Action values `[...]` of observations and actions `[..., A]`.

        With quantiles, `[..., Q]`.

        Observations are vectors `[..., O]`, or what the encoder takes.
        """
        torso = MLP(
            self.hidden_sizes,
            self.activation,
            1,
            self.layer_norm,
            dtype=self.dtype,
            gain=self.torso_gain,
            batch_norm=self.batch_norm,
        )
        seen = obs if self.encoder is None else self.encoder(obs)
        features = torso(jnp.concatenate([seen, action], -1))
        if self.num_quantiles:
            return Dense(self.num_quantiles, self.gain)(features)
        return Dense(1, self.gain)(features)[..., 0]


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
        """Return the outputs of both networks on the same inputs."""
        return self.make()(*inputs), self.make()(*inputs)


class Ensemble(nn.Module):
    """Several networks of one kind, with parameters `[E, ...]` side by side.

    More than two: one multiplication of `E` matrices in place of `E` small ones, and
    some of them can be taken by number (`algorithms.redq`).

    Attributes:
        make: Function that returns a network.
        num: Number E of networks.
    """

    make: Callable[[], nn.Module]
    num: int

    @nn.compact
    def __call__(self, *inputs: Any) -> Array:
        """Return the outputs of all networks on the same inputs, `[E, ...]`."""

        def one(network: nn.Module, *inputs: Any) -> Array:
            return network(*inputs)

        every = nn.vmap(
            one,
            variable_axes={"params": 0, STATISTICS: 0},
            split_rngs={"params": True},
            in_axes=None,  # type: ignore[arg-type]
            axis_size=self.num,
        )
        found: Any = every(self.make(), *inputs)
        return found
