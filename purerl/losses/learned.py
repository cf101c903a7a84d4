"""Losses that are small networks: the same kind of thing as a hand-written loss."""

import itertools
from collections.abc import Iterable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from purerl import schedules
from purerl.config import ConfigError, dynamic, static
from purerl.fields import FRACTION, POSITIVE_OR_NONE
from purerl.learning.small_networks import (
    dense,
    is_random,
    random_layer,
    whole,
    zero_layer,
)
from purerl.losses.policy import ClipDrift
from purerl.schedules import Share
from purerl.types import Array, PyTree

# The shift keeps the drift exactly flat around ratio 1 (Lu et al. 2022, section 4.1).
DRIFT_SHIFT = 1e-4
VALUE_INPUTS = ("error", "pair")


@struct.dataclass
class MLPValueLoss:
    """A network, tanh between layers: `mlp(value - target)` or `mlp(value, target)`.

    The number of inputs of the first layer says which. There is no square and no
    absolute value around it: what it learns need be neither convex nor symmetric, and
    its smallest value need not lie at zero error.

    Attributes:
        params: `((kernel, bias), ...)`, one pair per layer.
    """

    params: PyTree

    @classmethod
    def create(
        cls,
        key: Array,
        hidden_sizes: tuple[int, ...] = (64, 64),
        inputs: str = "error",
    ):
        """Draw a random loss (LeCun normal kernels, zero biases).

        Args:
            key: Random key of the kernels.
            inputs: `error`: the network sees `value - target`; `pair`: both numbers.

        Raises:
            ConfigError: other inputs.
        """
        sizes = _layers(hidden_sizes, inputs)
        return cls(
            params=tuple(
                random_layer(jax.random.fold_in(key, index), *size)
                for index, size in enumerate(sizes)
            )
        )

    @classmethod
    def zeros(cls, hidden_sizes: tuple[int, ...] = (64, 64), inputs: str = "error"):
        """Return a loss of zeros: where the published evolution starts.

        Raises:
            ConfigError: other inputs.
        """
        sizes = _layers(hidden_sizes, inputs)
        return cls(params=tuple(zero_layer(*size) for size in sizes))

    @classmethod
    def make(
        cls,
        hidden_sizes: tuple[int, ...] = (64, 64),
        inputs: str = "error",
        init: str = "zeros",
        seed: int = 0,
    ):
        """Make a loss from plain values, as a command line or a YAML file writes them.

        Args:
            inputs: Kind of the network's inputs, `error` or `pair`.

        Raises:
            ConfigError: another init or other inputs.
        """
        if is_random(init):
            return cls.create(jax.random.key(int(seed)), hidden_sizes, inputs)
        return cls.zeros(hidden_sizes, inputs)

    def __call__(self, value: Array, target: Array, old_value: Array) -> Array:
        """Loss per sample, `[N]`."""
        del old_value
        if jnp.shape(self.params[0][0])[0] == 1:
            hidden = (value - target)[..., None]
        else:
            hidden = jnp.stack(jnp.broadcast_arrays(value, target), axis=-1)
        for layer in self.params[:-1]:
            hidden = jnp.tanh(dense(layer, hidden))
        kernel, bias = self.params[-1]
        return (hidden @ kernel)[..., 0] + bias[0]


@struct.dataclass
class MLPDrift:
    """A learned drift: `relu(mlp(features) - 1e-4)` (Lu et al. 2022, section 4.1).

    The features are `log r, (log r)^2, 1 - r, (1 - r)^2` and the same four times the
    advantage. Without biases the network is zero at ratio 1, and the shift makes the
    drift flat there, so every parameter vector is a valid drift. With `base_clip` the
    network is added to PPO's drift inside the relu: zero parameters then are PPO.

    Attributes:
        params: Kernels of the two layers, `(kernel [8, H], kernel [H, 1])`.
        base_clip: Half-width of PPO's clip that the network starts from; None starts
            from no drift.
    """

    NUM_FEATURES: ClassVar[int] = 8

    params: PyTree
    base_clip: float | None = static(None, "PPO clip to start from.", POSITIVE_OR_NONE)

    @classmethod
    def create(
        cls,
        key: Array,
        hidden_size: int = 128,
        scale: float = 1.0,
        base_clip: float | None = None,
    ):
        """Draw random kernels.

        Args:
            key: Random key of the kernels, consumed.
            scale: Factor of the last kernel; 0 starts at the base alone: unclipped, or
                PPO.
            base_clip: Half-width of the PPO clip to start from; None starts from no
                drift.
        """
        key_in, key_out = jax.random.split(key)
        shape_in = (cls.NUM_FEATURES, hidden_size)
        kernel_in = jax.random.normal(key_in, shape_in) / cls.NUM_FEATURES**0.5
        kernel_out = jax.random.normal(key_out, (hidden_size, 1)) / hidden_size**0.5
        return cls(params=(kernel_in, scale * kernel_out), base_clip=base_clip)

    @classmethod
    def zeros(cls, hidden_size: int = 128, base_clip: float | None = None):
        """Return a loss of zeros: where the published evolution starts."""
        kernels = (cls.NUM_FEATURES, hidden_size), (hidden_size, 1)
        params = tuple(np.zeros(shape, np.float32) for shape in kernels)
        return cls(params=params, base_clip=base_clip)

    @classmethod
    def make(
        cls,
        hidden_size: int = 128,
        base_clip: float | None = None,
        init: str = "zeros",
        seed: int = 0,
    ):
        """Make a loss from plain values, as a command line or a YAML file writes them.

        Args:
            base_clip: Half-width of the PPO clip to start from; None starts from no
                drift.

        Raises:
            ConfigError: another init.
        """
        if is_random(init):
            key = jax.random.key(int(seed))
            return cls.create(key, int(hidden_size), base_clip=base_clip)
        return cls.zeros(int(hidden_size), base_clip)

    @property
    def trust(self) -> tuple[float, float]:
        """Distances below and above 1 of the clip that it starts from, or of PPO's."""
        width = 0.2 if self.base_clip is None else self.base_clip
        return width, width

    def __call__(self, log_ratio: Array, advantage: Array) -> Array:
        """Drift per sample, `[N]`."""
        kernel_in, kernel_out = self.params
        hidden = jnp.tanh(self.features(log_ratio, advantage) @ kernel_in)
        out = (hidden @ kernel_out)[..., 0]
        if self.base_clip is not None:
            out = out + ClipDrift(self.base_clip)(log_ratio, advantage)
        return jax.nn.relu(out - DRIFT_SHIFT)

    def features(self, log_ratio: Array, advantage: Array) -> Array:
        """Return what the network sees, `[N, F]`; all of it is 0 at ratio 1."""
        gap = -jnp.expm1(log_ratio)
        base = jnp.stack(
            [log_ratio, jnp.square(log_ratio), gap, jnp.square(gap)], axis=-1
        )
        return jnp.concatenate([base, base * advantage[..., None]], axis=-1)


@struct.dataclass
class TemporalDrift(MLPDrift):
    """A learned drift that knows the share of the run that is over.

    The network sees the eight features of `MLPDrift`, and each of them times the share,
    so that what it learns may move from one drift to another in the course of a run
    (Jackson et al. 2024, arXiv:2402.05828, section 4, who give LPO the share of the
    run as an input). Every parameter vector is a valid drift at every share.

    Attributes:
        params: Kernels of the two layers, `(kernel [16, H], kernel [H, 1])`.
        base_clip: Half-width of PPO's clip that the network starts from; None starts
            from no drift.
        share: Share of the run that is over.
    """

    NUM_FEATURES: ClassVar[int] = 16

    share: Any = dynamic(Share(), "Share of the run that is over.", FRACTION)

    def features(self, log_ratio: Array, advantage: Array) -> Array:
        """Return what the network sees, `[N, F]`; all of it is 0 at ratio 1."""
        plain = super().features(log_ratio, advantage)
        # It is a number wherever somebody trains with it.
        share = schedules.at(self.share, 0.0)
        return jnp.concatenate([plain, plain * share], axis=-1)


def _layers(hidden_sizes: tuple[int, ...], inputs: str) -> list[tuple[int, int]]:
    if inputs not in VALUE_INPUTS:
        raise ConfigError(
            f"inputs must be one of {', '.join(VALUE_INPUTS)}, got {inputs!r}."
        )
    if not isinstance(hidden_sizes, Iterable):
        raise ConfigError(
            f"hidden_sizes must be sizes, such as (64, 64), got {hidden_sizes!r}."
        )
    sizes = [whole("each of hidden_sizes", units) for units in hidden_sizes]
    first = 1 + VALUE_INPUTS.index(inputs)
    return list(itertools.pairwise((first, *sizes, 1)))
