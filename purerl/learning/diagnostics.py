"""Numbers that say how learning goes; they change nothing."""

from typing import Any

import jax
import jax.numpy as jnp

from purerl.learning.collectives import pmean
from purerl.types import Array


def explained_variance(value: Array, target: Array, axis_name: str | None) -> Array:
    """Return `1 - Var[target - value] / Var[target]`; 1 is perfect, 0 a constant guess.

    Args:
        value: `[N]` predicted values.
        target: `[N]` targets of the predictions.
        axis_name: Mapped axis over which the samples are spread, if any.
    """
    pair = jnp.stack([target, target - value])
    mean = pmean(pair.mean(1, keepdims=True), axis_name)
    spread, left = pmean(jnp.square(pair - mean).mean(1), axis_name)
    return 1.0 - left / jnp.maximum(spread, 1e-8)


def approx_kl(log_ratio: Array) -> Array:
    """Estimate KL(old || new) by each sample of the old policy, `r - 1 - log r`, `[N]`.

    Non-negative and of low variance (k3 in Schulman 2020, "Approximating KL
    Divergence"); the estimate is their mean.
    """
    return jnp.expm1(log_ratio) - log_ratio


def means(samples: dict[str, Array]) -> dict[str, Array]:
    """Average what a minibatch has of each sample, all names in one reduction.

    Every reduction is a kernel of its own, or several, in each gradient step.

    Args:
        samples: Name -> `[N]`; a truth value counts as 0 or 1.

    Returns:
        Name -> float32 `[]`.
    """
    rows = jnp.stack([x.astype(jnp.float32) for x in samples.values()])
    return dict(zip(samples, rows.mean(axis=1), strict=True))


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
