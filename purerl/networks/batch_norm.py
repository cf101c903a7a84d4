"""Batch normalisation whose running statistics are parameters that nothing optimises.

Networks hold parameters only. So the statistics that acting needs lie among them, under
names of their own (`STATISTICS`), and are saved, exported and resumed with them. No
gradient reaches them and optimisers leave them as they are (`learning.parts`); what
learns puts the new ones in their place after its step.

Whether a batch is normalised by its own statistics, as in training, or by the running
ones, as in acting, is a matter of how a network is applied: see `forward`.
"""

from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from purerl.types import Array, PyTree

# The collection of flax in which a batch leaves the new statistics.
COLLECTION = "statistics"
# Names of the parameters that are running statistics.
STATISTICS = ("running_mean", "running_var", "running_steps")
# The bounds of the correction after the warm-up are those of Ioffe (2017).
LARGEST_SCALE, LARGEST_SHIFT = 3.0, 5.0


class BatchRenorm(nn.Module):
    """Batch renormalisation (Ioffe 2017, arXiv:1702.03275).

    In training a feature of the batch becomes, with its mean `m` and deviation `s`
    there, running ones `M` and `S`, and a learned scale and bias,

        scale ((x - m) / s * r + d) + bias,
        r = clip(s / S, 1/3, 3),    d = clip((m - M) / S, -5, 5),

    where no gradient goes through `r` and `d`. For the first `warm_up_steps` batches
    `r = 1` and `d = 0`, which is batch normalisation (Ioffe and Szegedy 2015). In
    acting it is `scale (x - M) / S + bias`.

    Attributes:
        momentum: Share of the running statistics that a batch leaves.
        eps: Number that is added to variances.
        warm_up_steps: Number of batches before the correction begins.
    """

    momentum: float = 0.99
    eps: float = 1e-3
    warm_up_steps: int = 100_000

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Normalised features `[..., F]`; all leading axes are the batch."""
        x = x.astype(jnp.float32)
        ones, zeros = nn.initializers.ones, nn.initializers.zeros
        shape = (x.shape[-1],)
        scale = self.param("scale", ones, shape)
        bias = self.param("bias", zeros, shape)
        running_mean = jax.lax.stop_gradient(self.param("running_mean", zeros, shape))
        running_var = jax.lax.stop_gradient(self.param("running_var", ones, shape))
        steps = jax.lax.stop_gradient(self.param("running_steps", zeros, ()))
        deviation = jnp.sqrt(running_var + self.eps)

        if not self.is_mutable_collection(COLLECTION) or self.is_initializing():
            normal = (x - _like(running_mean, x)) / _like(deviation, x)
            return normal * _like(scale, x) + _like(bias, x)

        rows = x.reshape(-1, x.shape[-1])
        mean, var = rows.mean(0), rows.var(0)
        found = jnp.sqrt(var + self.eps)
        is_warm = steps >= self.warm_up_steps
        r = jnp.clip(found / deviation, 1.0 / LARGEST_SCALE, LARGEST_SCALE)
        d = jnp.clip((mean - running_mean) / deviation, -LARGEST_SHIFT, LARGEST_SHIFT)
        r = jax.lax.stop_gradient(jnp.where(is_warm, r, 1.0))
        d = jax.lax.stop_gradient(jnp.where(is_warm, d, 0.0))
        normal = (x - _like(mean, x)) / _like(found, x) * _like(r, x) + _like(d, x)

        left = self.momentum
        new = {
            "running_mean": left * running_mean + (1.0 - left) * mean,
            "running_var": left * running_var + (1.0 - left) * var,
            "running_steps": steps + 1.0,
        }
        for name, value in new.items():
            self.put_variable(COLLECTION, name, jax.lax.stop_gradient(value))
        return normal * _like(scale, x) + _like(bias, x)


def _like(values: Array, x: Array) -> Array:
    return jnp.broadcast_to(values, x.shape)


def forward(module: nn.Module, params: PyTree, *inputs: Any) -> tuple[Any, PyTree]:
    """Apply a network in training: batches are normalised by their own statistics.

    Args:
        module: Network with `BatchRenorm` layers.
        params: Parameters of the network.
        *inputs: Inputs of the network; all leading axes are the batch.

    Returns:
        The outputs, and the new running statistics for `put_statistics`.
    """
    outputs, new = module.apply(params, *inputs, mutable=[COLLECTION])
    return outputs, new[COLLECTION]


def put_statistics(params: PyTree, statistics: PyTree) -> PyTree:
    """Return the parameters of a network with new running statistics.

    Args:
        params: Parameters `{"params": ...}`.
        statistics: Running statistics that `forward` returned.
    """
    return {**params, "params": _put(params["params"], statistics)}


def _put(params: Any, new: Any) -> Any:
    if not isinstance(new, Mapping):
        return new
    return {
        name: _put(value, new[name]) if name in new else value
        for name, value in params.items()
    }
