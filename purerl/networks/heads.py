"""Heads on torsos: actors, critics of observations and of actions, noisy layers."""

from collections.abc import Callable
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from purerl.networks.distributions import Gaussian
from purerl.networks.layers import (
    ACTIVATIONS,
    STATISTICS_COLLECTION,
    Dense,
    along_last,
    layer_norm,
    note_activity,
)
from purerl.networks.observe import MASK, mean_of_valid
from purerl.networks.orthogonal import orthogonal
from purerl.networks.torsos import MLP, SimBa
from purerl.types import Array, PyTree

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
    """Torso and what is learned of every action, with the dueling split as an option.

    Q(s, a) = V(s) + A(s, a) - mean_b A(s, b)     (Wang et al. 2016, eq. 9)

    There `V` and `A` have a hidden layer each: as linear functions of the same features
    their sum would be one linear layer. Where an action has several outputs, they are
    split one by one (Hessel et al. 2018). Given levels, the features are multiplied by
    their embedding before the head, and there is an output for each level (Dabney et
    al. 2018b, 3.1).

    Attributes:
        torso: Torso of the observations.
        num_actions: Number n of actions.
        make_stream: Function that returns a hidden layer of the head; None for none.
        dueling: Whether there is the split, with a stream for each part.
        masked: Whether observations have a mask of valid actions, which alone are in
            the mean of the split.
        gain: Gain of the last layers.
        num_outputs: Number K of outputs for each action; None for one.
        make_dense: Function from a number of units to a last layer, in place of `gain`.
    """

    torso: nn.Module
    num_actions: int
    make_stream: Callable[[], nn.Module] | None = None
    dueling: bool = False
    masked: bool = False
    gain: float = 1.0
    num_outputs: int | None = None
    make_dense: Callable[[int], nn.Module] | None = None

    @nn.compact
    def __call__(self, obs: PyTree, levels: Array | None = None) -> Array:
        """Outputs `[..., n]` or `[..., n, K]`; for levels `[..., M]` K is M."""
        features = self.torso(obs)
        if levels is not None:
            lead = (1,) * (features.ndim - levels.ndim)
            levels = levels.reshape(lead + levels.shape)
            embedding = CosineEmbedding(features.shape[-1])
            features = features[..., None, :] * embedding(levels)
        outputs = self._head(features, self.num_actions)
        has_many = self.num_outputs is not None or levels is not None
        if self.dueling:
            value = self._head(features, 1)
            if self.masked:
                mask = obs[MASK][..., None, :] if has_many else obs[MASK]
                mean = mean_of_valid(outputs, mask)
            else:
                mean = outputs.mean(-1, keepdims=True)
            outputs = value + outputs - mean
        return jnp.swapaxes(outputs, -1, -2) if has_many else outputs

    def _head(self, features: Array, size: int) -> Array:
        """Outputs `[..., size]`, or `[..., K, size]`, of features `[..., F]`."""
        hidden = features if self.make_stream is None else self.make_stream()(features)
        dense = self.make_dense or partial(Dense, scale=self.gain)
        if self.num_outputs is None:
            return dense(size)(hidden)
        outputs = dense(self.num_outputs * size)(hidden)
        return outputs.reshape(*outputs.shape[:-1], self.num_outputs, size)


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
        num_outputs: Number K of quantiles or atoms of the return; 0 for its mean alone.
        batch_norm: Whether to normalise inputs and layers by batches, see `MLP`.
        torso: `mlp` or `simba`, the layers.
    """

    hidden_sizes: tuple[int, ...]
    activation: str
    layer_norm: bool = False
    encoder: nn.Module | None = None
    dtype: Any = None
    torso_gain: float = float(np.sqrt(2))
    gain: float = 1.0
    num_outputs: int = 0
    batch_norm: bool = False
    torso: str = "mlp"

    @nn.compact
    def __call__(self, obs: Array, action: Array) -> Array:
        """Action values `[...]`, or `[..., K]`, of observations and actions `[..., A]`.

        Observations are vectors `[..., O]`, or what the encoder takes.
        """
        seen = obs if self.encoder is None else self.encoder(obs)
        seen = jnp.concatenate([seen, action], -1)
        sizes, act = self.hidden_sizes, self.activation
        style: Any = {"dtype": self.dtype, "gain": self.torso_gain}
        if self.torso == "simba":
            torso: Any = SimBa(sizes, act, **style)
        else:
            norms = {"layer_norm": self.layer_norm, "batch_norm": self.batch_norm}
            torso = MLP(sizes, act, **norms, **style)
        features = torso(seen)
        if self.num_outputs:
            return Dense(self.num_outputs, self.gain)(features)
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
    some of them can be taken by number (`algorithms.ensembles`).

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
            variable_axes={"params": 0, STATISTICS_COLLECTION: 0},
            split_rngs={"params": True},
            in_axes=None,  # type: ignore[arg-type]
            axis_size=self.num,
        )
        found: Any = every(self.make(), *inputs)
        return found


class CosineEmbedding(nn.Module):
    """Features of levels of a distribution (Dabney et al. 2018b, eq. 4).

    phi_j(t) = relu(sum_i cos(pi i t) w_ij + b_j),    i = 0 .. num_cosines - 1
    """

    features: int
    num_cosines: int = 64

    @nn.compact
    def __call__(self, levels: Array) -> Array:
        """Features `[..., F]` of levels `[...]` between 0 and 1."""
        number = jnp.arange(self.num_cosines, dtype=jnp.float32)
        number = along_last(number, levels.ndim + 1)
        waves = jnp.cos(np.pi * number * levels[..., None])
        return nn.relu(Dense(self.features, float(np.sqrt(2)))(waves))


NOISE = "noise"
"""Name of the random keys that a noisy network takes: `apply(..., rngs={NOISE: k})`."""


class NoisyDense(nn.Module):
    """A dense layer with factorised Gaussian noise in its weights.

        y = x (W + S * f(e) f(e')^T) + b + s * f(e'),    f(e) = sign(e) sqrt(|e|)

    with one normal number `e` for each input and `e'` for each output (section 3, b).
    `W` is a plain layer's orthogonal kernel at first, and `S` and `s` are `sigma /
    sqrt(I)` everywhere. The noise is the same for all rows of a batch. The product with
    the noisy part is `((x * f(e)) S) * f(e')`: no noisy matrix is made, so that rows
    may have noise of their own under `jax.vmap`.

    Without a key for the noise the layer is the plain one with the mean weights.

    Attributes:
        features: Units of the layer.
        scale: Gain of the orthogonal kernel at the start.
        sigma: Standard deviation of the weights at the start, times `sqrt(I)`.
        dot_general: Product of inputs and kernel; `jax.lax.dot_general` if None.
    """

    features: int
    scale: float = 1.0
    sigma: float = 0.5
    dot_general: Any = None

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Outputs `[..., features]` of inputs `[..., I]`."""
        inputs = x.shape[-1]
        spread = nn.initializers.constant(self.sigma / inputs**0.5)
        shape = (inputs, self.features)
        kernel = self.param("kernel", orthogonal(self.scale), shape)
        bias = self.param("bias", nn.initializers.zeros, shape[1:])
        kernel_sigma = self.param("kernel_sigma", spread, shape)
        bias_sigma = self.param("bias_sigma", spread, shape[1:])
        product = self.dot_general or jax.lax.dot_general
        dims = (((x.ndim - 1,), (0,)), ((), ()))
        mean = product(x, kernel, dims) + along_last(bias, x.ndim)
        if not self.has_rng(NOISE):
            return mean
        noise = scaled_noise(self.make_rng(NOISE), inputs + self.features)
        noise_in = along_last(noise[:inputs], x.ndim)
        noise_out = along_last(noise[inputs:], x.ndim)
        spread = product(x * noise_in, kernel_sigma, dims) + along_last(
            bias_sigma, x.ndim
        )
        return mean + spread * noise_out


class NoisyMLP(nn.Module):
    """Noisy dense layers, each with an activation: a hidden layer before a noisy head.

    Attributes:
        hidden_sizes: Units of each layer.
        activation: After each layer, one of `ACTIVATIONS`.
        dense: Function from a number of units to a layer.
        layer_norm: Whether to normalise before each activation.
    """

    hidden_sizes: tuple[int, ...]
    activation: str
    dense: Callable[[int], nn.Module]
    layer_norm: bool = False

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Features `[..., H]` of features `[..., I]`."""
        for size in self.hidden_sizes:
            x = self.dense(size)(x)
            x = layer_norm()(x) if self.layer_norm else x
            x = ACTIVATIONS[self.activation](x)
        return x


def scaled_noise(key: Array, size: int) -> Array:
    """Return `f(e) = sign(e) sqrt(|e|)` of normal numbers `e`, float32 `[size]`.

    Args:
        key: Random key, consumed.
        size: Number of units.
    """
    noise = jax.random.normal(key, (size,))
    return jnp.sign(noise) * jnp.sqrt(jnp.abs(noise))
