"""The work of a program, counted from its operations before anything is compiled."""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from jax.extend import core

from purerl.execution.memory import inner_programs, num_bytes

# A kernel each; what is between them is fused with one of them.
PRODUCTS = ("dot_general", "conv_general_dilated")
REDUCTIONS = ("reduce", "arg", "cum", "sort", "top_k")
PARTS = ("gather", "dynamic_slice", "slice", "scatter", "dynamic_update_slice")
OWN_KERNELS = (*PRODUCTS, *REDUCTIONS, "gather", "scatter", "dynamic_update_slice")
# A loop also writes what it carries, several arrays in some kernels. The share is the
# least-squares fit to the kernels of six presets compiled for an H200.
KERNELS_PER_CARRIED_ARRAY = 0.6
# Only say how an array is looked at.
VIEWS = {
    *("broadcast_in_dim", "reshape", "squeeze", "transpose", "convert_element_type"),
    *("bitcast_convert_type", "random_wrap", "random_unwrap", "stop_gradient", "iota"),
    *("expand_dims", "copy", "slice", "split", "stack", "pad"),
}


class Work(NamedTuple):
    """The work of a program; branches count as taken, loops of unknown length as one.

    Attributes:
        kernels: Kernels that a GPU would run one after the other. For eight presets of
            docs/results/speed.md this was 0.95 to 1.62 times the compiler's own count,
            and 4.4 and 4.6 times for `ppo-minatar` and `ppo-halfcheetah`.
        flops: Floating-point operations.
        bytes: Bytes read and written: by products, reductions and what moves parts of
            arrays, and once by what else is not fused with them.
    """

    kernels: float = 0.0
    flops: float = 0.0
    bytes: float = 0.0

    def times(self, count: float) -> "Work":
        """Return the work of some repetitions."""
        return Work(*(count * value for value in self))


def total(works: Iterable[Work]) -> Work:
    """Return the sum."""
    found = list(works)
    return Work(*map(sum, zip(*found, strict=True)))


def work_of(jaxpr: core.Jaxpr) -> Work:
    """Return what a traced program does.

    Args:
        jaxpr: The program.
    """
    makers = {out: each for each in jaxpr.eqns for out in each.outvars}
    written = _written(jaxpr, makers)
    works = (_of_equation(each, written, makers) for each in jaxpr.eqns)
    return total([Work(), *works])


def _written(jaxpr: core.Jaxpr, makers: dict[Any, core.JaxprEqn]) -> set[Any]:
    """Return the arrays that reach the memory: the others live inside fused kernels."""
    found = set(_variables(jaxpr.outvars))
    for equation in reversed(jaxpr.eqns):
        is_view = equation.primitive.name in VIEWS
        if not _is_fused(equation) or (is_view and found & set(equation.outvars)):
            found.update(_read(equation, makers))
    return found


def _read(equation: core.JaxprEqn, makers: dict[Any, core.JaxprEqn]) -> set[Any]:
    """Return the arrays that an operation reads.

    A sum of products, as of a product that is written as sums, multiplies in its own
    kernel: it reads the factors where they are smaller than what they give together.
    """
    arguments = set(_variables(equation.invars))
    if equation.primitive.name != "reduce_sum":
        return arguments
    maker = makers.get(equation.invars[0])
    if maker is None or maker.primitive.name != "mul":
        return arguments
    factors, found = list(_variables(maker.invars)), set()
    while factors:
        factor = factors.pop()
        seen = makers.get(factor)
        if seen is not None and seen.primitive.name in VIEWS:
            factors += _variables(seen.invars)
        else:
            found.add(factor)
    size = sum(num_bytes(each.aval) for each in found)
    return found if size < num_bytes(equation.invars[0].aval) else arguments


def _variables(arguments: Iterable[Any]) -> Iterable[Any]:
    return (each for each in arguments if not isinstance(each, core.Literal))


def _is_fused(equation: core.JaxprEqn) -> bool:
    is_call = next(iter(inner_programs(equation)), None) is not None
    return not is_call and not _is_kernel(equation.primitive.name)


def _of_equation(
    equation: core.JaxprEqn, written: set[Any], makers: dict[Any, core.JaxprEqn]
) -> Work:
    inner = [work_of(each) for each in inner_programs(equation)]
    name = equation.primitive.name
    if name == "scan":
        carried = num_carried(equation)
        stacked = len(equation.outvars) - carried
        turn = 1 + stacked + KERNELS_PER_CARRIED_ARRAY * carried
        # A turn of an unrolled loop makes several steps.
        own = Work(turn / equation.params["unroll"])
        return total([*inner, own]).times(equation.params["length"])
    if name == "while":
        turn = 1 + KERNELS_PER_CARRIED_ARRAY * len(equation.outvars)
        return total([*inner, Work(turn)])
    if inner:  # a call, or branches of which one runs
        return max(inner) if name == "cond" else total(inner)
    is_seen = _is_kernel(name) or written & set(equation.outvars)
    moved = _bytes(equation, _read(equation, makers)) if is_seen else 0.0
    return Work(_is_kernel(name), _flops(equation), moved)


def num_carried(equation: core.JaxprEqn) -> int:
    """Return how many arrays a scan carries; the others are written in every turn.

    What is written has an axis more than what a turn gives. JAX has a parameter with
    the number up to 0.10 and none from 0.11 on.

    Args:
        equation: A scan.
    """
    inner = next(iter(inner_programs(equation)))
    pairs = zip(equation.outvars, inner.outvars, strict=True)
    return sum(len(_shape(out)) == len(_shape(one)) for out, one in pairs)


def _is_kernel(name: str) -> float:
    return float(name.startswith(OWN_KERNELS) or name == "concatenate")


def _flops(equation: core.JaxprEqn) -> float:
    name, out = equation.primitive.name, equation.outvars[0].aval
    if name in VIEWS or name.startswith(PARTS):
        return 0.0
    if name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        shape = _shape(equation.invars[0])
        return 2.0 * _size(out) * math.prod(shape[axis] for axis in contracted)
    if name == "conv_general_dilated":
        kernel = equation.invars[1].aval
        channel = equation.params["dimension_numbers"].rhs_spec[0]
        return 2.0 * _size(out) * _size(kernel) / _shape(equation.invars[1])[channel]
    if name.startswith(REDUCTIONS):
        return float(_size(equation.invars[0].aval))
    return float(_size(out))


def _bytes(equation: core.JaxprEqn, read: set[Any]) -> float:
    name = equation.primitive.name
    if name in VIEWS:
        return 0.0
    written = float(sum(num_bytes(out.aval) for out in equation.outvars))
    if name.startswith(("scatter", "dynamic_update_slice")):
        # In place: only what is put there moves.
        update = equation.invars[1 if name.startswith("dynamic") else 2]
        return 2.0 * num_bytes(update.aval)
    if name.startswith(("gather", "dynamic_slice")):
        return 2.0 * written
    if name.startswith((*PRODUCTS, *REDUCTIONS)):
        return written + sum(num_bytes(each.aval) for each in read)
    return written


def _shape(var: Any) -> tuple[int, ...]:
    return var.aval.shape


def _size(aval: Any) -> int:
    return math.prod(getattr(aval, "shape", ()))
