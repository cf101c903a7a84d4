"""Random keys: all follow from an agent's one key and the number of the update.

Everything that update `u` draws comes from the eight keys `fold_in(key, 8 * u + i)`, so
that neither segments, nor saving, nor logging changes a number. Updates have the lower
half of `fold_in`'s 32 bits; the evaluation after `u` updates takes the same place in
the upper half, and initialisation the last one, which no run of less than 2^28 - 1
updates reaches. Keys are derived side by side, in one computation: each time that a key
is split costs a program kernels, and a compiler time.

With JAX's default random bits `fold_in(k, i)` is `split(k, n)[i]`. So an agent of the
key `k` draws its update `i` from the key that is agent `i`'s own in a population of
keys `split(k, n)`. No two streams of one experiment meet, but such an agent and such a
population are not independent of one another: give them two keys.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl.types import AgentState, Array, PyTree

# Keys of each update.
_EACH = 8
_INIT = 2**32 - _EACH
_EVALUATIONS = 2**31
# The evaluation after one more would draw what initialisation has drawn.
MAX_UPDATES = _EVALUATIONS // _EACH - 2


def shape_of_keys(value: Any) -> tuple[int, ...] | None:
    """Return the shape of random keys, typed or old ones; None of what is no key.

    Args:
        value: Anything. Old keys are uint32 arrays with one more axis.
    """
    if not isinstance(value, jax.Array | np.ndarray):
        return None
    if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return value.shape
    if value.dtype != np.uint32:
        return None
    # Its length depends on `jax_default_prng_impl`.
    data = jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0)))
    return value.shape[:-1] if value.shape[-1:] == data.shape else None


def init_key(key: Array) -> Array:
    """Return the key of networks and environments at the start, from the agent's."""
    return init_keys(key, 1)[0]


def init_keys(key: Array, count: int) -> Array:
    """Return up to eight keys `[count]` of the start; the first is `init_key`'s.

    Args:
        key: The agent's key.
    """
    return _fold_in_each(key, jnp.uint32(_INIT), count)


def update_key(state: AgentState) -> Array:
    """Return the key of everything that the next update draws."""
    return update_keys(state, 1)[0]


def update_keys(state: AgentState, count: int) -> Array:
    """Return up to eight keys `[count]` of an update; the first is `update_key`'s.

    Args:
        state: State of one agent before the update.
    """
    update = jnp.asarray(state.update).astype(jnp.uint32)
    return _fold_in_each(state.key, update * jnp.uint32(_EACH), count)


def evaluation_key(state: AgentState) -> Array:
    """Return the key of an evaluation after the last update, a stream of its own."""
    update = jnp.asarray(state.update).astype(jnp.uint32)
    number = (update * jnp.uint32(_EACH)) | jnp.uint32(_EVALUATIONS)
    return _fold_in_each(state.key, number, 1)[0]


def several(key: Array, count: int) -> Array:
    """Return `[count]` keys: those that are given, or the splits of a single one.

    Args:
        key: One key `[]`, consumed, or `[count]` keys.
    """
    if key.ndim == 0:
        return jax.random.split(key, count)
    if key.shape != (count,):
        raise ValueError(f"Expected one key or {count} of them, got {key.shape}.")
    return key


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


def _fold_in_each(key: Array, first: Array, count: int) -> Array:
    if not 1 <= count <= _EACH:
        raise ValueError(f"There are {_EACH} keys of a kind, not {count}.")
    # All of them at every place, so that a program has one form of this computation.
    numbers = first + jnp.arange(_EACH, dtype=jnp.uint32)
    return jax.vmap(jax.random.fold_in, (None, 0))(key, numbers)[:count]
