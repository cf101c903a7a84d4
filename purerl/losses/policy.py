"""Policy losses as drifts: what mirror learning subtracts from the plain surrogate.

Every policy loss maximises `E[ratio * advantage - drift(log_ratio, advantage)]` with
`ratio = pi / pi_old` (Kuba, de Witt & Foerster 2022). A drift is a callable pytree
`drift(log_ratio [N], advantage [N]) -> [N]` that is never negative, and zero with
zero slope at ratio 1.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import struct

from purerl.config import FRACTION, POSITIVE, dynamic
from purerl.types import Array

Drift = Callable[[Array, Array], Array]


@struct.dataclass
class ClipDrift:
    """PPO's clipping written as a drift (Schulman et al. 2017, eq. 7).

    `relu((r - clip(r, 1 - eps, 1 + eps)) * A)`; `r*A` minus it is exactly
    `min(r*A, clip(r)*A)`.

    Attributes:
        clip_eps: Half-width of the trust interval around ratio 1.
    """

    clip_eps: float = dynamic(0.2, "Half-width of the trust interval.", POSITIVE)

    @property
    def trust(self) -> tuple[Array | float, Array | float]:
        """Distances below and above 1 up to which the ratio earns something."""
        return self.clip_eps, self.clip_eps

    def __call__(self, log_ratio: Array, advantage: Array) -> Array:
        """Drift per sample, `[N]`."""
        ratio = jnp.exp(log_ratio)
        clipped = jnp.clip(ratio, 1.0 - self.clip_eps, 1.0 + self.clip_eps)
        return jax.nn.relu((ratio - clipped) * advantage)


@struct.dataclass
class AsymmetricClipDrift:
    """PPO's clipping with an end of its own on each side of ratio 1.

    `relu((r - clip(r, 1 - low, 1 + high)) * A)`. A larger `high` lets the probability
    of a rare action grow further in one update: "Clip-Higher" of DAPO (Yu et al. 2025,
    arXiv:2503.14476, equation 10). With both ends equal it is `ClipDrift`.

    Attributes:
        low: Distance below 1 up to which the ratio earns something, between 0 and 1.
        high: Distance above 1 up to which the ratio earns something.
    """

    low: float = dynamic(0.2, "How far below 1 the ratio earns something.", FRACTION)
    high: float = dynamic(0.2, "How far above 1 the ratio earns something.", POSITIVE)

    @property
    def trust(self) -> tuple[Array | float, Array | float]:
        """Distances below and above 1 up to which the ratio earns something."""
        return self.low, self.high

    def __call__(self, log_ratio: Array, advantage: Array) -> Array:
        """Drift per sample, `[N]`."""
        ratio = jnp.exp(log_ratio)
        clipped = jnp.clip(ratio, 1.0 - self.low, 1.0 + self.high)
        return jax.nn.relu((ratio - clipped) * advantage)


@struct.dataclass
class DPODrift:
    """The drift that was discovered by evolution (Lu et al. 2022, eq. 6).

    With `r` the ratio: where `A >= 0`, `relu((r-1)A - alpha tanh((r-1)A / alpha))`;
    where `A < 0`, `relu(log(r)A - beta tanh(log(r)A / beta))`.

    Attributes:
        alpha: Scale for positive advantages; the paper's value is 2.
        beta: Scale for negative advantages; the paper's value is 0.6.
    """

    alpha: float = dynamic(2.0, "Scale for positive advantages.", POSITIVE)
    beta: float = dynamic(0.6, "Scale for negative advantages.", POSITIVE)

    def __call__(self, log_ratio: Array, advantage: Array) -> Array:
        """Drift per sample, `[N]`."""
        rise = jnp.expm1(log_ratio) * advantage
        fall = log_ratio * advantage
        return jnp.where(
            advantage >= 0.0,
            jax.nn.relu(rise - self.alpha * jnp.tanh(rise / self.alpha)),
            jax.nn.relu(fall - self.beta * jnp.tanh(fall / self.beta)),
        )
