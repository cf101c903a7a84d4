"""The number of seeds that a comparison needs.

The power of Welch's t-test between n seeds of one configuration and n of another, as in
Colas, Sigaud & Oudeyer 2018, "How Many Random Seeds? Statistical Power Analysis in Deep
Reinforcement Learning Experiments": the chance that it finds a difference of the means
that there is. With `difference=0` it is the rate of false alarms.
"""

import bisect
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from purerl.config import ConfigError
from purerl.report.statistics.missing import Missing, check_share, resolve

DEFAULT_SEEDS = (2, 3, 5, 8, 10, 15, 20, 30, 50, 75, 100)


class PowerCurve(NamedTuple):
    """The chance to detect a difference, by number of seeds.

    Attributes:
        seeds: Numbers of seeds of each of the two configurations, `[N]`.
        power: The chance that the test finds the difference, `[N]`.
        difference: Difference of the means, in units of the score.
        std: Standard deviation of the scores of either configuration.
    """

    seeds: np.ndarray
    power: np.ndarray
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
    nan: Missing = "raise",
) -> PowerCurve:
    """Compute the power of Welch's t-test of two means with n seeds each.

    Means of n scores are taken as normal, as the test does.

    Args:
        pilot: Scores of one configuration, `[S]`, whose spread is taken.
        other: Scores of the other configuration, `[R]`; without them, it is spread like
            `pilot`.
        difference: Difference of the means to detect; without it, that of the two
            pilots.
        std: Standard deviation of both, or a pair; in place of pilots.
        seeds: Numbers n to look at, each at least 2.
        significance: Level of the test.
        nan: The policy for pilot runs without a score; see `missing`.

    Raises:
        ConfigError: not enough is given, or it is out of range.
    """
    from scipy.special import nctdtr, stdtrit

    if (pilot is None) == (std is None) or (difference is None and other is None):
        raise ConfigError(
            "give pilot scores of both configurations, or of one and a difference of "
            "the means, or std and a difference."
        )
    check_share("significance", significance)
    number = np.asarray(seeds)
    if not number.size or number.min() < 2:
        raise ConfigError(f"seeds must be numbers of at least 2, got {seeds!r}.")
    if pilot is None:
        first, second = (float(x) for x in np.broadcast_to(np.asarray(std), 2))
    else:
        groups, _ = resolve(pilot, pilot if other is None else other, nan=nan)
        pools = [group[np.isfinite(group)] for group in groups]
        if min(map(len, pools)) < 2:
            raise ConfigError("pilot must hold at least 2 runs to show a spread.")
        first, second = (float(pool.std(ddof=1)) for pool in pools)
        if difference is None:
            difference = float(pools[1].mean() - pools[0].mean())
    assert difference is not None
    if not (np.isfinite(difference) and min(first, second) >= 0):
        raise ConfigError("difference must be finite, and std at least 0.")
    both = first**2 + second**2
    if both == 0:  # A difference of scores that never vary is always found.
        power = np.full(number.shape, float(difference != 0))
        return PowerCurve(number, power, float(difference), (first, second))
    # Welch-Satterthwaite degrees of freedom.
    freedom = (number - 1) * both**2 / (first**4 + second**4)
    shift = abs(difference) / np.sqrt(both / number)
    edge = stdtrit(freedom, 1 - significance / 2)
    missed = nctdtr(freedom, shift, edge) - nctdtr(freedom, shift, -edge)
    power = 1 - np.nan_to_num(missed)  # NaN where next to none is missed.
    return PowerCurve(number, power, float(difference), (first, second))


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
    check_share("power", power)
    found = power_curve(pilot, other, seeds=range(2, limit + 1), **options)
    number = 2 + bisect.bisect_left(found.power, power)
    if number > limit:
        raise ConfigError(
            f"limit: {limit} seeds of each do not detect the difference with "
            f"probability {power:g}. Look for a larger difference, or raise limit."
        )
    return number
