"""Epochs of minibatch gradient steps over one rollout, each in an order of its own."""

from collections.abc import Callable
from functools import partial
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
        is_last: Function from the metrics of a pass's last gradient step to a bool
            `[]`: whether no pass follows. All passes are made where not given.
        tells: Whether the optimiser is told the share of the passes that is over, as
            `epoch`, and what the loss leaves under `activity` in its metrics.
    """

    optim: optax.GradientTransformation
    num_epochs: int
    num_minibatches: int
    axis_name: str | None = None
    is_last: Callable[[Metrics], Array] | None = None
    tells: bool = False


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
        `grad_norm`, `[E, M]` each. Where passes may end early, `happened` `[E, M]`
        says which gradient steps count; `pass_means` averages these.
    """
    optim, num_epochs, num_minibatches, axis_name, _, tells = passes
    flat_params, restore = optimiser.flatten(params)

    def flat_loss(flat: Array, minibatch: Any) -> tuple[Array, Metrics]:
        return loss(restore(flat), minibatch)

    def gradient_step(
        epoch: Any, carry: tuple, minibatch: Any
    ) -> tuple[tuple, Metrics]:
        flat, opt_state = carry
        grads, metrics = jax.grad(flat_loss, has_aux=True)(flat, minibatch)
        grads, metrics = pmean((grads, metrics), axis_name)
        seen = {"activity": metrics.pop("activity"), "epoch": epoch} if tells else {}
        updates, opt_state = optim.update(grads, opt_state, flat, **seen)
        metrics["grad_norm"] = optimiser.grad_norm(opt_state)
        return (flat + updates, opt_state), metrics

    given, order_of = _orders(key, num_epochs, jax.tree.leaves(batch)[0].shape[0])

    def take_pass(carry: tuple, given: Any) -> tuple[tuple, Metrics]:
        given, epoch = given if tells else (given, None)
        order = order_of(given)
        minibatches = jax.tree.map(
            lambda x: x[order].reshape(num_minibatches, -1, *x.shape[1:]), batch
        )
        return packing.scan(partial(gradient_step, epoch), carry, minibatches)

    if tells:
        given = given, jnp.arange(num_epochs) / max(1, num_epochs - 1)
    (flat_params, opt_state), metrics = _take_passes(
        take_pass, (flat_params, opt_state), given, passes
    )
    return restore(flat_params), opt_state, metrics


def _orders(key: Array, num: int, size: int) -> tuple[Array, Callable[[Array], Array]]:
    """Return what each pass is given, `[E, ...]`, and a function to its order `[N]`.

    An accelerator has fewer kernels with one draw and one sort for all epochs. On a CPU
    one agent is slower so: XLA's CPU runtime then spreads the small kernels of the
    gradient steps over two threads, which wait for each other.
    """
    draw_order = partial(shuffled_indices, size=size)
    keys = jax.random.split(key, num)
    if packing.traced_for_cpu():
        return keys, draw_order
    return jax.vmap(draw_order)(keys), lambda order: order


def _take_passes(
    take_pass: Callable[[tuple, Any], tuple[tuple, Metrics]],
    carry: tuple,
    given: Any,
    passes: Passes,
) -> tuple[tuple, Metrics]:
    """All passes; those after the last one change nothing, and say so."""
    is_last = passes.is_last
    if is_last is None:
        return packing.scan(take_pass, carry, given)

    def take(carry: tuple, given: Any) -> tuple[tuple, Metrics]:
        # Under `vmap` a branch that is not taken is computed too, so there is none.
        learned, is_over = carry
        proposed, metrics = take_pass(learned, given)
        learned = jax.tree.map(partial(jnp.where, is_over), learned, proposed)
        metrics["happened"] = jnp.broadcast_to(~is_over, (passes.num_minibatches,))
        over_now = is_last({name: values[-1] for name, values in metrics.items()})
        return (learned, is_over | over_now), metrics

    (carry, _), metrics = packing.scan(take, (carry, jnp.bool_(False)), given)
    return carry, metrics


def pass_means(metrics: Metrics) -> Metrics:
    """Average metrics of gradient steps over those that happened, `[]` each.

    Args:
        metrics: `[E, M]` each, from `minimise`.

    Returns:
        The averages; `approx_kl_last`, that of the last pass, which says how far the
        update left the old policy; and `passes`, how many there were, where they may
        end early.
    """
    happened = metrics.get("happened")
    if happened is None:
        means = {name: values.mean() for name, values in metrics.items()}
        means["approx_kl_last"] = metrics["approx_kl"][-1].mean()
        return means
    passes = happened[:, 0].sum()
    means = {
        # What did not happen may be anything, also NaN, and does not count.
        name: jnp.where(happened, values, 0.0).sum() / happened.sum()
        for name, values in metrics.items()
        if name != "happened"
    }
    last = jax.lax.dynamic_index_in_dim(metrics["approx_kl"], passes - 1, 0, False)
    return {**means, "approx_kl_last": last.mean(), "passes": passes}


def shuffled_indices(key: Array, size: int) -> Array:
    """Draw a random permutation of `0 .. size-1`, int32.

    One sort of random words whose low bits hold the index: a quarter of the time of
    `jax.random.permutation` on CPU, which sorts key-value pairs. Only ties in the
    random high bits keep their order; above 65,536 they would matter and the library's
    own permutation is used.

    Args:
        key: Random key, consumed.
        size: Number of indices.
    """
    if size > _PACKED_LIMIT:
        return jax.random.permutation(key, size)
    mask = jnp.uint32((1 << max(1, (size - 1).bit_length())) - 1)
    words = jax.random.bits(key, (size,), jnp.uint32)
    packed = (words & ~mask) | jnp.arange(size, dtype=jnp.uint32)
    return (jnp.sort(packed) & mask).astype(jnp.int32)
