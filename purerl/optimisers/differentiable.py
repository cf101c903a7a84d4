"""Optimisers through whose steps a derivative can be taken.

Adam divides by the root of a mean of squares, and the root has no derivative at zero. A
parameter that has never had a gradient, such as a frozen one or the weight of an input
that was always zero, would turn every meta-gradient into NaN.
"""

from typing import Any

import optax
from flax import struct

from purerl.optimisers.first_order import Adam, AdamW, RAdam
from purerl.types import Array

# Its root is 1e-18: beside any `eps` that is used it changes no bit of a step.
_EPS_ROOT = 1e-36


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
        if type(inner) is AdamW:
            numbers["weight_decay"] = inner.weight_decay
        make: Any = {Adam: optax.adam, AdamW: optax.adamw, RAdam: optax.radam}
        return make[type(inner)](learning_rate, **numbers, eps_root=_EPS_ROOT)


def differentiable(optimiser: Any) -> Any:
    """Return an optimiser with the same steps, whose derivative exists at zero.

    Args:
        optimiser: The optimiser of a config. What is not of Adam's family has no root
            at zero (SGD, RMSProp, Lion) or is the user's own, and is returned as it is.
    """
    is_adam = type(optimiser) in (Adam, AdamW, RAdam)
    return Differentiable(optimiser) if is_adam else optimiser
