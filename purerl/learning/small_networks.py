"""Small networks as plain arrays, for learned losses, rules and optimisers.

A layer is a pair of a kernel `[I, O]` and a bias `[O]`.

A network that puts out the probabilities of `K` numbers from `-top` to `top` has their
mean as its value. What it should put out for a given value is the distribution on the
two neighbours of that value whose mean it is (two-hot; Schrittwieser et al. 2020,
appendix F). Values of any size are first squeezed by `squeeze`.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl.config import ConfigError
from purerl.envs.options import whole_number
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
        return whole_number(name, value, least=least)
    except ValueError as error:
        raise ConfigError(str(error)) from None


EPSILON = 1e-3


def squeeze(value: Array) -> Array:
    """Return `sign(x) (sqrt(|x| + 1) - 1) + 0.001 x` (Pohlen et al. 2018).

    Args:
        value: `[...]` values of any size.
    """
    sign = _sign(value)
    return sign * (jnp.sqrt(sign * value + 1.0) - 1.0) + EPSILON * value


def unsqueeze(value: Array) -> Array:
    """Return the inverse of `squeeze`.

    The root of the quadratic equation is written as a quotient: as a difference, it
    would lose half of the digits of a float32 near zero.

    Args:
        value: `[...]` values of any size.
    """
    sign = _sign(value)
    inner = EPSILON + 1.0 + sign * value
    root = 2.0 * inner / (jnp.sqrt(1.0 + 4.0 * EPSILON * inner) + 1.0)
    return sign * (jnp.square(root) - 1.0)


def signed_log(value: Array) -> Array:
    """Return `sign(x) log(1 + |x|)`."""
    sign = _sign(value)
    return sign * jnp.log1p(sign * value)


def _sign(value: Array) -> Array:
    """Return 1 or -1: by 0 and by `abs`, the slope at exactly 0 would be lost."""
    return jnp.where(value < 0, -1.0, 1.0)


def support(size: int, top: Array | float) -> Array:
    """Return the numbers `[K]` whose probabilities are put out.

    Args:
        size: Number K of the support's entries, at least 2.
        top: Largest number of the support.
    """
    return jnp.linspace(-1.0, 1.0, size) * top


def mean(logits: Array, top: Array | float) -> Array:
    """Return the values `[...]` of logits `[..., K]`.

    Args:
        logits: `[..., K]` logits of the probabilities of the support.
    """
    numbers = support(logits.shape[-1], top).reshape((1,) * (logits.ndim - 1) + (-1,))
    # This is a sum because an accelerator computes a product with fewer digits.
    return unsqueeze((jax.nn.softmax(logits) * numbers).sum(-1))


def cross_entropy(logits: Array, value: Array, top: Array | float) -> Array:
    """Return the cross-entropy `[...]` of the two-hot distributions of values.

    A value beyond the ends of the support counts as the end.

    Args:
        logits: `[..., K]` logits of the probabilities of the support.
        value: `[...]` values, to which nothing of a gradient goes.
    """
    size = logits.shape[-1]
    log_probs = jax.nn.log_softmax(logits)
    share = (jnp.clip(squeeze(value) / top, -1.0, 1.0) + 1.0) / 2.0
    place = jax.lax.stop_gradient(share * (size - 1))
    low = jnp.clip(jnp.floor(place).astype(jnp.int32), 0, size - 2)
    weight = place - low
    pair = jnp.stack([low, low + 1], axis=-1)
    below, above = jnp.moveaxis(jnp.take_along_axis(log_probs, pair, -1), -1, 0)
    return -((1.0 - weight) * below + weight * above)
