"""MPO with discrete actions (Abdolmaleki et al. 2018a): the expectations are sums.

With primes for target networks and sums over all actions, a gradient step

1. fits two critics to `y = r + gamma^n (1 - terminated) sum_a' pi'(a'|s') min_i
   Q'_i(s', a')`;
2. makes the better policy `q(a|s)`, proportional to `pi'(a|s) exp(min_i Q'_i(s, a) /
   eta)`;
3. fits the policy to it within `epsilon_mean` nats of the target policy.

The equations are in `losses.mpo_discrete`. There is nothing to sample, so that
`action_samples`, `bootstrap_samples` and what is of standard deviations have no use.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from purerl.algorithms.off_policy import Batch
from purerl.losses import mpo as m_step
from purerl.losses import mpo_discrete, temperature
from purerl.losses.mpo_discrete import Duals, Improvement
from purerl.types import Array, Metrics, PyTree


def init_duals(config: Any) -> Duals:
    """Make the dual variables at the start of training.

    Args:
        config: Config of the agent.
    """
    start = m_step.softplus_inverse
    is_learned = config.temperature == "gradient"
    return Duals(
        policy=jnp.full(1, start(config.multiplier_mean)),
        temperature=start(config.temperature_init) if is_learned else None,
    )


def judged(
    actor: nn.Module, critics: nn.Module, targets: dict[str, PyTree], obs: Any
) -> tuple[Array, Array]:
    """Return log-probabilities and values of all actions, `[n, N]` each.

    Args:
        actor: Network of logits.
        critics: Networks of the values of all actions.
        targets: Parameters of the target networks.
        obs: `[N, ...]` features of observations.
    """
    logits: Any = actor.apply(targets["actor"], obs)
    pair: Any = critics.apply(targets["critics"], obs)
    return jax.nn.log_softmax(logits).T, jnp.minimum(*pair).T


def td_target(log_policy: Array, q_values: Array, batch: Batch) -> Array:
    """Return `y = r + discount * sum_a' pi'(a'|s') min_i Q'_i(s', a')`, `[N]`.

    Args:
        log_policy: `[n, N]` log-probabilities of the target policy at `s'`.
        q_values: `[n, N]` the smaller of the target critics' values there.
        batch: Batch from the replay buffer.
    """
    value = (jnp.exp(log_policy) * q_values).sum(0)
    return batch.reward + batch.discount * value


def improve(
    config: Any,
    axis_name: str | None,
    duals: Duals,
    log_policy: Array,
    q_values: Array,
) -> Improvement:
    """Make the E-step, at the temperature that the config's way gives.

    Args:
        config: The numbers.
        axis_name: Mapped axis over which the states are spread, if any.
        duals: Variables of the constraints.
        log_policy: `[n, N]` log-probabilities of the target policy.
        q_values: `[n, N]` the smaller of the target critics' values.
    """
    if duals.temperature is None:
        eta = temperature.solve_temperature(
            q_values, config.epsilon, axis_name, log_policy
        )
    else:
        eta = m_step.positive(duals.temperature)
    return mpo_discrete.improved(log_policy, q_values, eta)


def fit_loss(
    config: Any, duals: Duals, logits: Array, improvement: Improvement
) -> tuple[Array, Metrics]:
    """Return the loss of policy and duals `[]`, and metrics.

    Args:
        config: The bounds.
        duals: Variables of the constraints.
        logits: `[N, n]` outputs of the policy that is fitted.
        improvement: Result of the E-step.
    """
    return mpo_discrete.fit_loss(
        duals, logits, improvement, config.epsilon, config.epsilon_mean
    )
