"""Torsos of images `[..., height, width, channels]`, with the published sizes.

They take floats: bytes have been divided by 255 before (`acting.observe.to_features`).
"""

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from purerl.networks import layers
from purerl.networks.layers import ACTIVATIONS, Dense, note_activity
from purerl.networks.orthogonal import orthogonal
from purerl.types import Array


class Nature(nn.Module):
    """The network of DQN on Atari (Mnih et al. 2015, Methods), without its last layer.

    Convolutions without padding: 32 filters of 8x8 with stride 4, 64 of 4x4 with stride
    2, 64 of 3x3 with stride 1; then 512 units. Images of 84x84x4 have 1,684,128
    parameters.

    Attributes:
        dense_size: Units of the dense layer.
        activation: After each layer, one of `ACTIVATIONS`.
        layer_norm: Whether to normalise before each activation, over channels.
        dtype: Type of the computation, such as `jnp.bfloat16`; parameters and features
            are float32.
        gain: Gain of the orthogonal kernels.
        dot_general: Product of the dense layer; `jax.lax.dot_general` if None.
    """

    dense_size: int = 512
    activation: str = "relu"
    layer_norm: bool = False
    dtype: Any = None
    gain: float = float(np.sqrt(2))
    dot_general: Any = None

    @nn.compact
    def __call__(self, obs: Array) -> Array:
        """Features `[..., dense_size]` of images `[..., height, width, channels]`."""
        lead, x = _one_batch_axis(obs)
        finish = _finisher(self.activation, self.layer_norm, self.dtype)
        for number, sizes in enumerate(((32, 8, 4), (64, 4, 2), (64, 3, 1))):
            features, size, stride = sizes
            x = nn.Conv(
                features,
                (size, size),
                stride,
                padding="VALID",
                dtype=self.dtype,
                kernel_init=orthogonal(self.gain),
            )(x)
            x = finish(x)
            note_activity(self, f"Conv_{number}", x)
        x = x.reshape(*lead, math.prod(x.shape[-3:]))
        x = Dense(self.dense_size, self.gain, self.dot_general, self.dtype)(x)
        x = finish(x)
        note_activity(self, "Dense_0", x)
        return x.astype(jnp.float32)


class Impala(nn.Module):
    """The residual network of IMPALA (Espeholt et al. 2018, fig. 3, the large one).

    Three sections: a 3x3 convolution, max-pooling of 3x3 with stride 2, and two
    residual blocks of two 3x3 convolutions, all padded; then 256 units. The LSTM that
    follows there is not part of it. Images of 84x84x4 have 1,089,232 parameters.

    Attributes:
        channels: Filters of each section.
        blocks: Residual blocks of each section.
        dense_size: Units of the dense layer.
        activation: Before each convolution of a block and after the dense layer, one of
            `ACTIVATIONS`.
        layer_norm: Whether to normalise before each activation, over channels.
        dtype: Type of the computation, such as `jnp.bfloat16`; parameters and features
            are float32.
        gain: Gain of the orthogonal kernels.
        dot_general: Product of the dense layer; `jax.lax.dot_general` if None.
    """

    channels: tuple[int, ...] = (16, 32, 32)
    blocks: int = 2
    dense_size: int = 256
    activation: str = "relu"
    layer_norm: bool = False
    dtype: Any = None
    gain: float = float(np.sqrt(2))
    dot_general: Any = None

    @nn.compact
    def __call__(self, obs: Array) -> Array:
        """Features `[..., dense_size]` of images `[..., height, width, channels]`."""
        lead, x = _one_batch_axis(obs)
        finish = _finisher(self.activation, self.layer_norm, self.dtype)
        conv = partial(
            nn.Conv,
            kernel_size=(3, 3),
            dtype=self.dtype,
            kernel_init=orthogonal(self.gain),
        )
        names = (f"Conv_{number}" for number in itertools.count())

        def noted(x: Array) -> Array:
            note_activity(self, next(names), x)
            return x

        for features in self.channels:
            # What is pooled or added to others has no activation of its own.
            x = noted(conv(features)(x))
            x = nn.max_pool(x, (3, 3), (2, 2), padding="SAME")
            for _ in range(self.blocks):
                y = noted(finish(conv(features)(finish(x))))
                x = x + noted(conv(features)(y))
        x = finish(x)
        x = x.reshape(*lead, math.prod(x.shape[-3:]))
        x = Dense(self.dense_size, self.gain, self.dot_general, self.dtype)(x)
        x = finish(x)
        note_activity(self, "Dense_0", x)
        return x.astype(jnp.float32)


def _one_batch_axis(obs: Array) -> tuple[tuple[int, ...], Array]:
    """The leading axes of images, and the images with one in place of them."""
    return obs.shape[:-3], obs.reshape(-1, *obs.shape[-3:])


def _finisher(
    activation: str, layer_norm: bool, dtype: Any
) -> Callable[[Array], Array]:
    """Return the end of a layer: the norm, if there is one, and the activation."""

    def finish(x: Array) -> Array:
        if layer_norm:
            x = layers.layer_norm(dtype)(x)
        return ACTIVATIONS[activation](x)

    return finish
