"""Items of a replay buffer as rows of one array, for a program with few kernels.

A buffer of six arrays is six kernels when a step is added. Inside an update on an
accelerator small items are rows of 32-bit words instead, as `learning.packing` makes
them, so that one kernel adds a step and one takes a batch.
"""

from typing import Any

import jax
from flax import struct

from purerl.learning import packing
from purerl.tracing import traced_for_cpu
from purerl.types import Array, PyTree

# The largest item, and the largest buffer of one agent, of which rows are made: they
# are made in every update.
MOST_WORDS = 2**6
MOST_BYTES = 2**24


@struct.dataclass
class Rows:
    """Items as rows.

    Attributes:
        words: `[C, D]` uint32, or the rows of some items `[..., D]`.
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
    is_small = all(packing.is_small(leaf, leaf.shape[1:]) for leaf in leaves)
    is_small = is_small and words <= min(MOST_WORDS, MOST_BYTES // 4 // capacity)
    return _rows(buffer) if is_small and not traced_for_cpu() else buffer


def like(buffer: PyTree, items: PyTree) -> PyTree:
    """Return items as rows if the buffer has rows, else as they are.

    Args:
        buffer: Buffer with leaves `[C, ...]`, or rows.
        items: Items with leaves `[N, ...]`.
    """
    return _rows(items) if isinstance(buffer, Rows) else items


def items_of(found: PyTree) -> PyTree:
    """Return items, of rows or as they are.

    Args:
        found: Items with leaves `[..., ...]`, or rows of them.
    """
    if not isinstance(found, Rows):
        return found
    return packing.unpack(packing.Packed(found.words, ()), found.layout)


def _rows(items: PyTree) -> Rows:
    packed, layout = packing.pack(items, axes=1)
    return Rows(packed.words, layout)
