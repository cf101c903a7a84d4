"""A change that is made or not, by a number that is known when the program runs."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from purerl.accelerator.kernels import traced_for_cpu
from purerl.learning.averages import vary_like
from purerl.types import Array, Metrics, PyTree

Carry = TypeVar("Carry")


def traced_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose second tracing with the same shapes costs nothing.

    For a function whose shapes are asked for before it is used: its Python code, which
    may be a whole update, would run for each.
    """
    return jax.jit(function, inline=True)


def change_if(
    is_due: Array,
    change: Callable[[Carry], tuple[Carry, PyTree]],
    carry: Carry,
    like: Array | None = None,
) -> tuple[Carry, PyTree]:
    """Make a change, or keep what there is and report zeros.

    Args:
        is_due: `[]` bool; not batched, it stays one branch for all vmapped agents.
        change: Function that makes the change, `(carry) -> (carry, report)`.
        like: Key that differs between the devices that the report differs between; see
            `averages.vary_like`.
    """
    change = traced_once(change)
    _, shapes = jax.eval_shape(change, carry)

    def keep(carry: Carry) -> tuple[Carry, PyTree]:
        blank = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        return carry, blank if like is None else vary_like(blank, like)

    return jax.lax.cond(is_due, change, keep, carry)


def change_where(
    is_due: Array, change: Callable[[Carry], tuple[Carry, PyTree]], carry: Carry
) -> tuple[Carry, PyTree]:
    """Compute a change in any case; take it, or keep what there is and report zeros.

    An accelerator asks the host at a branch, and copies what goes into it. Where a
    change is nearly always due, and what may change is small, this is faster.

    Args:
        is_due: `[]` bool, whether the change is made.
        change: `(carry) -> (carry, report)`; what it makes of a carry for which it is
            not due may be anything.
    """
    changed, report = change(carry)
    kept = jax.tree.map(lambda new, old: jnp.where(is_due, new, old), changed, carry)
    blank = jax.tree.map(lambda x: jnp.where(is_due, x, jnp.zeros_like(x)), report)
    return kept, blank


def add_gradient(
    grads: PyTree,
    loss: Callable[[PyTree], tuple[Array, Metrics]],
    params: PyTree,
    number: Array,
    like: Array,
) -> tuple[PyTree, Metrics]:
    """Add the gradient of another loss; return the sum, and the metrics of that loss.

    XLA merges what two losses have in common, and a sum with what is summed, and rounds
    otherwise then. On a CPU this is a branch, which is compiled by itself: where the
    other gradient is zero, many programs keep their bits.

    Args:
        grads: Gradient by `params`.
        loss: `(params) -> (scalar, metrics)`.
        number: `[]` number of the step, not batched.
        like: Key that differs between devices, see `change_if`.
    """

    def add(grads: PyTree) -> tuple[PyTree, Metrics]:
        more, metrics = jax.grad(loss, has_aux=True)(params)
        return jax.tree.map(jnp.add, grads, more), metrics

    if not traced_for_cpu():
        return add(grads)
    # It is always due, which the compiler does not know.
    is_due = number.astype(jnp.int32) != -1
    return change_if(is_due, add, grads, like)


class StepCount(NamedTuple):
    """The place of a gradient step among all.

    Attributes:
        number: `[]` uint32, gradient steps before this one.
        per_round: Gradient steps of a round, of which whole ones came before this
            step's round.
        index: The step's place in its round; None where a program does not know it when
            it is traced.
    """

    number: Array
    per_round: int = 1
    index: int | None = None

    def completes(self, period: Array | int) -> Array | bool:
        """Return whether a period of gradient steps ends with this one.

        Args:
            period: Gradient steps of a period.

        Returns:
            `[]` bool, or a Python bool where every round has the same answer.
        """
        if self.index is not None and isinstance(period, int):
            if self.per_round % period == 0:
                return (self.index + 1) % period == 0
        return (self.number + 1) % period == 0


def change_or_wait(
    is_due: Array | bool,
    change: Callable[[Carry], tuple[Carry, PyTree]],
    wait: Callable[[Carry], tuple[Carry, PyTree]],
    carry: Carry,
) -> tuple[Carry, PyTree]:
    """Make one of two changes; a branch only where a program does not know which.

    Args:
        is_due: `[]` bool, or a Python bool; not batched.
        change: `(carry) -> (carry, report)` where it is due.
        wait: `(carry) -> (carry, report)` where it is not.
    """
    if isinstance(is_due, bool):
        return change(carry) if is_due else wait(carry)
    return jax.lax.cond(is_due, change, wait, carry)
