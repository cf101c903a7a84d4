"""Checks of memories, before anything is traced."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl.config import ConfigError
from purerl.networks import modules
from purerl.networks.memories.core import features_of
from purerl.types import PyTree

# The steps and environments of the sequence that a module is tried with.
_SHAPE = (2, 3)


def check_sizes(module: Any, names: tuple[str, ...]) -> None:
    """Refuse sizes of a memory that are no positive whole numbers.

    Args:
        module: Memory.
        names: Fields that hold sizes; None in one stands for a default.

    Raises:
        ValueError: naming the field and its value.
    """
    for name in names:
        value = getattr(module, name)
        if value is not None and (type(value) is not int or value < 1):
            raise ValueError(f"{name} must be a positive whole number, got {value!r}")


def check_module(memory: Any, width: int) -> None:
    """Refuse a module that is no memory of sequences; see `memories.core`.

    Args:
        memory: Module of a config.
        width: Number of features of the torso before it.

    Raises:
        ConfigError: naming the module, what it lacks or returns, and what is needed.
    """
    name = f"memory {modules.text(memory)}"
    features = features_of(memory)
    carry = _initial(name, memory)
    inputs, resets = jnp.zeros((*_SHAPE, width)), jnp.zeros(_SHAPE, bool)
    try:
        found, variables = jax.eval_shape(
            modules.copied(memory).init_with_output,
            jax.random.key(0),
            carry,
            inputs,
            resets,
        )
        after, outputs = found
    except Exception as error:
        first = str(error).strip().partition("\n")[0]
        raise ConfigError(
            f"{name} must map (carry, inputs [T, B, F], resets [T, B]) to (carry, "
            f"outputs), but it failed on inputs {inputs.shape}: "
            f"{type(error).__name__}: {first}"
        ) from error
    modules.check_variables(name, variables)
    modules.check_no_chance(name, memory, variables, carry, inputs, resets)
    if _types(after) != _types(carry):
        raise ConfigError(
            f"{name} must return a carry like the one it takes, {_types(carry)[1]}, "
            f"but it returned {_types(after)[1]}."
        )
    if _types(outputs)[1] != [((*_SHAPE, features), "float32")]:
        raise ConfigError(
            f"{name} must return float32 outputs (T, B, features), here "
            f"{(*_SHAPE, features)}, but it returned {_types(outputs)[1]}."
        )


def _initial(name: str, memory: Any) -> PyTree:
    """The carry of some episodes, which must be zeros of their number."""
    try:
        carry = memory.initial(_SHAPE[1:])
    except Exception as error:
        raise ConfigError(
            f"{name} must have a method initial(shape) that returns the carry of "
            f"[*shape] episodes, but it failed: {type(error).__name__}: {error}."
        ) from error
    for leaf in jax.tree.leaves(carry):
        # Memories are cleared to zeros where an episode ends.
        if np.shape(leaf)[:1] != _SHAPE[1:] or np.any(np.asarray(leaf) != 0):
            raise ConfigError(
                f"{name} must have an initial(shape) of zeros [*shape, ...], but "
                f"initial({_SHAPE[1:]}) has an array of shape {np.shape(leaf)} with "
                f"the largest number {np.max(np.abs(np.asarray(leaf))):g}."
            )
    return carry


def _types(tree: PyTree) -> tuple[Any, list[tuple[tuple[int, ...], str]]]:
    """Structure, and shape and type of every array."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(tuple(x.shape), str(x.dtype)) for x in leaves]
