"""Memories with a linear recurrence: linear recurrent units (LRU) and S5.

Both run a diagonal recurrence over complex numbers by an associative scan.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from purerl.networks.layers import Dense, along_last, layer_norm
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


class Recurrences(nn.Module):
    """A dense layer, and blocks around recurrences over complex numbers.

    Attributes:
        features: Number of outputs.
        state_size: N, complex numbers of each block's state; None takes `features`.
        num_blocks: Number of blocks.
    """

    features: int
    state_size: int | None = None
    num_blocks: int = 1

    def __post_init__(self) -> None:
        check_sizes(self, ("features", "state_size", "num_blocks"))
        super().__post_init__()

    def unit(self, size: int) -> nn.Module:
        """Return the recurrence of a block, of N complex numbers."""
        raise NotImplementedError

    def initial(self, shape: tuple[int, ...]) -> tuple[Complex, ...]:
        """Return the states of `[*shape]` episodes about to begin: zeros."""
        zeros = jnp.zeros((*shape, self.state_size or self.features))
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
        hidden, after = Dense(self.features)(inputs), []
        for number, state in enumerate(carry):
            unit = self.unit(self.state_size or self.features)
            block = Block(unit, self.features, name=f"block_{number}")
            state, hidden = block(state, hidden, resets)
            after.append(state)
        return tuple(after), hidden


class LRU(Recurrences):
    """Linear recurrent units in residual blocks, over all steps of a sequence at once.

    A dense layer brings the inputs to `features` numbers. Each of the blocks after it
    is `Block` around the recurrence (section 3 of the paper)

        x_t = lambda * x_{t-1} + gamma * (B u_t)
        y_t = Re(C x_t) + D * u_t
        lambda = exp(-exp(nu) + i exp(theta))
        gamma = sqrt(1 - |lambda|^2)   at first, and learned from there

    with `N = state_size` complex numbers. Whatever `nu` is, every eigenvalue lies
    inside the unit disc.

    Attributes:
        features: Number of outputs.
        state_size: N, complex numbers of each block's state; None takes `features`.
        num_blocks: Number of blocks.
        r_min: Smallest modulus of the eigenvalues at first.
        r_max: Largest modulus of the eigenvalues at first, below 1.
        max_phase: Largest angle of the eigenvalues at first, in radians.
    """

    r_min: float = 0.9
    r_max: float = 0.999
    max_phase: float = 2 * math.pi

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.r_min < self.r_max < 1 or not self.max_phase > 0:
            raise ValueError(
                "r_min and r_max must be 0 <= r_min < r_max < 1, and max_phase greater "
                f"than 0, got {self.r_min}, {self.r_max} and {self.max_phase}"
            )

    def unit(self, size: int) -> nn.Module:
        """Return the recurrence of a block, of N complex numbers."""
        return LinearUnit(size, self.r_min, self.r_max, self.max_phase)


class LinearUnit(nn.Module):
    """The recurrence of one block; see `LRU`.

    Attributes:
        size: N, complex numbers of the state.
        r_min: Smallest modulus of the eigenvalues at first.
        r_max: Largest modulus of the eigenvalues at first.
        max_phase: Largest angle of the eigenvalues at first.
    """

    size: int
    r_min: float
    r_max: float
    max_phase: float

    @nn.compact
    def __call__(
        self, state: Complex, inputs: Array, resets: Array
    ) -> tuple[Complex, Array]:
        """The state after the last step, and outputs; see `apply`."""
        nu = self.param("nu", self._init_nu, (self.size,))
        theta = self.param("theta", self._init_theta, (self.size,))
        modulus = jnp.exp(-jnp.exp(nu))
        # The initial value of log gamma follows from that of nu, and is learned apart.
        gamma = self.param("gamma", lambda _: 0.5 * jnp.log1p(-jnp.square(modulus)))
        width = inputs.shape[-1]
        enter = jax.nn.initializers.normal(1 / math.sqrt(2 * width))
        leave = jax.nn.initializers.normal(1 / math.sqrt(self.size))
        scale = along_last(jnp.exp(gamma), 2)
        mixture = Mixture(
            Complex(
                scale * self.param("enter_real", enter, (width, self.size)),
                scale * self.param("enter_imag", enter, (width, self.size)),
            ),
            Complex(
                self.param("leave_real", leave, (self.size, width)),
                self.param("leave_imag", leave, (self.size, width)),
            ),
            self.param("skip", jax.nn.initializers.normal(1.0), (width,)),
        )
        phase = jnp.exp(theta)
        eigenvalues = Complex(modulus * jnp.cos(phase), modulus * jnp.sin(phase))
        return apply(eigenvalues, mixture, state, inputs, resets)

    def _init_nu(self, key: Array, shape: tuple[int, ...]) -> Any:
        """`nu` of moduli that make eigenvalues uniform on the ring (lemma 3.2)."""
        low, high = self.r_min**2, self.r_max**2
        squared = jax.random.uniform(key, shape, minval=low, maxval=high)
        # A modulus of zero would have an infinite nu.
        return jnp.log(-0.5 * jnp.log(jnp.maximum(squared, 1e-8)))

    def _init_theta(self, key: Array, shape: tuple[int, ...]) -> Any:
        share = jax.random.uniform(key, shape, minval=1e-4)
        return jnp.log(self.max_phase * share)


# Real parts stay below this, so that every eigenvalue lies inside the unit disc.
_LARGEST_REAL = -1e-4
_MOST = 4096  # States whose matrix takes 1 GB.


class S5(Recurrences):
    """State space layers in residual blocks, over all steps of a sequence at once.

    A dense layer brings the inputs to `features` numbers. Each of the blocks after it
    is `Block` around the recurrence (section 3 of the paper)

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

    dt_min: float = 0.001
    dt_max: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
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

    def unit(self, size: int) -> nn.Module:
        """Return the recurrence of a block, of N complex numbers."""
        return StateSpace(size, self.dt_min, self.dt_max)


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
        """The state after the last step, and outputs; see `apply`."""
        eigenvalues, vectors = hippo(self.size)
        real = self.param("real", lambda _: _parts(eigenvalues)[0])
        imag = self.param("imag", lambda _: _parts(eigenvalues)[1])
        continuous = Complex(jnp.minimum(real, _LARGEST_REAL), imag)
        time = jnp.exp(self.param("log_dt", self._init_log_dt, (self.size,)))
        factor = _exponential(Complex(continuous.real * time, continuous.imag * time))
        # (exp(Lambda dt) - 1) / Lambda
        scale = jax.tree.map(
            lambda x: along_last(x, 2),
            _divide(Complex(factor.real - 1.0, factor.imag), continuous),
        )
        width = inputs.shape[-1]
        enter, leave = self._matrices(vectors, width)
        skip = self.param("skip", jax.nn.initializers.normal(1.0), (width,))
        leave = jax.tree.map(lambda x: 2.0 * x, leave)
        mixture = Mixture(multiply(scale, enter), leave, skip)
        return apply(factor, mixture, state, inputs, resets)

    def _matrices(self, vectors: np.ndarray, width: int) -> tuple[Complex, Complex]:
        """`B` `[width, N]` and `C` `[N, width]`, at first real in HiPPO-N's own basis.

        Args:
            vectors: `[2N, N]` matrix of eigenvectors.
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
    return multiply(a, inverse)


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
