"""Small networks as plain arrays, for learned losses, rules and optimisers.

A layer is a pair of a kernel `[I, O]` and a bias `[O]`.
"""

import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl.config import ConfigError
from purerl.types import Array

Layer = tuple[Any, Any]


def random_layer(key: Array, fan_in: int, fan_out: int) -> Layer:
    """Return a random layer: LeCun normal kernel, zero bias; the key is consumed."""
    kernel = jax.random.normal(key, (fan_in, fan_out)) / fan_in**0.5
    return kernel, jnp.zeros(fan_out)


def zero_layer(fan_in: int, fan_out: int) -> Layer:
    """Return a layer of zeros, of NumPy."""
    return np.zeros((fan_in, fan_out), np.float32), np.zeros(fan_out, np.float32)


def dense(layer: Layer, x: Array) -> Array:
    """Return `x @ kernel + bias`, `[..., O]`, of inputs `[..., I]`."""
    kernel, bias = layer
    out = x @ kernel
    return out + jnp.broadcast_to(bias, out.shape)


def is_random(init: str) -> bool:
    """Return whether the first parameters are drawn, `random`, and not `zeros`.

    Raises:
        ConfigError: another text.
    """
    if init not in ("zeros", "random"):
        raise ConfigError(f"init must be zeros or random, got {init!r}.")
    return init == "random"


def whole(name: str, value: Any, least: int = 1) -> int:
    """Return a size or a seed as a whole number.

    Raises:
        ConfigError: it is none, or less than `least`.
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if isinstance(value, bool) or number < least:
        raise ConfigError(
            f"{name} must be a whole number of at least {least}, got {value!r}."
        )
    return number
