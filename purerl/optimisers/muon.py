"""Muon, which works on matrices: it asks for the layers in place of one flat vector."""

from typing import Any, ClassVar

import jax
import optax
import optax.contrib
from flax import struct
from optax.contrib import MuonDimensionNumbers

from purerl.config import DECAY, NON_NEGATIVE, POSITIVE, dynamic, static
from purerl.types import Array, PyTree


@struct.dataclass
class Muon:
    """Momentum whose matrices are made orthogonal (Jordan et al. 2024).

    A kernel `[fan_in, fan_out]` moves by `U V^T` of its momentum `U S V^T`, which five
    iterations of Newton and Schulz approximate, times `sqrt(max(1, fan_out / fan_in))`.
    All kernels that are matrices move so, those of the first and the last layer too.
    What is no matrix (biases, a log standard deviation, the kernels of convolutions)
    moves by Adam, with the same step size and `eps`; with `nesterov`, by Nesterov's
    form of Adam (Dozat 2016). The source is
    https://kellerjordan.github.io/posts/muon.

    Attributes:
        momentum: Decay of the mean of gradients of matrices.
        b1: Adam's decay of the mean of gradients, for what is no matrix.
        b2: Adam's decay of the mean of squared gradients, for what is no matrix.
        eps: Number that is added where something is divided.
        weight_decay: Share of a matrix that is taken away, per unit of step size.
        nesterov: Whether a step looks ahead along the momentum.
        needs_layers: Muon gets a pytree of layers where others get one flat vector.
    """

    momentum: float = dynamic(0.95, "Decay of the mean of gradients.", DECAY)
    b1: float = dynamic(0.9, "Adam's first decay, for what is no matrix.", DECAY)
    b2: float = dynamic(0.999, "Adam's second decay, for what is no matrix.", DECAY)
    eps: float = dynamic(1e-8, "Number added where something is divided.", POSITIVE)
    weight_decay: float = dynamic(
        0.0, "Share of a matrix taken away, per unit of step size.", NON_NEGATIVE
    )
    nesterov: bool = static(True, "Look ahead along the momentum.")
    needs_layers: ClassVar[bool] = True

    def __call__(self, learning_rate: Array | float) -> optax.GradientTransformation:
        """Return the transformation with a step size, which may be traced."""
        return optax.contrib.muon(
            learning_rate,  # type: ignore[arg-type]
            beta=self.momentum,
            eps=self.eps,
            weight_decay=self.weight_decay,
            nesterov=self.nesterov,
            adam_b1=self.b1,
            adam_b2=self.b2,
            muon_weight_dimension_numbers=_matrices,
        )


def _matrices(layers: PyTree) -> PyTree:
    """Mark the kernels that are matrices; biases may have two axes as well."""

    def mark(path: Any, leaf: Any) -> MuonDimensionNumbers | None:
        name = jax.tree_util.keystr(path[-1:], simple=True) if path else ""
        is_matrix = leaf.ndim == 2 and not name.endswith("bias")
        return MuonDimensionNumbers() if is_matrix else None

    return jax.tree_util.tree_map_with_path(mark, layers)
