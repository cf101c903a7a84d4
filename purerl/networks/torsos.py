"""Torsos: from observations, vectors or images, to features."""

import math
from collections.abc import Callable
from typing import Any, TypedDict, Unpack

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from purerl.networks import composite
from purerl.networks.batch_norm import BatchRenorm
from purerl.networks.images import Impala, Nature
from purerl.networks.layers import ACTIVATIONS, Dense, layer_norm, note_activity
from purerl.networks.orthogonal import orthogonal
from purerl.types import Array, PyTree

TORSOS = ("auto", "mlp", "cnn", "nature", "impala")
# The smallest height and width of pictures, for the torsos with published sizes.
_SMALLEST = {"cnn": 3, "nature": 36, "impala": 1}
_SQRT2 = float(np.sqrt(2))


class Style(TypedDict, total=False):
    """Options that all torsos have, each with a default.

    Attributes:
        layer_norm: Whether to normalise before each activation (Ba et al. 2016).
        dot_general: Product of the dense layers; `jax.lax.dot_general` if None.
        dtype: Type of the computation, such as `jnp.bfloat16`; None for float32.
            Parameters and features are float32.
        gain: Gain of the orthogonal kernels, sqrt(2) where not given.
    """

    layer_norm: bool
    dot_general: Callable[..., Array] | None
    dtype: Any
    gain: float


class MLP(nn.Module):
    """Flatten the observation, then dense layers, each with an activation.

    With `batch_norm` the inputs and what every layer puts out are normalised by
    batches, as in CrossQ.
    """

    hidden_sizes: tuple[int, ...]
    activation: str
    obs_ndim: int = 1
    layer_norm: bool = False
    dot_general: Any = None
    dtype: Any = None
    gain: float = _SQRT2
    batch_norm: bool = False

    @nn.compact
    def __call__(self, obs: Array) -> Array:
        """Features `[..., H]` of observations `[..., *obs_shape]`, float32."""
        lead = obs.shape[: obs.ndim - self.obs_ndim]
        x = obs.reshape(*lead, math.prod(obs.shape[len(lead) :]))
        if self.batch_norm:
            x = BatchRenorm()(x)
        for number, size in enumerate(self.hidden_sizes):
            x = Dense(size, self.gain, self.dot_general, self.dtype)(x)
            if self.layer_norm:
                x = layer_norm(self.dtype)(x)
            x = ACTIVATIONS[self.activation](x)
            note_activity(self, f"Dense_{number}", x)
            if self.batch_norm:
                x = BatchRenorm()(x)
        return x.astype(jnp.float32)


class CNN(nn.Module):
    """One 3x3 convolution of 16 channels, then the MLP (MinAtar, Young & Tian 2019)."""

    hidden_sizes: tuple[int, ...]
    activation: str
    layer_norm: bool = False
    dot_general: Any = None
    dtype: Any = None
    gain: float = _SQRT2

    @nn.compact
    def __call__(self, obs: Array) -> Array:
        """Features `[..., H]` of images `[..., height, width, channels]`, float32."""
        lead = obs.shape[:-3]
        x = obs.reshape(-1, *obs.shape[-3:])
        init = orthogonal(self.gain)
        conv = nn.Conv(16, (3, 3), padding="VALID", dtype=self.dtype, kernel_init=init)
        x = conv(x)
        if self.layer_norm:
            x = layer_norm(self.dtype)(x)
        x = ACTIVATIONS[self.activation](x)
        note_activity(self, "Conv_0", x)
        x = x.reshape(*lead, math.prod(x.shape[-3:]))
        mlp = MLP(
            self.hidden_sizes,
            self.activation,
            1,
            self.layer_norm,
            self.dot_general,
            self.dtype,
            self.gain,
        )
        return mlp(x)


class Joined(nn.Module):
    """The parts of an observation side by side, then dense layers of all of them.

    Attributes:
        encoders: Module of each array, in the order of the pytree's leaves; None for
            one that is flattened as it is.
        ndims: Number of axes of each array, without leading ones.
        mlp: Dense layers.
    """

    encoders: tuple[nn.Module | None, ...]
    ndims: tuple[int, ...]
    mlp: nn.Module

    @nn.compact
    def __call__(self, obs: PyTree) -> Array:
        """Features `[..., H]` of a pytree of arrays, float32."""
        parts = []
        leaves = jax.tree.leaves(obs)
        for x, encoder, ndim in zip(leaves, self.encoders, self.ndims, strict=True):
            flat = x.reshape(*x.shape[: x.ndim - ndim], -1)
            parts.append(flat if encoder is None else encoder(x))
        return self.mlp(jnp.concatenate(parts, -1))


def _joined(
    torso: str,
    shapes: list[tuple[int, ...]],
    mlp: nn.Module,
    make: Callable[[str, tuple[int, ...]], nn.Module],
) -> nn.Module:
    """The torso of an observation of several parts; see `make_torso`."""
    pictures = [torso != "mlp" and _is_image(shape, torso) for shape in shapes]
    if torso not in ("auto", "mlp") and not any(pictures):
        raise ValueError(
            f"torso {torso!r} needs an image among the parts of an observation, got "
            f"{shapes}; use mlp."
        )
    encoders = tuple(
        make("cnn" if torso == "auto" else torso, shape) if is_picture else None
        for shape, is_picture in zip(shapes, pictures, strict=True)
    )
    return Joined(encoders, tuple(map(len, shapes)), mlp)


def _is_image(shape: tuple[int, ...], torso: str) -> bool:
    """Return whether an array gets a CNN; of `auto` it must be large enough for one."""
    is_large = torso != "auto" or min(shape[:2], default=0) >= _SMALLEST["cnn"]
    return len(shape) == 3 and is_large


def make_torso(
    torso: str,
    obs_shape: Any,
    hidden_sizes: tuple[int, ...],
    act: str,
    **style: Unpack[Style],
) -> nn.Module:
    """Make the torso for an observation shape; `auto` takes the CNN for images.

    For an observation of several parts, the convolutions of every image and all other
    numbers stand side by side before the dense layers of `hidden_sizes`.

    Args:
        torso: One of `TORSOS`; see `Nature` and `Impala`.
        obs_shape: Shape of one observation, or a pytree of shapes.
        hidden_sizes: Units of each dense layer of `mlp` and `cnn`; `nature` and
            `impala` have the published ones.
        act: Activation of `mlp` and `cnn`, one of `ACTIVATIONS`; the others have relu.
        **style: Options that all torsos have, see `Style`.

    Raises:
        ValueError: a CNN for what is not an image, or too small an image.
    """
    if not composite.is_shape(obs_shape):
        mlp = MLP(hidden_sizes, act, 1, **style)
        return _joined(
            torso,
            composite.leaf_shapes(obs_shape),
            mlp,
            lambda name, shape: make_torso(name, shape, (), act, **style),
        )
    if torso == "auto":
        torso = "cnn" if _is_image(obs_shape, torso) else "mlp"
    if torso == "mlp":
        return MLP(hidden_sizes, act, len(obs_shape), **style)
    least = _SMALLEST[torso]
    if len(obs_shape) != 3 or min(obs_shape[:2]) < least:
        instead = "mlp" if len(obs_shape) != 3 or torso == "cnn" else "cnn or mlp"
        raise ValueError(
            f"torso {torso!r} needs observations [height >= {least}, width >= {least}, "
            f"channels], got {obs_shape}; use {instead}."
        )
    if torso == "cnn":
        return CNN(hidden_sizes, act, **style)
    return Nature(**style) if torso == "nature" else Impala(**style)
