"""The values, inputs of a rule and losses that DiscoRL's agent makes of trajectories.

Axes: `T` steps, `N` trajectories, `A` actions.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from purerl.learning import moving, two_hot
from purerl.learning.moving import MovingMoments
from purerl.learning.returns import retrace
from purerl.networks.action_model import Predictions
from purerl.rules.disco import DiscoInputs, DiscoTargets, Outputs, Values
from purerl.rules.disco.features import of_action
from purerl.types import Array, Transition


class Made(NamedTuple):
    """The outputs of the networks on trajectories, leaves `[T, N, ...]`.

    Attributes:
        online: Outputs of the network that learns.
        next_online: Outputs of the network that learns on the observations after the
            steps and before any reset.
        target: Outputs of the target network.
        next_target: Outputs of the target network on the observations after the steps
            and before any reset.
    """

    online: Predictions
    next_online: Predictions
    target: Predictions
    next_target: Predictions


def estimate(
    config: Any,
    batch: Transition,
    made: Made,
    moments: MovingMoments,
    axis_name: str | None = None,
) -> tuple[Values, MovingMoments]:
    """Return what the action values say of trajectories; see `rules.disco.Values`.

    Args:
        config: Config of the agent.
        batch: `[T, N, ...]`, with the logits of the policy that chose the actions in
            the place of their log-probabilities.
        made: Outputs of the networks on the trajectories.
        moments: Moments of the advantages before.
        axis_name: Mapped axis over which trajectories are spread, if any.

    Returns:
        Values, and the moments with these advantages in.
    """
    top = config.max_abs_value
    policy = jax.nn.softmax(made.online.logits)
    next_policy = jax.nn.softmax(made.next_online.logits)
    target_q = two_hot.mean(made.target.q, top)
    next_target_q = two_hot.mean(made.next_target.q, top)
    base = (policy * target_q).sum(-1)
    ratio = _log_prob(made.online.logits, batch.action) - _log_prob(
        batch.log_prob, batch.action
    )
    target = retrace(
        batch.reward,
        of_action(target_q, batch.action),
        (next_policy * next_target_q).sum(-1),
        jnp.exp(ratio),
        batch.terminated,
        batch.truncated,
        gamma=config.gamma,
        trace_decay=config.trace_decay,
    )
    advantage, action_advantage = target - base, target_q - base[..., None]
    moments = moving.seen(moments, advantage, config.advantage_decay, axis_name)
    values = Values(
        value=(policy * two_hot.mean(made.online.q, top)).sum(-1),
        next_value=(next_policy * two_hot.mean(made.next_online.q, top)).sum(-1),
        target_q=target_q,
        target=target,
        advantage=advantage,
        action_advantage=action_advantage,
        standardised=moving.standardised(moments, advantage),
        action_standardised=moving.standardised(moments, action_advantage),
    )
    return values, moments


def rule_inputs(batch: Transition, made: Made, values: Values) -> DiscoInputs:
    """Return trajectories as a rule sees them.

    Args:
        batch: `[T, N, ...]`, with logits in the place of log-probabilities.
        made: Outputs of the networks on the trajectories.
        values: Values and advantages that `estimate` returned.
    """

    def outputs(predictions: Predictions) -> Outputs:
        return Outputs(predictions.logits, predictions.y, predictions.z)

    return DiscoInputs(
        action=batch.action,
        reward=batch.reward,
        terminated=batch.terminated,
        truncated=batch.truncated,
        behaviour=batch.log_prob,
        online=outputs(made.online),
        next_online=outputs(made.next_online),
        target=outputs(made.target),
        next_target=outputs(made.next_target),
        values=values,
    )


def losses(
    config: Any,
    batch: Transition,
    made: Made,
    targets: DiscoTargets,
    values: Values,
) -> dict[str, Array]:
    """Return the losses of every step, `[T, N]` each, by name.

    Args:
        config: Config of the agent.
        batch: `[T, N, ...]` transitions of the trajectories.
        made: Outputs of the networks on the trajectories; the gradient is that of
            `online`.
        targets: Targets that the rule asks for; constants.
        values: Values and advantages of the trajectories; constants.
    """
    action, online = batch.action, made.online
    model = divergence(made.next_online.logits, of_action(online.next_logits, action))
    q = of_action(online.q, action)
    return {
        "policy_loss": divergence(targets.logits, online.logits),
        "y_loss": divergence(targets.y, online.y),
        "z_loss": divergence(targets.z, of_action(online.z, action)),
        # There is no policy after the end of an episode.
        "model_loss": jnp.where(batch.terminated, 0.0, model),
        "value_loss": two_hot.cross_entropy(q, values.target, config.max_abs_value),
    }


def divergence(target: Array, logits: Array) -> Array:
    """Return KL(target || logits) in nats, `[...]`.

    Args:
        target: `[..., A]` logits, to which nothing of the gradient goes.
        logits: `[..., A]` logits of the distribution that learns.
    """
    log_target = jax.nn.log_softmax(target)
    difference = log_target - jax.nn.log_softmax(logits)
    return (jnp.exp(log_target) * difference).sum(-1)


def _log_prob(logits: Array, action: Array) -> Array:
    return of_action(jax.nn.log_softmax(logits), action)
