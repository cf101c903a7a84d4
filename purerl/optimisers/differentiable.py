"""Optimisers through whose steps a derivative can be taken.

Adam divides by the root of a mean of squares, and the root has no derivative at zero. A
parameter that has never had a gradient, such as a frozen one or the weight of an input
that was always zero, would turn every meta-gradient into NaN. So would the first steps
of RAdam, which compute the root of a negative number and do not use it.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import struct

from purerl.optimisers.first_order import Adam, AdamW, RAdam
from purerl.types import Array

# Its root is 1e-18, which changes no bit of a step beside any `eps` that is used.
EPS_ROOT = 1e-36
# Length of the moving average from which RAdam trusts it, as optax has it.
_RECTIFIED_FROM = 5.0


@struct.dataclass
class Differentiable:
    """One of Adam's family with 1e-36 under the root.

    Attributes:
        inner: The optimiser.
    """

    inner: Any

    def __call__(self, learning_rate: Array | float) -> optax.GradientTransformation:
        """Return the transformation with a step size, which may be traced."""
        inner = self.inner
        numbers = {"b1": inner.b1, "b2": inner.b2, "eps": inner.eps}
        if type(inner) is RAdam:
            return optax.chain(
                _rectified(**numbers), optax.scale_by_learning_rate(learning_rate)
            )
        if type(inner) is AdamW:
            numbers["weight_decay"] = inner.weight_decay
        make: Any = optax.adamw if type(inner) is AdamW else optax.adam
        return make(learning_rate, **numbers, eps_root=EPS_ROOT)


def _rectified(
    b1: Array | float, b2: Array | float, eps: Array | float
) -> optax.GradientTransformation:
    """Rectified Adam (arXiv:1908.03265, algorithm 2), with optax's state."""
    moments: Any = optax.scale_by_adam(b1=b1, b2=b2, eps=eps)  # type: ignore[arg-type]
    most = 2.0 / (1.0 - b2) - 1.0

    def update(updates: Any, state: Any, params: Any = None) -> Any:
        _, state = moments.update(updates, state, params)
        count, decayed = state.count, b2**state.count
        length = most - 2 * count * decayed / (1 - decayed)
        enough = length >= _RECTIFIED_FROM
        # The branch that is not used must be finite too, or its derivative would be
        # NaN.
        used = jnp.maximum(length, _RECTIFIED_FROM)
        factor = jnp.sqrt(
            (used - 4.0) * (used - 2.0) * most / ((most - 4.0) * (most - 2.0) * used)
        )

        def step(mean: Array, square: Array) -> Array:
            root = jnp.sqrt(square + EPS_ROOT)
            return jnp.where(enough, factor * mean / (root + eps), mean)

        means: Any = optax.tree.bias_correction(state.mu, b1, count)
        squares: Any = optax.tree.bias_correction(state.nu, b2, count)
        return jax.tree.map(step, means, squares), state

    return optax.GradientTransformation(moments.init, update)


def differentiable(optimiser: Any) -> Any:
    """Return an optimiser with the same steps, whose derivative exists at zero.

    Args:
        optimiser: The optimiser of a config. Others than Adam's family are returned as
            they are: SGD, RMSProp and Lion have no root at zero, the learned ones have
            this number under theirs, and of Muon or the user's own it is not known.
    """
    is_adam = type(optimiser) in (Adam, AdamW, RAdam)
    return Differentiable(optimiser) if is_adam else optimiser
