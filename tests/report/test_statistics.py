"""Estimates, intervals and power against rliable, scipy and closed forms.

`data/rliable.json` has scores, what rliable 1.2.0 gave for them, and the versions.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from purerl.config import ConfigError
from purerl.report import statistics

RLIABLE = json.loads((Path(__file__).parent / "data" / "rliable.json").read_text())
SCORES = {name: np.array(values) for name, values in RLIABLE["scores"].items()}
RESAMPLES = 8_000


@pytest.fixture
def plain(monkeypatch):
    """Percentiles as rliable has them, at 2.5% of the resamples for any runs."""
    monkeypatch.setattr(statistics, "tail_of", lambda confidence, *_: 0.025)


@pytest.mark.parametrize("name", sorted(SCORES))
def test_estimates_are_those_of_rliable(plain, name):
    scores = SCORES[name]
    found = statistics.estimates(scores, resamples=RESAMPLES)
    for statistic, (value, low, high) in RLIABLE["estimates"][name].items():
        mine = found[statistic]
        assert mine.value == pytest.approx(value, abs=1e-6, rel=1e-9)
        if statistic == "mean" and scores.shape[1] == 1:
            # rliable's percentiles of the mean of one task are too short.
            own = statistics.mean_interval(scores[:, 0], resamples=RESAMPLES)
            assert (mine.low, mine.high) == (own.low, own.high)
            assert mine.high - mine.low > high - low
            continue
        # The ends of both come from resampling: their noise is some 2% of the width.
        noise = 0.06 * (high - low) + 1e-6
        assert mine.low == pytest.approx(low, abs=noise), statistic
        assert mine.high == pytest.approx(high, abs=noise), statistic


@pytest.mark.slow
def test_probability_of_improvement_is_that_of_rliable(plain):
    value, low, high = RLIABLE["improvement"]
    x, y = SCORES["x"], SCORES["y"]
    found = statistics.probability_of_improvement(x, y, resamples=RESAMPLES)
    assert found.value == pytest.approx(value, abs=1e-6)
    assert found.low == pytest.approx(low, abs=0.02)
    assert found.high == pytest.approx(high, abs=0.02)
    other_way = statistics.probability_of_improvement(y, x, resamples=10)
    assert other_way.value == pytest.approx(1 - value, abs=1e-6)


@pytest.mark.parametrize("runs", [10, 13])
def test_where_every_run_is_better_the_interval_has_no_width(runs):
    worse = np.linspace(0.0, 1.0, runs)
    found = statistics.probability_of_improvement(worse + 2.0, worse)
    assert (found.value, found.low, found.high) == (1.0, 1.0, 1.0)


def test_profiles_are_those_of_rliable(plain):
    value, low, high = map(np.array, RLIABLE["profile"])
    found = statistics.performance_profile(
        SCORES["x"], RLIABLE["thresholds"], resamples=RESAMPLES
    )
    np.testing.assert_allclose(found.value, value, atol=1e-6)
    step = 1 / SCORES["x"].size  # Shares of 60 runs: ends are whole steps.
    np.testing.assert_allclose(found.low, low, atol=step + 1e-6)
    np.testing.assert_allclose(found.high, high, atol=step + 1e-6)


@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_the_percentiles_make_the_mean_of_a_normal_sample_students_interval(confidence):
    """Of a normal bootstrap distribution, whose variance is that of the sample."""
    runs = 12
    scores = np.random.default_rng(0).normal(size=runs)
    tail = statistics.tail_of(confidence, runs, 1)
    low = scores.mean() + stats.norm.ppf(tail) * scores.std() / np.sqrt(runs)
    error = scores.std(ddof=1) / np.sqrt(runs)
    exact = stats.t.interval(confidence, runs - 1, scores.mean(), error)
    assert low == pytest.approx(exact[0])
    # Of many runs they are the plain percentiles.
    many = statistics.tail_of(confidence, 100_000, 1)
    assert many == pytest.approx((1 - confidence) / 2, rel=1e-3)


def test_few_runs_of_each_task_have_percentiles_further_out(request):
    """In an estimate of two tasks, a curve of one point, and of two groups."""
    scores = SCORES["x"][:10, :2]
    x, y = np.random.default_rng(0).normal(size=(2, 10))

    def found():
        yield statistics.estimate(scores, "iqm")
        yield statistics.curve(scores[..., None])
        yield statistics.probability_of_improvement(x, y, resamples=8_000)

    wide = list(found())
    request.getfixturevalue("plain")
    for one, other in zip(wide, found(), strict=True):
        share = np.squeeze((one.high - one.low) / (other.high - other.low))
        # Student's 2.10 at 18 degrees of freedom, times sqrt(10 / 9), beside 1.96.
        assert 1.05 < share < 1.25


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([8.0, -100.0, 1.0, 3.0, 2.0, 6.0, 99.0, 4.0], 3.75),
        ([1.0, 2.0, 6.0], 3.0),  # Too few to cut any.
        ([np.nan, 0.0, 1.0, 3.0, 50.0], 2.0),
    ],
)
def test_interquartile_mean_by_hand(scores, expected):
    assert statistics.aggregate(np.array(scores), "iqm") == expected


@pytest.mark.parametrize("runs", [7, 300, 5_000])
def test_draws_are_multinomial(runs):
    """Of two tasks, each by itself, whatever the blocks that they are drawn in."""
    known, repeats = np.ones((runs, 2)), max(20, 40_000 // runs)
    known[runs // 2 :, 1] = 0.0
    counts = np.concatenate([*statistics.draw_counts(known, repeats, 1)])
    own = counts[:, 0]
    np.testing.assert_array_equal(own.sum(1), runs)
    np.testing.assert_array_equal(counts[:, 1, : runs // 2].sum(1), runs // 2)
    # Means are 1 and variances 1 - 1/n; halves of the range are equally likely.
    assert own.var() == pytest.approx(1 - 1 / runs, abs=0.06)
    lower = own[:, : runs // 2].sum() / (repeats * runs)
    expected = (runs // 2) / runs
    assert lower == pytest.approx(expected, abs=4 * 0.5 / np.sqrt(repeats * runs))


def test_fewer_resamples_are_the_first_ones_of_more(monkeypatch):
    known = np.ones((5, 2))
    whole = np.concatenate([*statistics.draw_counts(known, 50, 2)])
    monkeypatch.setattr(statistics, "BLOCK", 10 * 7)
    cut = np.concatenate([*statistics.draw_counts(known, 20, 2)])
    np.testing.assert_array_equal(whole[:20], cut)


def test_interval_of_a_share_is_binomial():
    """30 of 100 runs exceed the threshold: resampled shares are Binomial(100, 0.3)."""
    scores = np.arange(100.0)
    found = statistics.performance_profile(scores, [69.0], resamples=RESAMPLES)
    low, high = stats.binom.ppf([0.025, 0.975], 100, 0.3) / 100
    assert found.value == 0.3
    assert found.low == pytest.approx([low], abs=0.0101)
    assert found.high == pytest.approx([high], abs=0.0101)


@pytest.mark.slow
def test_curve_is_the_estimate_of_each_point():
    values = np.random.default_rng(2).normal(50.0, 10.0, (12, 5)) + np.arange(5) * 30
    values[0, 4] = values[1, 4] = values[5, 2] = np.nan
    values = np.concatenate([values, np.full((12, 1), np.nan)], axis=1)
    for statistic in ("iqm", "mean"):
        found = statistics.curve(values, statistic, resamples=RESAMPLES)
        np.testing.assert_array_equal(found.missing, [0, 0, 1, 0, 2, 12])
        assert np.isnan([found.value[5], found.low[5], found.high[5]]).all()
        for t in range(5):
            one = statistics.estimate(
                values[:, t], statistic, nan="drop", resamples=RESAMPLES
            )
            noise = 0.06 * (one.high - one.low)
            assert found.value[t] == pytest.approx(one.value)
            assert found.low[t] == pytest.approx(one.low, abs=noise)
            assert found.high[t] == pytest.approx(one.high, abs=noise)


def test_resamples_of_a_mean_curve_are_as_many_as_are_asked_for():
    values = np.random.default_rng(0).normal(size=(12, 2))
    options = {"confidence": 0.9995, "resamples": 50_000}
    found = statistics.curve(values, "mean", **options)
    low, high = statistics.mean_interval(values, **options)[1:3]
    np.testing.assert_array_equal((found.low, found.high), (low, high))


def test_the_same_seed_gives_the_same_interval():
    scores = SCORES["x"]
    first = statistics.estimate(scores)
    assert first == statistics.estimate(scores)
    assert first.low != statistics.estimate(scores, seed=1).low


NAN = np.array([[1.0, 5.0], [np.nan, 6.0], [3.0, np.inf], [2.0, 8.0]])


@pytest.mark.parametrize(
    ("found", "value", "missing"),
    [
        # The worst is that of the task.
        (lambda: statistics.estimate(NAN, "mean", nan="worst"), (7 / 4 + 6) / 2, 2),
        # Three runs beat all of -10; the diverged one counts as -10 and ties.
        (
            lambda: statistics.probability_of_improvement(
                NAN[:, 0], np.full(4, -10.0), nan="worst"
            ),
            *((3 + 0.5) / 4, 1),
        ),
        (lambda: statistics.estimate(NAN[:, 0], "mean", nan=-6.0), 0.0, 1),
        (lambda: statistics.estimate(NAN, "mean", nan="drop"), (2.0 + 19 / 3) / 2, 2),
        (
            lambda: statistics.performance_profile(NAN, [2.5], nan="drop"),
            *([(1 / 3 + 1) / 2], 2),
        ),
        (lambda: statistics.estimate([np.nan, np.nan], nan=4.0), 4.0, 2),
    ],
)
def test_a_run_without_a_score_is_worth_what_is_said(found, value, missing):
    estimate = found()
    assert estimate.value == pytest.approx(value) and estimate.missing == missing


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: statistics.estimate(NAN), r"2 of 8 are not finite.*nan=\"worst\""),
        (lambda: statistics.estimate([[np.nan]], nan="worst"), "has no finite score"),
        (lambda: statistics.estimate([[np.nan]], nan="drop"), "has no finite score"),
        (lambda: statistics.estimate([1.0], "mode"), "statistics must be one of iqm"),
        (lambda: statistics.estimate([1.0], nan="zero"), "nan must be one of raise"),
        (lambda: statistics.estimate([1.0], nan=np.inf), "nan must be"),
        (lambda: statistics.estimate(["a"]), "scores must be numbers"),
        (lambda: statistics.estimate(np.zeros((2, 2, 2))), r"got shape \(2, 2, 2\)"),
        (lambda: statistics.estimate([1.0], confidence=95), "between 0 and 1"),
        (lambda: statistics.mean_interval([]), "^values must "),
        (lambda: statistics.mean_interval(3.0), "^values must "),
        (lambda: statistics.mean_interval([[1.0, 2.0], [3.0]]), "^values must "),
        (lambda: statistics.performance_profile([1.0], []), "thresholds must be"),
        (lambda: statistics.curve(np.zeros((2, 2)), "median"), "statistic must be"),
        (
            lambda: statistics.probability_of_improvement(
                np.zeros((2, 2)), np.zeros((2, 3))
            ),
            "same tasks",
        ),
    ],
)
def test_bad_input_is_one_sentence(call, words):
    with pytest.raises(ConfigError, match=words):
        call()


def test_a_tie_is_half_a_win_in_the_interval_too():
    found = statistics.probability_of_improvement(np.zeros(12), np.zeros(12))
    assert (found.value, found.low, found.high) == (0.5, 0.5, 0.5)


# Power


def exact_power(number: int, effect: float) -> float:
    """Of the two-sided t-test at 5%, with `effect` standard deviations between."""
    freedom = 2 * number - 2
    shift = effect * np.sqrt(number / 2)
    edge = stats.t.ppf(0.975, freedom)
    upper = stats.nct.sf(edge, freedom, shift)
    return upper + stats.nct.cdf(-edge, freedom, shift)


def test_power_is_that_of_the_t_test():
    found = statistics.power_curve(difference=40.0, std=50.0, seeds=(10, 20, 40, 100))
    np.testing.assert_allclose(found.power, [exact_power(n, 0.8) for n in found.seeds])
    none = statistics.power_curve(difference=0.0, std=(1.0, 2.0), seeds=(5, 30, 4_000))
    np.testing.assert_allclose(none.power, 0.05)  # False alarms.
    many = statistics.power_curve(difference=9.0, std=1.0, seeds=(3, 4_000))
    assert many.power[1] == 1.0


def test_power_of_unequal_spreads_is_that_of_simulated_welch_tests():
    found = statistics.power_curve(difference=1.0, std=(0.3, 1.5), seeds=(12,))
    rng = np.random.default_rng(3)
    x, y = rng.normal(0.0, 0.3, (12, 4_000)), rng.normal(1.0, 1.5, (12, 4_000))
    share = (stats.ttest_ind(x, y, equal_var=False).pvalue < 0.05).mean()
    assert found.power[0] == pytest.approx(share, abs=0.03)


@pytest.mark.parametrize(("effect", "least"), [(1.5, 9), (1.0, 17), (0.5, 64)])
def test_seeds_needed_are_the_textbooks(effect, least):
    """9, 17 and 64 per group: two-sided t-test at 5%, power 0.8."""
    assert statistics.seeds_needed(difference=effect, std=1.0) == least


def test_pilots_give_spread_and_difference():
    pilot = np.array([0.0, 10.0, 20.0, 30.0, np.nan])
    found = statistics.power_curve(pilot, pilot + 5.0, seeds=(10,), nan="drop")
    assert found.difference == pytest.approx(5.0)
    assert found.std == pytest.approx((pilot[:4].std(ddof=1),) * 2)
    assert found.power[0] == pytest.approx(exact_power(10, 5 / found.std[0]))


@pytest.mark.parametrize("difference", [0.0, 1.0])
def test_scores_that_never_vary(difference):
    found = statistics.power_curve(difference=difference, std=0.0, seeds=(2, 5))
    np.testing.assert_array_equal(found.power, difference)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"difference": 1.0}, "give pilot"),
        ({"std": 1.0}, "a difference"),
        ({"difference": np.nan, "std": 1.0}, "difference must"),
        ({"difference": 1.0, "std": -1.0}, "std"),
        ({"difference": 1.0, "std": 1.0, "seeds": (1, 2)}, "seeds"),
        ({"difference": 1.0, "std": 1.0, "significance": 5}, "significance"),
        ({"difference": 1.0, "pilot": [1.0]}, "pilot"),
    ],
)
def test_a_power_of_nothing_is_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        statistics.power_curve(**options)


def test_a_difference_that_needs_more_than_the_limit():
    with pytest.raises(ConfigError, match="limit"):
        statistics.seeds_needed(difference=0.01, std=1.0, limit=16)
