"""The distribution of returns by its quantiles: QR-DQN (Dabney et al. 2018a).

The network returns the quantiles at the levels `(i - 1/2) / K`, i = 1 .. K
(arXiv:1710.10044, section 4). They need no range of returns. Their loss is that of
quantile regression, with Huber's in the place of the absolute error.
"""

from purerl.algorithms.action_values.base import ActionValues, midpoints
from purerl.losses.quantile import quantile_huber
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
        """Return the targets' quantiles, `[N, K]`.

        Args:
            reward: `[N]` rewards.
            discount: `[N]` discounts, 0 after the end of an episode.
            following: `[N, K]` quantiles of what follows.
        """
        return reward[:, None] + discount[:, None] * following

    def loss(self, outputs: Array, target: Array, levels: Array | None = None) -> Array:
        """Return the quantile Huber loss, `[N]`.

        Args:
            outputs: `[N, M]` quantiles of the actions that were taken.
            target: `[N, K]` quantiles, from `target`.
            levels: `[N, M]` levels of the outputs; the midpoints where None.
        """
        if levels is None:
            levels = midpoints(outputs.shape[-1])[None]
        return quantile_huber(outputs, target, levels, self.kappa)
