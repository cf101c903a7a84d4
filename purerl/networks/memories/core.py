"""A torso of single observations, then a memory that is a module of its own.

Such a memory is a flax module of sequences, with the field `features` and

    initial(shape) -> carry                 zeros, leaves `[*shape, ...]`
    (carry, inputs, resets) -> (carry, outputs)

where `inputs` `[T, B, F]` are a torso's features, `resets` `[T, B]` bool says which
steps begin an episode, `outputs` is `[T, B, features]`, and the leaves of a carry are
`[B, ...]`. A policy that acts calls it with `T = 1`.
"""

from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from purerl.config import ConfigError
from purerl.networks import modules
from purerl.types import Array, PyTree


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
