"""Where an agent's randomness comes from: one key, and the number of the update.

Everything that update `u` draws comes from `fold_in(key, u)`, so that neither segments,
nor saving, nor logging changes a number. Updates count from 0 in int32, the lower half
of `fold_in`'s 32 bits; the evaluation after `u` updates takes the same place in the
upper half, and initialisation the last one, which no run of less than 2^31 - 1 updates
reaches.

With JAX's default random bits `fold_in(k, i)` is `split(k, n)[i]`. So an agent of the
key `k` draws its update `i` from the key that is agent `i`'s own in a population of
keys `split(k, n)`. No two streams of one experiment meet, but such an agent and such a
population are not independent of one another: give them two keys.
"""

import jax
import jax.numpy as jnp

from purerl.types import AgentState, Array

_INIT = 2**32 - 1
_EVALUATIONS = 2**31


def init_key(key: Array) -> Array:
    """Return the key of networks and environments at the start, from the agent's."""
    return jax.random.fold_in(key, _INIT)


def update_key(state: AgentState) -> Array:
    """Return the key of everything that the next update draws."""
    return jax.random.fold_in(state.key, state.update)


def evaluation_key(state: AgentState) -> Array:
    """Return the key of an evaluation after the last update, a stream of its own."""
    number = jnp.asarray(state.update).astype(jnp.uint32) | jnp.uint32(_EVALUATIONS)
    return jax.random.fold_in(state.key, number)
