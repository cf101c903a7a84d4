"""Kinds of memory: those by name, and modules of the user's own."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from purerl.networks import modules
from purerl.networks.memories.core import Remembered, Remembering, features_of
from purerl.networks.memories.lru import LRU
from purerl.networks.memories.s5 import S5
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
        memory: One of `NAMES`, or a module of sequences; see `memories.core`.
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
