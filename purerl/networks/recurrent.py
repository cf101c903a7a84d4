"""Gated units: memories of an episode.

A memory is a pytree of arrays with the environments' leading axes. It is zero before
an episode's first observation, and holds nothing of the episode before. Here are the
gated units, each a module with `__call__` for one step and `unroll` for a sequence;
`networks.memories` has the others, and the kinds of memory by name.
"""

from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp

from purerl.accelerator.kernels import Cell, unroll
from purerl.networks.orthogonal import orthogonal
from purerl.types import Array


class GRU(nn.Module):
    """A torso of single observations, then a gated recurrent unit over time.

    With `x` what the torso makes of the observation and `h` the memory before it
    (Cho et al. 2014, in the form of cuDNN and of flax's `GRUCell`):

        r  = sigmoid(W_r x + b_r + U_r h)
        z  = sigmoid(W_z x + b_z + U_z h)
        n  = tanh(W_n x + b_n + r * (U_n h + c))
        h' = (1 - z) * n + z * h

    The memory `h'` is also what heads see. All gates are one product; over a sequence
    the inputs' product is taken before the loop, which is left with the recurrent one.

    Attributes:
        torso: Module of the features of one observation.
        size: H, units of the memory.
    """

    torso: nn.Module
    size: int

    def setup(self) -> None:
        """Declare `W` and `b` in `inputs`, `U` in `recurrent`, `c` in `bias`."""
        self.inputs = nn.Dense(3 * self.size)
        init = orthogonal(blocks=3)
        self.recurrent = self.param("recurrent", init, (self.size, 3 * self.size))
        self.bias = self.param("bias", nn.initializers.zeros, (self.size,))

    def __call__(self, obs: Array, memory: Array) -> Array:
        """The memory `[..., H]` with `obs` `[..., *obs_shape]` in it."""
        inputs = self.inputs(self.torso(obs))
        return gru((self.recurrent, self.bias), inputs, memory)

    def unroll(self, obs: Array, memory: Array, first: Array) -> Array:
        """Return the memories with each of a sequence's observations in them.

        Args:
            obs: `[T, B, *obs_shape]` observations.
            memory: `[B, H]` memory before the first observation.
            first: `[T, B]` bool, the observation begins an episode: the memory is
                cleared *before* it. That is the flag of the step before it.

        Returns:
            Memories `[T, B, H]`.
        """
        inputs = self.inputs(self.torso(obs))
        params = (self.recurrent, self.bias)
        return unroll(gru, params, inputs, memory, first)


class LSTMMemory(NamedTuple):
    """The memory of an LSTM, `[..., H]` each.

    Attributes:
        hidden: Hidden state, which heads see.
        cell: Cell state, which only the next step sees.
    """

    hidden: Array
    cell: Array


class LSTM(nn.Module):
    """A torso of single observations, then long short-term memory over time.

    With `x` what the torso makes of the observation, `h` and `c` the memory before it
    (Hochreiter & Schmidhuber 1997, with the forget gate of Gers et al. 2000, in the
    form of flax's `LSTMCell`):

        i  = sigmoid(W_i x + b_i + U_i h)
        f  = sigmoid(W_f x + b_f + U_f h)
        g  = tanh(W_g x + b_g + U_g h)
        o  = sigmoid(W_o x + b_o + U_o h)
        c' = f * c + i * g
        h' = o * tanh(c')

    Heads see `h'`. Products are taken as in `GRU`.

    Attributes:
        torso: Module of the features of one observation.
        size: H, units of the memory.
    """

    torso: nn.Module
    size: int

    def setup(self) -> None:
        """Declare `W` and `b` in `inputs`, `U` in `recurrent`."""
        self.inputs = nn.Dense(4 * self.size)
        init = orthogonal(blocks=4)
        self.recurrent = self.param("recurrent", init, (self.size, 4 * self.size))

    def __call__(self, obs: Array, memory: LSTMMemory) -> LSTMMemory:
        """The memory with `obs` `[..., *obs_shape]` in it."""
        return lstm(self.recurrent, self.inputs(self.torso(obs)), memory)

    def unroll(self, obs: Array, memory: LSTMMemory, first: Array) -> LSTMMemory:
        """Return the memories with each of a sequence's observations in them.

        Args:
            obs: `[T, B, *obs_shape]` observations.
            memory: Memory `[B, H]` before the first observation.
            first: `[T, B]` bool, the observation begins an episode; see `GRU.unroll`.

        Returns:
            Memories `[T, B, H]`.
        """
        inputs = self.inputs(self.torso(obs))
        return unroll(lstm, self.recurrent, inputs, memory, first)


def _lstm_gate(
    recurrent: Array, inputs: Array, product: Array, memory: LSTMMemory
) -> LSTMMemory:
    del recurrent
    enter, keep, new, leave = jnp.split(inputs + product, 4, axis=-1)
    cell = nn.sigmoid(keep) * memory.cell + nn.sigmoid(enter) * nn.tanh(new)
    return LSTMMemory(nn.sigmoid(leave) * nn.tanh(cell), cell)


def _gru_gate(
    params: tuple[Array, Array], inputs: Array, product: Array, memory: Array
) -> Array:
    bias = params[1]
    input_r, input_z, input_n = jnp.split(inputs, 3, axis=-1)
    memory_r, memory_z, memory_n = jnp.split(product, 3, axis=-1)
    reset = nn.sigmoid(input_r + memory_r)
    update = nn.sigmoid(input_z + memory_z)
    new = nn.tanh(input_n + reset * (memory_n + jnp.broadcast_to(bias, memory.shape)))
    return (1.0 - update) * new + update * memory


lstm = Cell(lambda recurrent, memory: memory.hidden @ recurrent, _lstm_gate)
"""Long short-term memory: `(recurrent, inputs, memory) -> memory`; see `LSTM`.

`recurrent` `[H, 4H]` has `U_i`, `U_f`, `U_g`, `U_o` side by side, and `inputs`
`[..., 4H]` are `W x + b` in the same order.
"""
gru = Cell(lambda params, memory: memory @ params[0], _gru_gate)
"""A gated recurrent unit: `((recurrent, bias), inputs, memory) -> memory`; see `GRU`.

`recurrent` `[H, 3H]` has `U_r`, `U_z`, `U_n` side by side, and `bias` `[H]` is `c`.
"""
