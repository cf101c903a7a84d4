"""Linear recurrences with a diagonal complex matrix, cut where episodes begin.

Complex numbers are pairs of float32 arrays, real and imaginary part, so that memories,
checkpoints and exported policies hold real arrays only.
"""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from purerl.networks.layers import Dense, layer_norm
from purerl.types import Array


class Complex(NamedTuple):
    """A complex array as two real ones of one shape."""

    real: Array
    imag: Array


def multiply(a: Complex, b: Complex) -> Complex:
    """Return the product of two complex arrays, element by element."""
    return Complex(a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real)


def unroll(
    eigenvalues: Complex, inputs: Complex, start: Complex, resets: Array
) -> Complex:
    """Compute `x_t = a_t * x_{t-1} + b_t`, where `a_t` is zero at an episode's first.

    An affine map after another is an affine map, which is associative, so that all
    states are found in about `log2(T)` wide steps (Blelloch 1990; Smith et al. 2023,
    arXiv:2208.04933). A reset is a factor of zero within the same scan (Lu et al. 2023,
    arXiv:2303.03982, have a flag in the operator, which comes to the same).

    Args:
        eigenvalues: `[N]`, the recurrence's factors.
        inputs: `[T, B, N]`, what is added in every step.
        start: `[B, N]`, the state before the first step.
        resets: `[T, B]` bool, the step begins an episode: nothing of the state before
            it is kept.

    Returns:
        States `[T, B, N]`.
    """

    def factor(part: Array) -> Array:
        return jnp.where(resets[..., None], 0.0, along_last(part, 3))

    def compose(
        earlier: tuple[Complex, Complex], later: tuple[Complex, Complex]
    ) -> tuple[Complex, Complex]:
        carried = multiply(later[0], earlier[1])
        offset = jax.tree.map(jnp.add, carried, later[1])
        return multiply(later[0], earlier[0]), offset

    factors = Complex(factor(eigenvalues.real), factor(eigenvalues.imag))
    first = multiply(jax.tree.map(lambda x: x[0], factors), start)
    inputs = jax.tree.map(lambda b, x: b.at[0].add(x), inputs, first)
    return jax.lax.associative_scan(compose, (factors, inputs))[1]


class Block(nn.Module):
    """A recurrence between a norm and a gated layer, added to its input.

    `u + GLU(gelu(recurrence(LayerNorm(u))))`, where `GLU(z) = (W z + b) *
    sigmoid(V z + c)`, as around S5 (Smith et al. 2023) and the LRU (Orvieto et al.
    2023).

    Attributes:
        recurrence: Module `(state, inputs, resets) -> (state, outputs)`.
        features: Number of inputs and of outputs.
    """

    recurrence: nn.Module
    features: int

    @nn.compact
    def __call__(
        self, state: Complex, inputs: Array, resets: Array
    ) -> tuple[Complex, Array]:
        """The state after the last step, and outputs `[T, B, features]`.

        Args:
            state: `[B, N]` state before the first step.
            inputs: `[T, B, features]` inputs of the steps.
            resets: `[T, B]` bool, the step begins an episode.
        """
        normed = layer_norm()(inputs)
        state, hidden = self.recurrence(state, normed, resets)
        value, gate = jnp.split(Dense(2 * self.features)(nn.gelu(hidden)), 2, -1)
        return state, inputs + value * nn.sigmoid(gate)


class Mixture(NamedTuple):
    """Matrices around a diagonal recurrence.

    Attributes:
        enter: `B`, from inputs to states, `[features, N]`.
        leave: `C`, from states to outputs, `[N, features]`.
        skip: `D`, `[features]`, which inputs have in their own output.
    """

    enter: Complex
    leave: Complex
    skip: Array


def apply(
    eigenvalues: Complex,
    mixture: Mixture,
    state: Complex,
    inputs: Array,
    resets: Array,
) -> tuple[Complex, Array]:
    """Return the state after a sequence, and outputs `Re(C x_t) + D u_t`.

    Args:
        eigenvalues: `[N]` eigenvalues of the state's transition.
        mixture: Matrices; what scales the inputs is in `enter`.
        state: `[B, N]` state before the first step.
        inputs: `[T, B, features]` inputs `u_t`.
        resets: `[T, B]` bool, the step begins an episode.
    """
    entering = jax.tree.map(lambda matrix: inputs @ matrix, mixture.enter)
    states = unroll(eigenvalues, entering, state, resets)
    outputs = states.real @ mixture.leave.real - states.imag @ mixture.leave.imag
    last = jax.tree.map(lambda x: x[-1], states)
    return last, outputs + along_last(mixture.skip, 3) * inputs


def along_last(vector: Array, ndim: int) -> Array:
    """Return a vector as an array of `ndim` axes, of which all but the last have 1."""
    return vector.reshape((1,) * (ndim - 1) + (-1,))
