"""Noisy dense layers (Fortunato et al. 2018, arXiv:1706.10295).

The weights of a noisy layer are a learned mean and a learned standard deviation times
noise, so that how much an agent explores is learned, weight by weight.
"""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from purerl.networks.layers import ACTIVATIONS, layer_norm
from purerl.networks.orthogonal import orthogonal
from purerl.types import Array

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
        mean = product(x, kernel, dims) + like(x, bias)
        if not self.has_rng(NOISE):
            return mean
        noise = scaled_noise(self.make_rng(NOISE), inputs + self.features)
        noise_in, noise_out = like(x, noise[:inputs]), like(x, noise[inputs:])
        spread = product(x * noise_in, kernel_sigma, dims) + like(x, bias_sigma)
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


def like(x: Array, row: Array) -> Array:
    """Return a row `[I]` with as many axes as `x` `[..., I]`."""
    return row.reshape((1,) * (x.ndim - 1) + (-1,))


def scaled_noise(key: Array, size: int) -> Array:
    """Return `f(e) = sign(e) sqrt(|e|)` of normal numbers `e`, float32 `[size]`.

    Args:
        key: Random key, consumed.
        size: Number of units.
    """
    noise = jax.random.normal(key, (size,))
    return jnp.sign(noise) * jnp.sqrt(jnp.abs(noise))
