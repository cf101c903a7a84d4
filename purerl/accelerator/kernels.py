"""Few kernels: the platform that programs are traced for, and loops made for it.

With small networks an accelerator spends its time on starting kernels that follow one
another. A loop that writes nine outputs per step has nine kernels for that alone, and
copies of its carry beside them; with the outputs side by side in one array it has one.
Numbers are packed as their 32 bits, so that what is unpacked is the same to the last.

On a CPU a write costs nothing of the kind, and packing is work. So the form is chosen
when a program is traced, by the platform.

The loop of a gated unit is here too (`unroll`). A unit is two functions: a product of
its memory, and gates of that product and of the inputs. So a sequence's gradient can
take all products but one at once: the loop over the steps back in time is left with the
gates and the product that passes the slope on.
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from purerl.types import Array, PyTree

Carry = TypeVar("Carry")
Outputs = TypeVar("Outputs")
# A larger leaf is worth a kernel of its own: packing it would only copy it.
MOST_WORDS = 2**14
# The most words that a loop carries side by side: what moves one writes all of them.
MOST_CARRIED = 2**8
# The longest vectors that are written by their columns.
MOST_COLUMNS = 8
# Steps that one turn of a loop makes on an accelerator. A turn costs a kernel for its
# counter and others that write and copy, however many steps it makes; with more of them
# a program is compiled for longer, and has few kernels less.
STEPS_OF_TURN = 4
# The platform that programs are traced for; None for that of JAX's default devices.
_platform: ContextVar[str | None] = ContextVar("platform", default=None)


@contextlib.contextmanager
def traced_for(platform: str) -> Iterator[None]:
    """Trace programs for a platform that is not that of JAX's default devices.

    Args:
        platform: The platform, such as `cpu` or `cuda`.
    """
    before = _platform.set(platform)
    try:
        yield
    finally:
        _platform.reset(before)


def traced_for_cpu() -> bool:
    """Return whether programs are traced for a CPU, where small kernels cost little."""
    return (_platform.get() or jax.default_backend()) == "cpu"


class Layout(NamedTuple):
    """The places of the leaves of a pytree in the packed array.

    Attributes:
        structure: The structure of the pytree.
        shapes: The shape of each leaf without the axes that all share.
        dtypes: The type of each leaf.
        is_packed: Whether each leaf lies in the packed array.
    """

    structure: Any
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[np.dtype, ...]
    is_packed: tuple[bool, ...]


class Packed(NamedTuple):
    """A pytree as one array and what does not go into it.

    Attributes:
        words: The packed leaves side by side, `[..., D]` int32.
        others: Leaves of other types than 32-bit numbers and truth values, and large
            ones.
    """

    words: Array
    others: tuple[Array, ...]


def pack(tree: PyTree, axes: int) -> tuple[Packed, Layout]:
    """Put the leaves of a pytree side by side.

    Args:
        tree: A pytree of arrays.
    """
    leaves, structure = jax.tree.flatten(tree)
    shapes = tuple(leaf.shape[axes:] for leaf in leaves)
    packed = tuple(map(is_small, leaves, shapes))
    lead = next((leaf.shape[:axes] for leaf in leaves), ())
    words = [
        (
            leaf.astype(jnp.int32)
            if leaf.dtype == jnp.bool_
            else jax.lax.bitcast_convert_type(leaf, jnp.int32)
        ).reshape(*lead, -1)
        for leaf, is_in in zip(leaves, packed, strict=True)
        if is_in
    ]
    whole = jnp.concatenate(words, -1) if words else jnp.zeros((*lead, 0), jnp.int32)
    others = tuple(x for x, is_in in zip(leaves, packed, strict=True) if not is_in)
    dtypes = tuple(leaf.dtype for leaf in leaves)
    return Packed(whole, others), Layout(structure, shapes, dtypes, packed)


def unpack(packed: Packed, layout: Layout) -> PyTree:
    """Return the pytree that was packed.

    Args:
        packed: The packed leaves, which may have other leading axes by now.
        layout: The layout that `pack` gave.
    """
    lead, others = packed.words.shape[:-1], iter(packed.others)
    leaves, place = [], 0
    for shape, dtype, is_in in zip(
        layout.shapes, layout.dtypes, layout.is_packed, strict=True
    ):
        if not is_in:
            leaves.append(next(others))
            continue
        size = int(np.prod(shape, dtype=int))
        words = packed.words[..., place : place + size]
        leaf = (
            words.astype(bool)
            if dtype == jnp.bool_
            else jax.lax.bitcast_convert_type(words, dtype)
        )
        leaves.append(leaf.reshape(*lead, *shape))
        place += size
    return jax.tree.unflatten(layout.structure, leaves)


def scan(
    step: Callable[[Carry, Any], tuple[Carry, Outputs]],
    carry: Carry,
    inputs: Any,
    turn: int = 1,
) -> tuple[Carry, Outputs]:
    """Scan as `jax.lax.scan` does; on an accelerator, write a step's outputs at once.

    Args:
        inputs: Leaves `[T, ...]`.
        turn: Number of steps that one turn of the loop makes on an accelerator, see
            `steps_of_turn`.

    Returns:
        The carry after the last step, and outputs with leaves `[T, ...]`.
    """
    if traced_for_cpu():
        return jax.lax.scan(step, carry, inputs)
    if jax.tree.leaves(inputs)[0].shape[0] == 1:
        return scan_unrolled(step, carry, inputs)
    layouts: list[Layout] = []

    def packed_step(carry: Carry, given: Any) -> tuple[Carry, Packed]:
        carry, outputs = step(carry, given)
        packed, layout = pack(outputs, axes=0)
        layouts.append(layout)
        return carry, packed

    carry, packed = jax.lax.scan(packed_step, carry, inputs, unroll=turn)
    return carry, unpack(packed, layouts[-1])


def scan_unrolled(
    step: Callable[[Carry, Any], tuple[Carry, Outputs]], carry: Carry, inputs: Any
) -> tuple[Carry, Outputs]:
    """Scan as `jax.lax.scan` does, with a copy of the step for each input.

    Args:
        inputs: Leaves `[T, ...]`; those of NumPy stay numbers that the step knows.

    Returns:
        As `scan`.
    """
    outputs = []
    for index in range(jax.tree.leaves(inputs)[0].shape[0]):
        carry, output = step(carry, jax.tree.map(lambda x, i=index: x[i], inputs))
        outputs.append(output)
    return carry, jax.tree.map(lambda *rows: jnp.stack(rows), *outputs)


def carry_packers(
    tree: PyTree, axes: int
) -> tuple[Callable[[PyTree], PyTree], Callable[[PyTree], PyTree]]:
    """Return functions that pack what a loop carries, and unpack it.

    What a step writes while something else of the step still reads what was there
    before is copied, a kernel for every array. On an accelerator small arrays go side
    by side in one; on a CPU both functions return what they are given.
    """
    if not is_carried_together(tree, axes):
        return lambda tree: tree, lambda tree: tree
    shapes = jax.eval_shape(lambda tree: tree, tree)
    layouts: list[Layout] = []

    def there(tree: PyTree) -> PyTree:
        packed, layout = pack(tree, axes)
        layouts.append(layout)
        return packed

    jax.eval_shape(there, shapes)
    return there, lambda packed: unpack(packed, layouts[0])


def is_carried_together(tree: PyTree, axes: int) -> bool:
    """Return whether a loop carries a pytree side by side: small, on an accelerator."""
    leaves = jax.tree.leaves(jax.eval_shape(lambda tree: tree, tree))
    words = sum(int(np.prod(leaf.shape[axes:], dtype=int)) for leaf in leaves)
    return not traced_for_cpu() and words <= MOST_CARRIED


def steps_of_turn(tree: PyTree, axes: int, inputs: PyTree) -> int:
    """Return how many steps one turn of a loop makes, a divisor of their number.

    A turn costs a kernel for its counter, one for its write and one that copies what is
    carried, however many steps it makes. Small environments have few kernels beside.

    Args:
        inputs: Leaves `[T, ...]`, of each step.
    """
    if not is_carried_together(tree, axes):
        return 1
    return math.gcd(jax.tree.leaves(inputs)[0].shape[0], STEPS_OF_TURN)


def computed_once(tree: PyTree, axes: int) -> PyTree:
    """Have the numbers of a step computed before they are put side by side.

    XLA fuses what computes a number into every kernel that reads it, and the kernel
    that writes numbers side by side reads all of them: each of its threads computed the
    whole step, and those of several steps, one number after the other. On an H200 the
    two that wrote four steps of CartPole took 15 microseconds, and take three now. With
    a barrier one kernel computes all numbers of a step, and the others copy. On a CPU,
    and of steps too large to be carried side by side, nothing changes.

    Args:
        tree: A pytree of arrays; of short vectors the columns are computed.
        axes: Number of leading axes that all leaves share.
    """
    if not is_carried_together(tree, axes):
        return tree
    leaves, structure = jax.tree.flatten(tree)
    columns = [
        tuple(leaf[:, i] for i in range(leaf.shape[1])) if _has_columns(leaf) else leaf
        for leaf in leaves
    ]
    columns = jax.lax.optimization_barrier(columns)
    # Turned, so that `columns_first` turns it back and has the columns as they are.
    leaves = [
        jnp.stack(each).T if isinstance(each, tuple) else each for each in columns
    ]
    return jax.tree.unflatten(structure, leaves)


def columns_first(tree: PyTree) -> PyTree:
    """Return a step's short vectors by their columns, `[B, D]` as `[D, B]`.

    An environment computes each number of an observation for all copies of itself, so
    that they stand in columns; rows would have to be made of them in every step. On a
    CPU, and where a leaf is no short vector, nothing changes.

    Args:
        tree: A pytree of leaves `[B, ...]`.
    """
    return jax.tree.map(lambda x: x.T if _has_columns(x) else x, tree)


def columns_last(tree: PyTree, like: PyTree) -> PyTree:
    """Return what `columns_first` turned and a scan stacked, `[T, B, ...]`.

    Args:
        tree: A pytree of leaves `[T, D, B]`, or `[T, B, ...]` where nothing was turned.
        like: The pytree of leaves `[B, ...]` of one step, or one of its shapes.
    """
    return jax.tree.map(
        lambda x, one: x.swapaxes(1, 2) if _has_columns(one) else x, tree, like
    )


def numbers_of(leaf: Array) -> list[Array]:
    """Return the numbers of a short vector one by one, on an accelerator.

    To reduce a vector is a kernel, and to compare its numbers in turn is none. On a
    CPU, and where a leaf is no short vector, it is returned as it is.

    Args:
        leaf: An array of one environment.
    """
    if leaf.ndim != 1 or leaf.shape[0] > MOST_COLUMNS or traced_for_cpu():
        return [leaf]
    return [leaf[i] for i in range(leaf.shape[0])]


def _has_columns(leaf: Array) -> bool:
    is_short_vector = leaf.ndim == 2 and 0 < leaf.shape[1] <= MOST_COLUMNS
    return is_short_vector and not traced_for_cpu()


def is_small(leaf: Array, shape: tuple[int, ...]) -> bool:
    """Return whether an array goes into a packed one.

    Args:
        leaf: The array.
        shape: Shape of the array without the axes that all share.
    """
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return False
    is_word = leaf.dtype == jnp.bool_ or np.dtype(leaf.dtype).itemsize == 4
    return is_word and np.prod(shape, dtype=int) <= MOST_WORDS


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

    turn = 1 if traced_for_cpu() else math.gcd(len(first), STEPS_OF_TURN)
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
    turn = 1 if traced_for_cpu() else math.gcd(len(first), STEPS_OF_TURN)
    slope, slopes = jax.lax.scan(step_back, start, xs, reverse=True, unroll=turn)

    def gates(params: PyTree, inputs: Array, products: Array) -> Any:
        return cell.gate(params, inputs, products, before)

    _, pull_gates = jax.vjp(gates, params, inputs, products)
    of_gates, of_inputs, of_products = pull_gates(slopes)
    of_project, _ = pull_products(of_products)
    of_params = jax.tree.map(jnp.add, of_gates, of_project)
    return of_params, of_inputs, slope, np.zeros(first.shape, jax.dtypes.float0)


_with_few_kernels.defvjp(_forward, _backward)
