"""The inputs and targets of a rule of learning.

Axes: `T` steps of the rollout, `B` environments, `M` numbers of the prediction vector.
"""

from typing import NamedTuple

from purerl.types import Array


class RuleInputs(NamedTuple):
    """A rollout as a rule sees it: no observations and no actions.

    So a rule does not know how large an observation is or how many actions there are,
    and what was learned in one environment can be used in another.

    Attributes:
        reward: `[T, B]` rewards, as the environment gave them.
        terminated: `[T, B]` bool, the episode ended in a state of value zero.
        truncated: `[T, B]` bool, the episode was cut (time limit).
        gamma: `[]`, the discount of the config.
        log_prob: `[T, B]`, log of the probability of the action that was taken.
        log_prediction: `[T, B, M]`, log of the prediction `y(s_t)`.
        next_log_prediction: `[T, B, M]`, log of the prediction `y(s'_t)` of the
            observation after the step and *before* any reset.
        share: Share of the run that is over, float32 `[]`, 0 in the first update.
        num_updates: Updates of the whole run, float32 `[]`.
    """

    reward: Array
    terminated: Array
    truncated: Array
    gamma: Array | float
    log_prob: Array
    log_prediction: Array
    next_log_prediction: Array
    share: Array
    num_updates: Array

    @property
    def done(self) -> Array:
        """`[T, B]` bool, the step is the last one of its episode."""
        return self.terminated | self.truncated


class Targets(NamedTuple):
    """The targets that a rule sets the agent for a rollout.

    Attributes:
        policy: `[T, B]`, how much more probable the action shall become: the weight of
            the gradient of its log-probability.
        log_prediction: `[T, B, M]`, log of the distribution that the prediction of the
            observation shall come nearer to.
    """

    policy: Array
    log_prediction: Array
