"""The distribution of returns by its quantiles: QR-DQN (Dabney et al. 2018a).

The network returns the quantiles at the levels `(i - 1/2) / K`, i = 1 .. K
(arXiv:1710.10044, section 4). They need no range of returns. Their loss is that of
quantile regression, with Huber's in the place of the absolute error.
"""

import jax.numpy as jnp

from purerl.algorithms.action_values.base import ActionValues, midpoints
from purerl.types import Array


class Quantile(ActionValues):
    """Quantiles at fixed levels; see `ActionValues` for the functions."""

    def __init__(self, num_quantiles: int, kappa: Array | float) -> None:
        """Keep how many quantiles there are, and their loss.

        Args:
            num_quantiles: Number K of quantiles; 200 in the paper.
            kappa: Error at which Huber's loss turns linear; 1 in the paper.
        """
        self.num_outputs = num_quantiles
        self.kappa = kappa

    def values(self, outputs: Array) -> Array:
        """Return the means, `[..., n]` of quantiles `[..., n, K]`."""
        return outputs.mean(-1)

    def target(self, reward: Array, discount: Array, following: Array) -> Array:
        """Return the targets' quantiles, `[N, K]`."""
        return reward[:, None] + discount[:, None] * following

    def loss(self, outputs: Array, target: Array, levels: Array | None = None) -> Array:
        """Return the quantile Huber loss, `[N]`."""
        if levels is None:
            levels = midpoints(outputs.shape[-1])[None]
        return quantile_huber(outputs, target, levels, self.kappa)


def quantile_huber(
    quantiles: Array, target: Array, levels: Array, kappa: Array | float
) -> Array:
    """Return the quantile Huber loss (Dabney et al. 2018a, eq. 10).

        sum_i mean_j |t_i - 1{u_ij < 0}| huber(u_ij) / kappa,    u_ij = y_j - q_i

    Its minimum over `q_i` is, for a small `kappa`, the quantile of `y` at level `t_i`.

    Args:
        quantiles: `[N, K]` predictions `q`.
        target: `[N, M]` samples or quantiles `y` of the target.
        levels: `[N, K]` or `[1, K]`, the levels `t`.
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
