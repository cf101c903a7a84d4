"""The gradient step of DiscoRL's agent: the network, the rule, the target network."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from purerl.acting import rollout
from purerl.acting.observe import to_features
from purerl.algorithms import disco_losses
from purerl.algorithms.disco_config import DiscoConfig
from purerl.learning import optimiser
from purerl.learning.collectives import after, pmean
from purerl.learning.moving import MovingMoments
from purerl.learning.parts import frozen_in
from purerl.networks.action_model import ActionModel, Predictions
from purerl.networks.distributions import Head
from purerl.types import Array, Metrics, PyTree, Transition


class Parts(NamedTuple):
    """The parts of DiscoRL, bound once in Python: structure, and the config's numbers.

    Attributes:
        config: The numbers.
        stepper: The environments.
        obs_space: Observation space of the environment.
        head: Distribution of the actions.
        network: From features of observations to `Predictions`.
        axis_name: Mapped axis over which this agent's environments are spread, if any.
    """

    config: DiscoConfig
    stepper: rollout.Stepper
    obs_space: Any
    head: Head
    network: ActionModel
    axis_name: str | None


class Learner(NamedTuple):
    """The part of the state that a gradient step changes.

    Attributes:
        params: Parameters of the network.
        target_params: Parameters of the target network.
        opt_state: State of the optimiser.
        rule_memory: The rule's memory of the agent's updates.
        advantage_moments: Moving moments of the advantages.
    """

    params: PyTree
    target_params: PyTree
    opt_state: PyTree
    rule_memory: PyTree
    advantage_moments: MovingMoments


def predict(parts: Parts, params: PyTree, features: Any) -> Predictions:
    """Return what the network says of features `[..., *obs_shape]`.

    Args:
        parts: Network, environments and config; see `build`.
        params: Parameters of the network.
        features: Features of observations.
    """
    found: Any = parts.network.apply(params, features)
    return found


def improve(
    parts: Parts, learner: Learner, batch: Transition
) -> tuple[Learner, Metrics]:
    """Ask the rule, take one gradient step, and move the target network.

    Args:
        parts: Network, environments and config; see `build`.
        learner: Learner before the step.
        batch: `[T, N, ...]` trajectories, with the logits of the policy that acted.
    """
    config, axis = parts.config, parts.axis_name
    flat, restore = optimiser.flatten(learner.params)

    def flat_loss(flat: Array) -> tuple[Array, tuple]:
        return loss(parts, learner, restore(flat), batch)

    grads, (metrics, memory, moments) = jax.grad(flat_loss, has_aux=True)(flat)
    # The rule's own averages over devices come first.
    last = sum(jnp.sum(x) for x in jax.tree.leaves((memory, moments)))
    grads, metrics = pmean(after((grads, metrics), jnp.asarray(last), axis), axis)
    optim = make_optimiser(config, learner.params)
    moves, opt_state = optim.update(grads, learner.opt_state, flat)
    metrics["grad_norm"] = optimiser.grad_norm(opt_state)
    if config.max_update is not None:
        most = config.learning_rate * config.max_update
        moves = jnp.clip(moves, -most, most)  # type: ignore[arg-type]
    new = Learner(
        params=restore(optax.apply_updates(flat, moves)),  # type: ignore[arg-type]
        target_params=optimiser.polyak(
            learner.target_params, learner.params, 1.0 - config.target_decay
        ),
        opt_state=opt_state,
        rule_memory=memory,
        advantage_moments=moments,
    )
    return new, metrics


def loss(
    parts: Parts, learner: Learner, params: PyTree, batch: Transition
) -> tuple[Array, tuple[Metrics, PyTree, MovingMoments]]:
    """Return the scalar that is minimised; metrics, the rule's memory, and moments.

    Args:
        parts: Network, environments and config; see `build`.
        learner: Learner before the step.
        params: Parameters of the network that learns, by which it is differentiated.
        batch: `[T, N, ...]` transitions of the trajectories.
    """
    config, axis = parts.config, parts.axis_name
    obs, next_obs = (
        to_features(parts.obs_space, x) for x in (batch.obs, batch.next_obs)
    )
    online = predict(parts, params, obs)
    made = disco_losses.Made(
        online,
        *(
            predict(parts, p, x)
            for p, x in (
                (learner.params, next_obs),
                (learner.target_params, obs),
                (learner.target_params, next_obs),
            )
        ),
    )
    # The targets send no gradient to the agent's outputs; the rule's own numbers still
    # get one.
    known = made._replace(online=jax.lax.stop_gradient(online))
    values, moments = disco_losses.estimate(
        config, batch, known, learner.advantage_moments, axis
    )
    inputs = disco_losses.rule_inputs(batch, known, values)
    targets, memory = config.rule(inputs, learner.rule_memory, axis)
    terms = disco_losses.losses(config, batch, made, targets, values)
    metrics = {name: x.mean() for name, x in terms.items()}
    total = sum(
        getattr(config, name.replace("_loss", "_coef")) * x
        for name, x in metrics.items()
    )
    metrics["entropy"] = parts.head.entropy(known.online.logits).mean()
    metrics["q_value"] = values.value.mean()
    metrics["advantage"] = jnp.abs(values.advantage).mean()
    return total, (metrics, memory, moments)  # type: ignore[return-value]


def make_optimiser(config: DiscoConfig, params: PyTree) -> optax.GradientTransformation:
    """The optimiser of a flat vector of parameters."""
    layers = optimiser.layers_of(params)
    frozen = frozen_in(config.frozen)
    rate = config.learning_rate
    return optimiser.make(config.optimiser, rate, config.max_grad_norm, layers, frozen)
