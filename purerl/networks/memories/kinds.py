"""Kinds of memory: those by name, and modules of the user's own."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from purerl.config import ConfigError
from purerl.networks import modules
from purerl.networks.memories.linear import LRU, S5
from purerl.networks.memories.transformer import Transformer
from purerl.networks.recurrent import GRU, LSTM, LSTMMemory
from purerl.types import Array, PyTree

# The kinds that stand for a module of sequences, with `memory_size` outputs.
MODULES: dict[str, Callable[..., Any]] = {
    "lru": LRU,
    "s5": S5,
    "transformer": Transformer,
}
NAMES = ("gru", "lstm", *MODULES)


class Kind(NamedTuple):
    """A kind of memory, of one size.

    Attributes:
        size: Number of features that heads see.
        core: Function that makes the memory's module, `(torso) -> module`, with `(obs,
            memory) -> memory` and `unroll` of sequences.
        blank: `(shape) -> memory` of `[*shape]` episodes about to begin: zeros.
        read: Function from a memory to the features that heads see, `(memory) -> [...,
            size]`.
        last: `(memories) -> memory`, the last one of what `unroll` returned.
    """

    size: int
    core: Callable[[nn.Module], nn.Module]
    blank: Callable[[tuple[int, ...]], PyTree]
    read: Callable[[Any], Array]
    last: Callable[[Any], PyTree]


def kind_of(memory: str | nn.Module, size: int) -> Kind:
    """Return the kind of memory of a config.

    Args:
        memory: One of `NAMES`, or a module of sequences; see `Remembering`.
        size: Number of what heads see, of a memory by name.

    Raises:
        ValueError: the named memory cannot have this size.
    """

    def zeros(shape: tuple[int, ...]) -> Array:
        return jnp.zeros((*shape, size))

    def last_step(memories: PyTree) -> PyTree:
        return jax.tree.map(lambda x: x[-1], memories)

    if memory == "gru":
        return Kind(size, partial(GRU, size=size), zeros, lambda x: x, last_step)
    if memory == "lstm":
        return Kind(
            size,
            partial(LSTM, size=size),
            lambda shape: LSTMMemory(zeros(shape), zeros(shape)),
            lambda memory: memory.hidden,
            last_step,
        )
    if isinstance(memory, str):
        return _of_module(MODULES[memory](features=size))
    return _of_module(modules.copied(memory))


def _of_module(memory: Any) -> Kind:
    """The kind of a module of sequences."""
    features = features_of(memory)

    def blank(shape: tuple[int, ...]) -> Remembered:
        return Remembered(jnp.zeros((*shape, features)), memory.initial(tuple(shape)))

    return Kind(
        features,
        lambda torso: Remembering(torso, memory),
        blank,
        lambda found: found.output,
        lambda found: Remembered(found.output[-1], found.carry),
    )


def features_of(memory: Any) -> int:
    """Return the number of outputs of a module of sequences.

    Raises:
        ConfigError: it says none.
    """
    features = getattr(memory, "features", None)
    if type(features) is not int or features < 1:
        raise ConfigError(
            f"memory {modules.text(memory)} must have a field features, the number of "
            f"its outputs, got {features!r}."
        )
    return features


class Remembered(NamedTuple):
    """The memory of such a network between two steps.

    Attributes:
        output: `[..., features]` output, which heads see.
        carry: State with which the memory goes on.
    """

    output: Array
    carry: PyTree


class Remembering(nn.Module):
    """A torso, and a memory over time.

    Attributes:
        torso: Module of the features of one observation.
        memory: Module of sequences.
    """

    torso: nn.Module
    memory: nn.Module

    def __call__(self, obs: PyTree, memory: Remembered) -> Remembered:
        """The memory `[..., features]` with `obs` `[..., *obs_shape]` in it."""
        features = self.torso(obs)
        lead = features.shape[:-1]
        rows = features.reshape(1, -1, features.shape[-1])
        carry = jax.tree.map(
            lambda x: x.reshape(-1, *x.shape[len(lead) :]), memory.carry
        )
        # Whoever acts has cleared the memory already, where an episode ended.
        resets = jnp.zeros(rows.shape[:2], bool)
        carry, outputs = self._call(carry, rows, resets)
        output, carry = jax.tree.map(
            lambda x: x.reshape(*lead, *x.shape[1:]), (outputs[0], carry)
        )
        return Remembered(output, carry)

    def unroll(self, obs: PyTree, memory: Remembered, first: Array) -> Remembered:
        """Return the outputs of a sequence, and the carry after its last step.

        Args:
            obs: `[T, B, *obs_shape]` observations.
            memory: Memory `[B, ...]` before the first observation.
            first: `[T, B]` bool, the observation begins an episode: nothing from
                before it is remembered. That is the flag of the step before it.

        Returns:
            Outputs `[T, B, features]`, and the carry `[B, ...]` of the last step alone.
        """
        carry, outputs = self._call(memory.carry, self.torso(obs), first)
        return Remembered(outputs, carry)

    def _call(self, carry: PyTree, inputs: Array, resets: Array) -> tuple[Any, Array]:
        memory: Any = self.memory
        return memory(carry, inputs, resets)


# The steps and environments of the sequence that a module is tried with.
_SHAPE = (2, 3)


def check_module(memory: Any, width: int) -> None:
    """Refuse a module that is no memory of sequences; see `Remembering`.

    Args:
        memory: Module of a config.
        width: Number of features of the torso before it.

    Raises:
        ConfigError: naming the module, what it lacks or returns, and what is needed.
    """
    name = f"memory {modules.text(memory)}"
    features = features_of(memory)
    try:
        # Zeros are looked at, also where a tool traces the agent's making.
        with jax.ensure_compile_time_eval():
            carry = memory.initial(_SHAPE[1:])
        leaves = list(map(np.asarray, jax.tree.leaves(carry)))
    except Exception as error:
        raise ConfigError(
            f"{name} must have a method initial(shape) that returns the carry of "
            f"[*shape] episodes, but it failed: {type(error).__name__}: {error}."
        ) from error
    # Memories are cleared to zeros where an episode ends.
    if any(leaf.shape[:1] != _SHAPE[1:] or leaf.any() for leaf in leaves):
        raise ConfigError(
            f"{name} must have an initial(shape) of zeros [*shape, ...], but "
            f"initial({_SHAPE[1:]}) is {carry}."
        )
    inputs, resets = jnp.zeros((*_SHAPE, width)), jnp.zeros(_SHAPE, bool)
    words = "(carry, inputs [T, B, F], resets [T, B]) to (carry, outputs)"
    found = modules.tried(name, memory, words, carry, inputs, resets)
    outputs = jax.ShapeDtypeStruct((*_SHAPE, features), jnp.float32)
    expected = _types((carry, outputs))
    if not isinstance(found, tuple | list) or _types(tuple(found)) != expected:
        raise ConfigError(
            f"{name} must return a carry like the one it takes and outputs (T, B, "
            f"features), here {expected[1]}, but it returned {_types(found)[1]}."
        )


def _types(tree: PyTree) -> tuple[Any, list[tuple[tuple[int, ...], str]]]:
    """Structure, and shape and type of every array."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(tuple(x.shape), str(x.dtype)) for x in leaves]
