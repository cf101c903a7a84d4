"""Averages over the devices that share one agent; nothing where there is one device.

On XLA's CPU backend the collectives of a program must form one chain: those that do not
depend on one another may run at once, and its in-process all-reduce then confuses them
(seen with jaxlib 0.10.2 as crashes in `ReduceScatter`, in 4 of 8 processes). So a
pytree is reduced in one piece, and `after` makes one phase wait for another.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from purerl.types import Array, PyTree


def pmean(tree: PyTree, axis_name: str | None) -> PyTree:
    """Return the mean of floats over the mapped axis, or `tree` itself without one."""
    if axis_name is None:
        return tree
    flat, restore = ravel_pytree(tree)
    return restore(jax.lax.pmean(flat, axis_name))


def psum(tree: PyTree, axis_name: str | None) -> PyTree:
    """Sum over the mapped axis, or `tree` itself without one; leaves are floats."""
    if axis_name is None:
        return tree
    flat, restore = ravel_pytree(tree)
    return restore(jax.lax.psum(flat, axis_name))


def pmax(x: Array, axis_name: str | None) -> Array:
    """Return the maximum over the mapped axis, or `x` itself without one."""
    return x if axis_name is None else jax.lax.pmax(x, axis_name)


def after(tree: PyTree, anchor: Array, axis_name: str | None) -> PyTree:
    """Return `tree` unchanged, but not before the number `anchor` is known.

    Adds a zero that the compiler cannot tell from a number. Without a mapped axis
    nothing needs an order and `tree` is returned as it is.

    Args:
        tree: Pytree of arrays.
        anchor: Number that is to be known first.
        axis_name: Mapped axis, if any.
    """
    if axis_name is None:
        return tree
    zero = jnp.nan_to_num(jnp.minimum(jnp.abs(anchor), 0.0))
    return jax.tree.map(lambda x: x + zero.astype(x.dtype), tree)


def env_keys(key: Array, shape: tuple[int, ...], axis_name: str | None) -> Array:
    """Draw keys `[*shape]` for this device's environments; see `env_draw`."""
    return env_draw(jax.random.split, key, shape, axis_name)


def env_draw(
    draw: Callable[[Array, tuple[int, ...]], PyTree],
    key: Array,
    shape: tuple[int, ...],
    axis_name: str | None,
) -> PyTree:
    """Draw for all environments at once, and return what this device's have.

    What an environment gets depends on its global index, so that spreading environments
    over devices changes no random number.

    Args:
        draw: Function that draws, `(key, shape) -> leaves [*shape, ...]`.
    """
    if axis_name is None:
        return draw(key, shape)
    *lead, num = shape
    whole = draw(key, (*lead, num * jax.lax.axis_size(axis_name)))
    start = jax.lax.axis_index(axis_name) * num
    return jax.tree.map(
        lambda x: jax.lax.dynamic_slice_in_dim(x, start, num, axis=len(lead)), whole
    )


def vary_like(tree: PyTree, like: Array) -> PyTree:
    """Mark `tree` as differing between the devices over which the key `like` does.

    Values stay as they are. `jax.shard_map` checks that what a loop carries is marked
    alike before and after, and a constant start is marked as the same everywhere.
    """
    axes = _varying_axes(jax.random.key_data(like))
    if not axes:
        return tree

    def mark(x: Array) -> Array:
        if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(
                mark(jax.random.key_data(x)), impl=jax.random.key_impl(x)
            )
        missing = tuple(axes - _varying_axes(x))
        if not missing:
            return x
        return jax.lax.pcast(x, missing, to="varying")

    return jax.tree.map(mark, tree)


def _varying_axes(x: Array) -> frozenset[str]:
    """Names of the axes of `jax.shard_map` over which `x` is marked as differing."""
    aval = jax.typeof(x)
    manual = getattr(aval, "manual_axis_type", None)
    if manual is not None:
        return manual.varying
    # Before jax 0.10 the attribute was called vma.
    return getattr(aval, "vma", frozenset())
