"""The linear recurrent unit (Orvieto et al. 2023, arXiv:2303.06349)."""

import math
from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from purerl.networks.layers import Dense
from purerl.networks.memories import diagonal
from purerl.networks.memories.checks import check_sizes
from purerl.networks.memories.diagonal import Complex, Mixture
from purerl.types import Array


class LRU(nn.Module):
    """Linear recurrent units in residual blocks, over all steps of a sequence at once.

    A dense layer brings the inputs to `features` numbers. Each of the blocks after it
    is `diagonal.Block` around the recurrence (section 3 of the paper)

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

    features: int
    state_size: int | None = None
    num_blocks: int = 1
    r_min: float = 0.9
    r_max: float = 0.999
    max_phase: float = 2 * math.pi

    def __post_init__(self) -> None:
        check_sizes(self, ("features", "state_size", "num_blocks"))
        if not 0 <= self.r_min < self.r_max < 1 or not self.max_phase > 0:
            raise ValueError(
                "r_min and r_max must be 0 <= r_min < r_max < 1, and max_phase greater "
                f"than 0, got {self.r_min}, {self.r_max} and {self.max_phase}"
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
            unit = LinearUnit(size, self.r_min, self.r_max, self.max_phase)
            block = diagonal.Block(unit, self.features, name=f"block_{number}")
            state, hidden = block(carry[number], hidden, resets)
            after.append(state)
        return tuple(after), hidden


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
        """The state after the last step, and outputs; see `diagonal.apply`."""
        nu = self.param("nu", self._init_nu, (self.size,))
        theta = self.param("theta", self._init_theta, (self.size,))
        modulus = jnp.exp(-jnp.exp(nu))
        # The initial value of log gamma follows from that of nu, and is learned apart.
        gamma = self.param("gamma", lambda _: 0.5 * jnp.log1p(-jnp.square(modulus)))
        width = inputs.shape[-1]
        enter = jax.nn.initializers.normal(1 / math.sqrt(2 * width))
        leave = jax.nn.initializers.normal(1 / math.sqrt(self.size))
        scale = diagonal.along_last(jnp.exp(gamma), 2)
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
        return diagonal.apply(eigenvalues, mixture, state, inputs, resets)

    def _init_nu(self, key: Array, shape: tuple[int, ...]) -> Any:
        """`nu` of moduli that make eigenvalues uniform on the ring (lemma 3.2)."""
        low, high = self.r_min**2, self.r_max**2
        squared = jax.random.uniform(key, shape, minval=low, maxval=high)
        # A modulus of zero would have an infinite nu.
        return jnp.log(-0.5 * jnp.log(jnp.maximum(squared, 1e-8)))

    def _init_theta(self, key: Array, shape: tuple[int, ...]) -> Any:
        share = jax.random.uniform(key, shape, minval=1e-4)
        return jnp.log(self.max_phase * share)
