"""Drifts in closed form, from a grammar of terms that are all flat at ratio 1.

With `r` the ratio and `A` the advantage, a term is `c * w * s * g(z / s)`, where

    (z, w) is one of   ((r - 1) A, 1),  (log(r) A, 1),  (r - 1, |A|),  (log(r), |A|)
    g is one of        square z^2, excess z - tanh(z), logcosh log cosh(z),
                       above relu(z - 1), below relu(-z - 1)

and a drift is `relu` of a sum of terms, of some where `A >= 0` and of others where
`A < 0`. Since `g` is zero with zero slope at 0, every choice of numbers is a drift.
PPO's clip is `above(r - 1; eps)` with `w = |A|` on one side and `below` on the other,
and DPO's is `excess((r - 1) A; 2)` and `excess(log(r) A; 0.6)`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.core import Tracer

from purerl.config import Check, ConfigError
from purerl.types import Array, Schedule

FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "square": jnp.square,
    "excess": lambda z: z - jnp.tanh(z),
    "logcosh": lambda z: jnp.logaddexp(z, -z) - jnp.log(2.0),
    "above": lambda z: jax.nn.relu(z - 1.0),
    "below": lambda z: jax.nn.relu(-z - 1.0),
}
# By name, functions that return `z` and `w` for a log-ratio and an advantage.
FEATURES: dict[str, Callable[[Array, Array], tuple[Array, Array]]] = {
    "(r-1)A": lambda log_ratio, a: (jnp.expm1(log_ratio) * a, jnp.ones_like(a)),
    "log(r)A": lambda log_ratio, a: (log_ratio * a, jnp.ones_like(a)),
    "r-1": lambda log_ratio, a: (jnp.expm1(log_ratio), jnp.abs(a)),
    "log(r)": lambda log_ratio, a: (log_ratio, jnp.abs(a)),
}
TERMS = tuple(f"{g}({z})" for z in FEATURES for g in FUNCTIONS)


def _known(numbers: Any) -> np.ndarray:
    """Those of some numbers that can be looked at: not traced, and no schedules."""
    known = [x for x in numbers if not isinstance(x, Tracer | Schedule)]
    return np.asarray(known, np.float32)


_FINITE = Check(
    lambda x: bool(np.isfinite(_known(x)).all()), "must be finite, one for each term"
)
_SCALES = Check(
    lambda x: _FINITE.holds(x) and bool((_known(x) > 0).all()),
    "must be finite and greater than 0, one for each term",
)


def evaluate(name: str, scale: Any, log_ratio: Array, advantage: Array) -> Array:
    """Return a term without its coefficient, `w * s * g(z / s)`, `[N]`.

    Args:
        name: One of `TERMS`.
        scale: Scale s of the term, positive.
        log_ratio: `[N]` logarithms of the ratio.
        advantage: `[N]` advantages.
    """
    function, _, feature = name.partition("(")
    z, weight = FEATURES[feature.removesuffix(")")](log_ratio, advantage)
    return weight * scale * FUNCTIONS[function](z / scale)


def _of(help: str, check: Check) -> dict[str, Any]:
    """What `dynamic` says of a field; it makes fields with a default only."""
    return {"help": help, "check": check}


@struct.dataclass
class FormulaDrift:
    """A drift in closed form: `relu` of a sum of terms, see `purerl.contrib.formula`.

    Attributes:
        rise_coefficients: Coefficients of the terms where `A >= 0`.
        rise_scales: Scales of the terms where `A >= 0`, positive.
        fall_coefficients: Coefficients of the terms where `A < 0`.
        fall_scales: Scales of the terms where `A < 0`, positive.
        rise: Names of the terms where `A >= 0`, of `TERMS`.
        fall: Names of the terms where `A < 0`.
    """

    rise_coefficients: Any = struct.field(
        metadata=_of("Factors where A >= 0.", _FINITE)
    )
    rise_scales: Any = struct.field(metadata=_of("Scales where A >= 0.", _SCALES))
    fall_coefficients: Any = struct.field(metadata=_of("Factors where A < 0.", _FINITE))
    fall_scales: Any = struct.field(metadata=_of("Scales where A < 0.", _SCALES))
    rise: tuple[str, ...] = struct.field(pytree_node=False)
    fall: tuple[str, ...] = struct.field(pytree_node=False)

    @classmethod
    def make(
        cls,
        rise: Sequence[str] = ("excess((r-1)A)",),
        fall: Sequence[str] = ("excess(log(r)A)",),
        rise_coefficients: Any = (1.0,),
        rise_scales: Any = (2.0,),
        fall_coefficients: Any = (1.0,),
        fall_scales: Any = (0.6,),
    ) -> "FormulaDrift":
        """Make a drift from plain values; by default DPO's.

        Args:
            rise: Names of the terms where `A >= 0`.
            fall: Names of the terms where `A < 0`.
            rise_coefficients: Coefficients of the terms where `A >= 0`.
            rise_scales: Scales of the terms where `A >= 0`.
            fall_coefficients: Coefficients of the terms where `A < 0`.
            fall_scales: Scales of the terms where `A < 0`.

        Raises:
            ConfigError: an unknown term, or not a coefficient and a positive scale for
                each.
        """
        numbers = []
        for names, coefficients, scales in (
            (rise, rise_coefficients, rise_scales),
            (fall, fall_coefficients, fall_scales),
        ):
            sizes = {len(names), len(coefficients), len(scales)}
            if len(sizes) > 1 or not set(names) <= set(TERMS):
                raise ConfigError(
                    "FormulaDrift needs a coefficient and a scale for each term, got "
                    f"{list(names)}, {list(coefficients)} and {list(scales)}; terms "
                    f"are {', '.join(TERMS)}."
                )
            numbers += [tuple(map(float, coefficients)), tuple(map(float, scales))]
        if min((*numbers[1], *numbers[3]), default=1.0) <= 0:
            raise ConfigError(f"FormulaDrift: scales must be positive, got {numbers}.")
        return cls(*numbers, rise=tuple(rise), fall=tuple(fall))

    def _sides(self) -> list[Any]:
        """Name, coefficient and scale of the terms where A >= 0, and where A < 0."""
        rise = zip(self.rise, self.rise_coefficients, self.rise_scales, strict=True)
        fall = zip(self.fall, self.fall_coefficients, self.fall_scales, strict=True)
        return [list(rise), list(fall)]

    def __call__(self, log_ratio: Array, advantage: Array) -> Array:
        """Drift per sample, `[N]`."""

        def total(side: list[Any]) -> Array:
            found = jnp.zeros_like(log_ratio)
            for name, c, s in side:
                found = found + c * evaluate(name, s, log_ratio, advantage)
            return jax.nn.relu(found)

        rise, fall = map(total, self._sides())
        return jnp.where(advantage >= 0.0, rise, fall)

    def formula(self, digits: int = 3) -> str:
        """Return the drift in two lines of text.

        Args:
            digits: Digits of the numbers.
        """

        def text(side: list[Any]) -> str:
            terms = [
                f"{float(c):+.{digits}g} {name[:-1]}; {float(s):.{digits}g})"
                for name, c, s in side
            ]
            return f"relu({' '.join(terms)})" if terms else "0"

        rise, fall = map(text, self._sides())
        return f"A >= 0: {rise}\nA <  0: {fall}"
