"""Items of a replay buffer as rows of one array, for a program with few kernels.

A buffer of six arrays is six kernels when a step is added. Inside an update on an
accelerator small items are rows of 32-bit words instead, as `accelerator.kernels` makes
them, so that one kernel adds a step and one takes a batch.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax.custom_batching import custom_vmap

from purerl.accelerator import kernels
from purerl.accelerator.kernels import traced_for_cpu
from purerl.types import Array, PyTree

# The largest item, and the largest buffer of one agent, of which rows are made: they
# are made in every update.
MOST_WORDS = 2**6
MOST_BYTES = 2**24


@struct.dataclass
class Rows:
    """Items as rows.

    Attributes:
        words: `[C, D]` int32, or the rows of some items `[..., D]`.
        layout: How an item lies in a row.
    """

    words: Array
    layout: Any = struct.field(pytree_node=False)


def rows_of(buffer: PyTree) -> PyTree:
    """Return a buffer as rows where that is faster, else as it is.

    Args:
        buffer: Buffer with leaves `[C, ...]`.
    """
    leaves = jax.tree.leaves(buffer)
    capacity = leaves[0].shape[0]
    words = sum(leaf.size // capacity for leaf in leaves)
    is_small = all(kernels.is_small(leaf, leaf.shape[1:]) for leaf in leaves)
    is_small = is_small and words <= min(MOST_WORDS, MOST_BYTES // 4 // capacity)
    return _rows(buffer) if is_small and not traced_for_cpu() else buffer


def like(buffer: PyTree, items: PyTree) -> PyTree:
    """Return items as rows if the buffer has rows, else as they are.

    Args:
        buffer: Buffer with leaves `[C, ...]`, or rows.
        items: Items with leaves `[N, ...]`.
    """
    return _rows(items) if isinstance(buffer, Rows) else items


def write(buffer: PyTree, items: PyTree, start: Array) -> PyTree:
    """Put items into a buffer, one after another.

    Args:
        buffer: Buffer with leaves `[C, ...]`, or rows.
        items: Items as the buffer has them, with leaves `[N, ...]`.
        start: `[]` int, where the first one goes; at most C - N.
    """
    plain = partial(jax.lax.dynamic_update_slice_in_dim, axis=0)
    put = _write(0) if isinstance(buffer, Rows) else plain
    return jax.tree.map(lambda all, new: put(all, new, start), buffer, items)


@cache
def _write(axis: int) -> Callable[..., Array]:
    """Return `jax.lax.dynamic_update_slice_in_dim`, which stays one under `vmap`.

    JAX makes a scatter of it under `vmap`, also where every agent writes to the same
    place. A scatter has to know what lies there, as it must not write out of bounds:
    that is a kernel more.
    """
    plain = partial(jax.lax.dynamic_update_slice_in_dim, axis=axis)
    write = custom_vmap(plain)

    @write.def_vmap
    def _(size: int, batched: list[bool], *args: Array) -> tuple[Array, bool]:
        if batched[-1]:
            axes = [0 if is_batched else None for is_batched in batched]
            return jax.vmap(plain, axes)(*args), True
        *arrays, start = args
        arrays = [
            x if is_batched else jnp.broadcast_to(x, (size, *x.shape))
            for x, is_batched in zip(arrays, batched[:-1], strict=True)
        ]
        return _write(axis + 1)(*arrays, start), True

    return write


def items_of(found: PyTree) -> PyTree:
    """Return items, of rows or as they are.

    Args:
        found: Items with leaves `[..., ...]`, or rows of them.
    """
    if not isinstance(found, Rows):
        return found
    return kernels.unpack(kernels.Packed(found.words, ()), found.layout)


def _rows(items: PyTree) -> Rows:
    packed, layout = kernels.pack(items, axes=1)
    return Rows(packed.words, layout)
