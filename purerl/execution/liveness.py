"""Memory of a program from its shapes alone, before anything is compiled.

The operations of a traced program are gone through in their order; an array lives from
the operation that makes it to the last one that reads it. The most that lives at once
is what the program needs if no operation is fused with another and no array is
written over another one.
"""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core

from purerl.execution.memory import BlockMemory, num_bytes
from purerl.train import Bound, make_segment


def traced_memory(bound: Bound, length: int) -> BlockMemory:
    """Return the bytes of one agent while a segment of its training runs.

    Args:
        bound: Config, environment and plan of the agent.
        length: Updates of a segment, K.
    """
    segment = make_segment(bound)
    state = jax.eval_shape(segment.init, jax.random.key(0))
    closed = jax.make_jaxpr(lambda s, first: segment.advance(s, first, length))(
        state, jax.ShapeDtypeStruct((), jnp.int32)
    )
    state_bytes = sum(map(num_bytes, jax.tree.leaves(state)))
    # The old states are given to the call, which may write the new ones over them.
    return BlockMemory(state_bytes, max(0, peak_bytes(closed.jaxpr) - state_bytes), 0)


def peak_bytes(jaxpr: core.Jaxpr) -> int:
    """Return the most bytes that a program's own arrays take at once.

    Args:
        jaxpr: The program; arguments and constants belong to the caller, and do not
            count.
    """
    last = _last_uses(jaxpr)
    alive: dict[Any, int] = {}
    total = most = 0
    for number, equation in enumerate(jaxpr.eqns):
        inside = max(map(peak_bytes, inner_programs(equation)), default=0)
        read = [v for v in equation.invars if not isinstance(v, core.Literal)]
        ending = [v for v in dict.fromkeys(read) if last[v] == number]
        for out in equation.outvars:
            over = next((v for v in ending if _same_shape(v, out)), None)
            if over is None:
                alive[out] = num_bytes(out.aval)
                total += alive[out]
            else:
                # A caller's array costs nothing here, whatever is written over it.
                ending.remove(over)
                alive[out] = alive.pop(over, 0)
        most = max(most, total + inside)
        ending += [v for v in equation.outvars if v not in last]
        total -= sum(alive.pop(var, 0) for var in ending)
    return most


def _same_shape(one: Any, two: Any) -> bool:
    return (one.aval.shape, one.aval.dtype) == (two.aval.shape, two.aval.dtype)


def _last_uses(jaxpr: core.Jaxpr) -> dict[Any, int]:
    """The number of the last operation that reads an array; results live on."""
    last: dict[Any, int] = {}
    for number, equation in enumerate(jaxpr.eqns):
        read = (v for v in equation.invars if not isinstance(v, core.Literal))
        last.update(dict.fromkeys(read, number))
    results = (v for v in jaxpr.outvars if not isinstance(v, core.Literal))
    last.update(dict.fromkeys(results, len(jaxpr.eqns)))
    return last


def inner_programs(equation: core.JaxprEqn) -> Iterator[core.Jaxpr]:
    """Return the programs inside an operation: of loops, branches and calls."""
    for value in equation.params.values():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(item, core.ClosedJaxpr):
                yield item.jaxpr
            elif isinstance(item, core.Jaxpr):
                yield item
