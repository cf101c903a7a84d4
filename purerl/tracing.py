"""Who cannot be traced, and what a traced program reads."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.interpreters import partial_eval

from purerl.config import ConfigError


def refuse_traced(who: str, *values: Any) -> None:
    """Refuse to compile and train inside a function that JAX traces.

    Programs are handed to threads, which know nothing of a trace in this one.

    Args:
        who: What compiles by itself, as a sentence begins.
        *values: Values that may be traced, as under `jax.vmap`.

    Raises:
        ConfigError: with what to call instead.
    """
    # Inside `jax.jit` every computation is traced, whatever it is of.
    here = jax.numpy.zeros(()) + 1
    if any(isinstance(leaf, Tracer) for leaf in [here, *jax.tree.leaves(values)]):
        raise ConfigError(
            f"{who} compiles by itself, and cannot be called inside jax.jit, jax.vmap "
            "or jax.grad; call it outside, or give JAX purerl.make_train(config), "
            "which they transform."
        )


def read_by(
    function: Callable[..., Any], named: Mapping[str, Any], *inputs: Any
) -> frozenset[str]:
    """Return the names of the inputs that some output of a function depends on.

    The function is traced and not run. What cannot be looked into, such as a call of
    the host, counts as reading all of its inputs.

    Args:
        function: Function of a mapping and other inputs, which JAX can trace.
        named: Inputs by name, of which shapes and types are looked at.
        *inputs: The other inputs, arrays or their shapes.
    """
    shapes = shapes_of(named)
    program = jax.make_jaxpr(function)(shapes, *inputs)
    _, is_read = partial_eval.dce_jaxpr(
        program.jaxpr, [True] * len(program.jaxpr.outvars)
    )
    names = [path[0].key for path, _ in jax.tree.leaves_with_path(shapes)]
    # The inputs by name come first.
    return frozenset(name for name, read in zip(names, is_read, strict=False) if read)


def shapes_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return numbers by name as the shapes and types that they have in a program."""
    return {name: jax.tree.map(shape_of, value) for name, value in values.items()}


def shape_of(value: Any) -> jax.ShapeDtypeStruct:
    """Return the shape and type that a number has in a program."""
    return jax.ShapeDtypeStruct(np.shape(value), jnp.result_type(value))
