"""The simplified state space layer S5 (Smith et al. 2023, arXiv:2208.04933)."""

import math
from collections.abc import Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from purerl.networks.layers import Dense
from purerl.networks.memories import diagonal
from purerl.networks.memories.checks import check_sizes
from purerl.networks.memories.diagonal import Complex, Mixture
from purerl.types import Array

# Real parts stay below this, so that every eigenvalue lies inside the unit disc.
_LARGEST_REAL = -1e-4
_MOST = 4096  # States whose matrix takes 1 GB.


class S5(nn.Module):
    """State space layers in residual blocks, over all steps of a sequence at once.

    A dense layer brings the inputs to `features` numbers. Each of the blocks after it
    is `diagonal.Block` around the recurrence (section 3 of the paper)

        x_t = exp(Lambda dt) * x_{t-1} + (exp(Lambda dt) - 1) / Lambda * (B u_t)
        y_t = 2 Re(C x_t) + D * u_t

    a continuous linear system, held for a learned time `dt` in every step. `Lambda`
    begins with those eigenvalues of the HiPPO-N matrix of size `2 N` whose imaginary
    part is positive; the other half are their conjugates, whence the factor 2. Resets
    are those of Lu et al. (2023, arXiv:2303.03982).

    Attributes:
        features: Number of outputs.
        state_size: N, complex numbers of each block's state; None takes `features`.
        num_blocks: Number of blocks.
        dt_min: Smallest time of a step at first.
        dt_max: Largest time of a step at first.
    """

    features: int
    state_size: int | None = None
    num_blocks: int = 1
    dt_min: float = 0.001
    dt_max: float = 0.1

    def __post_init__(self) -> None:
        check_sizes(self, ("features", "state_size", "num_blocks"))
        if not 0 < self.dt_min < self.dt_max:
            raise ValueError(
                "dt_min and dt_max must be 0 < dt_min < dt_max, got "
                f"{self.dt_min} and {self.dt_max}"
            )
        if (self.state_size or self.features) > _MOST:
            raise ValueError(
                f"its states must be at most {_MOST:,}, for a matrix of twice as many "
                "rows is diagonalised at the start"
            )
        super().__post_init__()

    def initial(self, shape: tuple[int, ...]) -> tuple[Complex, ...]:
        """Return the states of `[*shape]` episodes about to begin: zeros."""
        size = self.features if self.state_size is None else self.state_size
        zeros = jnp.zeros((*shape, size))
        return (Complex(zeros, zeros),) * self.num_blocks

    @nn.compact
    def __call__(
        self, carry: Sequence[Complex], inputs: Array, resets: Array
    ) -> tuple[tuple[Complex, ...], Array]:
        """The states after the last step, and outputs `[T, B, features]`.

        Args:
            carry: States `[B, N]` of the blocks before the first step.
            inputs: `[T, B, F]` inputs of the steps.
            resets: `[T, B]` bool, the step begins an episode.
        """
        size = self.features if self.state_size is None else self.state_size
        hidden, after = Dense(self.features)(inputs), []
        for number in range(self.num_blocks):
            space = StateSpace(size, self.dt_min, self.dt_max)
            block = diagonal.Block(space, self.features, name=f"block_{number}")
            state, hidden = block(carry[number], hidden, resets)
            after.append(state)
        return tuple(after), hidden


class StateSpace(nn.Module):
    """The recurrence of one block; see `S5`.

    Attributes:
        size: N, complex numbers of the state.
        dt_min: Smallest time of a step at first.
        dt_max: Largest time of a step at first.
    """

    size: int
    dt_min: float
    dt_max: float

    @nn.compact
    def __call__(
        self, state: Complex, inputs: Array, resets: Array
    ) -> tuple[Complex, Array]:
        """The state after the last step, and outputs; see `diagonal.apply`."""
        eigenvalues, vectors = hippo(self.size)
        real = self.param("real", lambda _: _parts(eigenvalues)[0])
        imag = self.param("imag", lambda _: _parts(eigenvalues)[1])
        continuous = Complex(jnp.minimum(real, _LARGEST_REAL), imag)
        time = jnp.exp(self.param("log_dt", self._init_log_dt, (self.size,)))
        factor = _exponential(Complex(continuous.real * time, continuous.imag * time))
        # (exp(Lambda dt) - 1) / Lambda
        scale = jax.tree.map(
            lambda x: diagonal.along_last(x, 2),
            _divide(Complex(factor.real - 1.0, factor.imag), continuous),
        )
        width = inputs.shape[-1]
        enter, leave = self._matrices(vectors, width)
        skip = self.param("skip", jax.nn.initializers.normal(1.0), (width,))
        leave = jax.tree.map(lambda x: 2.0 * x, leave)
        mixture = Mixture(diagonal.multiply(scale, enter), leave, skip)
        return diagonal.apply(factor, mixture, state, inputs, resets)

    def _matrices(self, vectors: np.ndarray, width: int) -> tuple[Complex, Complex]:
        """`B` `[width, N]` and `C` `[N, width]`, at first real in HiPPO-N's own basis.

        Args:
            vectors: `[2N, N]` matrix of eigenvectors.
            width: Number of inputs and of outputs.
        """
        rows = 2 * self.size

        def enter(key: Array) -> Array:
            drawn = jax.random.normal(key, (width, rows)) / math.sqrt(width)
            return jnp.stack([drawn @ part for part in _parts(vectors.conj())])

        def leave(key: Array) -> Array:
            drawn = jax.random.normal(key, (rows, width)) / math.sqrt(rows)
            return jnp.stack([part.T @ drawn for part in _parts(vectors)])

        return (
            Complex(*self.param("enter", enter)),
            Complex(*self.param("leave", leave)),
        )

    def _init_log_dt(self, key: Array, shape: tuple[int, ...]) -> Array:
        low, high = math.log(self.dt_min), math.log(self.dt_max)
        return jax.random.uniform(key, shape, minval=low, maxval=high)


def hippo(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Compute half of the eigenvalues of the HiPPO-N matrix, and their eigenvectors.

    The matrix is HiPPO-LegS (Gu et al. 2020) without its part of rank one: minus a
    half on the diagonal and antisymmetric beside it, so that all eigenvalues have the
    real part -1/2 (Gu et al. 2022, arXiv:2206.11893).

    Args:
        size: N, of a matrix of size `2 N`.

    Returns:
        Complex `[N]` with positive imaginary parts, and `[2N, N]`.
    """
    order = np.arange(2 * size)
    root = np.sqrt(order + 0.5)
    below = np.tril(np.outer(root, root), -1)
    # The antisymmetric part is -i times a Hermitian matrix.
    values, vectors = np.linalg.eigh(-1j * (below.T - below))
    positive = values > 0
    return -0.5 + 1j * values[positive], vectors[:, positive]


def _parts(x: np.ndarray) -> tuple[Array, Array]:
    """The real and the imaginary part."""
    return jnp.asarray(np.real(x), jnp.float32), jnp.asarray(np.imag(x), jnp.float32)


def _exponential(x: Complex) -> Complex:
    modulus = jnp.exp(x.real)
    return Complex(modulus * jnp.cos(x.imag), modulus * jnp.sin(x.imag))


def _divide(a: Complex, b: Complex) -> Complex:
    squared = jnp.square(b.real) + jnp.square(b.imag)
    inverse = Complex(b.real / squared, -b.imag / squared)
    return diagonal.multiply(a, inverse)
