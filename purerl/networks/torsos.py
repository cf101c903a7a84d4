"""Torsos: from observations, vectors or images, to features."""

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from purerl.networks import layers, observe
from purerl.networks.layers import (
    ACTIVATIONS,
    BatchRenorm,
    Conv,
    Dense,
    note_activity,
)
from purerl.types import Array, PyTree

TORSOS = ("auto", "mlp", "simba", "cnn", "nature", "impala")
# The smallest height and width of pictures, for the torsos with published sizes.
_SMALLEST = {"cnn": 3, "nature": 36, "impala": 1}
_SQRT2 = float(np.sqrt(2))


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
        finish = _finisher(self.activation, self.layer_norm, self.dtype)
        if self.batch_norm:
            x = BatchRenorm()(x)
        for number, size in enumerate(self.hidden_sizes):
            x = Dense(size, self.gain, self.dot_general, self.dtype)(x)
            x = finish(x)
            note_activity(self, f"Dense_{number}", x)
            if self.batch_norm:
                x = BatchRenorm()(x)
        return x.astype(jnp.float32)


class SimBa(nn.Module):
    """Residual blocks of vectors (Lee et al. 2024, arXiv:2410.09754).

    A linear layer, then for each entry of `hidden_sizes`, all of which are its width,

        x + W' act(W LayerNorm(x) + b) + b'    with 4 times as many units inside,

    and a layer normalisation of the sum. The paper has 128 units and a block for an
    actor, 512 and two for a critic, observations normalised by running moments, and
    normal kernels in place of orthogonal ones.
    """

    hidden_sizes: tuple[int, ...]
    activation: str = "relu"
    obs_ndim: int = 1
    dot_general: Any = None
    dtype: Any = None
    gain: float = _SQRT2
    expansion: int = 4

    def __post_init__(self) -> None:
        if len(set(self.hidden_sizes)) != 1:
            raise ValueError(
                "torso 'simba' has as many blocks as hidden_sizes (or critic_hidden_"
                f"sizes) has entries, all of one width, such as (512, 512), got "
                f"{self.hidden_sizes}."
            )
        super().__post_init__()

    @nn.compact
    def __call__(self, obs: Array) -> Array:
        """Features `[..., H]` of observations `[..., *obs_shape]`, float32."""
        lead, width = obs.shape[: obs.ndim - self.obs_ndim], self.hidden_sizes[0]
        names = (f"Dense_{number}" for number in itertools.count())

        def dense(x: Array, size: int, gain: float) -> Array:
            return Dense(size, gain, self.dot_general, self.dtype)(x)

        def noted(x: Array) -> Array:
            note_activity(self, next(names), x)
            return x

        x = obs.reshape(*lead, math.prod(obs.shape[len(lead) :]))
        x = noted(dense(x, width, 1.0))
        for _ in self.hidden_sizes:
            inner = layers.layer_norm(self.dtype)(x)
            inner = dense(inner, self.expansion * width, self.gain)
            inner = noted(ACTIVATIONS[self.activation](inner))
            x = x + noted(dense(inner, width, self.gain))
        return layers.layer_norm(self.dtype)(x).astype(jnp.float32)


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
        lead, x = _one_batch_axis(obs)
        x = Conv(16, 3, padding="VALID", scale=self.gain, dtype=self.dtype)(x)
        x = _finisher(self.activation, self.layer_norm, self.dtype)(x)
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


def _is_image(shape: tuple[int, ...], torso: str) -> bool:
    """Return whether an array gets a CNN; of `auto` it must be large enough for one."""
    is_large = torso != "auto" or min(shape[:2], default=0) >= _SMALLEST["cnn"]
    return len(shape) == 3 and is_large


def make_torso(
    torso: str,
    obs_shape: Any,
    hidden_sizes: tuple[int, ...],
    act: str,
    **style: Any,
) -> nn.Module:
    """Make the torso for an observation shape; `auto` takes the CNN for images.

    For an observation of several parts, the convolutions of every image and all other
    numbers stand side by side before the dense layers of `hidden_sizes`.

    Args:
        torso: One of `TORSOS`; see `Nature` and `Impala`.
        obs_shape: Shape of one observation, or a pytree of shapes.
        hidden_sizes: Units of each dense layer of `mlp` and `cnn`, and of each block of
            `simba`; `nature` and `impala` have the published ones.
        act: Activation of `mlp`, `simba` and `cnn`, one of `ACTIVATIONS`; the others
            have relu.
        **style: Options that all torsos have, as in `MLP`.

    Raises:
        ValueError: a CNN for what is not an image, or too small an image; or blocks of
            several widths.
    """
    is_flat = torso in ("mlp", "simba")
    if not observe.is_shape(obs_shape):
        shapes = observe.leaf_shapes(obs_shape)
        pictures = [not is_flat and _is_image(shape, torso) for shape in shapes]
        if torso != "auto" and not is_flat and not any(pictures):
            raise ValueError(
                f"torso {torso!r} needs an image among the parts of an observation, "
                f"got {shapes}; use mlp."
            )
        name = "cnn" if torso == "auto" else torso
        encoders = tuple(
            make_torso(name, shape, (), act, **style) if is_picture else None
            for shape, is_picture in zip(shapes, pictures, strict=True)
        )
        ndims = tuple(map(len, shapes))
        last = make_torso(torso if is_flat else "mlp", (1,), hidden_sizes, act, **style)
        return Joined(encoders, ndims, last)
    if torso == "auto":
        torso = "cnn" if _is_image(obs_shape, torso) else "mlp"
    if torso == "mlp":
        return MLP(hidden_sizes, act, len(obs_shape), **style)
    if torso == "simba":
        # Its norms are in the blocks.
        rest: dict[str, Any] = {k: v for k, v in style.items() if k != "layer_norm"}
        return SimBa(hidden_sizes, act, len(obs_shape), **rest)
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
            x = Conv(features, size, stride, "VALID", self.gain, self.dtype)(x)
            x = finish(x)
            note_activity(self, f"Conv_{number}", x)
        return _dense_end(self, x, lead, finish)


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
        conv = partial(Conv, size=3, scale=self.gain, dtype=self.dtype)
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
        return _dense_end(self, finish(x), lead, finish)


def _dense_end(
    module: Nature | Impala, x: Array, lead: tuple[int, ...], finish: Callable
) -> Array:
    """The dense layer after the convolutions of a module, `[*lead, dense_size]`."""
    x = x.reshape(*lead, math.prod(x.shape[-3:]))
    dense = Dense(module.dense_size, module.gain, module.dot_general, module.dtype)
    x = finish(dense(x))
    note_activity(module, "Dense_0", x)
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
