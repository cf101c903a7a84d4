"""MPO's two steps for discrete actions: every action is weighed, none is sampled.

With probabilities `pi'(a|s)` of the target policy and values `Q(s, a)` of all actions,
the E-step (Abdolmaleki et al. 2018a, arXiv:1806.06920) has a closed form,

    q(a|s) = pi'(a|s) exp(Q(s, a) / eta) / Z(s),

which is the best policy whose mean divergence `KL(q || pi')` is at most `epsilon` when
`eta` minimises the dual `eta epsilon + eta mean_s log sum_a pi'(a|s) exp(Q(s, a)/eta)`.
The M-step fits the policy to it,

    max_pi mean_s sum_a q(a|s) log pi(a|s),
    mean_s sum_a pi'(a|s) log(pi'(a|s) / pi(a|s)) <= epsilon_policy,

with a Lagrange multiplier for its one constraint.

Axes: `n` actions, `N` states, as in `temperature`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from purerl.losses import temperature as e_step
from purerl.losses.mpo import lagrangian, positive
from purerl.types import Array, Metrics


class Duals(NamedTuple):
    """Parameters whose softplus are the dual variables.

    Attributes:
        policy: `[1]` multiplier of the policy's constraint.
        temperature: `[]` multiplier of the constraint on the weights, where it is
            learned by gradient, else None.
    """

    policy: Array
    temperature: Array | None


class Improvement(NamedTuple):
    """The E-step's better policy.

    Attributes:
        log_policy: `[n, N]` log-probabilities of the target policy.
        q_values: `[n, N]` values of all actions; those of actions that a mask excludes
            are the best of the others.
        weights: `[n, N]` probabilities of the better policy.
        temperature: `[]` temperature with which they were made.
    """

    log_policy: Array
    q_values: Array
    weights: Array
    temperature: Array


def improved(log_policy: Array, q_values: Array, temperature: Array) -> Improvement:
    """Make the E-step at a temperature.

    Args:
        log_policy: `[n, N]` log-probabilities of the target policy.
        q_values: `[n, N]` values of all actions.
        temperature: `[]` temperature eta.
    """
    q_values = e_step.without_impossible(log_policy, q_values)
    # The quotient is centred: beside a large one log-probabilities would lose their
    # digits.
    centred = q_values - q_values.max(0, keepdims=True)
    weights = jax.nn.softmax(log_policy + centred / temperature, axis=0)
    return Improvement(log_policy, q_values, weights, temperature)


def divergence(weights: Array, log_policy: Array) -> Array:
    """Return `KL(weights || policy)`, in nats, `[N]`.

    Args:
        weights: `[n, N]` probabilities of the actions.
        log_policy: `[n, N]` log-probabilities, finite.
    """
    return (jax.scipy.special.xlogy(weights, weights) - weights * log_policy).sum(0)


def fit_loss(
    duals: Duals,
    logits: Array,
    improvement: Improvement,
    epsilon: Array | float,
    epsilon_policy: Array | float,
) -> tuple[Array, Metrics]:
    """Return the M-step's loss: weighted likelihood, penalty, losses of the duals.

    Args:
        duals: The dual variables' parameters.
        logits: `[N, n]` outputs of the policy that is fitted.
        improvement: Result of the E-step.
        epsilon: Bound on the divergence of the weights, in nats.
        epsilon_policy: Bound on the divergence of the policy, in nats.

    Returns:
        Loss `[]`, and what there is to say about it.
    """
    log_new = jax.nn.log_softmax(logits).T
    policy_loss = -(improvement.weights * log_new).sum(0).mean()
    old = jnp.exp(improvement.log_policy)
    kl_policy = (old * (improvement.log_policy - log_new)).sum(0).mean(keepdims=True)
    multiplier = positive(duals.policy)
    penalty, dual = lagrangian(multiplier, kl_policy, epsilon_policy)
    total = policy_loss + penalty + dual
    if duals.temperature is not None:
        total = total + e_step.temperature_dual(
            positive(duals.temperature),
            improvement.q_values,
            epsilon,
            improvement.log_policy,
        )
    kl_weights = divergence(improvement.weights, improvement.log_policy)
    return total, {
        "policy_loss": policy_loss,
        "kl_weights": kl_weights.mean(),
        "kl_policy": kl_policy[0],
        "multiplier_policy": multiplier[0],
        "temperature": improvement.temperature,
        "entropy": -(jnp.exp(log_new) * log_new).sum(0).mean(),
    }
