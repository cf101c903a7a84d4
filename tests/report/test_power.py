"""Power curves against the noncentral t distribution and scipy's test."""

import numpy as np
import pytest
from scipy import stats

from purerl.config import ConfigError
from purerl.report.statistics import power


def exact_power(number: int, effect: float, significance: float = 0.05) -> float:
    """Of the two-sided t-test with equal variances, `effect` standard deviations."""
    freedom = 2 * number - 2
    shift = effect * np.sqrt(number / 2)
    edge = stats.t.ppf(1 - significance / 2, freedom)
    upper = stats.nct.sf(edge, freedom, shift)
    return upper + stats.nct.cdf(-edge, freedom, shift)


def test_power_is_that_of_the_t_test():
    """Welch's test loses next to nothing where the variances are equal."""
    found = power.power_curve(difference=40.0, std=50.0, seeds=(10, 20, 40, 100))
    exact = [exact_power(n, 0.8) for n in found.seeds]
    np.testing.assert_allclose(found.power, exact, atol=0.02)
    assert (np.diff(found.power) > 0).all()
    np.testing.assert_allclose(
        found.error, np.sqrt(found.power * (1 - found.power) / 10_000)
    )


@pytest.mark.parametrize("number", [2, 7, 16])
def test_welch_is_scipys(number):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(number, 300))
    y = rng.normal(0.9, 0.3, size=(number, 300))
    value = stats.ttest_ind(x, y, axis=0, equal_var=False).pvalue
    np.testing.assert_array_equal(power._welch(x, y, 0.05), value < 0.05)


@pytest.mark.slow
def test_false_alarms_are_as_rare_as_the_test_says():
    welch = power.power_curve(difference=0.0, std=1.0, seeds=(5, 30))
    assert welch.power[0] < 0.055
    assert welch.power[1] == pytest.approx(0.05, abs=0.008)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("effect", "least"),
    [
        (1.5, 9),
        (1.0, 17),
        (0.5, 64),
    ],
)
def test_seeds_needed_are_the_textbooks(effect, least):
    """9, 17 and 64 per group: two-sided t-test at 5%, power 0.8."""
    assert exact_power(least - 1, effect) < 0.8 <= exact_power(least, effect)
    found = power.seeds_needed(difference=effect, std=1.0, simulations=10_000)
    assert abs(found - least) <= 1


def test_pilots_give_spread_and_difference():
    pilot = np.array([0.0, 10.0, 20.0, 30.0, np.nan])
    found = power.power_curve(pilot, pilot + 5.0, seeds=(10,), nan="drop")
    assert found.difference == pytest.approx(5.0)
    assert found.std == pytest.approx((pilot[:4].std(ddof=1),) * 2)
    # Draws are widened to the estimated spread, so power is near the normal one.
    few = power.power_curve(pilot, difference=20.0, seeds=(10,), nan="drop")
    assert few.power[0] == pytest.approx(exact_power(10, 20 / few.std[0]), abs=0.05)


def test_scores_that_never_vary():
    found = power.power_curve(difference=1.0, std=0.0, seeds=(2, 5))
    np.testing.assert_array_equal(found.power, 1.0)
    none = power.power_curve(difference=0.0, std=0.0, seeds=(2, 5))
    np.testing.assert_array_equal(none.power, 0.0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"difference": 1.0}, "give either pilot scores or std"),
        ({"std": 1.0}, "say which difference"),
        ({"difference": np.nan, "std": 1.0}, "finite number"),
        ({"difference": 1.0, "std": -1.0}, "at least 0"),
        ({"difference": 1.0, "std": (1, 2, 3)}, "std must be finite"),
        ({"difference": 1.0, "std": 1.0, "seeds": (1, 2)}, "at least 2"),
        ({"difference": 1.0, "std": 1.0, "significance": 5}, "between 0 and 1"),
        ({"difference": 1.0, "pilot": [1.0]}, "at least 2 runs"),
    ],
)
def test_bad_input_is_one_sentence(options, words):
    with pytest.raises(ConfigError, match=words):
        power.power_curve(**options)


@pytest.mark.slow
def test_a_difference_that_needs_more_than_the_limit():
    with pytest.raises(ConfigError, match="16 seeds of each do not detect"):
        power.seeds_needed(difference=0.01, std=1.0, limit=16, simulations=500)
    with pytest.raises(ConfigError, match="use power_curve"):
        power.seeds_needed(difference=1.0, std=1.0, seeds=(2,))
