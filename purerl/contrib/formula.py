"""Drifts in closed form, from a grammar of terms that are all flat at ratio 1.

With `r` the ratio and `A` the advantage, a term is `c * w * s * g(z / s)`, where

    (z, w) is one of   ((r - 1) A, 1),  (log(r) A, 1),  (r - 1, |A|),  (log(r), |A|)
    g is one of        square z^2, excess z - tanh(z), logcosh log cosh(z),
                       above relu(z - 1), below relu(-z - 1)

and a drift is `relu` of a sum of terms, of some where `A >= 0` and of others where
`A < 0`. Since `g` is zero with zero slope at 0, every choice of numbers is a drift.
PPO's clip is `above(r - 1; eps)` with `w = |A|` on one side and `below` on the other,
and DPO's is `excess((r - 1) A; 2)` and `excess(log(r) A; 0.6)`.

`distil` finds a closed form for a learned drift by a search over this grammar.

DPO's drift was read off a network by eye (Lu et al. 2022, section 5). Here the network
is sampled where training meets it, and sums of few terms of `purerl.contrib.formula`
are fitted to what it does to the policy: to its slope in the log-ratio, and to its
value. Both signs of the advantage are fitted apart.

The search has three steps. A linear fit of every pair of terms at every scale of a
grid, where the drift is not zero, keeps the best; each of these gets every third term
likewise; then coefficients and scales of the best of each length move together by
gradient descent on the error of the whole drift, its `relu` included. Besides, the best
sum of each length goes on with a further term whose coefficient begins at zero: the
linear fit does not see the `relu`, and by this a longer sum is never worse.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct
from jax.core import Tracer

from purerl import schedules
from purerl.algorithms.checks import check_loss
from purerl.config import Check, ConfigError
from purerl.losses.policy import Drift
from purerl.precision import in_32_bits
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


SCALES = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
# Sums that are kept of each length, and steps of Adam with which the best are refined.
KEPT, REFINED, STEPS = 128, 6, 400


class Samples(NamedTuple):
    """The points where a drift is compared, all with one sign of the advantage.

    Attributes:
        log_ratio: `[N]` logarithms of the ratio.
        advantage: `[N]` advantages.
        value: `[N]` values of the drift to distil.
        slope: `[N]` derivatives of the drift by the log-ratio.
    """

    log_ratio: Array
    advantage: Array
    value: Array
    slope: Array


class Side(NamedTuple):
    """A sum of terms for one sign of the advantage.

    Attributes:
        names: Names of the terms.
        coefficients: Coefficients of the terms.
        scales: Scales of the terms.
        error: Error of slope and value, as a share of their root mean squares.
    """

    names: tuple[str, ...]
    coefficients: tuple[float, ...]
    scales: tuple[float, ...]
    error: float


class Distilled(NamedTuple):
    """A closed form of a drift.

    Attributes:
        drift: The drift, which trains and evolves as any other.
        error: Error of the slope and the value, as a share of the root mean squares of
            slope and value of the drift that it stands for: the root mean square of the
            errors of both signs of the advantage.
        rise: The best sum of each number of terms where the advantage is positive.
        fall: The best sum of each number of terms where the advantage is negative.
    """

    drift: FormulaDrift
    error: float
    rise: list[Side]
    fall: list[Side]

    def __str__(self) -> str:
        """The formula, and its error."""
        return f"{self.drift.formula()}\nerror: {self.error:.1%}"


@in_32_bits
def distil(
    drift: Drift,
    *,
    max_terms: int = 3,
    spread: float = 0.3,
    samples: int = 2_048,
    gain: float = 0.8,
    seed: int = 0,
) -> Distilled:
    """Find a short closed form of a drift.

    A further term is taken where it leaves less than `gain` of the error.

    Args:
        drift: Drift to distil, such as an evolved `MLPDrift`.
        max_terms: Largest number of terms for each sign of the advantage, up to 3.
        spread: Standard deviation of the log-ratios; advantages are standard normal, as
            PPO normalises them.
        samples: Number of samples for each sign.
        gain: Share of the error that a further term may leave at most.

    Raises:
        ConfigError: other numbers, no drift, a drift that moves in the course of a run,
            or one that is zero or not finite at all samples.
    """
    if max_terms not in (1, 2, 3) or samples < 16 or not spread > 0 or not 0 < gain < 1:
        raise ConfigError(
            "distil: max_terms must be 1, 2 or 3, samples at least 16, spread greater "
            f"than 0, gain in (0, 1), got {max_terms}, {samples}, {spread}, {gain}."
        )
    for name, value in schedules.named(drift).items():
        raise ConfigError(
            f"distil: {name} of {type(drift).__name__} is {value!r}, which moves; give "
            f"its value at a moment: drift.replace({name}=0.5)."
        )
    check_loss("distil: the drift", drift, 2, "purerl.losses.DPODrift()")
    searches = []
    for sign in (1, -1):
        seen = sample(drift, sign, spread, samples, seed)
        searches.append(_search(seen, max_terms))
    chosen = []
    for sides in searches:
        best = sides[0]
        for side in sides[1:]:
            if side.error < gain * best.error:
                best = side
        chosen.append(best)
    rise, fall = chosen
    formula = FormulaDrift(
        rise.coefficients,
        rise.scales,
        fall.coefficients,
        fall.scales,
        rise.names,
        fall.names,
    )
    error = float(np.sqrt((rise.error**2 + fall.error**2) / 2))
    return Distilled(formula, error, *searches)


def sample(drift: Drift, sign: int, spread: float, number: int, seed: int) -> Samples:
    """Sample a drift and its slope for one sign of the advantage.

    Args:
        drift: Drift to sample.
        sign: Sign of the advantages, 1 or -1.
        spread: Standard deviation of the log-ratios.
        number: Number of samples, N.

    Raises:
        ConfigError: the drift is zero everywhere, or not finite somewhere.
    """
    key_ratio, key_advantage = jax.random.split(jax.random.key(seed))
    log_ratio = spread * jax.random.normal(key_ratio, (number,))
    advantage = sign * jnp.abs(jax.random.normal(key_advantage, (number,)))
    value, slope = _value_and_slope(lambda x: drift(x, advantage), log_ratio)
    if not (jnp.isfinite(value).all() and jnp.isfinite(slope).all()):
        raise ConfigError(f"distil: {drift!r} is not finite at all samples.")
    if not jnp.abs(value).max() > 0:
        raise ConfigError(
            f"distil: {type(drift).__name__} is zero at all samples of advantages of "
            f"sign {sign:+d}; sample with a larger spread."
        )
    return Samples(log_ratio, advantage, value, slope)


def _search(seen: Samples, max_terms: int) -> list[Side]:
    """The best sums of one term, two terms and so on."""
    columns = [(name, scale) for name in TERMS for scale in SCALES]
    matrix, wanted = _table(seen, columns)
    gram, right = matrix.T @ matrix, matrix.T @ wanted
    total = float(wanted @ wanted)
    sums = [(number,) for number in range(len(columns))]
    sides = []
    for length in range(1, max_terms + 1):
        sums = _best(gram, right, total, sums, KEPT)
        # Of the same terms at other scales, only the best: scales move.
        kinds: dict[tuple[str, ...], list[tuple[str, float]]] = {}
        for indices in sums:
            chosen = [columns[i] for i in indices]
            kinds.setdefault(tuple(sorted(name for name, _ in chosen)), chosen)
        starts = []
        for chosen in [*kinds.values()][:REFINED]:
            # Coefficients of a linear fit, where the drift is not zero.
            table, _ = _table(seen, chosen)
            fitted = np.linalg.lstsq(table, wanted, rcond=None)[0]
            names, scales = zip(*chosen, strict=True)
            starts.append(Side(names, tuple(fitted.tolist()), scales, np.inf))
        if sides:
            starts.append(_with_another(seen, sides[-1], columns))
        tried = [_refined(seen, start) for start in starts]
        known = [side for side in tried if np.isfinite(side.error)]
        sides.append(min(known or tried, key=lambda side: side.error))
        if length < max_terms:
            # All pairs are tried, and of longer sums those that begin with a good one.
            grown = sums if length > 1 else [(n,) for n in range(len(columns))]
            wider = {
                tuple(sorted((*s, n)))
                for s, n in itertools.product(grown, range(len(columns)))
                if n not in s
            }
            sums = sorted(wider)
    return sides


def _table(
    seen: Samples, columns: list[tuple[str, float]]
) -> tuple[np.ndarray, np.ndarray]:
    """Slopes and values of terms `[2N, C]`, and of the drift `[2N]`, where it is not 0.

    Both are in units of the drift's root mean square.
    """

    def both(name: str, scale: float) -> Array:
        value, slope = _value_and_slope(
            lambda x: evaluate(name, scale, x, seen.advantage), seen.log_ratio
        )
        return jnp.concatenate([slope, value])

    units = _units(seen)
    active = np.tile(np.asarray(seen.value > 0), 2)
    weight = np.repeat(1.0 / np.asarray(units), len(seen.value)) * active
    table = np.stack([np.asarray(both(*column), np.float64) for column in columns], 1)
    wanted = np.concatenate([np.asarray(seen.slope), np.asarray(seen.value)])
    return table * weight[:, None], wanted.astype(np.float64) * weight


def _best(
    gram: np.ndarray,
    right: np.ndarray,
    total: float,
    sums: list[tuple[int, ...]],
    number: int,
) -> list[tuple[int, ...]]:
    """Some sums of terms with the least error of a linear fit, the best first."""
    index = np.array(sums)
    matrices = gram[index[:, :, None], index[:, None, :]]
    # Scales next to each other are nearly the same column.
    ridge = 1e-6 * np.trace(matrices, axis1=1, axis2=2)[:, None, None]
    matrices = matrices + (ridge + 1e-12) * np.eye(index.shape[1])[None]
    solved = np.linalg.solve(matrices, right[index][..., None])[..., 0]
    error = total - (solved * right[index]).sum(1)
    order = np.argsort(error, kind="stable")[:number]
    return [tuple(index[i].tolist()) for i in order]


def _with_another(seen: Samples, side: Side, columns: list[tuple[str, float]]) -> Side:
    """A sum and a further term, of coefficient zero: the one the error lacks most."""
    value, slope = _value_and_slope(
        _drift(side.names, side.coefficients, side.scales, seen), seen.log_ratio
    )
    table, wanted = _table(seen, columns)
    units = np.repeat(np.asarray(_units(seen)), len(seen.value))
    lacking = wanted - np.concatenate([np.asarray(slope), np.asarray(value)]) / units
    lengths = np.sqrt(np.square(table).sum(0)) + 1e-12
    name, scale = columns[int(np.argmax(np.abs(lacking @ table) / lengths))]
    return Side(
        (*side.names, name), (*side.coefficients, 0.0), (*side.scales, scale), np.inf
    )


def _refined(seen: Samples, start: Side) -> Side:
    """A sum whose numbers were moved by gradient descent on the whole drift's error."""
    units = _units(seen)

    def error(numbers: tuple[Array, Array]) -> Array:
        drift = _drift(start.names, numbers[0], jnp.exp(numbers[1]), seen)
        value, slope = _value_and_slope(drift, seen.log_ratio)
        off = (slope - seen.slope) / units[0], (value - seen.value) / units[1]
        return (jnp.mean(jnp.square(off[0])) + jnp.mean(jnp.square(off[1]))) / 2

    optim = optax.adam(optax.cosine_decay_schedule(0.03, STEPS))

    def step(carry: Any, _: None) -> tuple[Any, None]:
        numbers, state, best, least = carry
        loss, grads = jax.value_and_grad(error)(numbers)
        # Slopes jump where a term begins, so that not every step makes it better.
        is_better = loss < least
        best = jax.tree.map(lambda x, y: jnp.where(is_better, x, y), numbers, best)
        updates, state = optim.update(grads, state)
        numbers = optax.apply_updates(numbers, updates)
        return (numbers, state, best, jnp.minimum(loss, least)), None

    @jax.jit
    def run(numbers: Any) -> tuple[Any, Array]:
        carry = numbers, optim.init(numbers), numbers, error(numbers)
        (_, _, best, least), _ = jax.lax.scan(step, carry, length=STEPS)
        return best, least

    first = jnp.asarray(start.coefficients), jnp.log(jnp.asarray(start.scales))
    (coefficients, log_scales), least = run(first)
    return Side(
        start.names,
        tuple(float(x) for x in coefficients),
        tuple(float(x) for x in jnp.exp(log_scales)),
        float(jnp.sqrt(least)),
    )


def _drift(names: Sequence[str], c: Any, scales: Any, seen: Samples) -> Any:
    """A sum of terms as a function of the log-ratio, at the advantages of samples."""

    def drift(x: Array) -> Array:
        terms = [
            c[i] * evaluate(name, scales[i], x, seen.advantage)
            for i, name in enumerate(names)
        ]
        return jax.nn.relu(sum(terms, jnp.zeros_like(x)))

    return drift


def _value_and_slope(drift: Any, log_ratio: Array) -> tuple[Array, Array]:
    value, back = jax.vjp(drift, log_ratio)
    return value, back(jnp.ones_like(value))[0]


def _units(seen: Samples) -> tuple[Array, Array]:
    """Root mean squares of slope and value."""
    slope, value = (jnp.sqrt(jnp.mean(jnp.square(x))) for x in (seen.slope, seen.value))
    return slope, value
