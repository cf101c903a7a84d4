"""Value losses: callable pytrees `loss(value, target, old_value) -> [N]`.

`old_value` is the prediction at the time of the rollout; only losses with a trust
region read it. Where values are learned without such a prediction, from a replay buffer
or in PQN, it is the present value, without a derivative (`value_error`).
"""

from collections.abc import Callable

import jax.numpy as jnp
import optax
from flax import struct
from jax.lax import stop_gradient

from purerl.config import POSITIVE, dynamic
from purerl.types import Array

# The shift keeps powers away from their two removable singularities (Barron 2019, B).
_SHIFT = 1e-5


def value_error(
    loss: Callable[[Array, Array, Array], Array], value: Array, target: Array
) -> Array:
    """Return a value loss of values that no rollout has predicted before, `[N]`.

    Args:
        loss: Value loss.
        value: Values, `[N]`.
        target: Targets, `[N]`.
    """
    return loss(value, target, stop_gradient(value))


@struct.dataclass
class SquaredError:
    """`0.5 * (value - target)^2`."""

    def __call__(self, value: Array, target: Array, old_value: Array) -> Array:
        """Loss per sample, `[N]`."""
        del old_value
        return 0.5 * jnp.square(value - target)


@struct.dataclass
class ClippedSquaredError:
    """Squared error that gives no credit for moving further than `clip_eps`.

    `0.5 * max((v - g)^2, (v_old + clip(v - v_old, -eps, eps) - g)^2)`, the value
    clipping of OpenAI Baselines' PPO2. `clip_eps` is in units of return.

    Attributes:
        clip_eps: Distance that the value may move from `old_value` with credit.
    """

    clip_eps: float = dynamic(0.2, "Move of a value that has credit.", POSITIVE)

    def __call__(self, value: Array, target: Array, old_value: Array) -> Array:
        """Loss per sample, `[N]`."""
        move = jnp.clip(value - old_value, -self.clip_eps, self.clip_eps)
        clipped = old_value + move
        return 0.5 * jnp.maximum(
            jnp.square(value - target), jnp.square(clipped - target)
        )


@struct.dataclass
class HuberError:
    """Quadratic up to `delta`, linear beyond (Huber 1964).

    Attributes:
        delta: Absolute error at which the loss turns linear.
    """

    delta: float = dynamic(1.0, "Error where the loss turns linear.", POSITIVE)

    def __call__(self, value: Array, target: Array, old_value: Array) -> Array:
        """Loss per sample, `[N]`."""
        del old_value
        return optax.losses.huber_loss(value, target, delta=self.delta)  # type: ignore[arg-type]


@struct.dataclass
class RobustError:
    """A family of losses with a number for the shape (Barron 2019, arXiv:1701.03077).

    With `x = (value - target) / scale` and `a = alpha`, equation 1 of the paper times
    `scale^2`:

        scale^2 |a - 2| / a ((x^2 / |a - 2| + 1)^(a / 2) - 1)

    so that for small errors it is the squared error whatever the numbers. `alpha` 2 is
    the squared error everywhere, 1 the smooth Huber loss, 0 the Cauchy loss, and below
    0 large errors count less and less.

    Attributes:
        alpha: Shape: the power with which large errors count.
        scale: Error beyond which the shape matters, in units of return.
    """

    alpha: float = dynamic(1.0, "Power with which large errors count.")
    scale: float = dynamic(1.0, "Error beyond which the shape matters.", POSITIVE)

    def __call__(self, value: Array, target: Array, old_value: Array) -> Array:
        """Loss per sample, `[N]`."""
        del old_value
        square = jnp.square((value - target) / self.scale)
        width = jnp.abs(self.alpha - 2.0) + _SHIFT
        power = self.alpha + jnp.where(self.alpha < 0.0, -_SHIFT, _SHIFT)
        # The functions expm1 and log1p keep the digits of small errors.
        grown = jnp.expm1(0.5 * power * jnp.log1p(square / width))
        return jnp.square(self.scale) * (width / power) * grown
