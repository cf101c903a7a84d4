"""Value losses: callable pytrees `loss(value, target, old_value) -> [N]`.

`old_value` is the prediction at the time of the rollout; only losses with a trust
region read it.
"""

import jax.numpy as jnp
import optax
from flax import struct

from purerl.types import Array


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

    clip_eps: Array | float = 0.2

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

    delta: Array | float = 1.0

    def __call__(self, value: Array, target: Array, old_value: Array) -> Array:
        """Loss per sample, `[N]`."""
        del old_value
        return optax.losses.huber_loss(value, target, delta=self.delta)  # type: ignore[arg-type]
