"""Epochs of minibatch gradient steps over one rollout, each in an order of its own."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from purerl.learning import optimiser, packing
from purerl.learning.collectives import pmean
from purerl.types import Array, Metrics, PyTree

# Up to here the packed sort leaves at least 16 random bits per index.
_PACKED_LIMIT = 2**16


class Passes(NamedTuple):
    """How gradient steps go through a batch.

    Attributes:
        optim: Optimiser, from `optimiser`; it keeps the norm of its last gradient.
        num_epochs: E, passes over the batch.
        num_minibatches: M, gradient steps per pass.
        axis_name: Mapped axis over which the samples are spread, if any.
    """

    optim: optax.GradientTransformation
    num_epochs: int
    num_minibatches: int
    axis_name: str | None = None


def minimise(
    loss: Callable[[PyTree, Any], tuple[Array, Metrics]],
    params: PyTree,
    opt_state: PyTree,
    batch: Any,
    key: Array,
    passes: Passes,
) -> tuple[PyTree, PyTree, Metrics]:
    """Shuffle the samples anew in every pass, and step once per minibatch.

    The optimiser works on one flat vector of all parameters: see `optimiser.flatten`.

    Args:
        loss: `(params, minibatch) -> (scalar, metrics)`.
        params: Pytree of float leaves.
        opt_state: State of `passes.optim`, for the flat vector of `params`.
        batch: A pytree of leaves `[N, ...]`, N divisible by M.
        key: Random key, consumed.
        passes: Optimiser, and how it goes through the batch.

    Returns:
        Parameters, the optimiser's state, and the metrics of every gradient step with
        `grad_norm`, `[E, M]` each.
    """
    optim, num_epochs, num_minibatches, axis_name = passes
    flat_params, restore = optimiser.flatten(params)

    def flat_loss(flat: Array, minibatch: Any) -> tuple[Array, Metrics]:
        return loss(restore(flat), minibatch)

    def gradient_step(carry: tuple, minibatch: Any) -> tuple[tuple, Metrics]:
        flat, opt_state = carry
        grads, metrics = jax.grad(flat_loss, has_aux=True)(flat, minibatch)
        grads, metrics = pmean((grads, metrics), axis_name)
        updates, opt_state = optim.update(grads, opt_state, flat)
        metrics["grad_norm"] = optimiser.grad_norm(opt_state)
        return (flat + updates, opt_state), metrics

    def epoch(carry: tuple, order: Array) -> tuple[tuple, Metrics]:
        minibatches = jax.tree.map(
            lambda x: x[order].reshape(num_minibatches, -1, *x.shape[1:]), batch
        )
        return packing.scan(gradient_step, carry, minibatches)

    # All orders before the loop: there is one draw to compile, and one sort.
    orders = shuffled_indices(key, jax.tree.leaves(batch)[0].shape[0], num_epochs)
    (flat_params, opt_state), metrics = packing.scan(
        epoch, (flat_params, opt_state), orders
    )
    return restore(flat_params), opt_state, metrics


def shuffled_indices(key: Array, size: int, count: int) -> Array:
    """Draw random permutations of `0 .. size-1`, int32 `[count, size]`.

    One sort of random words whose low bits hold the index: a quarter of the time of
    `jax.random.permutation` on CPU, which sorts key-value pairs. Only ties in the
    random high bits keep their order; above 65,536 they would matter and the library's
    own permutation is used.

    Args:
        key: Random key, consumed.
        size: Number of indices.
        count: Number of permutations.
    """
    if size > _PACKED_LIMIT:
        keys = jax.random.split(key, count)
        return jax.vmap(lambda key: jax.random.permutation(key, size))(keys)
    mask = jnp.uint32((1 << max(1, (size - 1).bit_length())) - 1)
    words = jax.random.bits(key, (count, size), jnp.uint32)
    packed = (words & ~mask) | jnp.arange(size, dtype=jnp.uint32)[None]
    return (jnp.sort(packed, axis=-1) & mask).astype(jnp.int32)
