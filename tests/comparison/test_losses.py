"""Losses compared on held-out seeds: keys, scores, statistics, files, mistakes."""

import jax
import numpy as np
import pytest
from scipy import stats

import purerl
from purerl import losses
from purerl.comparison import api
from purerl.comparison import result as results
from purerl.comparison.result import (
    ALL,
    ERRORS,
    Comparison,
    Trained,
    chance_of,
    clear_of_zero,
)
from purerl.config import ConfigError
from purerl.execution.curves import Segment
from purerl.meta.training import baseline_keys, rollout_keys
from purerl.report import statistics
from purerl.train import Plan
from tests.comparison.small import CONFIG, FAST, SEEDS, SMALL
from tests.report.synthetic import printed

HUBER = {"soft": losses.HuberError(1.0), "hard": losses.HuberError(5.0)}


def numbers(keys):
    return {tuple(row) for row in np.asarray(jax.random.key_data(keys)).tolist()}


def test_held_out_keys_are_nobody_elses():
    held = numbers(api.held_out_keys(0, range(64)))
    assert len(held) == 64
    others = numbers(jax.vmap(jax.random.key)(np.arange(200)))
    for seed in range(3):
        key = jax.random.key(seed)
        others |= numbers(baseline_keys(key, 8))
        for generation in range(20):
            others |= numbers(rollout_keys(key, generation, 8))
    assert not held & others
    few = api.held_out_keys(0, range(3))
    assert numbers(few) < held  # More seeds are more, not others.


@pytest.mark.slow(optimised=False)
def test_scores_are_those_of_plain_training():
    settings = {name: {"value_loss": loss} for name, loss in HUBER.items()}
    start = CONFIG.replace(**FAST)  # The critic soon matters to the policy.
    result = purerl.compare(start, settings, **SMALL)
    config = start.replace(value_loss=HUBER["hard"], num_evaluations=0)
    train = jax.jit(jax.vmap(purerl.make_train(config)))
    trained = train(api.held_out_keys(0, range(SEEDS)))
    returns = np.asarray(trained.metrics["episode_return"], float)
    for seed, row in enumerate(returns):
        known, curve = row[np.isfinite(row)][0], []  # that of the first episode
        for value, count in zip(row, trained.metrics["episodes"][seed], strict=True):
            known = value if count > 0 else known
            curve.append(known)
        assert result.scores["training_curve"][0, 1, seed] == pytest.approx(
            np.mean(curve), rel=1e-4
        )
        assert result.scores["final_return"][0, 1, seed] == pytest.approx(
            np.mean(curve[-2:]), rel=1e-4
        )
        pieces = result.curves["CartPole-v1"][1, seed]  # 20 updates: a piece each
        np.testing.assert_allclose(pieces, curve, rtol=1e-4)
    assert result.steps["CartPole-v1"].tolist() == [list(range(32, 641, 32))] * 2


def make(scores, baseline="base", environments=("a",), names=("base", "other")):
    """A comparison of given scores, `[E, L, S]`."""
    found = {
        (place, name): Trained(
            {"final_return": values}, np.repeat(values[:, None], 3, 1), np.arange(1, 4)
        )
        for place, part in zip(environments, np.asarray(scores, float), strict=True)
        for name, values in zip(names, part, strict=True)
    }
    about = {
        "settings": dict.fromkeys(names),
        "environments": {name: {} for name in environments},
        "baseline": baseline,
        "options": {"seed": 0, "measures": ["final_return"]},
        "seeds": list(range(np.shape(scores)[2])),
    }
    return Comparison(about, found)


def test_differences_are_taken_seed_by_seed():
    base = np.array([1.0, 2.0, 3.0, 100.0])
    found = make([[base, base + 0.5]])
    row = found.row("a", "final_return", "other")
    # The pairs differ by the same, however much the seeds vary.
    assert (row.difference, row.difference_low, row.difference_high) == (0.5, 0.5, 0.5)
    assert row.mean == 27.0 and row.iqm == 3.0
    # Four runs have a range and no interval.
    assert (row.mean_low, row.mean_high) == (1.5, 100.5)
    assert np.isnan(row.better_low)
    # Of 16 pairs, 4 + 3 + 2 + 1 are won.
    assert row.better == pytest.approx(10 / 16)
    own = found.row("a", "final_return", "base")
    assert np.isnan(own.difference) and np.isnan(own.better)


def test_a_failed_run_counts_as_the_worst_score_of_its_environment():
    found = make([[[1.0, 2.0, 3.0], [5.0, np.nan, 6.0]]])
    row = found.row("a", "final_return", "other")
    assert row.failed == 1
    assert row.mean == pytest.approx((5 + 1 + 6) / 3)
    # Where all others have the most that can be, it is worth what runs begin with.
    full = make([[[500.0] * 10, [500.0] * 5 + [np.nan] * 5]])
    full.curves["a"][0, 0, 0] = 20.0
    row = full.row("a", "final_return", "other")
    assert (row.failed, row.mean, row.difference) == (5, 260.0, -240.0)
    # A run that failed may have returned anything before, which is no floor.
    full = make([[[500.0] * 10, [500.0] * 5 + [np.nan] * 5]])
    full.curves["a"][0, 0, 0] = 20.0
    full.curves["a"][1, 7:9, 0] = [-1e30, -np.inf]
    assert full.row("a", "final_return", "other").mean == 260.0
    lost = make([[[np.nan] * 3, [np.nan] * 3]])
    assert np.isnan(lost.row("a", "final_return", "other").mean)
    assert lost.row("a", "final_return", "other").failed == 3


def test_of_an_own_metric_a_failed_run_is_worth_no_return():
    returns, shares = [-200.0, -200.0, np.nan], [0.4, 0.5, np.nan]
    found = make([[[-200.0] * 3, returns]])
    for name, values in (("base", [0.6] * 3), ("other", shares)):
        found.found["a", name].measures["entropy"] = np.array(values)
    found.measures = ("final_return", "entropy")
    found.curves["a"][0, 0, 0] = -1500.0
    assert found.row("a", "final_return", "other").mean == pytest.approx(-1900 / 3)
    assert found.row("a", "entropy", "other").mean == pytest.approx(1.3 / 3)
    scores = found.normalised("entropy", low=0.4, high=0.6)
    np.testing.assert_allclose(scores["other"][:, 0], [0.0, 0.5, 0.0])


@pytest.mark.parametrize("cut", [4, 1])
def test_the_curve_of_a_run_that_fails_ends_there(cut):
    """In two pieces of two updates; the second run fails in the third one."""
    recorder = api._Recorder(("training_curve",), 2, Plan(4, 1, (), 1))
    recorder.edges = np.array([0, 2, 4])
    returns = np.array([[1.0, 3.0, 5.0, 7.0]] * 2, np.float32)
    losses = np.array([[0.0] * 4, [0.0, 0.0, np.nan, 0.0]], np.float32)
    every = {"episodes": np.ones((2, 4), int), "episode_return": returns}
    every |= {"env_steps": np.ones((2, 4), int), "policy_loss": losses}
    for first in range(0, 4, cut):
        part = {name: values[:, first : first + cut] for name, values in every.items()}
        recorder.add(Segment(first, cut, part, {}))
    expected = [[4.0, 2.0, 6.0], [np.nan, 2.0, np.nan]]  # score, and curve
    np.testing.assert_array_equal(recorder.result(), expected)


def test_all_environments_are_in_units_of_the_baseline():
    # Twice the return of 10, and half of the way from -100 to 0.
    found = make(
        [[[10.0, 10.0], [20.0, 20.0]], [[-100.0, -100.0], [-50.0, -50.0]]],
        environments=("a", "b"),
    )
    row = found.row(ALL, "final_return", "other")
    assert row.difference == pytest.approx((1.0 + 0.5) / 2)
    assert row.better == 1.0
    assert np.isnan(row.mean)
    data = found.to_dataframe()
    assert len(data) == 6
    assert (
        found.dataset["final_return"].sel(environment="b", setting="other").mean()
        == -50
    )


@pytest.mark.slow
def test_a_baseline_near_zero_does_not_rule_all_environments():
    """Half of the return lost in the one, and nearly nothing won in the other."""
    runs = np.linspace(-0.3, 0.3, 10)
    found = make(
        [
            [100.0 + runs, 50.0 + runs],  # Half of the baseline's return.
            [0.02 + runs, 0.10 + runs],  # Nearly nothing more, from nearly nothing.
        ],
        environments=("a", "b"),
    )
    row = found.row(ALL, "final_return", "other")
    # Divided by 0.02 the second would count +4, and the sum +1.75.
    spread = np.std([0.02 + runs, 0.10 + runs])
    assert row.difference == pytest.approx((-0.5 + 0.08 / spread) / 2)
    assert row.difference < 0


@pytest.mark.parametrize("tasks", [1, 3])
def test_what_is_clear_is_what_an_interval_per_setting_and_round_says(
    tasks, monkeypatch
):
    """Holm's procedure in its plainest form, which resamples whatever is left anew."""
    rng = np.random.default_rng(1)
    gaps = {str(n): rng.normal(size=(12, tasks)) + 0.3 * n for n in range(6)}
    gaps |= {"moved": np.full((12, tasks), 0.1), "not": np.zeros((12, tasks))}
    monkeypatch.setattr(results, "RESAMPLES", 400)
    for values in map(gaps.get, "012345"):
        found = stats.ttest_1samp(values.mean(1), 0).pvalue
        assert chance_of(values) == pytest.approx(found)
    left, expected = dict(gaps), set()
    while left:
        level, resamples = ERRORS / len(left), results.RESAMPLES * len(left)
        options = {"confidence": 1 - level, "resamples": resamples}
        found = set()
        for name, values in left.items():
            ends = statistics.estimate(values, "mean", **options)
            if (ends.low > 0 or ends.high < 0) and chance_of(values) < level:
                found.add(name)
        if not found:
            break
        expected |= found
        left = {name: values for name, values in left.items() if name not in found}
    assert {"moved"} < expected < set(gaps) - {"not"}
    assert clear_of_zero(gaps) == expected
    # Of fewer than ten runs there are ranges, and nothing is clear.
    assert tasks > 1 or not clear_of_zero({n: x[:9] for n, x in gaps.items()})


def test_the_table_says_it():
    result = make(np.arange(16.0).reshape(2, 2, 4), environments=("a", "long"))
    result.about["settings"] = {name: {"value_loss": 0} for name in result.settings}
    text = printed(result.table())
    assert "value_loss on 4 held-out seeds" in text
    assert "a, final return" in text and "long, final return" in text
    row = result.row("long", "final_return", "other")
    assert f"{row.mean:,.1f} ({row.mean_low:,.1f} to {row.mean_high:,.1f})" in text


def test_scores_of_several_environments_are_brought_to_one_scale():
    """With 0 and 1 between low and high, statistics over tasks have a closed form."""
    base = [[10.0, 20.0, 30.0, 40.0], [-4.0, -4.0, -2.0, -2.0]]
    other = [[50.0, 50.0, 50.0, 10.0], [0.0, 0.0, -2.0, -4.0]]
    found = make(np.moveaxis([base, other], 0, 1), environments=("a", "b"))
    low, high = {"b": -4.0, "a": 10.0}, {"a": 50.0, "b": 0.0}
    scores = found.normalised("final_return", low=low, high=high)
    assert list(scores) == ["base", "other"]
    expected = [[0.0, 0.25, 0.5, 0.75], [0.0, 0.0, 0.5, 0.5]]
    np.testing.assert_allclose(scores["base"], np.transpose(expected))  # [S, M]
    np.testing.assert_allclose(scores["other"][:, 0], [1.0, 1.0, 1.0, 0.0])
    np.testing.assert_allclose(scores["other"][:, 1], [1.0, 1.0, 0.5, 0.0])
    same = found.normalised("final_return", low=[10.0, -4.0], high=(50.0, 0.0))
    np.testing.assert_array_equal(same["other"], scores["other"])
    whole = found.normalised("final_return", low=0.0, high=10.0)
    np.testing.assert_allclose(whole["base"][:, 0], [1.0, 2.0, 3.0, 4.0])
    # The middle half of 0, 0, 0, 1/4, 1/2, 1/2, 1/2, 3/4.
    iqm = statistics.estimate(scores["base"], "iqm")
    assert iqm.value == pytest.approx((0 + 0.25 + 0.5 + 0.5) / 4)
    # In the first 12 pairs of 16 are won, and 1 is a tie; in the second 10 and 4.
    better = statistics.probability_of_improvement(scores["other"], scores["base"])
    assert better.value == pytest.approx(((12 + 0.5) / 16 + (10 + 2) / 16) / 2)
    profile = statistics.performance_profile(scores["base"], [0.0, 0.5])
    np.testing.assert_allclose(profile.value, [5 / 8, 1 / 8])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"measure": "return"}, "measure must be one of final_return, got 'return'"),
        ({"low": {"a": 0.0}}, "low must be a finite number, or one for each"),
        ({"high": [1.0, 2.0, 3.0]}, "high must be a finite number, or one for each"),
        (
            {"high": {"a": 1.0, "b": 0.0}},
            r"high must be above low in .* got \[1.0, 0.0\]",
        ),
    ],
)
def test_what_does_not_make_one_scale_is_refused(arguments, words):
    found = make(np.ones((2, 2, 3)), environments=("a", "b"))
    values = {"measure": "final_return", "low": 0.0, "high": 1.0, **arguments}
    with pytest.raises(ConfigError, match=words):
        found.normalised(values.pop("measure"), **values)
