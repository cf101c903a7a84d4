"""What layers are made with: an orthogonal initialiser and a product of its own."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl.types import Array

# Each iteration multiplies a small singular value by at most 1.5, and 1.5^44 > 5e7:
# those down to 1e-6 of the largest converge (see `orthogonal`).
_NEWTON_SCHULZ_ITERATIONS = 44


def orthogonal(scale: float = 1.0) -> Callable[..., Array]:
    """Make an orthogonal initialiser without QR.

    The polar factor of a Gaussian matrix is Haar distributed, as the sign-corrected Q
    of its QR decomposition is, and Newton-Schulz iteration finds it by products alone:
    `X <- 1.5 X - 0.5 X X^T X` (Higham 2008, ch. 8). QR calls LAPACK, which can hang
    when several host devices initialise at once.

    Args:
        scale: Gain; `sqrt(2)` before relu and tanh, 0.01 for a policy's last layer.

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
    """Multiply as `dot_general` for a dense layer with many small batches.

    The gradients of a product are products with transposed factors. For some tens of
    rows a CPU is faster when XLA copies these into place first; for hundreds it makes
    no difference, and other devices never copy.

    Args:
        x: `[N, I]`; other ranks take the plain product.
        kernel: `[I, O]`.
        dimension_numbers: Axes of the product, as in `jax.lax.dot_general`.
        options: Keywords of `jax.lax.dot_general`.
    """
    if x.ndim != 2:
        return jax.lax.dot_general(x, kernel, dimension_numbers, **options)
    return _product(x, kernel)
