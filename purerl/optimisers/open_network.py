"""The arithmetic of OPEN's network (Goldie et al. 2024, arXiv:2407.07082, section 5).

Arrays have the features first, `[F, P]`: rows of P parameters, which a CPU reads in one
piece.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl.networks.layers import ACTIVITY
from purerl.optimisers.layout import Layout
from purerl.types import Array, PyTree

DECAYS = (0.1, 0.5, 0.9, 0.99, 0.999, 0.9999)
NUM_FEATURES = 2 * len(DECAYS) + 7
# These are added to a magnitude before its logarithm, and to a mean square.
_LOG_EPS, _SQUARE_EPS, _NORM_EPS = 1e-13, 1e-5, 1e-6
_ACTIVITY_EPS = 1e-11


def shapes_of(hidden_size: int, memory_size: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the weights by name, in the order of the published vector.

    Args:
        hidden_size: Units of each hidden layer, H.
        memory_size: Units of the recurrent layer, M.
    """
    gates = {"ir": True, "iz": True, "in": True, "hr": False, "hz": False, "hn": True}
    found: dict[str, tuple[int, ...]] = {}
    for name in sorted(gates):
        rows = NUM_FEATURES if name[0] == "i" else memory_size
        if gates[name]:
            found[f"gru.{name}.bias"] = (memory_size,)
        found[f"gru.{name}.kernel"] = (rows, memory_size)
    rows = memory_size
    for number in range(2):
        found[f"dense{number}.bias"] = (hidden_size,)
        found[f"dense{number}.kernel"] = (rows, hidden_size)
        found[f"norm{number}.bias"] = (hidden_size,)
        found[f"norm{number}.scale"] = (hidden_size,)
        rows = hidden_size
    return {**found, "dense2.bias": (3,), "dense2.kernel": (rows, 3)}


def make_params(
    hidden_size: int = 16, memory_size: int = 8, seed: int = 0
) -> dict[str, np.ndarray]:
    """Return random weights, from which a published evolution starts: LeCun normal.

    Args:
        hidden_size: Units of each hidden layer.
        memory_size: Units of the recurrent layer.
        seed: Seed of the kernels; biases are zero, scales of the norms are one.
    """
    draw = np.random.default_rng(seed)
    found = {}
    for name, shape in shapes_of(hidden_size, memory_size).items():
        if name.endswith("kernel"):
            found[name] = draw.standard_normal(shape) / shape[0] ** 0.5
        else:
            found[name] = np.full(shape, float(name.endswith("scale")))
    return {name: array.astype(np.float32) for name, array in found.items()}


def features_of(
    params: Array, gradient: Array, momenta: Array, layout: Layout
) -> Array:
    """Return what the network sees of each parameter by itself, `[15, P]`.

    Every row is divided by its root mean square over each tensor.

    Args:
        params: Parameters `[P]`.
        gradient: Gradient `[P]`, clipped.
        momenta: Decaying means of the gradients, `[6, P]`.
        layout: Places of the parameters in the networks.
    """
    rows = jnp.concatenate(
        [
            params[None],
            jnp.sign(momenta),
            jnp.log(jnp.abs(momenta) + _LOG_EPS),
            jnp.sign(gradient)[None],
            jnp.log(jnp.abs(gradient) + _LOG_EPS)[None],
        ]
    )
    tensors = jnp.split(rows, np.cumsum(layout.sizes)[:-1], axis=1)
    return jnp.concatenate([x * jax.lax.rsqrt(_mean_square(x)) for x in tensors], 1)


def _mean_square(x: Array) -> Array:
    return _SQUARE_EPS + jnp.mean(jnp.square(x), axis=1, keepdims=True)


def remember(params: Mapping[str, Array], memory: Array, seen: Array) -> Array:
    """Return the memory `[M, P]` after a step of a gated recurrent unit.

    It is that of Cho et al. 2014 (arXiv:1406.1078) in the form of flax's `GRUCell`,
    whose reset gate multiplies the product.

    Args:
        params: Weights by name.
        memory: Memory before the step, `[M, P]`.
        seen: Inputs `[F, P]`.
    """

    def product(name: str, x: Array) -> Array:
        out = jnp.transpose(params[f"gru.{name}.kernel"]) @ x
        bias = params.get(f"gru.{name}.bias")
        return out if bias is None else out + jnp.asarray(bias)[:, None]

    reset = jax.nn.sigmoid(product("ir", seen) + product("hr", memory))
    keep = jax.nn.sigmoid(product("iz", seen) + product("hz", memory))
    new = jnp.tanh(product("in", seen) + reset * product("hn", memory))
    return (1.0 - keep) * new + keep * memory


def read_out(params: Mapping[str, Array], memory: Array) -> Array:
    """Return the outputs `[3, P]` of a memory: dense layers, each with a norm and relu.

    Args:
        params: Weights by name.
        memory: Memory `[M, P]`.
    """
    x = memory
    for number in range(3):
        x = jnp.transpose(params[f"dense{number}.kernel"]) @ x
        x = x + jnp.asarray(params[f"dense{number}.bias"])[:, None]
        if number < 2:
            x = x - _mean_of_units(x)
            x = x * jax.lax.rsqrt(_mean_of_units(jnp.square(x)) + _NORM_EPS)
            scale, bias = (params[f"norm{number}.{name}"] for name in ("scale", "bias"))
            x = jax.nn.relu(
                x * jnp.asarray(scale)[:, None] + jnp.asarray(bias)[:, None]
            )
    return x


def _mean_of_units(x: Array) -> Array:
    """The mean `[1, P]` over the rows of `x`, `[H, P]`.

    It is a product because a CPU's compiled sum over rows is ten times slower.
    """
    return jnp.full((1, x.shape[0]), 1.0 / x.shape[0], x.dtype) @ x


def dormancy(layout: Layout, activity: Any, params: PyTree) -> Array:
    """Return how active the unit is that each parameter leads to, `[P]`.

    It is the unit's mean absolute output over that of its layer (Sokar et al. 2023,
    arXiv:2302.12902, equation 1): 0 for a dormant unit, 1 on average, and 1 where
    nothing is known of the layer.

    Args:
        layout: Places of the parameters in the networks.
        activity: Mean absolute outputs `[N]` of layers, by the names of their networks,
            as `networks.layers.note_activity` leaves them; None where nobody knows.
        params: Pytree of arrays of the parameters' shapes.
    """
    found = []
    for name, leaf in zip(layout.names, jax.tree.leaves(params), strict=True):
        units = _activity_at(activity, name)
        if units is None or units.shape != leaf.shape[-1:]:
            found.append(jnp.ones(leaf.size))
            continue
        units = units + _ACTIVITY_EPS
        ratios = units / jnp.abs(units).sum() * units.size
        found.append(jnp.broadcast_to(ratios, leaf.shape).ravel())
    return jnp.concatenate(found)


def _activity_at(activity: Any, name: tuple[str, ...]) -> Array | None:
    """The mean absolute output of the layer that a leaf is in."""
    if len(name) < 2:  # A bare array, such as a temperature, is in no layer.
        return None
    *path, layer, _ = name
    node = activity
    for part in [*(x for x in path if x != "params"), ACTIVITY + layer]:
        if not isinstance(node, Mapping) or part not in node:
            return None
        node = node[part]
    return node
