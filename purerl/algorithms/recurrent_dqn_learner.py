"""The learner of recurrent DQN: gradient steps on sequences of its replay buffer."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from purerl.accelerator import packing
from purerl.acting import rollout
from purerl.algorithms.recurrent_dqn_config import RecurrentDQNConfig
from purerl.algorithms.recurrent_dqn_parts import Parts, seen, values
from purerl.learning import optimiser, returns, sequences, two_hot
from purerl.learning.collectives import after, pmean
from purerl.learning.parts import frozen_in
from purerl.learning.sequences import Sequences, swap
from purerl.losses import value_error
from purerl.metrics import averages
from purerl.replay import sequences as replay
from purerl.types import Array, Metrics, PyTree


class Learner(NamedTuple):
    """The part of the state that a gradient step changes.

    Attributes:
        params: Parameters of the online network, as a flat vector `[P]`.
        target_params: Parameters of the target network, as a flat vector `[P]`.
        opt_state: State of the optimiser.
        priorities: Priorities of the sequences; empty without them.
    """

    params: Array
    target_params: Array
    opt_state: PyTree
    priorities: PyTree


def take_steps(
    parts: Parts,
    restore: Any,
    prepare: Any,
    buffer: replay.Stored,
    update: Array,
    key: Array,
    learner: Learner,
) -> tuple[Learner, Metrics]:
    """Take the gradient steps of an update, and sum their metrics.

    Args:
        parts: Networks, environments and config; see `build`.
        restore: Function from a flat vector to the network's parameters.
        prepare: Function from observations to what the network sees.
        buffer: Sequences `[C, ...]`, those of this update among them.
        update: `[]` int32, number of updates before this one.
        key: Random key, consumed; the same on all devices.
        learner: Learner before the steps.
    """
    config, axis = parts.config, parts.stepper.axis_name
    if axis is not None:
        key = jax.random.fold_in(key, jax.lax.axis_index(axis))
    noise = parts.replay.draw(key, (config.gradient_steps,))
    num_envs = rollout.per_device(config.num_envs, axis)
    added = (update + 1).astype(jnp.uint32) * jnp.uint32(num_envs)
    counts = config.gradient_steps_before(update) + jnp.arange(
        config.gradient_steps, dtype=jnp.uint32
    )

    def one_step(learner: Learner, xs: tuple) -> tuple[Learner, Metrics]:
        count, noise = xs
        numbers, weight = parts.replay.sample(learner.priorities, noise, added)
        rows = prepared(prepare, parts.replay.gather(buffer, numbers))
        learner, td_error, metrics = improve(
            parts, restore, learner, rows, weight, count
        )
        priority = replay.priority(td_error, config.priority_eta)
        priorities = parts.replay.update(learner.priorities, numbers, priority)
        return learner._replace(priorities=priorities), metrics

    learner, metrics = packing.scan(one_step, learner, (counts, noise))
    return learner, {name: each.sum(0) for name, each in metrics.items()}


def prepared(prepare: Any, rows: Sequences) -> Sequences:
    """Return sequences whose observations are what the network sees.

    Args:
        prepare: Function of observations as the environment gives them.
        rows: Sequences of `Item`s, as they are stored.
    """
    steps = rows.batch
    steps = steps._replace(obs=prepare(steps.obs), next_obs=prepare(steps.next_obs))
    before = rows.burn_in
    if before is not None:
        before = before._replace(obs=prepare(before.obs))
    return rows._replace(batch=steps, burn_in=before)


def improve(
    parts: Parts,
    restore: Any,
    learner: Learner,
    rows: Sequences,
    weight: Array,
    count: Array,
) -> tuple[Learner, Array, Metrics]:
    """Take one gradient step, and update the target network where that is due.

    Args:
        parts: Networks, environments and config; see `build`.
        restore: Function from a flat vector to the network's parameters.
        learner: Learner before the step.
        rows: Sequences of the batch, `prepared`.
        weight: `[R]` weights of the sequences.
        count: `[]` uint32, number of gradient steps before this one.

    Returns:
        Learner, TD errors `[L, R]`, and metrics.
    """
    config, axis = parts.config, parts.stepper.axis_name
    target = td_target(parts, restore, learner, rows)
    minimise = jax.grad(partial(loss, parts, restore), has_aux=True)
    grads, (td_error, metrics) = minimise(learner.params, rows, target, weight)
    grads, metrics = pmean((grads, metrics), axis)
    optim = make_optimiser(config, restore, count)
    updates, opt_state = optim.update(grads, learner.opt_state, learner.params)
    params: Any = optax.apply_updates(learner.params, updates)
    metrics["grad_norm"] = optimiser.grad_norm(opt_state)
    due = (count + 1) % config.target_update_interval == 0
    target_params = optimiser.polyak(
        learner.target_params, params, jnp.where(due, config.tau, 0.0)
    )
    new = Learner(params, target_params, opt_state, learner.priorities)
    return new, td_error, metrics


def td_target(parts: Parts, restore: Any, learner: Learner, rows: Sequences) -> Array:
    """Return what the values of the actions are to become, `[L, R]`.

    Args:
        parts: Networks, environments and config; see `build`.
        restore: Function from a flat vector to the network's parameters.
        learner: Online and target network, as flat vectors.
        rows: Sequences of the batch, `prepared`.
    """
    config = parts.config
    steps = jax.tree.map(swap, rows.batch)

    def following(flat: Array) -> Array:
        """The values of the observations after each step, before any reset."""
        params = restore(flat)
        memories = sequences.remember_each(parts.core, parts.kind, params["core"], rows)
        return values(parts, params, steps.next_obs, memories)[0]

    slow = following(learner.target_params)
    chooser = following(learner.params) if config.double else slow
    best = jnp.argmax(chooser, -1)[..., None]
    value = jnp.take_along_axis(slow, best, -1)[..., 0]
    if config.value_rescaling:
        value = two_hot.unsqueeze(value)
    target = returns.n_step(
        steps.reward,
        value,
        steps.terminated,
        steps.truncated,
        gamma=config.gamma,
        n=config.n_step,
    )
    return two_hot.squeeze(target) if config.value_rescaling else target


def loss(
    parts: Parts,
    restore: Any,
    params: Array,
    rows: Sequences,
    target: Array,
    weight: Array,
) -> tuple[Array, tuple[Array, Metrics]]:
    """Return the scalar loss of a batch of sequences, its TD errors and metrics.

    Args:
        parts: Networks, environments and config; see `build`.
        restore: Function from a flat vector to the network's parameters.
        params: Parameters of the online network, as a flat vector.
        rows: Sequences of the batch, `prepared`.
        target: `[L, R]` targets of the values.
        weight: `[R]` weights of the sequences.
    """
    nets = restore(params)
    obs, memories = sequences.remember(parts.core, parts.kind, nets["core"], rows)
    q: Any = parts.head.apply(nets["q"], seen(parts, memories, obs))
    action = swap(rows.batch.action)[..., None]
    value = jnp.take_along_axis(q, action, -1)[..., 0]
    flat = value.reshape(-1)
    errors = value_error(parts.config.value_loss, flat, target.reshape(-1))
    total = (weight * errors.reshape(target.shape).mean(0)).mean()
    return total, (target - value, {"value_loss": total, "q_value": value.mean()})


def report(
    parts: Parts, update: Array, episodes: rollout.Episodes, sums: Metrics
) -> Metrics:
    """Return what there is to say about an update.

    Args:
        parts: Networks, environments and config; see `build`.
        update: `[]` int32, number of updates before it.
        episodes: Ends of its episodes.
        sums: Sums of the metrics of its gradient steps.
    """
    config, axis = parts.config, parts.stepper.axis_name
    done = update + 1
    end = config.gradient_steps_before(done)
    taken = end - config.gradient_steps_before(update)
    losses = averages(sums, {"gradient_steps": taken})
    # Averages over devices must come one after another: see `collectives`.
    episodes = after(episodes, losses["value_loss"], axis)
    return {
        "env_steps": done.astype(jnp.uint32) * jnp.uint32(config.steps_per_update),
        "gradient_steps": end,
        **rollout.episode_metrics(episodes, axis),
        **losses,
    }


def make_optimiser(
    config: RecurrentDQNConfig, restore: Any, count: Array | int = 0
) -> optax.GradientTransformation:
    """Return the optimiser of a flat vector of parameters, which clips their gradient.

    Args:
        config: Config of the agent; its leaves may be traced.
        restore: Function from a flat vector to the network's parameters.
        count: Number of gradient steps before this one, for the step size.
    """
    rate: Any = config.learning_rate
    if config.anneal_learning_rate:
        rate = optimiser.annealed(rate, jnp.asarray(count), config.total_gradient_steps)
    return optimiser.make(
        config.optimiser,
        rate,
        config.max_grad_norm,
        restore,
        frozen_in(config.frozen),
    )
