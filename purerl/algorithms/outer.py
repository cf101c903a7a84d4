"""Outer losses: they judge an algorithm's updates when these are differentiated.

A meta-gradient is the derivative of an *outer loss* after some updates. The outer loss
looks at the parameters that the updates led to, and at the rollout that they collect
next. It takes everything else, discount and trace decay among it, from a reference that
is not what the gradient is of (Xu, van Hasselt and Silver 2018, arXiv:1805.09801): a
loss that moved with its own discount could be made small without learning anything.

Axes: `T` steps, `B` environments, `N = T * B` samples.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from purerl.acting.rollout import Played
from purerl.algorithms import lpg, on_policy, policy_gradient, ppo, pqn, vpg
from purerl.algorithms.on_policy import Agent, OnPolicyState
from purerl.algorithms.policy_gradient import Batch
from purerl.keys import update_keys
from purerl.learning import averages
from purerl.learning.returns import rewards_to_go
from purerl.networks import observe
from purerl.types import Array, PyTree

OuterLoss = Callable[[Any, Any, Any], Array]
"""`(parts, state, rollout) -> []`, a number that is to become small."""


class Outer(NamedTuple):
    """The outer losses by which an algorithm's updates are judged.

    Attributes:
        make_agent: `(config, env) -> Agent`, with which the losses look at a rollout.
        losses: Outer losses by name; the first is the default.
        constant: Why the gradient of some fields is zero whatever the data, by name.
    """

    make_agent: Callable[..., Agent]
    losses: Mapping[str, OuterLoss]
    constant: Mapping[str, str] = {}


def collect_next(agent: Agent, state: OnPolicyState) -> Played:
    """Return the rollout that the next update will collect."""
    return on_policy.collect(agent, state, update_keys(state, 3))


class Seen(NamedTuple):
    """The outputs of actor and critic on a rollout after the updates.

    Attributes:
        log_prob: `[N]` log-probabilities of the actions.
        value: `[N]` values of the observations.
        batch: `[N, ...]` samples, which are constants; `batch.log_prob` equals
            `log_prob`.
    """

    log_prob: Array
    value: Array
    batch: Batch


Targets = Callable[[Agent, OnPolicyState, Played], tuple[Batch, Any]]
"""`(agent, state, rollout) -> (samples, ...)`, as of `ppo.targets`."""


def see(targets: Targets, agent: Agent, state: OnPolicyState, played: Played) -> Seen:
    """Look at a rollout with the actor and the critic of a state.

    Args:
        targets: What the algorithm makes of a rollout.
        agent: Networks, environments and the reference config.
        state: State after the updates.
        played: The rollout that was collected with it.
    """
    rows = begun(targets, agent, state, played)
    return see_rows(agent, state.params, rows)


def begun(targets: Targets, agent: Agent, state: OnPolicyState, played: Played) -> Any:
    """Return the rows of a rollout, which are constants; see `Agent.rows_of`.

    The memories with which sequences begin are constants, after a burn-in too, as in
    each gradient step.
    """
    state = jax.lax.stop_gradient(state)
    samples, _ = targets(agent, state, played)
    rows = agent.rows_of(state, played, samples)
    if agent.memory is None:
        return rows
    return jax.lax.stop_gradient(agent.memory.begun(state.params, rows))


def see_rows(agent: Agent, params: PyTree, rows: Any) -> Seen:
    """Look at rows that have begun; see `see`."""
    batch = agent.samples_of(params, rows)
    outputs, value, _ = policy_gradient.outputs(agent, params, batch.obs)
    return Seen(agent.head.log_prob(outputs, batch.action), value, batch)


def _actor_critic(targets: Targets) -> dict[str, OuterLoss]:
    """The outer losses of an algorithm with actor and critic."""

    def policy_gradient(agent: Agent, state: Any, played: Played) -> Array:
        return policy_loss(agent.config, see(targets, agent, state, played))

    def actor_critic(agent: Agent, state: Any, played: Played) -> Array:
        config, seen = agent.config, see(targets, agent, state, played)
        errors = config.value_loss(seen.value, seen.batch.target, seen.batch.value)
        coefficient = getattr(config, "value_coef", 0.5)
        return policy_loss(config, seen) + coefficient * errors.mean()

    return {"policy_gradient": policy_gradient, "actor_critic": actor_critic}


def policy_loss(config: Any, seen: Seen) -> Array:
    """Return `-E[ratio * A]`, whose derivative is the policy gradient, negated.

    The ratio is 1, for the rollout is the policy's own. The advantages are the
    algorithm's, of the reference's discount and trace decay, and standardised where it
    standardises them. Nothing is clipped, and there is no entropy bonus.

    Args:
        config: The reference.
        seen: Outputs of actor and critic on the rollout.
    """
    advantage = seen.batch.advantage
    if config.normalize_advantages:
        advantage = averages.standardise(advantage)
    # The constants equal the log-probabilities of the rollout to the last bit.
    ratio = jnp.exp(seen.log_prob - jax.lax.stop_gradient(seen.log_prob))
    return -(ratio * advantage).mean()


def td_error(agent: Agent, state: OnPolicyState, played: Played) -> Array:
    """Return the loss of the action values against the reference's lambda-returns."""
    constant = jax.lax.stop_gradient(state)
    samples = pqn.targets(agent, constant, played)
    rows = agent.rows_of(constant, played, samples)
    return pqn.loss(agent, state.params, rows)[0]


def returns_of_lpg(agent: Agent, state: OnPolicyState, played: Played) -> Array:
    """Return `-E[R log pi(a|s)]` with standardised rewards-to-go of the rollout.

    No value is learned beside a rule, so that nothing says what lies beyond a cut.
    """
    seen = played.transitions
    ends = seen.terminated, seen.truncated
    nothing = jnp.zeros_like(seen.reward)
    to_go = rewards_to_go(seen.reward, nothing, *ends, gamma=agent.config.gamma)
    moments = jax.lax.stop_gradient(state.obs_moments)
    obs = observe.prepare(agent, moments, seen.obs)
    outputs, _, _ = policy_gradient.outputs(agent, state.params, obs)
    weight = averages.standardise(to_go)
    return -(weight * agent.head.log_prob(outputs, seen.action)).mean()


_COLLECTS = "it only chooses actions, and data are constants to a meta-gradient"
_EPSILONS = "epsilon_start", "epsilon_end", "epsilon_fraction", "epsilon_steps"
PPO = Outer(
    policy_gradient.make_agent,
    _actor_critic(ppo.targets),
    {"target_kl": "it only decides how many passes an update makes"},
)
VPG = Outer(policy_gradient.make_agent, _actor_critic(vpg.targets))
LPG = Outer(lpg.make_agent, {"policy_gradient": returns_of_lpg})
PQN = Outer(pqn.make_agent, {"td_error": td_error}, dict.fromkeys(_EPSILONS, _COLLECTS))
