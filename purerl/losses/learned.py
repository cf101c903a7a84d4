"""Losses that are small networks: the same kind of thing as a hand-written loss."""

import itertools

import jax
import jax.numpy as jnp
from flax import struct

from purerl.types import Array, PyTree

# Keeps the drift exactly flat around ratio 1 (Lu et al. 2022, section 4.1).
DRIFT_SHIFT = 1e-4
NUM_DRIFT_FEATURES = 8


@struct.dataclass
class MLPValueLoss:
    """A network of the error: `mlp(value - target)`, 1 -> hidden -> hidden -> 1, tanh.

    Attributes:
        params: `((kernel, bias), ...)`, one pair per layer.
    """

    params: PyTree

    @classmethod
    def create(cls, key: Array, hidden_sizes: tuple[int, ...] = (64, 64)):
        """A randomly initialised loss (LeCun normal kernels, zero biases)."""
        sizes = (1, *hidden_sizes, 1)
        layers = []
        for index, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
            key_layer = jax.random.fold_in(key, index)
            kernel = jax.random.normal(key_layer, (fan_in, fan_out)) / fan_in**0.5
            layers.append((kernel, jnp.zeros(fan_out)))
        return cls(params=tuple(layers))

    def __call__(self, value: Array, target: Array, old_value: Array) -> Array:
        """Loss per sample, `[N]`."""
        del old_value
        hidden = (value - target)[..., None]
        for kernel, bias in self.params[:-1]:
            out = hidden @ kernel
            hidden = jnp.tanh(out + jnp.broadcast_to(bias, out.shape))
        kernel, bias = self.params[-1]
        return (hidden @ kernel)[..., 0] + bias[0]


@struct.dataclass
class MLPDrift:
    """A learned drift: `relu(mlp(features) - 1e-4)` (Lu et al. 2022, section 4.1).

    The features are `log r, (log r)^2, 1 - r, (1 - r)^2` and the same four times the
    advantage. Without biases the network is zero at ratio 1, and the shift makes the
    drift flat there, so every parameter vector is a valid drift.

    Attributes:
        params: `(kernel [8, H], kernel [H, 1])`.
    """

    params: PyTree

    @classmethod
    def create(cls, key: Array, hidden_size: int = 128, scale: float = 1.0):
        """Random kernels; `scale=0` starts at zero drift (unclipped)."""
        key_in, key_out = jax.random.split(key)
        shape_in = (NUM_DRIFT_FEATURES, hidden_size)
        kernel_in = jax.random.normal(key_in, shape_in) / NUM_DRIFT_FEATURES**0.5
        kernel_out = jax.random.normal(key_out, (hidden_size, 1)) / hidden_size**0.5
        return cls(params=(kernel_in, scale * kernel_out))

    def __call__(self, log_ratio: Array, advantage: Array) -> Array:
        """Drift per sample, `[N]`."""
        gap = -jnp.expm1(log_ratio)
        base = jnp.stack(
            [log_ratio, jnp.square(log_ratio), gap, jnp.square(gap)], axis=-1
        )
        features = jnp.concatenate([base, base * advantage[..., None]], axis=-1)
        kernel_in, kernel_out = self.params
        out = (jnp.tanh(features @ kernel_in) @ kernel_out)[..., 0]
        return jax.nn.relu(out - DRIFT_SHIFT)
