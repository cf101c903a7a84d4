"""The items of off-policy algorithms' buffers, and how batches are drawn of them.

The only place that turns single stored steps into targets' parts, so that a time limit
is treated alike by every algorithm that learns from these: it ends a window and
leaves the discount, and only termination makes the discount zero.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from purerl.acting import rollout
from purerl.learning.collectives import after, pmax
from purerl.replay import prioritised as sum_tree
from purerl.replay import uniform as ring
from purerl.types import Array, PyTree


class Item(NamedTuple):
    """One stored step, in the dtypes of the environment.

    Attributes:
        obs: Observation on which the action was chosen.
        action: Action as the algorithm stores it.
        reward: Reward of the step.
        next_obs: Observation after the step and *before* any reset.
        terminated: The episode ended in a state of value zero.
        truncated: The episode was cut.
    """

    obs: Array
    action: Array
    reward: Array
    next_obs: Array
    terminated: Array
    truncated: Array


class Batch(NamedTuple):
    """The samples of a gradient step, `[N, ...]` each.

    The target of every algorithm is `reward + discount * V(next_obs)`. A time limit
    leaves the discount as it is, and termination makes it zero.

    Attributes:
        obs: Features of the observation.
        action: Action as stored.
        reward: Reward of the step, or the discounted sum of n steps.
        next_obs: Features of the observation after the last of these steps.
        discount: `gamma^m` of the m <= n steps, or 0 where the episode terminated.
        weight: Weight of the sample in the loss: 1 without priorities, and 0 of a bad
            transition (`acting.bad`), whatever its other numbers are.
    """

    obs: Array
    action: Array
    reward: Array
    next_obs: Array
    discount: Array
    weight: Array


class Kept(NamedTuple):
    """Priorities between two updates: what the sum tree is grown from.

    The depth and the sums of a tree depend on how many slots it has, so that the trees
    of several devices are no parts of one tree. Their leaves are.

    Attributes:
        p: `[C / B, B]` float32, the `p` of every slot, see `prioritised.Priorities`.
        largest: `[]` float32, the largest so far on any device.
    """

    p: Array
    largest: Array


class Replay(NamedTuple):
    """The functions that sample batches, uniformly or by priority.

    Attributes:
        init: `() -> kept`, what is kept of the priorities between two updates.
        grow: `(kept) -> priorities`, a pytree that `add` and `update` change.
        keep: `(priorities, anchor) -> kept`, not before the number `anchor` is known.
        add: `(priorities, added, num) -> priorities` after `num` items came.
        draw: Function that draws the noise of batches, `(key, shape) -> noise [*shape,
            N]`.
        sample: Function that samples items, `(priorities, noise, added) -> (numbers,
            weights)`.
        update: Function that sets new priorities, `(priorities, numbers, td_error) ->
            priorities`.
        gather: `(buffer, numbers) -> (item, reward, next_obs, discount)`, or what else
            a gradient step takes.
    """

    init: Callable[[], PyTree]
    grow: Callable[[PyTree], PyTree]
    keep: Callable[[PyTree, Array], PyTree]
    add: Callable[[PyTree, Array, int], PyTree]
    draw: Callable[[Array, tuple[int, ...]], PyTree]
    sample: Callable[[PyTree, PyTree, Array], tuple[Array, Array]]
    update: Callable[[PyTree, Array, Array], PyTree]
    gather: Callable[[PyTree, Array], Any]


class Sizes(NamedTuple):
    """The size of a replay on one device, in items.

    Attributes:
        num_envs: B, environments whose items were added in turn.
        capacity: C, the most items kept.
        batch_size: N, items of a gradient step.
        margin: Number of the newest items, which cannot be drawn yet.
        total: Number of items that come in the whole run.
        axis_name: Mapped axis over which environments are spread, if any.
    """

    num_envs: int
    capacity: int
    batch_size: int
    margin: int
    total: int
    axis_name: str | None


def uniform(config: Any, axis_name: str | None) -> Replay:
    """Make a replay from which every item is as likely as any other.

    Args:
        config: Config with sizes, steps and discount, an `OffPolicyConfig`.
        axis_name: Mapped axis over which environments are spread, if any.
    """
    return _uniform(*_of_steps(config, axis_name))


def replay_of(config: Any, axis_name: str | None) -> Replay:
    """Make the replay that a config asks for: uniform, or prioritised.

    Args:
        config: Config with `prioritised` and its exponents, an `OffPolicyConfig`.
        axis_name: Mapped axis over which environments are spread, if any.
    """
    return make_replay(config, *_of_steps(config, axis_name))


def make_replay(config: Any, sizes: Sizes, gather: Callable[..., Any]) -> Replay:
    """Make a replay of items of any kind: uniform, or prioritised.

    Args:
        config: Config with `prioritised` and its exponents.
        sizes: Sizes of the replay.
        gather: `(buffer, numbers [N]) -> ...`, what a gradient step takes.
    """
    if not config.prioritised:
        return _uniform(sizes, gather)
    return _prioritised(
        sizes,
        gather,
        priority_exponent=config.priority_exponent,
        importance_exponent=config.importance_exponent,
    )


def _of_steps(config: Any, axis_name: str | None) -> tuple[Sizes, Callable[..., Any]]:
    """This device's sizes of a replay of single steps, and how these are gathered."""
    sizes = (
        config.num_envs,
        config.capacity,
        config.batch_size,
        config.total_timesteps,
    )
    num_envs, capacity, batch, total = (rollout.per_device(n, axis_name) for n in sizes)
    margin = (config.n_step - 1) * num_envs
    taken = partial(gather, config.gamma, config.n_step, num_envs)
    return Sizes(num_envs, capacity, batch, margin, total, axis_name), taken


def _uniform(sizes: Sizes, gather: Callable[..., Any]) -> Replay:
    """A replay from which every item is as likely as any other."""

    def sample(priorities: PyTree, bits: Array, added: Array) -> tuple[Array, Array]:
        del priorities
        numbers = ring.sample(bits, added, sizes.capacity, sizes.margin)
        return numbers, jnp.ones(numbers.shape)

    return Replay(
        init=lambda: (),
        grow=lambda kept: kept,
        keep=lambda priorities, anchor: priorities,
        add=lambda priorities, added, num: priorities,
        draw=lambda key, shape: jax.random.bits(key, (*shape, sizes.batch_size)),
        sample=sample,
        update=lambda priorities, numbers, td_error: priorities,
        gather=gather,
    )


def _prioritised(
    sizes: Sizes,
    gather: Callable[..., Any],
    *,
    priority_exponent: Array | float,
    importance_exponent: Array | float,
) -> Replay:
    """A replay from which items come in proportion to their last TD error.

    The importance exponent grows linearly to 1 over the run, as in Schaul et al. (2016,
    section 3.4). On several devices each draws from its own items and weighs them among
    themselves; the largest priority is shared at the end of every update.

    Args:
        sizes: This device's sizes of the replay.
        gather: `(buffer, numbers [N]) -> ...`, what a gradient step takes.
        priority_exponent: Exponent alpha of the TD error.
        importance_exponent: Exponent beta of the importance weights at the start of the
            run.
    """
    num_envs, capacity, batch_size, margin, total, axis_name = sizes

    def sample(priorities: PyTree, bits: Array, added: Array) -> tuple[Array, Array]:
        drawn = sum_tree.sample(priorities, bits, added, capacity)
        progress = jnp.minimum(added.astype(jnp.float32) / total, 1.0)
        beta = importance_exponent + (1.0 - importance_exponent) * progress
        weight = sum_tree.importance_weights(drawn.probability, beta)
        return drawn.numbers, weight

    def init() -> Kept:
        return Kept(jnp.zeros((capacity // num_envs, num_envs)), jnp.float32(1))

    def keep(priorities: sum_tree.Priorities, anchor: Array) -> Kept:
        leaves = sum_tree.leaves_of(priorities, capacity)
        largest = pmax(after(priorities.largest, anchor, axis_name), axis_name)
        return Kept(ring.by_env(leaves, num_envs), largest)

    return Replay(
        init=init,
        grow=lambda kept: sum_tree.grow(kept.p.reshape(-1), kept.largest),
        keep=keep,
        add=partial(sum_tree.add, capacity=capacity, margin=margin),
        draw=lambda key, shape: jax.random.bits(key, (*shape, batch_size)),
        sample=sample,
        update=partial(sum_tree.update, capacity=capacity, exponent=priority_exponent),
        gather=gather,
    )


def gather(
    gamma: Array | float, n_step: int, num_envs: int, buffer: Item, numbers: Array
) -> tuple[Item, Array, Array, Array]:
    """Return items and their targets' parts: reward, next observation, discount.

    Args:
        gamma: Discount of a step.
        n_step: Number of steps whose rewards are summed.
        num_envs: Number of environments on this device.
        buffer: Items with leaves `[C, ...]`.
        numbers: `[N]` uint32, numbers of the first items.
    """
    window = ring.gather_n_step(buffer, numbers, n_step, num_envs, gamma)
    discount = jnp.where(window.terminated, 0.0, window.discount)
    return window.first, window.reward, window.next_obs, discount
