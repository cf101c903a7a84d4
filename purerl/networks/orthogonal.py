"""Orthogonal initialisation, of all layers of an agent at once.

A random orthogonal matrix is a product of Householder reflections of Gaussian vectors
(Stewart 1980, "The efficient generation of random orthogonal matrices"). Its columns
need a loop, and its numbers a random draw. Layers that draw for themselves have six
loops and twelve draws where an agent's networks are six layers, and draws are what a
compiler spends most of its time on. So `init_params` lets the layers say what they
want, draws all of it in one place, and reflects all matrices in one loop.
"""

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from purerl.keys import several
from purerl.types import Array, PyTree


class Request(NamedTuple):
    """A parameter that is to be orthogonal.

    Attributes:
        shape: Shape of the parameter.
        dtype: Type of the parameter.
        scale: Gain of the matrices.
        blocks: Number of matrices that lie side by side in the last axis.
    """

    shape: tuple[int, ...]
    dtype: Any
    scale: float
    blocks: int

    @property
    def matrix(self) -> tuple[int, int]:
        """Rows and columns of one matrix, as it is drawn: at least as tall as wide."""
        rows, columns = self._sides
        return max(rows, columns), min(rows, columns)

    @property
    def _sides(self) -> tuple[int, int]:
        rows = int(np.prod(self.shape[:-1], dtype=int))
        return rows, self.shape[-1] // self.blocks

    def place(self, matrices: Sequence[Array]) -> Array:
        """Return the parameter, made of its matrices, each of shape `matrix`."""
        rows, columns = self._sides
        if rows < columns:
            matrices = [matrix.T for matrix in matrices]
        whole = matrices[0] if self.blocks == 1 else jnp.hstack(matrices)
        return (self.scale * whole).reshape(self.shape).astype(self.dtype)


# The requests of the layers of the networks that are being initialised.
_asked: ContextVar[list[tuple[Array, Request]] | None] = ContextVar(
    "asked", default=None
)


def orthogonal(scale: float = 1.0, blocks: int = 1) -> Callable[..., Array]:
    """Make an orthogonal initialiser (Saxe et al. 2014).

    Matrices are Haar distributed, as the sign-corrected Q of a Gaussian matrix's QR
    decomposition is, without its LAPACK call, which can hang when several host devices
    initialise at once.

    Args:
        scale: Gain; `sqrt(2)` before relu and tanh, 0.01 for a policy's last layer.
        blocks: Number of matrices that lie side by side in the last axis, as the gates
            of a recurrent layer do.

    Returns:
        `init(key, shape, dtype) -> array`; leading axes are flattened into rows.
        Within `init_params` it returns zeros, which are replaced afterwards.
    """

    def init(key: Array, shape: Sequence[int], dtype: Any = jnp.float32) -> Array:
        request = Request(tuple(shape), np.dtype(dtype), float(scale), blocks)
        asked = _asked.get()
        if asked is None:
            return _draw(key, (request,))[0]
        placeholder = jnp.zeros(request.shape, dtype)
        asked.append((placeholder, request))
        return placeholder

    return init


def init_params(
    key: Array, networks: Mapping[str, tuple[nn.Module, Sequence[Any]]]
) -> dict[str, PyTree]:
    """Initialise networks; what is orthogonal in them is drawn in one place.

    Args:
        key: Random key, or two `[2]`: of the orthogonal matrices and of what else there
            is. Consumed.
        networks: Modules by name, each with example inputs.

    Returns:
        Parameters by name, as `module.init(key, *inputs)` has them.
    """
    key_matrices, key_others = several(key, 2)
    keys = jax.random.split(key_others, len(networks))

    def init(keys: Array) -> dict[str, PyTree]:
        return {
            name: module.init(key, *inputs)
            for key, (name, (module, inputs)) in zip(
                keys, networks.items(), strict=True
            )
        }

    asked: list[tuple[Array, Request]] = []
    token = _asked.set(asked)
    try:
        params = init(keys)
    finally:
        _asked.reset(token)
    leaves, structure = jax.tree.flatten(params)
    placeholders = {id(placeholder) for placeholder, _ in asked}
    if not placeholders <= set(map(id, leaves)):
        # A module has made something else of a layer's initial value, as a mapped one
        # does (flax.linen.vmap): then its layers draw for themselves.
        # Nothing is used that was drawn before: no key has two uses.
        return init(jax.random.clone(keys))
    if not asked:
        return params
    drawn = _draw(key_matrices, tuple(request for _, request in asked))
    found = {id(old): new for (old, _), new in zip(asked, drawn, strict=True)}
    return jax.tree.unflatten(structure, [found.get(id(x), x) for x in leaves])


# The function is compiled by itself, so that it is traced once for each set of shapes:
# flax evaluates the shapes of initial values again at every call of a module.
@partial(jax.jit, static_argnums=1)
def _draw(key: Array, requests: tuple[Request, ...]) -> list[Array]:
    """Draw the parameters that are asked for: one draw, and a loop for each height."""
    shapes = [request.matrix for request in requests for _ in range(request.blocks)]
    groups: dict[int, list[int]] = {}
    for index, (rows, _) in enumerate(shapes):
        groups.setdefault((rows - 1).bit_length(), []).append(index)
    sides = [np.array([shapes[i] for i in group]) for group in groups.values()]
    # Matrices of a group lie in one array, filled up with zeros: fewer and larger
    # operations, for which there is less to compile.
    padded = [(len(side), side[:, 1].max(), side[:, 0].max()) for side in sides]
    sizes = [int(np.prod(shape)) for shape in padded]
    gaussian = jax.random.normal(key, (sum(sizes),), jnp.float32)
    matrices: list[Any] = [None] * len(shapes)
    start = 0
    for group, side, shape, size in zip(
        groups.values(), sides, padded, sizes, strict=True
    ):
        drawn = gaussian[start : start + size].reshape(shape)
        whole = orthogonalise(drawn, *side.T)
        for matrix, index, (rows, columns) in zip(whole, group, side, strict=True):
            matrices[index] = matrix[:rows, :columns]
        start += size
    left = iter(matrices)
    return [r.place([next(left) for _ in range(r.blocks)]) for r in requests]


def orthogonalise(gaussian: Array, rows: Any, columns: Any) -> Array:
    """Make Haar distributed matrices with orthonormal columns from Gaussian ones.

    Column j of a Gaussian matrix, from row j on, is a vector x with a uniform
    direction. `H_j` is the reflection that maps x to `-sign(x_1) |x| e_j`, and
    `D` has the signs `-sign(x_1)` of all columns. Then `H_0 H_1 ... D` has the
    distribution of Q in a Gaussian matrix's QR decomposition whose R has a positive
    diagonal, which is Haar (Stewart 1980; Mezzadri 2007, sec. 5).

    Args:
        gaussian: Independent normal numbers `[N, C, R]`, R >= C: the transposes of N
            matrices.
        rows: `[N]` rows of each matrix, at most R.
        columns: `[N]` columns of each matrix, at most C.

    Returns:
        `[N, R, C]`; the first `rows` and `columns` of each are the matrix.
    """
    vectors, start = _reflections(gaussian, rows, columns)
    most = gaussian.shape[1]

    def reflect(step: Array, matrices: Array) -> Array:
        vector = jax.lax.dynamic_index_in_dim(vectors, most - 1 - step, 1, False)
        # Sums stand in place of products because other devices compute products with
        # fewer bits.
        along = (vector[:, :, None] * matrices).sum(1)
        return matrices - vector[:, :, None] * along[:, None, :]

    return jax.lax.fori_loop(0, most, reflect, start)


def _reflections(gaussian: Array, rows: Any, columns: Any) -> tuple[Array, Array]:
    """Return reflections' vectors of length sqrt(2), `[N, C, R]`, and `D` `[N, R, C]`.

    A vector is zero where a matrix has no such column: then it reflects nothing.
    """
    shape = gaussian.shape
    column, row = (jax.lax.broadcasted_iota(np.int32, shape, axis) for axis in (1, 2))
    rows, columns = (
        jnp.asarray(side, jnp.int32)[:, None, None] for side in (rows, columns)
    )
    is_in = (row >= column) & (row < rows) & (column < columns)
    x = jnp.where(is_in, gaussian, 0.0)
    pivot = jnp.diagonal(x, axis1=1, axis2=2)
    norm = jnp.sqrt(jnp.square(x).sum(-1))
    sign = jnp.where(pivot < 0, -1.0, 1.0)
    # |x + sign |x| e_j|^2 = 2 |x| (|x| + |x_1|)
    squared = norm * (norm + jnp.abs(pivot))
    scale = jnp.where(squared > 0, jax.lax.rsqrt(jnp.maximum(squared, 1e-30)), 0.0)
    at_pivot = row == column
    vectors = (x + jnp.where(at_pivot, (sign * norm)[:, :, None], 0.0)) * (
        scale[:, :, None]
    )
    start = jnp.where(jnp.swapaxes(at_pivot, 1, 2), -sign[:, None, :], 0.0)
    return vectors, start
