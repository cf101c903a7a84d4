"""The loop of every off-policy algorithm: act, store, learn, at fixed ratios.

An update is `rounds_per_update` rounds. In each, every environment takes `num_steps`
steps with the exploring policy, the transitions go into the replay buffer, and then
`gradient_steps` gradient steps are taken on batches sampled from it. What is due when
follows from the number of the round, one number that all vmapped agents share: the
warm-up ends by a branch that stays a branch, and no agent waits for another.

All that is random in an update is drawn before its rounds, in wide kernels.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl.accelerator import packing
from purerl.acting import observe, rollout
from purerl.acting.bad import is_bad
from purerl.acting.exploration import valid_action
from purerl.acting.observe import to_features
from purerl.algorithms.off_policy_config import OffPolicyConfig as OffPolicyConfig
from purerl.algorithms.off_policy_config import validate as validate
from purerl.keys import several
from purerl.learning.branches import StepCount, change_if, change_where
from purerl.learning.collectives import after
from purerl.metrics import averages
from purerl.replay import uniform as ring
from purerl.replay.batches import Batch as Batch
from purerl.replay.batches import Item as Item
from purerl.replay.batches import Replay as Replay
from purerl.replay.batches import replay_of as replay_of
from purerl.replay.batches import uniform as uniform
from purerl.replay.rows import items_of, rows_of
from purerl.tracing import traced_for_cpu
from purerl.types import Array, Metrics, PyTree, Transition

# The most gradient steps of a round that are unrolled on an accelerator, whose program
# then knows which of them move the policy, and needs no branch.
MOST_UNROLLED = 4


class OffPolicyHooks(NamedTuple):
    """The functions and numbers that an algorithm gives to the off-policy loop.

    Attributes:
        config: The numbers.
        stepper: The environments.
        obs_space: Observation space of the environment.
        replay: Functions that sample batches.
        draw_action: `(key, shape) -> noise [*shape, ...]` of exploring actions.
        explore: `(learner, features [B, ...], noise [B, ...], env_step [B]) ->
            action [B, ...]`, as it is stored.
        random_action: `(key, shape) -> actions [*shape, ...]` of the warm-up, as they
            are stored, or what `exploration.valid_action` makes them.
        to_env: Function from the stored action to the action that the environment
            takes.
        draw_learning: `(key, shape) -> noise [*shape, ...]` of gradient steps;
            `jax.random.split` for those that draw their own.
        learn: `(learner, batch, noise, count) -> (learner, td_error [N], metrics)`,
            one gradient step; `count` says where the step stands among all. A metric of
            the policy is 0 where the policy took no step.
        policy_delay: Gradient steps per step of the policy, the last of which moves
            it; None for an algorithm whose metrics are all of every gradient step.
        draw_shared: `(key, shape) -> choices [*shape, ...]` of gradient steps that all
            devices make alike; the noise of `learn` is then a pair, these second.
    """

    config: OffPolicyConfig
    stepper: rollout.Stepper
    obs_space: Any
    replay: Replay
    draw_action: rollout.Draw
    explore: Callable[[Any, Any, PyTree, Array], Array]
    random_action: rollout.Draw
    to_env: Callable[[Array], Array]
    draw_learning: rollout.Draw
    learn: Callable[[Any, Batch, PyTree, StepCount], tuple[Any, Array, Metrics]]
    policy_delay: int | None = None
    draw_shared: rollout.Draw | None = None


class Experience(NamedTuple):
    """The replay buffer and the environments, which the loop carries with the learner.

    Between two updates every leaf either has an axis of environments, along which
    devices share it, or is the same on all devices. Inside an update a device has a
    buffer and priorities of its own.

    Attributes:
        buffer: `Item` with leaves `[C / B, B, ...]`, inside an update `[C, ...]`.
        priorities: `batches.Kept` of the items, inside an update the sum tree; empty
            without them.
        envs: The environments between two steps.
        obs_moments: Statistics of the observations that were acted on, the same on all
            devices; empty where they are not normalised.
    """

    buffer: Item
    priorities: PyTree
    envs: rollout.EnvCarry
    obs_moments: PyTree = ()


def experience_of(state: Any) -> Experience:
    """Return what a state carries beside the learner.

    Args:
        state: State with `buffer`, `priorities`, `envs` and `obs_moments`.
    """
    return Experience(state.buffer, state.priorities, state.envs, state.obs_moments)


def init(hooks: OffPolicyHooks, key: Array) -> Experience:
    """Start environments with an empty buffer; the key is consumed."""
    config, axis = hooks.config, hooks.stepper.axis_name
    num_envs = rollout.per_device(config.num_envs, axis)
    envs = rollout.init_envs(hooks.stepper, key, num_envs)
    shapes = jax.eval_shape(partial(_example, hooks), envs)
    capacity = rollout.per_device(config.capacity, axis)
    buffer = ring.by_env(ring.init(shapes, capacity), num_envs)
    is_normalised = config.normalize_observations
    moments = observe.init_moments(hooks.obs_space) if is_normalised else ()
    return Experience(buffer, hooks.replay.init(), envs, moments)


def _example(hooks: OffPolicyHooks, envs: rollout.EnvCarry) -> Item:
    obs = jax.tree.map(lambda x: x[0], envs.obs)
    action = hooks.random_action(jax.random.key(0), ())
    flag = jnp.zeros((), bool)
    return Item(obs, action, jnp.zeros(()), obs, flag, flag)


def run(
    hooks: OffPolicyHooks,
    learner: Any,
    experience: Experience,
    key: Array,
    update: Array,
) -> tuple[Any, Experience, Metrics]:
    """Make one update: rounds of acting, storing and learning.

    Args:
        hooks: Functions and numbers of the algorithm.
        learner: The learner: everything that `hooks.learn` changes.
        experience: Experience before the update.
        key: Random key, or five: the three of a rollout (see `rollout.collect`), that
            of replay and that of learning. Consumed.
        update: `[]` int32, number of updates done; the same for all vmapped agents.

    Returns:
        Learner, experience, and metrics. Losses are means over the update's gradient
        steps (those of the policy over its `policy_steps`), undefined (NaN) where the
        count of these is 0; a NaN of a step that was taken stays one.
    """
    rounds = hooks.config.rounds_per_update
    num_envs = experience.envs.episode_return.shape[0]
    inputs, restart, noise = _draw(hooks, key, num_envs)
    experience = opened(hooks, experience)
    pack, unpack = packing.carry_packers(experience.envs, axes=1)
    experience = experience._replace(envs=pack(experience.envs))

    def one_round(carry: tuple, xs: tuple) -> tuple[tuple, Any]:
        learner, experience = carry
        experience = experience._replace(envs=unpack(experience.envs))
        number, inputs, noise = xs
        experience, episodes = _act(hooks, learner, experience, number, inputs, restart)
        (learner, priorities), metrics = learn_if_due(
            hooks, learner, experience, number, noise, key
        )
        experience = experience._replace(
            priorities=priorities, envs=pack(experience.envs)
        )
        return (learner, experience), (episodes, metrics)

    first = update.astype(jnp.uint32) * jnp.uint32(rounds)
    numbers = first + jnp.arange(rounds, dtype=jnp.uint32)
    (learner, experience), (episodes, sums) = packing.scan(
        one_round, (learner, experience), (numbers, inputs, noise)
    )
    experience = experience._replace(envs=unpack(experience.envs))
    metrics = report(hooks, first, episodes, sums)
    return learner, closed(hooks, experience, num_envs, metrics), metrics


def opened(hooks: OffPolicyHooks, experience: Experience) -> Experience:
    """Return the experience as it is inside an update."""
    return experience._replace(
        buffer=rows_of(ring.in_order(experience.buffer)),
        priorities=hooks.replay.grow(experience.priorities),
    )


def closed(
    hooks: OffPolicyHooks, experience: Experience, num_envs: int, metrics: Metrics
) -> Experience:
    """Return the experience as it is between two updates.

    Args:
        hooks: Functions and numbers of the algorithm.
        experience: Experience inside the update.
        num_envs: B, on this device.
        metrics: Metrics of the update, whose averages come first.
    """
    return experience._replace(
        buffer=ring.by_env(items_of(experience.buffer), num_envs),
        priorities=hooks.replay.keep(experience.priorities, metrics["episodes"]),
    )


def _draw(
    hooks: OffPolicyHooks, key: Array, num_envs: int
) -> tuple[PyTree, Callable, PyTree]:
    """Draw all that is random in an update: it is split into rounds, `[R, ...]`.

    Returns:
        Inputs of the steps and their restarts, see `rollout.RolloutRandomness`, and the
        noise of the gradient steps.
    """
    rounds, num_steps = hooks.config.rounds_per_update, hooks.config.num_steps
    keys = several(key, 5)
    randomness = rollout.draw_randomness(
        hooks.stepper,
        keys[:3],
        rounds * num_steps,
        num_envs,
        partial(draw_actions, hooks),
    )
    inputs = by_round(hooks, randomness.inputs)
    return inputs, randomness.restart, draw_learning(hooks, keys[3], keys[4])


def draw_actions(
    hooks: OffPolicyHooks, key: Array, shape: tuple[int, ...]
) -> tuple[PyTree, Array]:
    """Draw the noise of exploring actions and the actions of the warm-up.

    Args:
        hooks: Functions and numbers of the algorithm.
        key: Random key, consumed.
        shape: Leading axes.
    """
    key_action, key_random = jax.random.split(key)
    return hooks.draw_action(key_action, shape), hooks.random_action(key_random, shape)


def by_round(hooks: OffPolicyHooks, steps: PyTree) -> PyTree:
    """Return leaves `[R, T, ...]` of what an update's steps have, `[R * T, ...]`."""
    rounds, num_steps = hooks.config.rounds_per_update, hooks.config.num_steps
    return jax.tree.map(lambda x: x.reshape(rounds, num_steps, *x.shape[1:]), steps)


def report(
    hooks: OffPolicyHooks, first: Array, episodes: rollout.Episodes, sums: Metrics
) -> Metrics:
    """Return what there is to say about the update that began with round `first`.

    Args:
        hooks: Functions and numbers of the algorithm.
        first: `[]` uint32, number of the first round.
        episodes: Ends of the episodes, `[R, T, B]`.
        sums: Sums of the metrics of each round's gradient steps, `[R]`.
    """
    config, axis = hooks.config, hooks.stepper.axis_name
    end = first + jnp.uint32(config.rounds_per_update)
    counts = _counts(hooks, config.gradient_steps_before(first), end)
    sums = {name: values.sum(0) for name, values in sums.items()}
    losses = averages(sums, counts)
    episodes = after(episodes, next(iter(losses.values())), axis)
    return {
        "env_steps": end * jnp.uint32(config.steps_per_round),
        "gradient_steps": config.gradient_steps_before(end),
        **{name: counts[name] for name in counts if name != "gradient_steps"},
        **rollout.episode_metrics(episodes, axis),
        **losses,
    }


def _counts(hooks: OffPolicyHooks, before: Array, end: Array) -> Metrics:
    """Return the counts of what happened in an update: the weights of its averages."""
    after_it = hooks.config.gradient_steps_before(end)
    counts = {"gradient_steps": after_it - before}
    if hooks.policy_delay is not None:
        delay = jnp.uint32(hooks.policy_delay)
        counts["policy_steps"] = (after_it // delay - before // delay).astype(jnp.int32)
    return counts


def draw_learning(hooks: OffPolicyHooks, key_replay: Array, key_learn: Array) -> PyTree:
    """Draw what is random in the gradient steps of an update, `[R, G, ...]`.

    Args:
        hooks: Functions and numbers of the algorithm.
        key_replay: Random key of the batches, consumed.
        key_learn: Random key of the gradient steps, consumed.
    """
    config = hooks.config
    shape = (config.rounds_per_update, config.gradient_steps_per_round)
    axis = hooks.stepper.axis_name
    key_shared = key_learn
    if hooks.draw_shared is not None:
        key_learn, key_shared = jax.random.split(key_learn)
    if axis is not None:
        index = jax.lax.axis_index(axis)
        key_replay, key_learn = (
            jax.random.fold_in(key, index) for key in (key_replay, key_learn)
        )
    batches = hooks.replay.draw(key_replay, shape)
    noise = hooks.draw_learning(key_learn, shape)
    if hooks.draw_shared is not None:
        noise = (noise, hooks.draw_shared(key_shared, shape))
    return batches, noise


def _act(
    hooks: OffPolicyHooks,
    learner: Any,
    experience: Experience,
    number: Array,
    inputs: PyTree,
    restart: Callable,
) -> tuple[Experience, rollout.Episodes]:
    """Step every environment `num_steps` times and remember what happened."""
    num_envs = experience.envs.episode_return.shape[0]
    first = number * jnp.uint32(hooks.config.steps_per_round)
    env_steps = numbers_of_steps(hooks, first, num_envs)
    act, prepare, _ = policy(hooks, learner, experience.obs_moments)
    envs, transitions, episodes = rollout.unroll(
        hooks.stepper,
        experience.envs,
        act,
        prepare,
        ((inputs[0], env_steps), inputs[1]),
        restart,
    )
    return remember(hooks, experience, first, envs, transitions), episodes


def numbers_of_steps(hooks: OffPolicyHooks, first: Array, num_envs: int) -> Array:
    """Return the numbers of the environment steps of a round, uint32 `[T, B]`.

    Args:
        hooks: Functions and numbers of the algorithm.
        first: `[]` uint32, number of the round's first step.
        num_envs: B, on this device.
    """
    config, axis = hooks.config, hooks.stepper.axis_name
    index = jnp.arange(num_envs, dtype=jnp.uint32)
    if axis is not None:
        index = index + jax.lax.axis_index(axis).astype(jnp.uint32) * num_envs
    rows = jnp.arange(config.num_steps, dtype=jnp.uint32) * config.num_envs
    return first + rows[:, None] + index[None]


def policy(hooks: OffPolicyHooks, learner: Any, moments: PyTree = ()) -> rollout.Policy:
    """Return how actions are chosen: at random in the warm-up, then by exploring.

    A step's noise is that of `draw_actions` and the step's number.

    Args:
        hooks: Functions and numbers of the algorithm.
        learner: The learner: everything that `hooks.learn` changes.
        moments: Statistics of observations.
    """
    config = hooks.config

    def act(features: Any, noise: tuple) -> tuple[Array, PyTree, Array]:
        (noise_action, random), step = noise
        action = hooks.explore(learner, features, noise_action, step)
        # The warm-up ends at an exact step: some environments may still be in it,
        # others not.
        random = valid_action(features, random)
        warming_up = step < config.warm_up_steps
        extra = (1,) * (action.ndim - 1)
        action = jnp.where(warming_up.reshape(-1, *extra), random, action)
        return action, (), hooks.to_env(action)

    prepare = partial(observe.prepare, hooks, moments)
    return rollout.Policy(act, prepare, partial(draw_actions, hooks))


def remember(
    hooks: OffPolicyHooks,
    experience: Experience,
    first: Array,
    envs: rollout.EnvCarry,
    transitions: Transition,
) -> Experience:
    """Put the steps of a round into the buffer.

    Args:
        hooks: Functions and numbers of the algorithm.
        experience: Experience before the round.
        first: `[]` uint32, number of the round's first step.
        envs: The environments after it.
        transitions: `[T, B, ...]` transitions of the round.
    """
    config, axis = hooks.config, hooks.stepper.axis_name
    num_envs = experience.envs.episode_return.shape[0]
    items = Item(
        transitions.obs,
        transitions.action,
        transitions.reward,
        transitions.next_obs,
        transitions.terminated,
        transitions.truncated,
    )
    items = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), items)
    added = rollout.per_device(first, axis)
    buffer = ring.add(experience.buffer, items, added)
    num = config.num_steps * num_envs
    priorities = hooks.replay.add(experience.priorities, added, num)
    moments = experience.obs_moments
    if config.normalize_observations:
        # Every observation that was acted on counts once. The one after the last step
        # of an episode is stored, but it is not in the statistics.
        features = to_features(hooks.obs_space, transitions.obs)
        moments = observe.merge_moments(hooks.obs_space, moments, features, axis)
    return Experience(buffer, priorities, envs, moments)


def learn_if_due(
    hooks: OffPolicyHooks,
    learner: Any,
    experience: Experience,
    number: Array,
    noise: PyTree,
    key: Array,
) -> tuple[tuple[Any, PyTree], Metrics]:
    """Take the round's gradient steps, or nothing during the warm-up.

    Args:
        hooks: Functions and numbers of the algorithm.
        learner: The learner: everything that `hooks.learn` changes.
        experience: Experience with the round's steps in it.
        number: `[]` uint32, number of the round.
        noise: Random numbers of the round's gradient steps, `[G, ...]`.
        key: Key of the update; see `branches.change_if`.

    Returns:
        Learner and priorities, and the sums of the metrics.
    """
    config = hooks.config
    due = number >= jnp.uint32(config.first_round)
    learn = partial(_learn, hooks, experience, number, noise)
    carry = (learner, experience.priorities)
    # Priorities are as large as the buffer, so they are not computed to be thrown away.
    if traced_for_cpu() or jax.tree.leaves(experience.priorities):
        return change_if(due, learn, carry, like=key)
    return learn(carry, due)


def _learn(
    hooks: OffPolicyHooks,
    experience: Experience,
    number: Array,
    noise: PyTree,
    carry: tuple[Any, PyTree],
    is_due: Array | None = None,
) -> tuple[tuple[Any, PyTree], Metrics]:
    """Take `gradient_steps` gradient steps with learner and priorities; sum metrics.

    Args:
        hooks: What the algorithm brings.
        experience: Experience with the round's steps in it.
        number: `[]` uint32, number of the round.
        noise: What is random in the gradient steps, `[G, ...]`.
        carry: Learner and priorities.
        is_due: `[]` bool, where the steps are computed in any case: whether they count.
    """
    config, replay = hooks.config, hooks.replay
    added = (number + 1) * jnp.uint32(config.steps_per_round)
    added = rollout.per_device(added, hooks.stepper.axis_name)
    before = config.gradient_steps_before(number)

    def take(learner: Any, batch: Batch, noise: PyTree, index: Any) -> Any:
        known = int(index) if isinstance(index, np.integer) else None
        count = StepCount(before + index, config.gradient_steps_per_round, known)
        learner, td_error, metrics = hooks.learn(learner, batch, noise, count)
        return learner, (td_error, metrics)

    def one_step(carry: tuple, xs: tuple) -> tuple[tuple, Metrics]:
        learner, priorities = carry
        index, (noise_replay, noise_learn) = xs
        numbers, weight = replay.sample(priorities, noise_replay, added)
        batch = _batch(hooks, experience, numbers, weight)
        change = partial(take, batch=batch, noise=noise_learn, index=index)
        if is_due is None:
            learner, (td_error, metrics) = change(learner)
        else:
            # The choice is made in each step, not around all of them, so that the
            # optimiser's kernels make it.
            learner, (td_error, metrics) = change_where(is_due, change, learner)
        priorities = replay.update(priorities, numbers, td_error)
        return (learner, priorities), metrics

    steps = config.gradient_steps_per_round
    if is_due is None or steps > MOST_UNROLLED:
        indices = jnp.arange(steps, dtype=jnp.uint32)
        carry, metrics = packing.scan(one_step, carry, (indices, noise))
    else:
        indices = np.arange(steps, dtype=np.uint32)
        carry, metrics = packing.scan_unrolled(one_step, carry, (indices, noise))
    return carry, {name: values.sum(0) for name, values in metrics.items()}


def _batch(
    hooks: OffPolicyHooks, experience: Experience, numbers: Array, weight: Array
) -> Batch:
    """The items with these numbers `[N]` as a gradient step learns from them."""
    features = partial(observe.prepare, hooks, experience.obs_moments)
    gathered = hooks.replay.gather(experience.buffer, numbers)
    item, reward, next_obs, discount = gathered
    weight = jnp.where(is_bad(item), 0.0, weight)
    return Batch(
        obs=features(item.obs),
        action=item.action,
        reward=reward,
        next_obs=features(next_obs),
        discount=discount,
        weight=weight,
    )
