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

from purerl.acting import observe
from purerl.acting.rollout import Rollout
from purerl.algorithms import lpg, on_policy, ppo, pqn, recurrent_ppo, vpg
from purerl.algorithms.on_policy import Batch
from purerl.algorithms.on_policy_config import OnPolicyConfig
from purerl.keys import update_keys
from purerl.learning import normalise
from purerl.learning.returns import rewards_to_go
from purerl.learning.sequences import Sequences
from purerl.types import Array, PyTree, Transition

OuterLoss = Callable[[Any, Any, Any], Array]
"""`(parts, state, rollout) -> []`, a number that is to become small."""


class Outer(NamedTuple):
    """The functions and the outer losses by which an algorithm's updates are judged.

    Attributes:
        build: `(config, env) -> parts`, what the functions below work with.
        collect: `(parts, state) -> rollout`, the one that the next update will collect.
        losses: Outer losses by name; the first is the default.
        constant: Why the gradient of some fields is zero, by name of the field.
        late: Fields that act on the policy from the second update on only.
    """

    build: Callable[..., Any]
    collect: Callable[[Any, Any], Any]
    losses: Mapping[str, OuterLoss]
    constant: Mapping[str, str]
    late: tuple[str, ...] = ()


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


def see_ppo(parts: on_policy.Parts, state: Any, rollout: Rollout) -> Seen:
    """Look at a rollout with the networks of PPO; see `Seen`.

    Args:
        parts: Networks, environments and the reference config.
        state: State after the updates.
        rollout: The rollout that was collected with it.
    """
    return _see(parts, state, ppo.make_batch, rollout[1])


def see_vpg(parts: on_policy.Parts, state: Any, rollout: Rollout) -> Seen:
    """Look at a rollout with the networks of VPG; see `see_ppo`.

    Args:
        parts: Networks, environments and the reference config.
        state: State after the updates.
        rollout: The rollout that was collected with it.
    """
    return _see(parts, state, vpg.make_batch, rollout[1])


def _see(
    parts: on_policy.Parts,
    state: Any,
    make_batch: Callable[..., tuple[Batch, Any]],
    transitions: Transition,
) -> Seen:
    batch, _ = make_batch(parts, _constant(state), transitions)
    seen = on_policy.inputs(parts, state.params, batch.obs)
    return _by_heads(parts, state.params, seen, batch)


def see_recurrent(parts: recurrent_ppo.Parts, state: Any, rollout: Any) -> Seen:
    """Look at a rollout with the networks of recurrent PPO; see `see_ppo`.

    The memories with which its sequences begin are constants, after a burn-in too, as
    in each of its gradient steps.

    Args:
        parts: Networks, environments and the reference config.
        state: State after the updates.
        rollout: The rollout that was collected with it, and the memories.
    """
    return see_sequences(parts, state.params, begun(parts, state, rollout))


def begun(parts: recurrent_ppo.Parts, state: Any, rollout: Any) -> Sequences:
    """Return the sequences of a rollout from where they begin, which are constants.

    Args:
        parts: Networks, environments and the reference config.
        state: State after the updates.
        rollout: The rollout that was collected with it, and the memories.
    """
    rows, _ = recurrent_ppo.make_sequences(
        parts, state, rollout.transitions, rollout.memories
    )
    return jax.lax.stop_gradient(recurrent_ppo.begun(parts, state.params, rows))


def see_sequences(
    parts: recurrent_ppo.Parts, params: dict[str, PyTree], rows: Sequences
) -> Seen:
    """Look at sequences that have begun with the networks of recurrent PPO.

    Args:
        parts: Networks, environments and the reference config.
        params: Parameters after the updates.
        rows: The sequences, from `begun`.
    """
    batch = recurrent_ppo.samples(parts, params, rows)
    return _by_heads(parts.heads, params, batch.obs, batch)


def _constant(state: Any) -> Any:
    """The state as what makes advantages and targets, which are no variables."""
    return jax.lax.stop_gradient(state)


def _by_heads(
    parts: on_policy.Parts, params: dict[str, PyTree], seen: Any, batch: Batch
) -> Seen:
    outputs = parts.on_inputs.apply(params["actor"], seen)
    value: Any = parts.critic.apply(params["critic"], seen)
    return Seen(parts.head.log_prob(outputs, batch.action), value, batch)


def _actor_critic(
    see: Callable[..., Seen], config_of: Callable[[Any], Any]
) -> dict[str, OuterLoss]:
    """The outer losses of an algorithm with actor and critic."""

    def policy_gradient(parts: Any, state: Any, rollout: Any) -> Array:
        return policy_loss(config_of(parts), see(parts, state, rollout))

    def actor_critic(parts: Any, state: Any, rollout: Any) -> Array:
        config, seen = config_of(parts), see(parts, state, rollout)
        errors = config.value_loss(seen.value, seen.batch.target, seen.batch.value)
        coefficient = getattr(config, "value_coef", 0.5)
        return policy_loss(config, seen) + coefficient * errors.mean()

    return {"policy_gradient": policy_gradient, "actor_critic": actor_critic}


def policy_loss(config: OnPolicyConfig, seen: Seen) -> Array:
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
        advantage = normalise.standardise(advantage)
    # The constants equal the log-probabilities of the rollout to the last bit.
    ratio = jnp.exp(seen.log_prob - jax.lax.stop_gradient(seen.log_prob))
    return -(ratio * advantage).mean()


def td_error(parts: pqn.Parts, state: pqn.PQNState, rollout: Rollout) -> Array:
    """Return the loss of the action values against the reference's lambda-returns.

    Args:
        parts: Network, environments and the reference config.
        state: State after the updates.
        rollout: The rollout that was collected with it.
    """
    batch = pqn.make_batch(parts, _constant(state), rollout[1])
    return pqn.loss(parts, state.params, batch)[0]


def returns_of_lpg(parts: lpg.Parts, state: Any, rollout: Rollout) -> Array:
    """Return `-E[R log pi(a|s)]` with standardised rewards-to-go of the rollout.

    No value is learned beside a rule, so that nothing says what lies beyond a cut.

    Args:
        parts: Networks, environments and the reference config.
        state: State after the updates.
        rollout: The rollout that was collected with it.
    """
    seen = rollout[1]
    ends = seen.terminated, seen.truncated
    nothing = jnp.zeros_like(seen.reward)
    to_go = rewards_to_go(seen.reward, nothing, *ends, gamma=parts.config.gamma)
    obs = observe.prepare(parts, _constant(state.obs_moments), seen.obs)
    inputs = on_policy.inputs(parts, state.params, obs)
    outputs = parts.on_inputs.apply(state.params["actor"], inputs)
    weight = normalise.standardise(to_go)
    return -(weight * parts.head.log_prob(outputs, seen.action)).mean()


def _next_rollout(collect: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    def collect_next(parts: Any, state: Any) -> Any:
        return collect(parts, state, update_keys(state, 3))

    return collect_next


_EPSILON = "it only chooses actions, and data are constants to a meta-gradient"
_TARGET_KL = {"target_kl": "it only decides how many passes an update makes"}

PPO = Outer(
    ppo.build,
    _next_rollout(on_policy.collect),
    _actor_critic(see_ppo, lambda parts: parts.config),
    _TARGET_KL,
)
VPG = Outer(
    vpg.build,
    _next_rollout(on_policy.collect),
    _actor_critic(see_vpg, lambda parts: parts.config),
    {},
    # The critic is fitted after the policy's step.
    late=("critic_learning_rate", "critic_optimiser", "value_loss"),
)
RECURRENT_PPO = Outer(
    recurrent_ppo.build,
    _next_rollout(recurrent_ppo.collect),
    _actor_critic(see_recurrent, lambda parts: parts.heads.config),
    _TARGET_KL,
)
LPG = Outer(
    lpg.build,
    _next_rollout(on_policy.collect),
    {"policy_gradient": returns_of_lpg},
    {},
)
PQN = Outer(
    pqn.build,
    _next_rollout(pqn.collect),
    {"td_error": td_error},
    dict.fromkeys(
        ("epsilon_start", "epsilon_end", "epsilon_fraction", "epsilon_steps"), _EPSILON
    ),
)
