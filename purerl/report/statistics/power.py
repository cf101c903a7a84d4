"""The number of seeds that a comparison needs.

After Colas, Sigaud & Oudeyer 2018, "How Many Random Seeds? Statistical Power Analysis
in Deep Reinforcement Learning Experiments", but simulated: n seeds of one configuration
and n of another that is better by `difference`, then Welch's t-test. The
share of such experiments in which the test finds a difference is its power. With
`difference=0` it is the rate of false alarms.
"""

import bisect
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from purerl.config import ConfigError
from purerl.report.statistics.missing import (
    Missing,
    check_finite,
    resolve,
)

DEFAULT_SEEDS = (2, 3, 5, 8, 10, 15, 20, 30, 50, 75, 100)
BATCH = 100  # Experiments that are simulated at once.


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
    significance: float = 0.05,
    simulations: int = 10_000,
    nan: Missing = "raise",
    seed: int = 0,
) -> PowerCurve:
    """Compute the power of Welch's t-test of two means with n seeds each.

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
        significance: Level of the test.
        simulations: Number of experiments simulated.
        nan: The policy for pilot runs without a score; see `missing`.
        seed: Seed of the simulation.

    Raises:
        ConfigError: not enough is given, or it contradicts itself, or is out of range.
    """
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
    numbers = np.asarray(seeds)
    if not numbers.size or numbers.dtype.kind not in "iu" or numbers.min() < 2:
        raise ConfigError(
            f"seeds must be whole numbers of at least 2, got {seeds!r}: a single run "
            "has no spread to judge a difference by."
        )
    if not 0 < significance < 1:
        raise ConfigError(
            f"significance must be between 0 and 1, got {significance!r}."
        )
    pools = None
    if pilot is None:
        spread = _pair_of(std)
    else:
        pools = _pilots(pilot, pilot if other is None else other, nan)
        first, second = (float(pool.std(ddof=1)) for pool in pools)
        spread = first, second
        if difference is None:
            difference = float(pools[1].mean() - pools[0].mean())
    assert difference is not None
    found = np.zeros(len(numbers))
    for first in range(0, simulations, BATCH):
        shape = (int(numbers.max()), min(BATCH, simulations - first))
        groups = []
        for which in range(2):
            # A seed draws its own row: more seeds leave the first ones as they were.
            stream = np.random.default_rng([seed, first, which])
            if pools is None:
                scores = stream.normal(size=shape)
            else:
                # Draws from n runs spread less than the population of which the runs
                # are a sample, by sqrt(1 - 1 / n): they are widened to its estimate.
                centred = pools[which] - pools[which].mean()
                scores = stream.choice(centred / (centred.std() or 1.0), shape)
            groups.append(which * difference + spread[which] * scores)
        for place, number in enumerate(numbers.tolist()):
            x, y = (group[:number] for group in groups)
            found[place] += _welch(x, y, significance).sum()
    power = found / simulations
    error = np.sqrt(power * (1 - power) / simulations)
    return PowerCurve(numbers, power, error, float(difference), spread)


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

    def is_enough(number: int) -> bool:
        curve = power_curve(pilot, other, seeds=(number,), **options)
        return bool(curve.power[0] >= power)

    low, high = 1, 2
    while not is_enough(high):
        if high >= limit:
            raise ConfigError(
                f"limit: {limit} seeds of each do not detect the difference with "
                f"probability {power:g}. Look for a larger difference, or raise limit."
            )
        low, high = high, min(2 * high, limit)
    between = range(low + 1, high)
    return low + 1 + bisect.bisect_left(between, True, key=is_enough)


def _pair_of(std: Any) -> tuple[float, float]:
    """Read the standard deviations of both configurations."""
    pair = np.ravel(std)
    if pair.size not in (1, 2) or not (np.isfinite(pair) & (pair >= 0)).all():
        raise ConfigError(
            f"std must be finite and at least 0, or two such numbers, got {std!r}."
        )
    return float(pair[0]), float(pair[-1])


def _pilots(pilot: Any, other: Any, nan: Missing) -> list[np.ndarray]:
    """The known scores of both pilots."""
    groups, _ = resolve(pilot, other, nan=nan)
    pools = [group[np.isfinite(group)] for group in groups]
    if min(pool.size for pool in pools) < 2:
        raise ConfigError("pilot must hold at least 2 runs to show a spread.")
    return pools


def _welch(x: np.ndarray, y: np.ndarray, significance: float) -> np.ndarray:
    """Flags of experiments in which Welch's t-test rejects, of `[n, simulations]`."""
    from scipy.special import stdtr

    number = len(x)
    error_x, error_y = (scores.var(0, ddof=1) / number for scores in (x, y))
    gap, both = np.abs(x.mean(0) - y.mean(0)), error_x + error_y
    with np.errstate(divide="ignore", invalid="ignore"):
        # Welch-Satterthwaite degrees of freedom; 0 / 0 if nothing varies at all.
        freedom = both**2 * (number - 1) / (error_x**2 + error_y**2)
        is_rare = 2 * stdtr(freedom, -gap / np.sqrt(both)) < significance
    return np.where(both == 0, gap > 0, is_rare)
