"""Rollouts cut into sequences that a memory is trained on, each from a stored memory.

Axes: `T` steps of a rollout, `B` environments, `L` steps of a sequence, `R = B * T / L`
sequences.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from purerl.accelerator.kernels import forget
from purerl.types import Array, PyTree


class BurnIn(NamedTuple):
    """The steps before a sequence, which only bring its memory up to date.

    Attributes:
        obs: `[R, N, ...]` prepared observations of N steps.
        first: `[R, N]` bool, the observation begins an episode.
        exists: `[R]` bool; false where the sequence begins with its rollout.
    """

    obs: PyTree
    first: Array
    exists: Array


class Sequences(NamedTuple):
    """Sequences to learn from, one row each.

    Attributes:
        memory: Memory before the first observation, of the burn-in where there is one,
            leaves `[R, ...]`.
        first: `[R, L]` bool, the observation is the first of an episode that began
            within the rollout.
        batch: `[R, L, ...]` steps to learn from.
        burn_in: The steps before; None without burn-in.
    """

    memory: PyTree
    first: Array
    batch: Any
    burn_in: BurnIn | None = None


def swap(x: Array) -> Array:
    """Return `[T, B, ...]` as `[B, T, ...]`, and back."""
    return jnp.swapaxes(x, 0, 1)


def flatten(tree: Any) -> Any:
    """Return leaves `[T, B, ...]`, or `[B, T, ...]`, as one row `[N, ...]`."""
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), tree)


def first_of(done: Array) -> Array:
    """Return which observations of a rollout begin an episode, `[T, B]` bool.

    The flag of a step says it of the observation that follows. That of the last step of
    the rollout before has cleared the memory with which this one begins already.

    Args:
        done: `[T, B]` bool, the step ended an episode.
    """
    return jnp.concatenate([jnp.zeros_like(done[:1]), done[:-1]])


def whole(memory: PyTree, first: Array, batch: PyTree) -> Sequences:
    """Return whole rollouts as sequences, one for each environment.

    Args:
        memory: Memory `[B, ...]` before the rollout.
        first: `[T, B]` bool, the observation begins an episode.
        batch: Samples `[T, B, ...]`.
    """
    return Sequences(memory, *jax.tree.map(swap, (first, batch)))


def cut(
    memory: PyTree,
    memories: PyTree,
    first: Array,
    batch: Any,
    length: int,
    burn_in: int,
) -> Sequences:
    """Cut rollouts into sequences, each from the memory that was stored before it.

    Sequence `k` of an environment has the steps from `k L` on. Its stored memory is
    that of `burn_in` steps earlier (Kapturowski et al. 2019, section 3), but for the
    first sequence of a rollout, before which there is nothing.

    Args:
        memory: Memory `[B, ...]` before the rollout.
        memories: Memories `[T, B, ...]` after each of its observations.
        first: `[T, B]` bool, the observation begins an episode.
        batch: Samples `[T, B, ...]`, with the field `obs`.
        length: L, which divides T.
        burn_in: N, at most L; 0 for none.
    """
    numbers = range(first.shape[0] // length)
    begins = [max(0, k * length - burn_in) for k in numbers]

    def rows(x: Array) -> Array:
        """`[T, B, ...]` as `[R, L, ...]`."""
        pieces = swap(x).reshape(x.shape[1], -1, length, *x.shape[2:])
        return pieces.reshape(-1, *pieces.shape[2:])

    def starts(before: Array, after: Array) -> Array:
        """The memories before some steps, `[R, ...]`."""
        found = [before if t == 0 else after[t - 1] for t in begins]
        return jnp.stack(found, 1).reshape(-1, *before.shape[1:])

    def earlier(x: Array) -> Array:
        """The steps of the burn-ins, `[R, N, ...]`."""
        found = [swap(x[t : t + burn_in]) for t in begins]
        return jnp.stack(found, 1).reshape(-1, burn_in, *x.shape[2:])

    sequences = Sequences(
        jax.tree.map(starts, memory, memories), *jax.tree.map(rows, (first, batch))
    )
    if not burn_in:
        return sequences
    exists = jnp.tile(jnp.arange(len(numbers)) > 0, first.shape[1])
    obs, resets = jax.tree.map(earlier, (batch.obs, first))
    return sequences._replace(burn_in=BurnIn(obs, resets, exists))


def start(core: Any, kind: Any, params: PyTree, rows: Sequences) -> PyTree:
    """Return the memories `[R, ...]` with which sequences begin.

    After a burn-in these are those of the given parameters, and a function of them.
    """
    stored, burn_in = rows.memory, rows.burn_in
    if burn_in is None:
        return stored
    obs, first = jax.tree.map(swap, (burn_in.obs, burn_in.first))
    after = kind.last(core.apply(params, obs, stored, first, method="unroll"))

    def pick(burned: Array, kept: Array) -> Array:
        exists = burn_in.exists.reshape(-1, *[1] * (kept.ndim - 1))
        return jnp.where(exists, burned, kept)

    return jax.tree.map(pick, after, stored)


def remember(core: Any, kind: Any, params: PyTree, rows: Sequences) -> Any:
    """Run a memory over sequences, each from where it begins.

    No gradient goes through a burn-in.

    Returns:
        Memories with each of the observations, `[L, R, ...]`.
    """
    obs, first = jax.tree.map(swap, (rows.batch.obs, rows.first))
    memory = _constant_start(core, kind, params, rows)
    return core.apply(params, obs, memory, first, method="unroll")


def remember_each(core: Any, kind: Any, params: PyTree, rows: Sequences) -> PyTree:
    """Run a memory over sequences step by step, and keep the whole of it after each.

    The memories of `remember` are what heads see of them; these can be gone on with,
    each by an observation that follows its step.

    Returns:
        Memories `[L, R, ...]`, none of which the end of its step has cleared.
    """

    def step(memory: PyTree, xs: tuple[PyTree, Array]) -> tuple[PyTree, PyTree]:
        obs, first = xs
        memory = core.apply(params, obs, forget(memory, first))
        return memory, memory

    memory = _constant_start(core, kind, params, rows)
    inputs = jax.tree.map(swap, (rows.batch.obs, rows.first))
    return jax.lax.scan(step, memory, inputs)[1]


def _constant_start(core: Any, kind: Any, params: PyTree, rows: Sequences) -> PyTree:
    """The memories with which sequences begin; those after a burn-in are constants."""
    memory = start(core, kind, params, rows)
    return memory if rows.burn_in is None else jax.lax.stop_gradient(memory)
