"""Networks: torsos for vectors and images, an actor and a critic, in flax.linen."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from purerl.distributions import Gaussian
from purerl.types import Array

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": nn.tanh,
    "relu": nn.relu,
    "elu": nn.elu,
    "gelu": nn.gelu,
    "swish": nn.swish,
}
TORSOS = ("auto", "mlp", "cnn")
# 1.5x per iteration lifts the smallest singular value: enough for 1e-6 of the largest.
_NEWTON_SCHULZ_ITERATIONS = 44


def orthogonal(scale: float = 1.0) -> Callable[..., Array]:
    """An orthogonal initialiser without QR.

    The polar factor of a Gaussian matrix is Haar distributed, as the sign-corrected Q
    of its QR decomposition is, and Newton-Schulz iteration finds it by products alone:
    `X <- 1.5 X - 0.5 X X^T X` (Higham 2008, ch. 8). QR calls LAPACK, which can hang
    when several host devices initialise at once.

    Args:
        scale: gain; `sqrt(2)` before relu and tanh, 0.01 for a policy's last layer.

    Returns:
        `init(key, shape, dtype) -> array`; leading axes are flattened into rows.
    """

    def init(key: Array, shape: Sequence[int], dtype: Any = jnp.float32) -> Array:
        rows, columns = int(np.prod(shape[:-1])), shape[-1]
        tall = (max(rows, columns), min(rows, columns))
        matrix = jax.random.normal(key, tall, jnp.float32)
        # The Frobenius norm bounds the spectral norm; the iteration needs sqrt(3).
        matrix = matrix / jnp.linalg.norm(matrix)

        def iterate(_: int, x: Array) -> Array:
            gram = jnp.matmul(x.T, x, precision="highest")
            return 1.5 * x - 0.5 * jnp.matmul(x, gram, precision="highest")

        matrix = jax.lax.fori_loop(0, _NEWTON_SCHULZ_ITERATIONS, iterate, matrix)
        matrix = matrix if rows >= columns else matrix.T
        return (scale * matrix).reshape(shape).astype(dtype)

    return init


@jax.custom_vjp
def _product(x: Array, kernel: Array) -> Array:
    return x @ kernel


def _product_forward(x: Array, kernel: Array) -> tuple[Array, tuple[Array, Array]]:
    return x @ kernel, (x, kernel)


def _product_backward(
    saved: tuple[Array, Array], gradient: Array
) -> tuple[Array, Array]:
    def plain(x: Array, kernel: Array, gradient: Array) -> tuple[Array, Array]:
        return gradient @ kernel.T, x.T @ gradient

    def copied(x: Array, kernel: Array, gradient: Array) -> tuple[Array, Array]:
        # Without the barrier the compiler folds the transpositions into the products.
        x_t, kernel_t = jax.lax.optimization_barrier((x.T, kernel.T))
        return gradient @ kernel_t, x_t @ gradient

    return jax.lax.platform_dependent(*saved, gradient, cpu=copied, default=plain)


_product.defvjp(_product_forward, _product_backward)


def small_product(
    x: Array, kernel: Array, dimension_numbers: Any, **options: Any
) -> Array:
    """`dot_general` of a dense layer whose batches are small and learned from often.

    The gradients of a product are products with transposed factors. For some tens of
    rows a CPU is faster when XLA copies these into place first; for hundreds it makes
    no difference, and other devices never copy.

    Args:
        x: `[N, I]`; other ranks take the plain product.
        kernel: `[I, O]`.
        dimension_numbers: of `jax.lax.dot_general`.
        options: of `jax.lax.dot_general`.
    """
    if x.ndim != 2:
        return jax.lax.dot_general(x, kernel, dimension_numbers, **options)
    return _product(x, kernel)


class MLP(nn.Module):
    """Flatten the observation, then dense layers, each with an activation."""

    hidden_sizes: tuple[int, ...]
    activation: str
    obs_ndim: int = 1
    layer_norm: bool = False
    dot_general: Any = None

    @nn.compact
    def __call__(self, obs: Array) -> Array:
        """Features `[..., H]` of observations `[..., *obs_shape]`."""
        lead = obs.shape[: obs.ndim - self.obs_ndim]
        x = obs.reshape(*lead, -1)
        for size in self.hidden_sizes:
            x = nn.Dense(
                size,
                kernel_init=orthogonal(np.sqrt(2)),
                dot_general=self.dot_general,
            )(x)
            if self.layer_norm:
                x = nn.LayerNorm()(x)
            x = ACTIVATIONS[self.activation](x)
        return x


class CNN(nn.Module):
    """One 3x3 convolution of 16 channels, then the MLP (MinAtar, Young & Tian 2019)."""

    hidden_sizes: tuple[int, ...]
    activation: str
    layer_norm: bool = False
    dot_general: Any = None

    @nn.compact
    def __call__(self, obs: Array) -> Array:
        """Features `[..., H]` of images `[..., height, width, channels]`."""
        lead = obs.shape[:-3]
        x = obs.reshape(-1, *obs.shape[-3:])
        x = nn.Conv(16, (3, 3), padding="VALID", kernel_init=orthogonal(np.sqrt(2)))(x)
        if self.layer_norm:
            x = nn.LayerNorm()(x)
        x = ACTIVATIONS[self.activation](x)
        x = x.reshape(*lead, -1)
        mlp = MLP(
            self.hidden_sizes, self.activation, 1, self.layer_norm, self.dot_general
        )
        return mlp(x)


def make_torso(
    torso: str,
    obs_shape: tuple[int, ...],
    hidden_sizes: tuple[int, ...],
    act: str,
    layer_norm: bool = False,
    dot_general: Callable[..., Array] | None = None,
) -> nn.Module:
    """The torso for an observation shape; `auto` takes the CNN for images.

    Args:
        torso: one of `TORSOS`.
        obs_shape: of one observation.
        hidden_sizes: units of each dense layer.
        act: activation, one of `ACTIVATIONS`.
        layer_norm: normalise before each activation (Ba et al. 2016).
        dot_general: product of the dense layers; `jax.lax.dot_general` if None.

    Raises:
        ValueError: a CNN for what is not an image.
    """
    if torso == "auto":
        torso = "cnn" if len(obs_shape) == 3 else "mlp"
    if torso == "cnn":
        if len(obs_shape) != 3 or min(obs_shape[:2]) < 3:
            raise ValueError(
                f"torso 'cnn' needs observations [height >= 3, width >= 3, channels], "
                f"got {obs_shape}; use mlp."
            )
        return CNN(hidden_sizes, act, layer_norm, dot_general)
    return MLP(hidden_sizes, act, len(obs_shape), layer_norm, dot_general)


class CategoricalActor(nn.Module):
    """Torso and logits."""

    torso: nn.Module
    num_outputs: int

    @nn.compact
    def __call__(self, obs: Array) -> Array:
        """Logits `[..., n]`."""
        return nn.Dense(self.num_outputs, kernel_init=orthogonal(0.01))(self.torso(obs))


class GaussianActor(nn.Module):
    """Torso, mean, and a log standard deviation that does not depend on the state."""

    torso: nn.Module
    num_outputs: int
    log_std_init: float = 0.0

    @nn.compact
    def __call__(self, obs: Array) -> Gaussian:
        """Mean and log standard deviation, `[..., A]` each."""
        mean = nn.Dense(self.num_outputs, kernel_init=orthogonal(0.01))(self.torso(obs))
        start = nn.initializers.constant(self.log_std_init)
        log_std = self.param("log_std", start, (self.num_outputs,))
        return Gaussian(mean, jnp.broadcast_to(log_std, mean.shape))


class StateGaussianActor(nn.Module):
    """Torso, mean, and a log standard deviation that depends on the state.

    The log standard deviation is clipped, as in the code of Haarnoja et al. (2018).
    """

    torso: nn.Module
    num_outputs: int
    log_std_min: float = -20.0
    log_std_max: float = 2.0

    @nn.compact
    def __call__(self, obs: Array) -> Gaussian:
        """Mean and log standard deviation, `[..., A]` each."""
        features = self.torso(obs)
        mean = nn.Dense(self.num_outputs, kernel_init=orthogonal(0.01))(features)
        log_std = nn.Dense(self.num_outputs, kernel_init=orthogonal(0.01))(features)
        return Gaussian(mean, jnp.clip(log_std, self.log_std_min, self.log_std_max))


class TanhActor(nn.Module):
    """Torso and one action in [-1, 1]: a deterministic policy."""

    torso: nn.Module
    num_outputs: int

    @nn.compact
    def __call__(self, obs: Array) -> Array:
        """Actions `[..., A]`."""
        features = self.torso(obs)
        return nn.tanh(
            nn.Dense(self.num_outputs, kernel_init=orthogonal(0.01))(features)
        )


class Critic(nn.Module):
    """Torso and one value."""

    torso: nn.Module

    @nn.compact
    def __call__(self, obs: Array) -> Array:
        """State values `[...]`."""
        return nn.Dense(1, kernel_init=orthogonal(1.0))(self.torso(obs))[..., 0]


class DiscreteCritic(nn.Module):
    """Torso and one value per action, with the dueling split as an option.

    Q(s, a) = V(s) + A(s, a) - mean_b A(s, b)     (Wang et al. 2016, eq. 9)

    There `V` and `A` are streams on the torso's features, each with a hidden layer of
    its own: as linear functions of the same features, their sum would be another
    parametrisation of one linear layer.

    Attributes:
        torso: of the observations.
        num_actions: n.
        make_stream: returns the hidden layer of a stream; without it there is no split.
        dot_general: product of the last layers; `jax.lax.dot_general` if None.
    """

    torso: nn.Module
    num_actions: int
    make_stream: Callable[[], nn.Module] | None = None
    dot_general: Any = None

    @nn.compact
    def __call__(self, obs: Array) -> Array:
        """Action values `[..., n]`."""
        features = self.torso(obs)
        dense = partial(
            nn.Dense, kernel_init=orthogonal(1.0), dot_general=self.dot_general
        )
        if self.make_stream is None:
            return dense(self.num_actions)(features)
        advantage = dense(self.num_actions)(self.make_stream()(features))
        value = dense(1)(self.make_stream()(features))
        return value + advantage - advantage.mean(-1, keepdims=True)


class ActionCritic(nn.Module):
    """Value of an observation and a continuous action, side by side in the torso."""

    hidden_sizes: tuple[int, ...]
    activation: str
    layer_norm: bool = False

    @nn.compact
    def __call__(self, obs: Array, action: Array) -> Array:
        """Action values `[...]` of vectors `[..., O]` and actions `[..., A]`."""
        torso = MLP(self.hidden_sizes, self.activation, 1, self.layer_norm)
        features = torso(jnp.concatenate([obs, action], -1))
        return nn.Dense(1, kernel_init=orthogonal(1.0))(features)[..., 0]


class Twin(nn.Module):
    """Two networks of one kind with parameters of their own (Fujimoto et al. 2018).

    Two, not one with a leading axis: where only one of them is used, the compiler drops
    the other, and a CPU multiplies two plain matrices faster than a batch of two.

    Attributes:
        make: returns a network.
    """

    make: Callable[[], nn.Module]

    @nn.compact
    def __call__(self, *inputs: Array) -> tuple[Array, Array]:
        """What each makes of the same inputs."""
        return self.make()(*inputs), self.make()(*inputs)
