"""Torsos: from observations, vectors or images, to features."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import numpy as np

from purerl.networks.layers import Dense
from purerl.networks.orthogonal import orthogonal
from purerl.types import Array

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": nn.tanh,
    "relu": nn.relu,
    "elu": nn.elu,
    "gelu": nn.gelu,
    "swish": nn.swish,
}
TORSOS = ("auto", "mlp", "cnn")


class MLP(nn.Module):
    """Flatten the observation, then dense layers, each with an activation."""

    hidden_sizes: tuple[int, ...]
    activation: str
    obs_ndim: int = 1
    layer_norm: bool = False
    dot_general: Any = None

    @nn.compact
    def __call__(self, obs: Array) -> Array:
        """Features `[..., H]` of observations `[..., *obs_shape]`."""
        lead = obs.shape[: obs.ndim - self.obs_ndim]
        x = obs.reshape(*lead, -1)
        for size in self.hidden_sizes:
            x = Dense(size, np.sqrt(2), self.dot_general)(x)
            if self.layer_norm:
                x = nn.LayerNorm()(x)
            x = ACTIVATIONS[self.activation](x)
        return x


class CNN(nn.Module):
    """One 3x3 convolution of 16 channels, then the MLP (MinAtar, Young & Tian 2019)."""

    hidden_sizes: tuple[int, ...]
    activation: str
    layer_norm: bool = False
    dot_general: Any = None

    @nn.compact
    def __call__(self, obs: Array) -> Array:
        """Features `[..., H]` of images `[..., height, width, channels]`."""
        lead = obs.shape[:-3]
        x = obs.reshape(-1, *obs.shape[-3:])
        x = nn.Conv(16, (3, 3), padding="VALID", kernel_init=orthogonal(np.sqrt(2)))(x)
        if self.layer_norm:
            x = nn.LayerNorm()(x)
        x = ACTIVATIONS[self.activation](x)
        x = x.reshape(*lead, -1)
        mlp = MLP(
            self.hidden_sizes, self.activation, 1, self.layer_norm, self.dot_general
        )
        return mlp(x)


def make_torso(
    torso: str,
    obs_shape: tuple[int, ...],
    hidden_sizes: tuple[int, ...],
    act: str,
    layer_norm: bool = False,
    dot_general: Callable[..., Array] | None = None,
) -> nn.Module:
    """Make the torso for an observation shape; `auto` takes the CNN for images.

    Args:
        torso: One of `TORSOS`.
        obs_shape: Shape of one observation.
        hidden_sizes: Units of each dense layer.
        act: Activation, one of `ACTIVATIONS`.
        layer_norm: Whether to normalise before each activation (Ba et al. 2016).
        dot_general: Product of the dense layers; `jax.lax.dot_general` if None.

    Raises:
        ValueError: a CNN for what is not an image.
    """
    if torso == "auto":
        torso = "cnn" if len(obs_shape) == 3 else "mlp"
    if torso == "cnn":
        if len(obs_shape) != 3 or min(obs_shape[:2]) < 3:
            raise ValueError(
                f"torso 'cnn' needs observations [height >= 3, width >= 3, channels], "
                f"got {obs_shape}; use mlp."
            )
        return CNN(hidden_sizes, act, layer_norm, dot_general)
    return MLP(hidden_sizes, act, len(obs_shape), layer_norm, dot_general)
