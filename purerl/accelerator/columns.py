"""Functions of few outputs, written one output after another, for few kernels.

A compiler for an accelerator makes a kernel of every sum over an axis, also where that
has two members. A policy over few actions written as sums of columns, with its
log-probabilities, entropies and their gradients, is arithmetic of single numbers, which
is one kernel with what stands before and after it.
"""

from collections.abc import Sequence
from functools import reduce

import jax
import jax.numpy as jnp

from purerl.accelerator.kernels import traced_for_cpu
from purerl.types import Array

# The text of such a kernel grows long with more columns.
MOST = 8


def argmax(values: Array) -> Array:
    """Return the index of the largest of the last axis, the first of equals, int32.

    Args:
        values: `[..., n]` values, n along the last axis.
    """
    if not is_unrolled(values):
        return jnp.argmax(values, -1).astype(jnp.int32)
    most, choice = values[..., 0], jnp.zeros(values.shape[:-1], jnp.int32)
    for index in range(1, values.shape[-1]):
        is_larger = values[..., index] > most
        choice = jnp.where(is_larger, index, choice)
        most = jnp.where(is_larger, values[..., index], most)
    return choice


def pick(values: Array, choice: Array) -> Array:
    """Return one of the last axis, `[...]`.

    Args:
        values: `[..., n]` values, n along the last axis.
        choice: `[...]` int32, below n.
    """
    if not is_unrolled(values):
        return jnp.take_along_axis(values, choice[..., None], -1)[..., 0]
    picked = values[..., 0]
    for index in range(1, values.shape[-1]):
        picked = jnp.where(choice == index, values[..., index], picked)
    return picked


def largest(values: Array) -> Array:
    """Return the largest of the last axis, `[...]`.

    Args:
        values: `[..., n]` values, n along the last axis.
    """
    if not is_unrolled(values):
        return values.max(-1)
    return reduce(jnp.maximum, [values[..., i] for i in range(values.shape[-1])])


def is_unrolled(values: Array) -> bool:
    """Return whether an axis is unrolled: a short one, on an accelerator.

    Args:
        values: `[..., n]` values, n along the last axis.
    """
    return not traced_for_cpu() and values.shape[-1] <= MOST


def log_softmax(logits: Sequence[Array]) -> list[Array]:
    """Return the log-probability of each choice, `[...]` each, of its logits."""
    largest = jax.lax.stop_gradient(reduce(jnp.maximum, logits))
    shifted = [column - largest for column in logits]
    total = jnp.log(sum(map(jnp.exp, shifted)))
    return [column - total for column in shifted]


def taken(log_probs: Sequence[Array], choice: Array) -> Array:
    """Return the log-probability of a choice, `[...]`; minus infinity beyond all.

    Args:
        choice: `[...]` whole numbers.
    """
    found = jnp.full_like(log_probs[0], -jnp.inf)
    for index, column in enumerate(log_probs):
        found = jnp.where(choice == index, column, found)
    return found


def entropy(log_probs: Sequence[Array]) -> Array:
    """Return the Shannon entropy `[...]`."""
    least = jnp.finfo(log_probs[0].dtype).min
    # A choice of probability zero has no part, and no NaN, in the sum.
    terms = [jnp.exp(column) * jnp.maximum(column, least) for column in log_probs]
    return -reduce(jnp.add, terms)


@jax.custom_vjp
def product(x: Array, kernel: Array) -> list[Array]:
    """Return the columns `[K, N]` of `x @ kernel`.

    The gradient of `x` is a sum of as many terms, in place of a product.

    Args:
        x: `[K, N, I]` inputs.
        kernel: `[K, I, O]`, with few columns.
    """
    whole = x @ kernel
    return [whole[..., index] for index in range(kernel.shape[-1])]


def _forward(x: Array, kernel: Array) -> tuple[list[Array], tuple[Array, Array]]:
    return product(x, kernel), (x, kernel)


def _backward(
    saved: tuple[Array, Array], slopes: Sequence[Array]
) -> tuple[Array, Array]:
    x, kernel = saved
    # The barrier has them computed where they are put side by side, in one kernel;
    # without it the sum takes them from where they stood before.
    slope = jax.lax.optimization_barrier(jnp.stack(slopes, -1))
    terms = [
        slope[:, :, index, None] * kernel[:, None, :, index]
        for index in range(kernel.shape[-1])
    ]
    return reduce(jnp.add, terms), x.swapaxes(1, 2) @ slope


product.defvjp(_forward, _backward)
