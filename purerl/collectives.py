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
