"""Averages over the devices that share one agent; nothing where there is one device."""

import jax

from purerl.types import Array, PyTree


def pmean(tree: PyTree, axis_name: str | None) -> PyTree:
    """Mean over the mapped axis, or `tree` itself without one."""
    return tree if axis_name is None else jax.lax.pmean(tree, axis_name)


def psum(tree: PyTree, axis_name: str | None) -> PyTree:
    """Sum over the mapped axis, or `tree` itself without one."""
    return tree if axis_name is None else jax.lax.psum(tree, axis_name)


def env_keys(key: Array, shape: tuple[int, ...], axis_name: str | None) -> Array:
    """Keys `[*shape]` whose last axis is this device's part of all environments.

    An environment's keys depend on its global index, so that spreading environments
    over devices changes no random number.

    Args:
        key: consumed.
        shape: `(..., B)` with `B` environments on this device.
        axis_name: mapped axis over which environments are spread, if any.
    """
    if axis_name is None:
        return jax.random.split(key, shape)
    *lead, num = shape
    keys = jax.random.split(key, (*lead, num * jax.lax.axis_size(axis_name)))
    start = jax.lax.axis_index(axis_name) * num
    return jax.lax.dynamic_slice_in_dim(keys, start, num, axis=len(lead))


def vary_like(tree: PyTree, like: Array) -> PyTree:
    """`tree`, marked as differing between the devices over which the key `like` does.

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
        if hasattr(jax.lax, "pcast"):
            return jax.lax.pcast(x, missing, to="varying")
        return jax.lax.pvary(x, missing)  # jax 0.7

    return jax.tree.map(mark, tree)


def _varying_axes(x: Array) -> frozenset[str]:
    """Names of the axes of `jax.shard_map` over which `x` is marked as differing."""
    aval = jax.typeof(x)
    manual = getattr(aval, "manual_axis_type", None)
    if manual is not None:
        return manual.varying
    return getattr(aval, "vma", frozenset())  # before jax 0.10
