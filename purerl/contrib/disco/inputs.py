"""The inputs and targets of a rule of DiscoRL's kind.

Axes: `T` steps, `B` trajectories, `A` actions, `M` numbers of the predictions.
"""

from typing import NamedTuple

import jax.numpy as jnp

from purerl.types import Array


class Outputs(NamedTuple):
    """Logits that a network put out for observations.

    Attributes:
        logits: `[T, B, A]` logits of the policy.
        y: `[T, B, M]` logits of the prediction of the observation.
        z: `[T, B, A, M]` logits of the prediction of each action.
    """

    logits: Array
    y: Array
    z: Array


class Values(NamedTuple):
    """The values and advantages of trajectories, computed from the action values.

    With the online network's policy `pi` and its action values `Q`, those `Q'` of the
    target network, and the targets `G` that `learning.returns.retrace` makes of `Q'`.

    Attributes:
        value: `[T, B]` values `sum_a pi(a|s) Q(s, a)`.
        next_value: `[T, B]` values of the observations after the steps and before any
            reset.
        target_q: `[T, B, A]` action values `Q'(s, a)` of the target network.
        target: `[T, B]` targets `G`.
        advantage: `[T, B]` advantages `G - V'(s)` with `V'(s) = sum_a pi(a|s) Q'(s,
            a)`.
        action_advantage: `[T, B, A]` advantages `Q'(s, a) - V'(s)` of all actions.
        standardised: `[T, B]` advantages less their moving mean, over their moving
            deviation.
        action_standardised: `[T, B, A]` advantages of all actions, standardised by the
            moments of `advantage`.
    """

    value: Array
    next_value: Array
    target_q: Array
    target: Array
    advantage: Array
    action_advantage: Array
    standardised: Array
    action_standardised: Array


class DiscoInputs(NamedTuple):
    """Trajectories as a rule sees them, without observations.

    Attributes:
        action: `[T, B]` int, the actions that were taken.
        reward: `[T, B]` rewards, as the environment gave them.
        terminated: `[T, B]` bool, the episode ended in a state of value zero.
        truncated: `[T, B]` bool, the episode was cut (time limit).
        behaviour: `[T, B, A]` logits of the policy that chose the actions.
        online: Outputs of the network that learns.
        next_online: Outputs of the network that learns on the observations after the
            steps and *before* any reset.
        target: Outputs of the target network.
        next_target: Outputs of the target network on the observations after the steps
            and *before* any reset.
        values: Values and advantages of the trajectories.
    """

    action: Array
    reward: Array
    terminated: Array
    truncated: Array
    behaviour: Array
    online: Outputs
    next_online: Outputs
    target: Outputs
    next_target: Outputs
    values: Values

    @property
    def done(self) -> Array:
        """`[T, B]` bool, the step is the last one of its episode."""
        return self.terminated | self.truncated


class DiscoTargets(NamedTuple):
    """The targets that the network shall come nearer to: logits of distributions.

    Attributes:
        logits: `[T, B, A]` logits of the policy.
        y: `[T, B, M]` logits of the prediction of the observation.
        z: `[T, B, M]` logits of the prediction of the action that was taken.
    """

    logits: Array
    y: Array
    z: Array


def of_action(x: Array, action: Array) -> Array:
    """Return what belongs to the actions that were taken, `[T, B, ...]`.

    Args:
        x: `[T, B, A, ...]` values of all actions.
        action: `[T, B]` int, the actions that were taken.
    """
    # A sum with one term is used because the gradient of a look-up writes number by
    # number.
    is_taken = action[..., None] == jnp.arange(x.shape[2])[None, None]
    is_taken = is_taken.reshape(*is_taken.shape, *[1] * (x.ndim - 3))
    return jnp.where(is_taken, x, 0.0).sum(2)
