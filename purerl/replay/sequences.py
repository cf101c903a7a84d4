"""Replay of sequences, each with a stored memory (R2D2; Kapturowski et al. 2019).

An item of the buffer is what an environment did in the `L` steps of one round, so that
item `i + B` has the next steps of the environment of item `i`. A memory that was stored
when the steps were played stands at the beginning of a sequence. With a burn-in of `N`
steps the sequence that is learned from is item `i + B`, and the last `N` steps of item
`i` come before it: every step is learned from, and no observation is stored twice for
the sake of the burn-in.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from purerl.acting import rollout
from purerl.learning.sequences import BurnIn, Sequences, swap
from purerl.replay import uniform as ring
from purerl.replay.batches import Item, Replay, Sizes, make_replay
from purerl.types import Array, PyTree, Transition


class Stored(NamedTuple):
    """A stored sequence: the steps of an environment in a round, and a memory.

    Attributes:
        memory: Memory `[...]` before the last `N` of the steps, from where a burn-in
            begins, or before the first of them where there is no burn-in.
        steps: The steps, leaves `[L, ...]`.
    """

    memory: PyTree
    steps: Item


def replay_of(config: Any, axis_name: str | None) -> Replay:
    """Make the replay of sequences that a config asks for: uniform, or prioritised.

    Its `gather` is `(buffer, numbers [N]) -> Sequences` with rows of `Item`s.

    Args:
        config: Config with `num_envs`, `capacity` (in sequences), `batch_size`,
            `sequence_length`, `burn_in`, and `prioritised` with its exponents.
        axis_name: Mapped axis over which environments are spread, if any.
    """
    total = config.total_timesteps // config.sequence_length
    num_envs, capacity, batch_size, total = (
        rollout.per_device(n, axis_name)
        for n in (config.num_envs, config.capacity, config.batch_size, total)
    )
    # The steps that follow the newest items are not in the buffer yet.
    margin = num_envs if config.burn_in else 0
    sizes = Sizes(num_envs, capacity, batch_size, margin, total, axis_name)
    return make_replay(config, sizes, partial(gather, config.burn_in, num_envs))


def store(
    memory: PyTree, memories: PyTree, transitions: Transition, burn_in: int
) -> Stored:
    """Return what the buffer keeps of a round, leaves `[B, ...]`.

    Args:
        memory: Memory `[B, ...]` before the round.
        memories: Memories `[L, B, ...]` on which the actions were chosen.
        transitions: Steps `[L, B, ...]`.
        burn_in: N, at most L; 0 for none.
    """
    begin = transitions.reward.shape[0] - burn_in if burn_in else 0
    if begin:
        memory = jax.tree.map(lambda x: x[begin - 1], memories)
    steps = Item(*(getattr(transitions, name) for name in Item._fields))
    return Stored(memory, jax.tree.map(swap, steps))


def gather(burn_in: int, num_envs: int, buffer: Stored, numbers: Array) -> Sequences:
    """Return sequences by number, rows `[R, L, ...]` of `Item`s.

    Args:
        burn_in: N, at most L; 0 for none.
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
    steps: Any = ring.gather(buffer.steps, numbers + jnp.uint32(num_envs))
    begin = first.shape[1] - burn_in
    obs = jax.tree.map(lambda x: x[:, begin:], found.steps.obs)
    before = BurnIn(obs, first[:, begin:], jnp.ones(numbers.shape, bool))
    ends = (steps.terminated | steps.truncated)[:, :-1]
    first = jnp.concatenate([ended[:, -1:], ends], 1)
    return Sequences(found.memory, first, steps, before)


def priority(td_error: Array, eta: Array | float) -> Array:
    """Return the priorities of sequences, `[R]` (Kapturowski et al. 2019, section 2.3).

        p = eta max_t |delta_t| + (1 - eta) mean_t |delta_t|

    Args:
        td_error: `[L, R]` TD errors of either sign.
        eta: Weight of the largest one.
    """
    size = jnp.abs(td_error)
    return eta * size.max(0) + (1.0 - eta) * size.mean(0)
