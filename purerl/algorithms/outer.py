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

from purerl import schedules
from purerl.acting import observe
from purerl.acting.environment import Environment
from purerl.acting.observe import obs_shape
from purerl.acting.rollout import Rollout
from purerl.algorithms import (
    lpg,
    on_policy,
    ppo,
    pqn,
    recurrent_critic,
    recurrent_ppo,
    vpg,
)
from purerl.algorithms.on_policy import Batch
from purerl.algorithms.on_policy_config import OnPolicyConfig
from purerl.keys import update_keys
from purerl.learning import normalise
from purerl.learning.returns import rewards_to_go
from purerl.learning.sequences import Sequences
from purerl.optimisers.first_order import is_known
from purerl.rules.check import moves_policy
from purerl.types import Array, PyTree, Transition

OuterLoss = Callable[[Any, Any, Any], Array]
"""`(parts, state, rollout) -> []`, a number that is to become small."""


class Constant(NamedTuple):
    """The reason for which the gradient of a field is zero whatever the data.

    Attributes:
        why: Reason, as it follows "for".
        remedy: What to do, a sentence.
    """

    why: str
    remedy: str = "Leave it out, or use purerl.evolve."


def _nothing(config: Any) -> Mapping[str, Constant]:
    del config
    return {}


def _none_alone(config: Any, env: Environment, field: str) -> bool:
    del config, env, field
    return False


class Outer(NamedTuple):
    """The functions and the outer losses by which an algorithm's updates are judged.

    Attributes:
        build: `(config, env) -> parts`, what the functions below work with.
        collect: `(parts, state) -> rollout`, the one that the next update will collect.
        losses: Outer losses by name; the first is the default.
        constant: Function from a config to why the gradient of some fields is zero, by
            name of the field.
        alone: `(config, env, field) -> bool`, whether a field moves the critic alone in
            an update, or what stands in its place, so that it acts on the policy from
            the next update on only.
    """

    build: Callable[..., Any]
    collect: Callable[[Any, Any], Any]
    losses: Mapping[str, OuterLoss]
    constant: Callable[[Any], Mapping[str, Constant]] = _nothing
    alone: Callable[[Any, Environment, str], bool] = _none_alone


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


# Fields that move the critic: by how much, and where to.
_CRITIC_STEPS = ("critic_learning_rate", "critic_optimiser")
_CRITIC_LOSS = ("value_coef", "value_loss")


def _constant_of_ppo(config: Any) -> Mapping[str, Constant]:
    found = {"target_kl": Constant("it only decides how many passes an update makes")}
    if config.num_epochs * config.num_minibatches == 1:
        found["policy_loss"] = Constant(
            "the only gradient step of an update is made at ratio 1, where every drift "
            "is flat (num_epochs * num_minibatches = 1)",
            "Set num_epochs=2 or more, or leave it out.",
        )
    return found


def _constant_of_pqn(config: Any) -> Mapping[str, Constant]:
    del config
    why = "it only chooses actions, and data are constants to a meta-gradient"
    names = "epsilon_start", "epsilon_end", "epsilon_fraction", "epsilon_steps"
    return dict.fromkeys(names, Constant(why))


def _alone_in_vpg(config: Any, env: Environment, field: str) -> bool:
    del config, env
    # The critic is fitted after the policy's step, and a shared torso is the actor's.
    return field.split(".")[0] in (*_CRITIC_STEPS, "value_loss")


def _alone_in_ppo(config: Any, env: Environment, field: str) -> bool:
    del env
    return _beside_policy(config, field, is_apart=not config.shared_torso)


def _alone_in_recurrent_ppo(config: Any, env: Environment, field: str) -> bool:
    shape = obs_shape(env.observation_space(env.default_params))
    is_apart = recurrent_critic.has_own(config, shape)
    return _beside_policy(config, field, is_apart)


def _beside_policy(config: Any, field: str, is_apart: bool) -> bool:
    """True if a field of PPO moves the critic alone.

    Args:
        config: Config of the agent.
        field: Dotted name of the field.
        is_apart: Whether actor and critic have no parameters in common.
    """
    name = field.split(".")[0]
    if name in _CRITIC_STEPS and config.num_epochs * config.num_minibatches == 1:
        return True
    own = config.critic_optimiser is not None
    is_apart = is_apart and config.max_grad_norm is None
    is_apart = is_apart and (own or is_known(config.optimiser))
    return is_apart and name in (*_CRITIC_STEPS, *_CRITIC_LOSS)


def _alone_in_lpg(config: lpg.LPGConfig, env: Environment, field: str) -> bool:
    del env
    is_apart = not config.shared_torso and config.max_grad_norm is None
    if not (is_apart and is_known(config.optimiser)):
        return False
    name, _, part = field.partition(".")
    if name != "rule" or schedules.is_moving(config.rule):
        return name == "prediction_coef"
    return bool(part) and not moves_policy(config.rule, part, config.prediction_size)


PPO = Outer(
    ppo.build,
    _next_rollout(on_policy.collect),
    _actor_critic(see_ppo, lambda parts: parts.config),
    _constant_of_ppo,
    _alone_in_ppo,
)
VPG = Outer(
    vpg.build,
    _next_rollout(on_policy.collect),
    _actor_critic(see_vpg, lambda parts: parts.config),
    alone=_alone_in_vpg,
)
RECURRENT_PPO = Outer(
    recurrent_ppo.build,
    _next_rollout(recurrent_ppo.collect),
    _actor_critic(see_recurrent, lambda parts: parts.heads.config),
    _constant_of_ppo,
    _alone_in_recurrent_ppo,
)
LPG = Outer(
    lpg.build,
    _next_rollout(on_policy.collect),
    {"policy_gradient": returns_of_lpg},
    alone=_alone_in_lpg,
)
PQN = Outer(
    pqn.build,
    _next_rollout(pqn.collect),
    {"td_error": td_error},
    _constant_of_pqn,
)
