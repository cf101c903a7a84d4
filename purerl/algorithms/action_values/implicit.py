"""The distribution of returns as a function of the level: IQN (Dabney et al. 2018b).

The network takes levels between 0 and 1 beside the observation and returns the
quantiles there (arXiv:1806.06923). A gradient step draws levels for each sample and
compares quantiles with quantiles by QR-DQN's loss. Actions are chosen by the mean of
the quantiles in the middles of equal parts; the paper draws these levels too.
"""

import jax

from purerl.algorithms.action_values.base import Levels, midpoints
from purerl.algorithms.action_values.quantile import Quantile
from purerl.types import Array


class Implicit(Quantile):
    """Quantiles at levels that are drawn; see `ActionValues` for the functions."""

    def __init__(
        self, num_online: int, num_target: int, num_acting: int, kappa: Array | float
    ) -> None:
        """Keep how many levels there are, and the loss.

        Args:
            num_online: Levels N of the prediction; 64 in the paper.
            num_target: Levels N' of the target; 64 in the paper.
            num_acting: Levels K by which actions are chosen; 32 in the paper.
            kappa: Error at which Huber's loss turns linear; 1 in the paper.
        """
        super().__init__(1, kappa)
        self.num_online, self.num_target = num_online, num_target
        self.acting_levels = midpoints(num_acting)

    def draw_levels(self, key: Array, num: int) -> Levels:
        """Draw the levels of a gradient step on `num` samples; the key is consumed."""
        numbers = self.num_online + self.num_target
        levels = jax.random.uniform(key, (num, numbers))
        return Levels(levels[:, : self.num_online], levels[:, self.num_online :])
