"""Items of replay, steps or sequences, and how batches are drawn of them.

This is the only place that turns stored steps into the parts of targets, so that every
algorithm treats time limits alike: a time limit ends a window of steps and leaves the
discount, and only termination makes the discount zero.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from purerl.acting import rollout
from purerl.acting.rollout import Transition, is_bad
from purerl.learning.averages import after, pmax
from purerl.learning.sequences import BurnIn, Sequences, flatten, swap
from purerl.replay import prioritised as sum_tree
from purerl.replay import uniform as ring
from purerl.types import Array, PyTree

Prepare = Callable[[Any], Any]  # From stored observations to what networks see.


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


class Stored(NamedTuple):
    """One stored sequence: what an environment did in the `L` steps of a round.

    Attributes:
        memory: Memory `[...]` before the last `burn_in` of the steps, or before the
            first of them without a burn-in.
        steps: The steps, leaves `[L, ...]`.
    """

    memory: PyTree
    steps: Item


class Batch(NamedTuple):
    """The samples of a gradient step, `[N, ...]` each.

    The target of every algorithm is `reward + discount * V(next_obs)`.

    Attributes:
        obs: Features of the observation.
        action: Action as stored.
        reward: Reward of the step, or the discounted sum of n steps.
        next_obs: Features of the observation after the last of these steps.
        discount: `gamma^m` of the m <= n steps, or 0 where the episode terminated.
        weight: Weight of the sample in the loss: 1 without priorities, and 0 of a bad
            transition (`acting.rollout`), whatever its other numbers are.
    """

    obs: Array
    action: Array
    reward: Array
    next_obs: Array
    discount: Array
    weight: Array


class Kept(NamedTuple):
    """Priorities between two updates: what the sum tree is grown from.

    The trees of several devices are no parts of one tree, but their leaves are.

    Attributes:
        p: `[C / B, B]` float32, the `p` of every slot, see `prioritised.Priorities`.
        largest: `[]` float32, the largest so far on any device.
    """

    p: Array
    largest: Array


class Replay(NamedTuple):
    """The functions of a replay: of steps or sequences, uniform or prioritised.

    Attributes:
        store: `(memory, memories, transitions) -> items [M, ...]`, what the buffer
            keeps of a round `[T, B, ...]`; `memory` is the one before the round.
        batch: `(buffer, numbers [N], weight [N], prepare) -> batch`: a `Batch`, or of
            sequences a pair of `Sequences` and their weights.
        draw: `(key, shape) -> noise [*shape, N]` of batches.
        sample: `(priorities, noise, added) -> (numbers, weights)` of a batch, where
            `added` items came before.
        init: `() -> kept`, what is kept of priorities between two updates.
        grow: `(kept) -> priorities`, a pytree that `add` and `update` change.
        keep: `(priorities, anchor) -> kept`, not before the number `anchor` is known.
        add: `(priorities, added, num) -> priorities` after `num` items came.
        update: `(priorities, numbers, td_error) -> priorities` after a gradient step.
    """

    store: Callable[[PyTree, PyTree, Transition], PyTree]
    batch: Callable[[PyTree, Array, Array, Prepare], Any]
    draw: Callable[[Array, tuple[int, ...]], PyTree]
    sample: Callable[[PyTree, PyTree, Array], tuple[Array, Array]]
    init: Callable[[], PyTree] = lambda: ()
    grow: Callable[[PyTree], PyTree] = lambda kept: kept
    keep: Callable[[PyTree, Array], PyTree] = lambda priorities, anchor: priorities
    add: Callable[[PyTree, Array, int], PyTree] = lambda priorities, *_: priorities
    update: Callable[[PyTree, Array, Array], PyTree] = lambda priorities, *_: priorities


def of_steps(config: Any, axis_name: str | None) -> Replay:
    """Make the replay of single steps of an `OffPolicyConfig`."""
    num_envs = rollout.per_device(config.num_envs, axis_name)
    gather = partial(step_batch, config.gamma, config.n_step, num_envs)
    total, margin = config.total_timesteps, config.n_step - 1
    return make_replay(config, axis_name, store_steps, gather, total, margin)


def of_sequences(config: Any, axis_name: str | None) -> Replay:
    """Make the replay of the sequences that a memory learns from.

    Item `i + B` has the next steps of the environment of item `i`. With a burn-in of
    `N` steps the sequence that is learned from is item `i + B`, and the last `N` steps
    of item `i` come before it: every step is learned from, and no observation is stored
    twice for the sake of the burn-in (R2D2; Kapturowski et al. 2019).
    """
    # The steps that follow the newest items are not in the buffer yet.
    margin = 1 if config.burn_in else 0
    total = config.total_timesteps // config.sequence_length
    num_envs = rollout.per_device(config.num_envs, axis_name)
    store = partial(store_sequences, burn_in=config.burn_in)

    def batch(buffer: Stored, numbers: Array, weight: Array, prepare: Prepare) -> Any:
        rows = gather_sequences(config.burn_in, num_envs, buffer, numbers)
        return prepared(prepare, rows), weight

    return make_replay(config, axis_name, store, batch, total, margin)


def make_replay(
    config: Any,
    axis_name: str | None,
    store: Callable[..., Any],
    batch: Callable[..., Any],
    total: int,
    margin: int,
) -> Replay:
    """Make a replay of items of any kind.

    With `prioritised`, items are drawn in proportion to their last TD error. The
    importance exponent grows linearly to 1 over the run, as in Schaul et al. (2016,
    section 3.4). On several devices each draws from its own items and weighs them among
    themselves; the largest priority is shared at the end of every update.

    Args:
        axis_name: Mapped axis over which environments are spread, if any.
        store: See `Replay`.
        batch: See `Replay`.
        total: Number of items that come in the whole run.
        margin: Number of each environment's newest items, which cannot be drawn yet.
    """
    num_envs, capacity, batch_size, total = (
        rollout.per_device(number, axis_name)
        for number in (config.num_envs, config.capacity, config.items_per_batch, total)
    )
    margin = margin * num_envs

    def draw(key: Array, shape: tuple[int, ...]) -> Array:
        return jax.random.bits(key, (*shape, batch_size))

    def sample_uniform(_: PyTree, bits: Array, added: Array) -> tuple[Array, Array]:
        numbers = ring.sample(bits, added, capacity, margin)
        return numbers, jnp.ones(numbers.shape)

    if not getattr(config, "prioritised", False):
        return Replay(store, batch, draw, sample_uniform)

    def sample(priorities: PyTree, bits: Array, added: Array) -> tuple[Array, Array]:
        drawn = sum_tree.sample(priorities, bits, added, capacity)
        progress = jnp.minimum(added.astype(jnp.float32) / total, 1.0)
        first = config.importance_exponent
        beta = first + (1.0 - first) * progress
        weight = sum_tree.importance_weights(drawn.probability, beta)
        return drawn.numbers, weight

    def init() -> Kept:
        return Kept(jnp.zeros((capacity // num_envs, num_envs)), jnp.float32(1))

    def keep(priorities: sum_tree.Priorities, anchor: Array) -> Kept:
        leaves = sum_tree.leaves_of(priorities, capacity)
        largest = pmax(after(priorities.largest, anchor, axis_name), axis_name)
        return Kept(ring.by_env(leaves, num_envs), largest)

    exponent = config.priority_exponent
    return Replay(
        store,
        batch,
        draw,
        sample,
        init=init,
        grow=lambda kept: sum_tree.grow(kept.p.reshape(-1), kept.largest),
        keep=keep,
        add=partial(sum_tree.add, capacity=capacity, margin=margin),
        update=partial(sum_tree.update, capacity=capacity, exponent=exponent),
    )


def store_steps(memory: PyTree, memories: PyTree, transitions: Transition) -> Item:
    """Return the steps `[T * B, ...]` of a round, every environment's one by one."""
    del memory, memories
    return flatten(_items(transitions))


def store_sequences(
    memory: PyTree, memories: PyTree, transitions: Transition, burn_in: int
) -> Stored:
    """Return the sequences `[B, ...]` of a round; `burn_in` is at most its length."""
    begin = transitions.reward.shape[0] - burn_in if burn_in else 0
    if begin:
        memory = jax.tree.map(lambda x: x[begin - 1], memories)
    return Stored(memory, jax.tree.map(swap, _items(transitions)))


def _items(transitions: Transition) -> Item:
    return Item(*(getattr(transitions, name) for name in Item._fields))


def step_batch(
    gamma: Array | float,
    n_step: int,
    num_envs: int,
    buffer: Item,
    numbers: Array,
    weight: Array,
    prepare: Prepare,
) -> Batch:
    """Return steps as a gradient step learns from them, each with those that follow.

    Args:
        gamma: Discount of a step.
        n_step: Number of steps whose rewards are summed.
        num_envs: Number of environments on this device.
        buffer: Items with leaves `[C, ...]`.
        numbers: `[N]` uint32, numbers of the first items.
        weight: `[N]` weights of the samples.
        prepare: Function from stored observations to what networks see.
    """
    window = ring.gather_n_step(buffer, numbers, n_step, num_envs, gamma)
    return Batch(
        obs=prepare(window.first.obs),
        action=window.first.action,
        reward=window.reward,
        next_obs=prepare(window.next_obs),
        discount=jnp.where(window.terminated, 0.0, window.discount),
        weight=jnp.where(is_bad(window.first), 0.0, weight),
    )


def gather_sequences(
    burn_in: int, num_envs: int, buffer: Stored, numbers: Array
) -> Sequences:
    """Return sequences by number, rows `[R, L, ...]` of `Item`s.

    Args:
        burn_in: Steps before a sequence, at most L; 0 for none.
        num_envs: B, on this device.
        buffer: Buffer with leaves `[C, ...]`.
        numbers: `[R]` uint32; with a burn-in those of the items before the sequences,
            none of the newest B.
    """
    found: Any = ring.gather(buffer, numbers)
    ended = found.steps.terminated | found.steps.truncated
    # The flag of a step clears the memory before the next step. The memory before a
    # round's first step has been cleared already.
    first = jnp.concatenate([jnp.zeros_like(ended[:, :1]), ended[:, :-1]], 1)
    if not burn_in:
        return Sequences(found.memory, first, found.steps)
    steps: Any = ring.gather(buffer, numbers + jnp.uint32(num_envs)).steps
    begin = first.shape[1] - burn_in
    obs = jax.tree.map(lambda x: x[:, begin:], found.steps.obs)
    before = BurnIn(obs, first[:, begin:], jnp.ones(numbers.shape, bool))
    ends = (steps.terminated | steps.truncated)[:, :-1]
    first = jnp.concatenate([ended[:, -1:], ends], 1)
    return Sequences(found.memory, first, steps, before)


def prepared(prepare: Prepare, rows: Sequences) -> Sequences:
    """Return sequences whose observations are what networks see."""
    steps = rows.batch
    steps = steps._replace(obs=prepare(steps.obs), next_obs=prepare(steps.next_obs))
    before = rows.burn_in
    if before is not None:
        before = before._replace(obs=prepare(before.obs))
    return rows._replace(batch=steps, burn_in=before)


def cut_newest(buffer: Any, added: Array) -> Any:
    """Return a buffer `[C / B, B, ...]` whose newest steps have been cut.

    Where all episodes begin anew, no return and no burn-in then goes on from an episode
    to the next.

    Args:
        buffer: Steps or sequences.
        added: `[]` integer, items that every environment has added.
    """
    steps = buffer.steps if isinstance(buffer, Stored) else buffer
    last = (..., -1) if isinstance(buffer, Stored) else ...
    rows = steps.truncated.shape[0]
    newest = jnp.where(added > 0, (added + rows - 1) % rows, rows).astype(jnp.int32)
    is_newest = (jnp.arange(rows) == newest)[:, None] & ~steps.terminated[last]
    truncated = steps.truncated.at[last].set(steps.truncated[last] | is_newest)
    steps = steps._replace(truncated=truncated)
    return buffer._replace(steps=steps) if isinstance(buffer, Stored) else steps


def sequence_priority(td_error: Array, eta: Array | float) -> Array:
    """Return the priorities of sequences, `[R]` (Kapturowski et al. 2019, section 2.3).

        p = eta max_t |delta_t| + (1 - eta) mean_t |delta_t|

    Args:
        td_error: `[L, R]` TD errors of either sign.
        eta: Weight of the largest one.
    """
    size = jnp.abs(td_error)
    return eta * size.max(0) + (1.0 - eta) * size.mean(0)
