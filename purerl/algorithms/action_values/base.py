"""The interface of a kind of action values: what DQN calls.

*Outputs* are what the network returns: `[..., n]` for values of n actions, `[..., n,
K]` where the return of each has a distribution of K numbers. Those of one action have
no axis n. What a distribution is made of mixes linearly: probabilities of atoms, or
quantiles.
"""

import abc
from typing import NamedTuple

import jax.numpy as jnp

from purerl.accelerator import columns
from purerl.types import Array


class Levels(NamedTuple):
    """At which levels of a distribution a gradient step asks the network.

    Attributes:
        online: `[N, M]` levels between 0 and 1, for the observations; None where the
            network takes no levels.
        target: `[N, M']` levels between 0 and 1, for the observations after the steps;
            None where the network takes no levels.
    """

    online: Array | None = None
    target: Array | None = None


class ActionValues(abc.ABC):
    """A kind of action values; this class is that of distributions.

    Attributes:
        num_outputs: Number K of outputs for each action; None for one output without an
            axis K.
        acting_levels: `[M]` levels at which the network is asked for the values that
            choose actions; None where it takes no levels.
    """

    num_outputs: int | None = None
    acting_levels: Array | None = None

    def draw_levels(self, key: Array, num: int) -> Levels:
        """Draw the levels of a gradient step on `num` samples; the key is consumed."""
        del key, num
        return Levels()

    @abc.abstractmethod
    def values(self, outputs: Array) -> Array:
        """Return expected returns: `[..., n]`, or `[...]` of one action's outputs."""

    @abc.abstractmethod
    def target(self, reward: Array, discount: Array, following: Array) -> Array:
        """Return what the outputs are to become, `[N, ...]`.

        Args:
            reward: `[N]` rewards.
            discount: `[N]` discounts, 0 after the end of an episode.
            following: `[N, ...]` distributions of what follows, from `of_action`,
                `of_best` or `of_policy`.
        """

    @abc.abstractmethod
    def loss(self, outputs: Array, target: Array, levels: Array | None = None) -> Array:
        """Return the loss of each sample, `[N]`.

        Args:
            outputs: `[N, ...]` outputs of the actions that were taken.
            target: `[N, ...]` targets, from `target`.
            levels: `[N, M]` levels at which the outputs are, where the network takes
                levels.
        """

    def priority(self, outputs: Array, target: Array, loss: Array) -> Array:
        """Return what replay draws in proportion to, `[N]`: the loss.

        Args:
            outputs: `[N, ...]` outputs of the actions that were taken, as in `loss`.
            target: `[N, ...]` targets, as in `loss`.
            loss: `[N]` losses, from `loss`.
        """
        del outputs, target
        return loss

    def distribution(self, outputs: Array) -> Array:
        """Return what mixes linearly, of the shape of the outputs."""
        return outputs

    def pick(self, outputs: Array, action: Array) -> Array:
        """Return the outputs of one action each, `[N, K]`.

        Args:
            outputs: `[N, n, K]` outputs of all actions.
            action: `[N]` int32 actions.
        """
        return jnp.take_along_axis(outputs, action[:, None, None], 1)[:, 0]

    def of_action(self, outputs: Array, action: Array) -> Array:
        """Return the distribution of one action each; see `pick`."""
        return self.distribution(self.pick(outputs, action))

    def of_best(self, outputs: Array, values: Array) -> Array:
        """Return the distribution of the action with the largest value.

        Args:
            outputs: `[N, n, K]` outputs of all actions.
            values: `[N, n]` action values, of the same network or of another one.
        """
        return self.of_action(outputs, columns.argmax(values))

    def of_policy(self, outputs: Array, policy: Array) -> Array:
        """Return the distribution of an action of a policy, `[N, K]`.

        Args:
            outputs: `[N, n, K]` outputs of all actions.
            policy: `[N, n]` probabilities of the actions.
        """
        return (policy[..., None] * self.distribution(outputs)).sum(1)


def midpoints(num: int) -> Array:
    """Return the middles of `num` equal parts of the unit interval, float32 `[num]`."""
    return (jnp.arange(num, dtype=jnp.float32) + 0.5) / num
