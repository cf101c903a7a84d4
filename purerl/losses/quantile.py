"""Distributions of returns as quantiles: their regression, and how they are truncated.

A critic gives `Q` quantiles `theta_m` of the return, of the levels
`tau_m = (2 m - 1) / (2 Q)`, and is fitted to samples `y_k` of the target's distribution
by quantile regression (Dabney et al. 2018, arXiv:1710.10044, equation 10):

    L = mean_k mean_m |tau_m - 1[y_k < theta_m]| loss(theta_m, y_k).

With the absolute error as the loss, `theta_m` becomes the quantile of level `tau_m`;
the paper smooths it by Huber's. With the squared error it would become an expectile.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from purerl.losses.value import value_error
from purerl.types import Array


def levels(num: int) -> Array:
    """Return the levels `(2 m - 1) / (2 Q)` of Q quantiles, float32 `[Q]`.

    Args:
        num: Q, the number of quantiles.
    """
    return jnp.asarray((2 * np.arange(num) + 1) / (2 * num), jnp.float32)


def regression(
    loss: Callable[[Array, Array, Array], Array], quantiles: Array, target: Array
) -> Array:
    """Return the loss of the quantiles of a batch, `[N]`.

    Args:
        loss: Value loss `(value, target, old_value) -> [N]`, such as `HuberError()`.
        quantiles: `[N, Q]` quantiles that a critic gives.
        target: `[K, N]` samples of the distribution that they should have.
    """

    def against(theta: Array, level: Array) -> Array:
        below = target < theta[None]  # A prediction that is too large costs 1 - level.
        cost = jax.vmap(partial(value_error, loss, theta))(target)
        return (jnp.abs(level - below.astype(jnp.float32)) * cost).mean(0)

    each = jax.vmap(against, in_axes=(1, 0))(quantiles, levels(quantiles.shape[1]))
    return each.mean(0)


def truncated(quantiles: Array, dropped: int) -> Array:
    """Pool the quantiles of several critics, and leave out the largest.

    The truncated mixture of Kuznetsov et al. (2020, arXiv:2005.04269): of the `E * Q`
    quantiles in ascending order, the first `E * (Q - d)`.

    Args:
        quantiles: `[E, N, Q]` quantiles of E critics.
        dropped: Number d of quantiles that are left out for each critic.

    Returns:
        `[E * (Q - d), N]`, ascending along the first axis.
    """
    num_critics, num_samples, num = quantiles.shape
    pooled = jnp.swapaxes(quantiles, 0, 1).reshape(num_samples, -1)
    kept = num_critics * (num - dropped)
    return jnp.sort(pooled, axis=-1)[:, :kept].T


def quantile_huber(
    quantiles: Array, target: Array, levels: Array, kappa: Array | float
) -> Array:
    """Return the quantile Huber loss (Dabney et al. 2018a, eq. 10).

        sum_i mean_j |t_i - 1{u_ij < 0}| huber(u_ij) / kappa,    u_ij = y_j - q_i

    Its minimum over `q_i` is, for a small `kappa`, the quantile of `y` at level `t_i`.

    Args:
        quantiles: `[N, K]` predictions `q`.
        target: `[N, M]` samples or quantiles `y` of the target.
        levels: Levels `t` of the quantiles, `[N, K]` or `[1, K]`.
        kappa: Error at which Huber's loss turns linear.

    Returns:
        float32 `[N]`.
    """
    error = target[:, None, :] - quantiles[:, :, None]
    size = jnp.abs(error)
    huber = jnp.where(
        size <= kappa, 0.5 * jnp.square(error), kappa * (size - 0.5 * kappa)
    )
    weight = jnp.abs(levels[:, :, None] - (error < 0.0))
    return (weight * huber / kappa).mean(-1).sum(-1)
