"""The expected return of an action, one number, and a loss of its TD error.

y = r + gamma^n (1 - terminated) Q'(s', a*)     (Mnih et al. 2015)
"""

from typing import Any

from purerl.accelerator import columns
from purerl.algorithms.action_values.base import ActionValues
from purerl.losses import value_error
from purerl.types import Array


class Expected(ActionValues):
    """Action values as numbers; see `ActionValues` for the functions."""

    def __init__(self, value_loss: Any) -> None:
        """Keep the loss of the TD error.

        Args:
            value_loss: Function `(value, target, old_value) -> [N]`.
        """
        self.value_loss = value_loss

    def values(self, outputs: Array) -> Array:
        """Return the outputs, which are the values."""
        return outputs

    def pick(self, outputs: Array, action: Array) -> Array:
        """Return the values `[N]` of one action each, of `[N, n]`."""
        return columns.pick(outputs, action)

    def of_best(self, outputs: Array, values: Array) -> Array:
        """Return the values of the actions with the largest of `values`, `[N]`."""
        if values is outputs:
            return columns.largest(outputs)
        return super().of_best(outputs, values)

    def of_policy(self, outputs: Array, policy: Array) -> Array:
        """Return the value of a policy, `[N]`, from both `[N, n]`."""
        return (policy * outputs).sum(-1)

    def target(self, reward: Array, discount: Array, following: Array) -> Array:
        """Return the targets, `[N]`.

        Args:
            reward: `[N]` rewards.
            discount: `[N]` discounts, 0 after the end of an episode.
            following: `[N]` values of what follows.
        """
        return reward + discount * following

    def loss(self, outputs: Array, target: Array, levels: Array | None = None) -> Array:
        """Return the loss of the TD errors, `[N]`.

        Args:
            outputs: `[N]` values of the actions that were taken.
            target: `[N]` targets, from `target`.
            levels: None; expected values take no levels.
        """
        del levels
        return value_error(self.value_loss, outputs, target)

    def priority(self, outputs: Array, target: Array, loss: Array) -> Array:
        """Return the TD errors, `[N]`.

        Args:
            outputs: `[N]` values of the actions that were taken.
            target: `[N]` targets, from `target`.
            loss: `[N]` losses, from `loss`; they are not used.
        """
        del loss
        return target - outputs
