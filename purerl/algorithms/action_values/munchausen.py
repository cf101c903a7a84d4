"""Munchausen targets (Vieillard et al. 2020, arXiv:2007.14430).

The policy is the softmax of the values at a temperature. What follows is its value with
its entropy, and the reward grows by its scaled log-probability of the action taken:

    y = r + alpha [tau log pi(a|s)]_clip^0
          + gamma sum_a' pi(a'|s') (Q'(s', a') - tau log pi(a'|s'))       (eq. 4)

with `pi = softmax(Q' / tau)` of the target network. For a distribution of returns the
sum is over distributions, as in M-IQN (appendix B), and all of them are moved by the
same entropy.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from purerl.replay.batches import Batch
from purerl.types import Array


class SoftPolicy(NamedTuple):
    """A softmax of action values.

    Attributes:
        policy: `[N, n]` probabilities of the actions.
        log_policy: `[N, n]` their logarithms times the temperature.
    """

    policy: Array
    log_policy: Array

    @property
    def entropy(self) -> Array:
        """Entropy times the temperature, `[N]`."""
        return -(self.policy * self.log_policy).sum(-1)


def soft_policy(values: Array, temperature: Array | float) -> SoftPolicy:
    """Return the softmax of action values at a temperature.

    Args:
        values: `[N, n]` action values.
        temperature: Temperature in units of return.
    """
    log_policy = jax.nn.log_softmax(values / temperature)
    return SoftPolicy(jnp.exp(log_policy), temperature * log_policy)


def reward(
    now: SoftPolicy,
    following: SoftPolicy,
    batch: Batch,
    *,
    alpha: Array | float,
    clip: Array | float,
) -> Array:
    """Return the reward with both of what is added to it, `[N]`.

    Args:
        now: Policy on the observations.
        following: Policy on those after the steps.
        batch: Batch from the replay buffer.
        alpha: Share of the log-probability that is added; 0.9 in the paper.
        clip: Lowest value of what is scaled, negative; -1 in the paper.
    """
    log_policy = jnp.take_along_axis(now.log_policy, batch.action[:, None], -1)[:, 0]
    bonus = alpha * jnp.clip(log_policy, clip, 0.0)
    return batch.reward + bonus + batch.discount * following.entropy
