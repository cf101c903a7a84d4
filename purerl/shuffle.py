"""A fast uniform shuffle of indices for minibatches."""

import jax
import jax.numpy as jnp

from purerl.types import Array

# Up to here the packed sort leaves at least 16 random bits per index.
_PACKED_LIMIT = 2**16


def shuffled_indices(key: Array, size: int) -> Array:
    """A random permutation of `0 .. size-1`, int32.

    One sort of random words whose low bits hold the index: a quarter of the time of
    `jax.random.permutation` on CPU, which sorts key-value pairs. Only ties in the
    random high bits keep their order; above 65,536 they would matter and the library's
    own permutation is used.

    Args:
        key: consumed.
        size: number of indices.
    """
    if size > _PACKED_LIMIT:
        return jax.random.permutation(key, size)
    mask = jnp.uint32((1 << max(1, (size - 1).bit_length())) - 1)
    words = jax.random.bits(key, (size,), jnp.uint32)
    packed = (words & ~mask) | jnp.arange(size, dtype=jnp.uint32)
    return (jnp.sort(packed) & mask).astype(jnp.int32)
