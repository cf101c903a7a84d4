"""A gated unit over a sequence, and forgetting where episodes end.

A unit is two functions: a product of its memory, and gates of that product and of the
inputs. So a sequence's gradient can take all products but one at once: the loop over
the steps back in time is left with the gates and the product that passes the slope on.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl.tracing import steps_of_turn, traced_for_cpu
from purerl.types import Array, PyTree


def forget(memory: PyTree, done: Array) -> PyTree:
    """Clear the memory, to zeros, where an episode ended.

    Args:
        memory: Pytree with leaves `[*lead, ...]`.
        done: `[*lead]` bool, the episode has ended.
    """

    def clear(x: Array) -> Array:
        ended = done.reshape(*done.shape, *[1] * (x.ndim - done.ndim))
        return jnp.where(ended, jnp.zeros_like(x), x)

    return jax.tree.map(clear, memory)


class Cell(NamedTuple):
    """One step of a gated unit.

    Attributes:
        project: `(params, memory) -> product`, linear in the memory; all that the
            parameters have to do with the memory.
        gate: `(params, inputs, product, memory) -> memory`, number by number.
    """

    project: Callable[[PyTree, PyTree], Array]
    gate: Callable[[PyTree, Array, Array, PyTree], PyTree]

    def __call__(self, params: PyTree, inputs: Array, memory: PyTree) -> Any:
        """Return the next memory.

        Args:
            inputs: `[B, ...]` inputs of the step.
            memory: Memory `[B, ...]` before it.
        """
        return self.gate(params, inputs, self.project(params, memory), memory)


def unroll(
    cell: Cell, params: PyTree, inputs: Array, memory: PyTree, first: Array
) -> Any:
    """Return the memories `[T, B, ...]` of a sequence, cleared where episodes begin.

    Args:
        cell: The unit.
        inputs: `[T, B, ...]` inputs of the steps.
        memory: Memory `[B, ...]` before the first step.
        first: `[T, B]` bool, the step begins an episode: the memory is cleared before
            it.
    """
    if traced_for_cpu():
        return _unroll(cell, params, inputs, memory, first)
    return _with_few_kernels(cell, params, inputs, memory, first)


def _unroll(
    cell: Cell, params: PyTree, inputs: Array, memory: PyTree, first: Array
) -> Any:
    def step(memory: PyTree, xs: tuple[Array, Array]) -> tuple[PyTree, PyTree]:
        inputs_t, first_t = xs
        memory = cell(params, inputs_t, forget(memory, first_t))
        return memory, memory

    turn = steps_of_turn(len(first))
    return jax.lax.scan(step, memory, (inputs, first), unroll=turn)[1]


# The gradient of a scan keeps what the gates are made of, an array and a kernel each in
# every step. Here only memories are kept: gates are computed again on the way back.
_with_few_kernels = jax.custom_vjp(_unroll, nondiff_argnums=(0,))


def _forward(
    cell: Cell, params: PyTree, inputs: Array, memory: PyTree, first: Array
) -> tuple[Any, tuple[Any, ...]]:
    memories = _unroll(cell, params, inputs, memory, first)
    return memories, (params, inputs, memory, first, memories)


def _backward(cell: Cell, saved: tuple[Any, ...], slopes: PyTree) -> tuple[Any, ...]:
    """Gradients of parameters, inputs and the first memory; see `_forward`."""
    params, inputs, memory, first, memories = saved
    before = jax.tree.map(
        lambda start, later: jnp.concatenate([start[None], later[:-1]]),
        memory,
        memories,
    )
    before = forget(before, first)
    products, pull_products = jax.vjp(cell.project, params, before)

    def step_back(slope: PyTree, xs: tuple[Any, ...]) -> tuple[PyTree, PyTree]:
        inputs_t, product_t, before_t, first_t, slope_t = xs
        slope = jax.tree.map(jnp.add, slope, slope_t)
        gate = partial(cell.gate, params, inputs_t)
        _, pull_gate = jax.vjp(gate, product_t, before_t)
        of_product, direct = pull_gate(slope)
        _, pull_project = jax.vjp(partial(cell.project, params), before_t)
        (through,) = pull_project(of_product)
        passed = jax.tree.map(jnp.add, direct, through)
        return forget(passed, first_t), slope

    start = jax.tree.map(jnp.zeros_like, memory)
    xs = inputs, products, before, first, slopes
    turn = steps_of_turn(len(first))
    slope, slopes = jax.lax.scan(step_back, start, xs, reverse=True, unroll=turn)

    def gates(params: PyTree, inputs: Array, products: Array) -> Any:
        return cell.gate(params, inputs, products, before)

    _, pull_gates = jax.vjp(gates, params, inputs, products)
    of_gates, of_inputs, of_products = pull_gates(slopes)
    of_project, _ = pull_products(of_products)
    of_params = jax.tree.map(jnp.add, of_gates, of_project)
    return of_params, of_inputs, slope, np.zeros(first.shape, jax.dtypes.float0)


_with_few_kernels.defvjp(_forward, _backward)
