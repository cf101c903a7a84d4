"""The number of seeds that a comparison needs.

After Colas, Sigaud & Oudeyer 2018, "How Many Random Seeds? Statistical Power Analysis
in Deep Reinforcement Learning Experiments", but simulated: n seeds of one configuration
and n of another that is better by `difference`, then the test a person would use. The
share of such experiments in which the test finds a difference is its power. With
`difference=0` it is the rate of false alarms, which shows whether the test can be
trusted with so few seeds (a bootstrap of five seeds cannot).
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl.config import ConfigError
from purerl.report.statistics.missing import (
    Missing,
    check_choice,
    check_finite,
    resolve,
)
from purerl.report.statistics.simulation import bootstrap, simulate, standardised, welch

TESTS = ("welch", "bootstrap")
DEFAULT_SEEDS = (2, 3, 5, 8, 10, 15, 20, 30, 50, 75, 100)


class PowerCurve(NamedTuple):
    """The chance to detect a difference, by number of seeds.

    Attributes:
        seeds: Numbers of seeds of each of the two configurations, `[N]`.
        power: The share of simulated experiments in which the test found a difference,
            `[N]`.
        error: The standard error of the simulation, `[N]`.
        difference: Difference of the means, in units of the score.
        std: Standard deviation of the scores of either configuration.
    """

    seeds: np.ndarray
    power: np.ndarray
    error: np.ndarray
    difference: float
    std: tuple[float, float]


def power_curve(
    pilot: Any = None,
    other: Any = None,
    *,
    difference: float | None = None,
    std: float | tuple[float, float] | None = None,
    seeds: Sequence[int] = DEFAULT_SEEDS,
    test: str = "welch",
    significance: float = 0.05,
    simulations: int = 10_000,
    resamples: int = 500,
    nan: Missing = "raise",
    seed: int = 0,
) -> PowerCurve:
    """Compute the power of a two-sided comparison of two means with n seeds each.

    What is known of the scores is either a pilot (their distribution is then the
    pilot's, shifted) or a standard deviation (then it is normal).

    Args:
        pilot: Scores of one configuration, `[S]`.
        other: Scores of the other configuration, `[R]`; without them, it is spread like
            `pilot`.
        difference: Difference of the means to detect; without it, that of the two
            pilots.
        std: Standard deviation of both, or a pair; in place of pilots.
        seeds: Numbers n to look at, each at least 2.
        test: The test: `"welch"` (t-test for unequal variances), or `"bootstrap"` (the
            percentile interval of the difference of means excludes zero).
        significance: Level of the test.
        simulations: Number of experiments simulated.
        resamples: Number of resamples of each bootstrap.
        nan: The policy for pilot runs without a score; see `missing`.
        seed: Seed of the simulation.

    Raises:
        ConfigError: not enough is given, or it contradicts itself, or is out of range.
    """
    pools, gap, spread = _known(pilot, other, difference, std, nan)
    numbers = _check_numbers(seeds)
    check_choice("test", test, TESTS)
    if not 0 < significance < 1:
        raise ConfigError(
            f"significance must be between 0 and 1, got {significance!r}."
        )
    if simulations < 1 or resamples < 1:
        raise ConfigError(
            "simulations and resamples must be at least 1, got "
            f"{simulations} and {resamples}."
        )
    key = jax.random.key(seed)
    # Numbers are in units of the larger spread, as the device computes in single
    # precision.
    unit = max(*spread) or 1.0
    groups = simulate(
        key, pools, gap / unit, np.array(spread) / unit, simulations, int(numbers.max())
    )
    if test == "welch":
        found = welch(groups, jnp.asarray(numbers), significance)
    else:
        each = [
            bootstrap(key, tuple(g[:, :n] for g in groups), significance, resamples)
            for n in numbers.tolist()
        ]
        found = jnp.stack(each)
    power = np.asarray(found, np.float64)
    error = np.sqrt(power * (1 - power) / simulations)
    return PowerCurve(numbers, power, error, gap, spread)


def _check_numbers(seeds: Sequence[int]) -> np.ndarray:
    """Read numbers of seeds, `[N]`; refuse those of which no spread is known."""
    numbers = np.asarray(seeds)
    if not numbers.size or numbers.dtype.kind not in "iu" or numbers.min() < 2:
        raise ConfigError(
            f"seeds must be whole numbers of at least 2, got {seeds!r}: a single run "
            "has no spread to judge a difference by."
        )
    return numbers


def seeds_needed(
    pilot: Any = None,
    other: Any = None,
    *,
    power: float = 0.8,
    limit: int = 4096,
    **options: Any,
) -> int:
    """Find the least number of seeds of each configuration to detect the difference.

    Args:
        pilot: Scores of one configuration, see `power_curve`.
        other: Scores of the other configuration, see `power_curve`.
        power: Least probability with which the difference is to be found.
        limit: Largest number of seeds that is looked at.
        **options: Options of `power_curve`, except `seeds`.

    Raises:
        ConfigError: see `power_curve`; or the limit is not enough.
    """
    if not 0 < power < 1:
        raise ConfigError(f"power must be between 0 and 1, got {power!r}.")
    if "seeds" in options:
        raise ConfigError("seeds is what seeds_needed looks for; use power_curve.")

    def reached(numbers: list[int]) -> int | None:
        curve = power_curve(pilot, other, seeds=numbers, **options)
        enough = curve.power >= power
        return int(np.argmax(enough)) if enough.any() else None

    bounds = [2]
    while (at := reached(bounds[-1:])) is None:
        if bounds[-1] >= limit:
            raise ConfigError(
                f"limit: {limit} seeds of each do not detect the difference with "
                f"probability {power:g}. Look for a larger difference, or raise limit."
            )
        bounds.append(min(2 * bounds[-1], limit))
    if len(bounds) == 1:
        return bounds[0]
    low, high = bounds[-2], bounds[-1]
    while high - low > 1:
        # A round tries eight numbers, because a program is compiled for every largest
        # one.
        inner = np.unique(np.linspace(low, high, 10).round().astype(int))[1:].tolist()
        at = reached(inner)
        assert at is not None  # `high` itself is among them, with the same draws.
        low, high = (low if at == 0 else inner[at - 1]), inner[at]
    return high


class _Known(NamedTuple):
    """The facts that are known of the scores of both configurations.

    Attributes:
        shapes: Standardised pilots of both; None where scores are normal.
        difference: Difference of the means.
        std: Standard deviations of both.
    """

    shapes: tuple[np.ndarray, np.ndarray] | None
    difference: float
    std: tuple[float, float]


def _known(
    pilot: Any,
    other: Any,
    difference: float | None,
    std: float | tuple[float, float] | None,
    nan: Missing,
) -> _Known:
    """Read pilots, or a standard deviation; refuse both together and neither."""
    if (pilot is None) == (std is None):
        raise ConfigError(
            "give either pilot scores or std (and a difference), to say how far seeds "
            "spread."
        )
    if difference is None and other is None:
        raise ConfigError(
            "difference: say which difference of means is to be detected, or give the "
            "scores of both configurations."
        )
    if difference is not None:
        check_finite("difference", difference)
    if pilot is not None:
        return _from_pilots(pilot, pilot if other is None else other, difference, nan)
    assert difference is not None
    return _Known(None, float(difference), _pair_of(std))


def _pair_of(std: Any) -> tuple[float, float]:
    """Read the standard deviations of both configurations."""
    try:
        first, second = (float(s) for s in np.broadcast_to(np.asarray(std, float), 2))
        is_spread = all(math.isfinite(s) and s >= 0 for s in (first, second))
    except (TypeError, ValueError):
        is_spread = False
    if not is_spread:
        raise ConfigError(
            f"std must be finite and at least 0, or two such numbers, got {std!r}."
        )
    return first, second


def _from_pilots(
    pilot: Any, other: Any, difference: float | None, nan: Missing
) -> _Known:
    """Estimate shapes, difference and standard deviations from the scores of pilots."""
    groups, _ = resolve(pilot, other, nan=nan)
    first, second = (group[np.isfinite(group)] for group in groups)
    for scores in (first, second):
        if scores.size < 2:
            raise ConfigError("pilot must hold at least 2 runs to show a spread.")
    gap = float(second.mean() - first.mean()) if difference is None else difference
    spread = (float(first.std(ddof=1)), float(second.std(ddof=1)))
    return _Known((standardised(first), standardised(second)), float(gap), spread)
