"""Bad transitions: those whose reward or observation is not a finite number.

Physics breaks now and then. One such number in a loss is the end of an agent, so a bad
transition is cut where it is made: its environment starts anew, it is counted, and it
carries both flags, `terminated` and `truncated`, which no other transition does. Its
numbers are replaced by finite ones.

A rollout that is learned from whole has other transitions in the place of the bad ones
(`replaced`); a replay buffer keeps them, with weight zero in every loss.

Of an environment whose observations are always finite (`finite_observations`) only
rewards are looked at. To look at its pictures, and to have others in their place, are
kernels in every step and a copy of the rollout.

Axes: `T` steps, `B` environments.
"""

from typing import Any

import jax
import jax.numpy as jnp

from purerl.accelerator import packing
from purerl.types import Array, PyTree, Transition


def is_bad(record: Any) -> Array:
    """Return which transitions are bad, bool, of the shape of the flags.

    Args:
        record: A `Transition`, an item of a replay buffer, or what else has both flags.
    """
    return record.terminated & record.truncated


def is_finite(*trees: PyTree) -> Array:
    """Return whether all floating-point numbers of some pytrees are finite, `[]`."""
    leaves = [
        x for x in jax.tree.leaves(trees) if jnp.issubdtype(x.dtype, jnp.floating)
    ]
    found = jnp.bool_(True)
    for leaf in leaves:
        for number in packing.numbers_of(leaf):
            found = found & jnp.isfinite(number).all()
    return found


def as_finite(tree: PyTree) -> PyTree:
    """Return a pytree with 0 in the place of numbers that are not finite."""
    return jax.tree.map(
        lambda x: (
            jnp.where(jnp.isfinite(x), x, jnp.zeros_like(x))
            if jnp.issubdtype(x.dtype, jnp.floating)
            else x
        ),
        tree,
    )


def replaced(
    transitions: Transition, memories: PyTree = (), finite_observations: bool = False
) -> tuple[Transition, PyTree]:
    """Put other transitions of a rollout in the place of the bad ones.

    The step before a bad one is truncated: what follows its observation is unknown. The
    place of the bad one takes the next step of its environment, which begins an
    episode; where that is bad too, the same step of an environment beside it, or the
    step before. It counts as an episode of one step. Where all of these are bad, an
    episode of one step remains that earned nothing.

    Args:
        transitions: `[T, B, ...]` transitions, flags of bad ones both true.
        memories: Memories `[T, B, ...]` on which the actions were chosen.
        finite_observations: Whether only rewards can be bad; then a bad transition
            stays, as a truncated step that earned nothing.

    Returns:
        Transitions of which none is bad, and the memories that belong to them.
    """
    bad = is_bad(transitions)
    if finite_observations:
        return transitions._replace(terminated=transitions.terminated & ~bad), memories
    good = ~bad
    # By rolling alone, as a gather is kernels of its own on an accelerator.
    sources = [(jnp.roll(good.at[0].set(False), -1, 0), -1, 0)]
    sources += [(jnp.roll(good, by, 1), by, 1) for by in (1,)]
    sources += [(jnp.roll(good.at[-1].set(False), 1, 0), 1, 0)]

    def fill(x: Array) -> Array:
        found = x
        for is_there, by, axis in reversed(sources):
            found = jnp.where(_beside(is_there, x), jnp.roll(x, by, axis), found)
        return jnp.where(_beside(bad, x), found, x)

    cut = jnp.roll(bad.at[0].set(False), -1, 0)
    filled, memories = jax.tree.map(fill, (transitions, memories))
    terminated = filled.terminated & ~filled.truncated
    truncated = (filled.truncated | cut | bad) & ~terminated
    return filled._replace(terminated=terminated, truncated=truncated), memories


def _beside(flag: Array, x: Array) -> Array:
    """Flags `[T, B]` as they are compared with `[T, B, ...]`."""
    return flag.reshape(*flag.shape, *(1,) * (x.ndim - 2))
