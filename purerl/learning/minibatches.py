"""Epochs of minibatch gradient steps over one rollout, each in an order of its own."""

import math
import operator
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from purerl.accelerator import kernels
from purerl.accelerator.kernels import traced_for_cpu
from purerl.learning import optimiser
from purerl.learning.averages import means, pmean
from purerl.types import Array, Metrics, PyTree

# Up to here the packed sort leaves at least 16 random bits per index.
_PACKED_LIMIT = 2**16
# This is one MiB of samples per agent; populations have thousands of agents side by
# side.
_ONE_LOOP_WORDS = 2**18
# Gradient steps of one turn of a loop on an accelerator, for a loss without loops. A
# turn costs kernels that count and write, however many steps it makes, and a program
# with two of them is compiled in little more time.
PLAIN_STEPS_OF_TURN = 2


class Passes(NamedTuple):
    """The passes of gradient steps through a batch.

    Attributes:
        optim: Optimiser, from `optimiser`; it keeps the norm of its last gradient.
        num_epochs: E, passes over the batch.
        num_minibatches: M, gradient steps per pass.
        axis_name: Mapped axis over which the samples are spread, if any.
        is_last: Function from the metrics of a pass's last gradient step to a bool
            `[]`: whether no pass follows. All passes are made where not given.
        tells: Whether the optimiser is told the share of the passes that is over, as
            `epoch`, and what the loss leaves under `activity` in its metrics.
        prepare: Function of a minibatch, which is called for all of a pass at once.
        steps_of_turn: The most gradient steps that one turn of the loop makes where all
            passes are one loop; see `PLAIN_STEPS_OF_TURN`.
        begin: Function `(params, minibatch) -> minibatch` of what in a minibatch
            follows the parameters before a gradient step, and has no part in the
            gradient. A derivative of the step goes through it.
        add: Function `(grads, seen, moved, minibatch, drawn) -> (grads, metrics)` that
            adds a gradient of something else, if anything; `seen(moved)` are the
            parameters.
        drawn: What `add` gets of each gradient step, leaves `[E, M, ...]`.
    """

    optim: optax.GradientTransformation
    num_epochs: int
    num_minibatches: int
    axis_name: str | None = None
    is_last: Callable[[Metrics], Array] | None = None
    tells: bool = False
    prepare: Callable[[Any], Any] | None = None
    steps_of_turn: int = 1
    begin: Callable[[PyTree, Any], Any] | None = None
    add: Callable[..., tuple[PyTree, Metrics]] | None = None
    drawn: PyTree = None


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
        params: Pytree of float leaves.
        opt_state: State of `passes.optim`, for the flat vector of `params`.
        batch: A pytree of leaves `[N, ...]`, N divisible by M.

    Returns:
        Parameters, the optimiser's state, and the metrics of every gradient step with
        `grad_norm`, `[E, M, ...]` each. Where passes may end early, `happened`
        `[E, M]` says which gradient steps count; `pass_means` averages these.
    """
    flat, restore = optimiser.flatten(params)
    flat, opt_state, metrics = descend(
        loss, restore, flat, opt_state, batch, key, passes
    )
    return restore(flat), opt_state, metrics


def descend(
    loss: Callable[[PyTree, Any], tuple[Array, Metrics]],
    seen: Callable[[PyTree], PyTree],
    moved: PyTree,
    opt_state: PyTree,
    batch: Any,
    key: Array,
    passes: Passes,
) -> tuple[PyTree, PyTree, Metrics]:
    """Do what `minimise` does to `moved`, of which the loss takes `seen(moved)`."""
    num_epochs, num_minibatches = passes.num_epochs, passes.num_minibatches
    gradient_step = partial(_gradient_step, loss, seen, passes)
    draw_order = partial(shuffled_indices, size=jax.tree.leaves(batch)[0].shape[0])
    given = jax.random.split(key, num_epochs)
    # An accelerator has fewer kernels with one draw and one sort for all epochs. On a
    # CPU one agent is slower so: XLA's CPU runtime then spreads the small kernels of
    # the gradient steps over two threads, which wait for each other.
    is_drawn = not traced_for_cpu()
    if is_drawn:
        given = jax.vmap(draw_order)(given)

    def shuffled(order: Array, num: int) -> Any:
        minibatches = jax.tree.map(
            lambda x: x[order].reshape(num, -1, *x.shape[1:]), batch
        )
        if passes.prepare is None:
            return minibatches
        return jax.vmap(passes.prepare)(minibatches)

    def take_pass(carry: tuple, given: Any) -> tuple[tuple, Metrics]:
        given, epoch, drawn = given
        order = given if is_drawn else draw_order(given)
        minibatches = shuffled(order, num_minibatches)
        return kernels.scan(partial(gradient_step, epoch), carry, (minibatches, drawn))

    carry = moved, opt_state
    if is_one_loop(batch, passes):
        num_steps = num_epochs * num_minibatches
        minibatches = shuffled(given.reshape(-1), num_steps)
        turn = math.gcd(num_steps, passes.steps_of_turn)
        each = minibatches, jax.tree.map(jnp.ravel, passes.drawn)
        carry, metrics = kernels.scan(partial(gradient_step, None), carry, each, turn)
        shape = num_epochs, num_minibatches
        metrics = jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), metrics)
        return *carry, metrics
    epoch = jnp.arange(num_epochs) / max(1, num_epochs - 1) if passes.tells else None
    given = given, epoch, passes.drawn
    carry, metrics = _take_passes(take_pass, carry, given, passes)
    return *carry, metrics


def _gradient_step(
    loss: Callable[[PyTree, Any], tuple[Array, Metrics]],
    seen: Callable[[PyTree], PyTree],
    passes: Passes,
    epoch: Any,
    carry: tuple,
    given: tuple[Any, PyTree],
) -> tuple[tuple, Metrics]:
    """Move parameters by one gradient.

    Args:
        given: A minibatch, leaves `[N / M, ...]`; and what `passes.add` gets.
    """
    moved, opt_state = carry
    minibatch, drawn = given
    if passes.begin is not None:
        minibatch = passes.begin(seen(moved), minibatch)

    def loss_of(moved: PyTree) -> tuple[Array, Metrics]:
        return loss(seen(moved), minibatch)

    grads, metrics = jax.grad(loss_of, has_aux=True)(moved)
    if passes.add is not None:
        grads, found = passes.add(grads, seen, moved, minibatch, drawn)
        metrics = {**metrics, **found}
    grads, metrics = pmean((grads, metrics), passes.axis_name)
    told = {}
    if passes.tells:
        told = {"activity": metrics.pop("activity"), "epoch": epoch}
    updates, opt_state = passes.optim.update(grads, opt_state, moved, **told)
    metrics["grad_norm"] = optimiser.grad_norm(opt_state)
    return (jax.tree.map(operator.add, moved, updates), opt_state), metrics


def is_one_loop(batch: Any, passes: Passes) -> bool:
    """Return whether all passes are one loop, over minibatches made before it.

    On an accelerator that is fewer kernels, and takes the batch E times in memory.

    Args:
        batch: A pytree of leaves `[N, ...]`.
        passes: Passes of gradient steps through the batch.
    """
    if traced_for_cpu() or passes.tells or passes.is_last is not None:
        return False
    words = sum(x.size for x in jax.tree.leaves(batch))
    return words * passes.num_epochs <= _ONE_LOOP_WORDS


def _take_passes(
    take_pass: Callable[[tuple, Any], tuple[tuple, Metrics]],
    carry: tuple,
    given: Any,
    passes: Passes,
) -> tuple[tuple, Metrics]:
    """All passes; those after the last one change nothing, and say so."""
    is_last = passes.is_last
    if is_last is None:
        return kernels.scan(take_pass, carry, given)

    def take(carry: tuple, given: Any) -> tuple[tuple, Metrics]:
        # Under `vmap` a branch that is not taken is computed too, so there is none.
        learned, is_over = carry
        proposed, metrics = take_pass(learned, given)
        learned = jax.tree.map(partial(jnp.where, is_over), learned, proposed)
        metrics["happened"] = jnp.broadcast_to(~is_over, (passes.num_minibatches,))
        over_now = is_last({name: values[-1] for name, values in metrics.items()})
        return (learned, is_over | over_now), metrics

    (carry, _), metrics = kernels.scan(take, (carry, jnp.bool_(False)), given)
    return carry, metrics


def step_means(metrics: Metrics) -> Metrics:
    """Average what gradient steps left of each sample, in one reduction, `[E, M]` each.

    Args:
        metrics: Metrics from `minimise`, `[E, M]` or `[E, M, N / M]` each.
    """
    return metrics | means({n: x for n, x in metrics.items() if x.ndim > 2})


def pass_means(metrics: Metrics) -> Metrics:
    """Average metrics of gradient steps over those that happened, `[]` each.

    Args:
        metrics: Metrics from `minimise`, `[E, M]` each.

    Returns:
        The averages; with `approx_kl` also `approx_kl_last`, that of the last pass,
        each part of it measured before its gradient step, so that it is 0 with one pass
        of one minibatch; and `passes`, how many there were, where they may end early.
    """
    happened = metrics.get("happened")
    if happened is None:
        if traced_for_cpu():
            means = {name: values.mean() for name, values in metrics.items()}
        else:  # An accelerator makes one reduction of them.
            rows = jnp.stack([x.astype(jnp.float32) for x in metrics.values()])
            means = dict(zip(metrics, rows.mean((1, 2)), strict=True))
        if "approx_kl" in metrics:
            means["approx_kl_last"] = metrics["approx_kl"][-1].mean()
        return means
    passes = happened[:, 0].sum()
    means = {
        # Metrics of steps that did not happen may be anything, NaN too, and do not
        # count.
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
        size: Number of indices.
    """
    if size > _PACKED_LIMIT:
        return jax.random.permutation(key, size)
    mask = jnp.uint32((1 << max(1, (size - 1).bit_length())) - 1)
    words = jax.random.bits(key, (size,), jnp.uint32)
    packed = (words & ~mask) | jnp.arange(size, dtype=jnp.uint32)
    return (jnp.sort(packed) & mask).astype(jnp.int32)
