"""Arrays between devices and the host, random keys included."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from purerl.types import PyTree


@struct.dataclass
class HostKey:
    """Random keys as plain numbers; the implementation's name is structure."""

    data: np.ndarray
    impl: str = struct.field(pytree_node=False)


def is_host_key(x: Any) -> bool:
    """Return whether a node of a host pytree holds random keys."""
    return isinstance(x, HostKey)


def impl_here() -> str:
    """Return the implementation of the random keys that this process makes."""
    return str(jax.config.jax_default_prng_impl)  # type: ignore[attr-defined]


def is_key(x: Any) -> bool:
    """Return whether an array holds typed random keys."""
    return isinstance(x, jax.Array) and jax.dtypes.issubdtype(
        x.dtype, jax.dtypes.prng_key
    )


def to_host(tree: PyTree) -> PyTree:
    """Copy a pytree of arrays to numpy, waiting for it; keys become `HostKey`."""

    def copy(x: Any) -> Any:
        if is_key(x):
            data = np.asarray(jax.random.key_data(x))
            return HostKey(data, str(jax.random.key_impl(x)))
        return np.asarray(x)

    return jax.tree.map(copy, tree)


def from_host(leaves: Sequence[Any], size: int | None = None) -> jax.Array:
    """Concatenate host leaves along their first axis, cut to `size`, as a JAX array."""
    if is_host_key(leaves[0]):
        data = np.concatenate([leaf.data for leaf in leaves])[:size]
        return jax.random.wrap_key_data(jnp.asarray(data), impl=leaves[0].impl)
    return jnp.asarray(np.concatenate(leaves)[:size])


def to_device(tree: PyTree) -> PyTree:
    """Turn a host pytree into JAX arrays on the default device.

    Arrays of one agent, which may have no axis, are taken as those of several. What is
    a JAX array already, a traced one too, is returned as it is.
    """
    return jax.tree.map(_put, tree, is_leaf=is_host_key)


def agent_to_device(tree: PyTree, index: int) -> PyTree:
    """Turn the arrays of one agent into JAX arrays; those of others stay on the host.

    Args:
        tree: A host pytree, leaves `[S, ...]`.
        index: The number of the agent.
    """
    return to_device(jax.tree.map(lambda x: x[index], tree))


def with_keys(tree: PyTree) -> PyTree:
    """Return a host pytree with random keys of JAX's; the other arrays stay numpy's.

    A compiled program that gets it puts those on its device that it reads: of a state
    not the replay buffer, where it only acts.
    """
    return jax.tree.map(
        lambda x: to_device(x) if is_host_key(x) else x, tree, is_leaf=is_host_key
    )


def _put(x: Any) -> Any:
    if is_host_key(x):
        return jax.random.wrap_key_data(_put(x.data), impl=x.impl)
    # A copy, for a program that consumes its arguments may write into its memory.
    return x if isinstance(x, jax.Array) else jnp.asarray(np.array(x))
