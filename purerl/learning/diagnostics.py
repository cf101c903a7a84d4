"""Numbers that say how learning goes; they change nothing."""

from typing import Any

import jax
import jax.numpy as jnp

from purerl.learning.collectives import pmean
from purerl.types import Array


def explained_variance(
    value: Array, target: Array, axis_name: str | None = None
) -> Array:
    """Return `1 - Var[target - value] / Var[target]`; 1 is perfect, 0 a constant guess.

    Args:
        value: `[N]` predictions.
        target: `[N]`.
        axis_name: Mapped axis over which the samples are spread, if any.
    """
    pair = jnp.stack([target, target - value])
    mean = pmean(pair.mean(1, keepdims=True), axis_name)
    spread, left = pmean(jnp.square(pair - mean).mean(1), axis_name)
    return 1.0 - left / jnp.maximum(spread, 1e-8)


def approx_kl(log_ratio: Array) -> Array:
    """Return KL(old || new) from samples of the old policy: `mean(r - 1 - log r)`.

    Non-negative and of low variance (k3 in Schulman 2020, "Approximating KL
    Divergence").
    """
    return (jnp.expm1(log_ratio) - log_ratio).mean()


def parameters_finite(state: Any) -> Array:
    """Return whether all parameters of an agent are finite numbers, bool `[]`.

    Args:
        state: State of one agent; what it holds under `params` is looked at.
    """
    floats = [
        leaf
        for leaf in jax.tree.leaves(getattr(state, "params", ()))
        if jnp.issubdtype(leaf.dtype, jnp.floating)
    ]
    return jnp.stack([jnp.isfinite(x).all() for x in floats] or [jnp.array(True)]).all()
