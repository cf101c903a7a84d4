"""Intervals that are printed hold their level, or are not called intervals."""

from types import SimpleNamespace

import numpy as np
import pytest

from purerl.comparison import result as comparison
from purerl.config import ConfigError
from purerl.metrics import decimals
from purerl.report import statistics
from purerl.report.playing import Evaluated
from purerl.report.plots import learning_curve
from purerl.report.statistics import FEWEST
from purerl.report.tables import best_table, episodes_table, holdout_table, run_table
from purerl.storage.files import jsonable
from purerl.tuning import result
from tests.helpers import slow_but
from tests.report import synthetic
from tests.report.synthetic import printed

REPEATS = 4_000
STUCK = 0.2


def _bimodal(rng, shape):
    """Four runs in five solve the task, one in five is stuck far below."""
    stuck = rng.random(shape) < STUCK
    return np.where(stuck, 100.0, 480.0) + rng.normal(0.0, 20.0, shape)


SCORES = {
    "normal": (lambda rng, shape: rng.normal(100.0, 10.0, shape), 100.0),
    "exponential": (lambda rng, shape: rng.exponential(1.0, shape), 1.0),
    "lognormal": (lambda rng, shape: rng.lognormal(0.0, 1.0, shape), np.exp(0.5)),
    "bimodal": (_bimodal, 480.0 - STUCK * 380.0),
}


@pytest.mark.parametrize("scores", SCORES)
@pytest.mark.parametrize("runs", slow_but([2, 3, 4, 5, 8, 10, 16], 2, 4, 5, 8, 10))
def test_a_printed_interval_holds_its_level(scores, runs):
    draw, mean = SCORES[scores]
    samples = draw(np.random.default_rng(7), (runs, REPEATS))
    found = statistics.mean_interval(samples)
    if runs < FEWEST:
        assert found.kind == "range"
        assert found.words == f"range of {runs}"
        np.testing.assert_array_equal(found.low, samples.min(0))
        np.testing.assert_array_equal(found.high, samples.max(0))
        return
    assert found.kind == "interval"
    covered = ((found.low <= mean) & (mean <= found.high)).mean()
    # Of ten runs, the fewest that have an interval, percentiles of a bootstrap would
    # hold 0.80 of the lognormal samples and 0.86 of the exponential ones.
    assert (0.88 if runs == FEWEST else 0.90) <= covered <= 0.985


def test_words_follow_the_confidence_and_the_kind():
    values = np.random.default_rng(0).normal(0.0, 1.0, 40)
    half = statistics.mean_interval(values, confidence=0.5)
    assert half.words == "50% interval"
    assert half.text().endswith(", 50% interval")
    assert not half.text(heading="50% interval").endswith("interval")
    assert statistics.mean_interval(values, confidence=0.999).words == "99.9% interval"
    # Five runs of each of eight tasks have an interval, which is no range of five.
    pooled = statistics.estimate(values.reshape(5, 8), resamples=50)
    assert "range" not in pooled.text() and pooled.words == "95% interval"
    same = statistics.estimate(np.full(12, 3.0), "mean")
    assert (same.words, same.text()) == ("range of 12", "no spread")
    for number in (500.0, 0.95):  # The mean of ten 0.95 is none in its last bit.
        equal = statistics.mean_interval(np.full(10, number))
        assert (equal.kind, equal.words) == ("range", "range of 10")
        assert equal.text() == "no spread"
    one = statistics.mean_interval(np.array([3.0]))
    assert (one.kind, one.text()) == ("none", "-")


def test_an_interval_under_a_heading_of_a_range_says_so():
    """Five seeds in each of eight environments have an interval, in one a range."""
    numbers = [5.0, 1.0, 9.0]
    row = comparison.Row("CartPole-v1", "evaluation", "a", 5, 0, *numbers * 4, False)
    assert comparison.cells_of(row, "range of 5")[1] == "5.00 (1.00 to 9.00)"
    many = row._replace(environment=comparison.ALL, seeds=40, is_clear=True)
    gap = "+5.00 (+1.00 to +9.00, 95% interval)"
    assert comparison.cells_of(many, "range of 5")[3] == gap
    rows = SimpleNamespace(rows=[row, many], seeds=range(5), subject="a", baseline="b")
    table = comparison.Comparison.table(rows)
    assert f"[bold]{gap}[/bold]" in list(table.columns[3].cells)


def test_few_runs_of_a_long_curve_get_no_band_where_others_get_one():
    rng = np.random.default_rng(0)
    values = rng.normal(5.0, 1.0, (12, 3))
    values[:5, 1] = np.nan
    values[3, 2] = np.inf
    found = statistics.mean_interval(values)
    assert found.kind == "interval" and found.runs == 12
    np.testing.assert_array_equal(np.isfinite(found.low), [True, False, True])
    own = statistics.mean_interval(np.delete(values[:, 2], 3))
    assert (found.low[2], found.high[2]) == (own.low, own.high)


def test_an_interval_stays_within_its_runs():
    """Nine of ten at the highest return: the mean is not above it."""
    found = statistics.mean_interval(np.array([500.0] * 9 + [100.0]))
    assert found.low >= 100.0
    assert found.high == 500.0
    many = np.random.default_rng(1).exponential(1.0, 5_000)
    found = statistics.mean_interval(many)
    half = 1.96 * many.std(ddof=1) / np.sqrt(5_000)
    assert found.high - many.mean() == pytest.approx(half, rel=1e-3)


@pytest.mark.parametrize(
    ("tasks", "runs", "kind"),
    [
        (1, 4, "range"),
        pytest.param(1, 10, "interval", marks=pytest.mark.slow),
        (2, 4, "none"),
        (8, 5, "interval"),
    ],
)
def test_statistics_over_tasks_say_what_their_ends_are(tasks, runs, kind):
    scores = np.random.default_rng(2).normal(0.0, 1.0, (runs, tasks))
    for name, found in statistics.estimates(scores, resamples=50).items():
        assert found.kind == kind
        assert np.isfinite(found.value)
        assert np.isfinite(found.low) == (kind != "none")
        if kind == "range" and name != "optimality_gap":
            assert (found.low, found.high) == (scores.min(), scores.max())
    better = statistics.probability_of_improvement(scores, scores, resamples=50)
    assert np.isfinite(better.low) == (kind == "interval")
    profile = statistics.performance_profile(scores, [0.0], resamples=50)
    assert np.isfinite(profile.low).all() == (kind == "interval")


@pytest.mark.parametrize(
    ("agents", "ends"), [(1, "1 agent"), (3, "range of 3"), (12, "95% interval")]
)
def test_tables_and_curves_of_a_run_say_what_the_ends_are(agents, ends):
    run = synthetic.run(agents)
    title = learning_curve(run).axes.get_title(loc="left")
    assert ends in title
    text = printed(run_table(run), 120)
    assert ("95%" in text) == (agents == 12)
    assert ("range of 3" in text) == (agents == 3)
    if agents == 1:
        return
    # The ends are those of the mean, and no episode's.
    means = run.evaluation["episode_return"][:, -1].mean(-1)
    *_, footer, _, caption = text.splitlines()
    cells = [cell.strip() for cell in footer.split("│")[1:-1]]
    training = run.metrics["episode_return"][:, -1].mean()
    assert cells == ["mean", f"{means.mean():.1f}", "", "", f"{training:.1f}"]
    assert caption.strip().startswith(f"mean evaluation {means.mean():.1f} ({ends}: ")
    if agents == 3:
        assert caption.strip().endswith(f" {means.min():.1f} to {means.max():.1f})")


def test_the_table_of_a_run_says_where_its_agents_are_equal():
    run = synthetic.run(3)
    final = run.evaluation["episode_return"]
    final[:] = 500.0
    *_, last = printed(run_table(run), 120).splitlines()
    assert last.strip() == "mean evaluation 500.0 (no spread)"
    run.evaluation["cut_episodes"][0, -1] = 1
    run.evaluation["episode_length"] = np.full_like(final, 500)
    first, second = run_table(run).caption.splitlines()
    assert first == "mean evaluation 500.0 (no spread)"
    assert second.startswith("1 of ") and "episodes still ran after" in second


def test_a_run_without_evaluations_shows_its_training_and_says_so():
    table = run_table(synthetic.run(2)._replace(evaluation={}))
    assert "last episodes of training" in str(table.title)
    assert [column.header for column in table.columns] == ["seed", "training"]


def test_tables_of_few_seeds_name_the_range():
    dataset = synthetic.grid().isel(seed=slice(4))
    table = best_table(dataset)
    assert "range of 4" in [column.header for column in table.columns]
    few = result.compare(0, range(3), [[1.0, 2.0, 4.0], [0.0] * 3])
    assert (few.best.low, few.best.high) == (1.0, 4.0)
    headers = [column.header for column in holdout_table(few).columns]
    assert "range of 3" in headers
    cells = [row[1:] for row in few.headings_and_rows()[1]]
    assert cells[0] == cells[2] == ["2.33", "1.00 to 4.00", "0"]
    whole = result.compare(0, range(12), [np.arange(12.0), np.zeros(12)])
    headers = [column.header for column in holdout_table(whole).columns]
    assert "95% interval" in headers


def test_a_held_out_seed_that_diverged_is_worth_the_worst_of_both():
    found = result.compare(0, range(3), [[5.0, None, 9.0], [4.0, 2.0, np.inf]])
    assert found.best.mean == pytest.approx((5 + 2 + 9) / 3)
    assert found.default.mean == pytest.approx((4 + 2 + 2) / 3)
    assert found.difference.mean == pytest.approx((1 + 0 + 7) / 3)
    held = (found.best, found.default, found.difference)
    assert [part.diverged for part in held] == [1, 1, 2]
    np.testing.assert_array_equal(found.best.scores, [5.0, np.nan, 9.0])
    assert "worst score of both" in str(holdout_table(found).caption)
    assert not holdout_table(result.compare(0, [0], [[1.0], [0.0]])).caption
    gone = result.compare(0, range(2), [[None, None], [1.0, 2.0]])
    assert (gone.best.mean, gone.default.mean) == (1.0, 1.5)
    nothing = result.compare(0, range(2), [[None, None], [None, None]])
    assert np.isnan(nothing.difference.mean) and nothing.difference.diverged == 2
    assert jsonable(nothing)["best"]["mean"] is None


def test_numbers_have_as_many_places_as_tell_returns_apart():
    assert decimals(500.0) == decimals(-1_234.5, 0.01) == 1
    assert decimals(np.array([1.5, -9.9])) == 2
    assert decimals(1.0, np.array([0.25, np.nan])) == 3
    assert decimals(0.0) == decimals(np.nan) == decimals(np.inf) == 1
    assert decimals(np.zeros((0, 3))) == 1


def rows_of(returns, cut=0, diverged=None):
    """The table of episodes with these returns, and its cells by column."""
    gone = np.full(len(returns), -1) if diverged is None else np.array(diverged)
    cuts = np.array([cut] + [0] * (len(returns) - 1))
    seeds, lengths = tuple(range(len(returns))), np.full(returns.shape, 9)
    table = episodes_table(Evaluated("A", seeds, returns, lengths, cuts, gone))
    return table, [list(column.cells) for column in table.columns]


def test_a_table_says_how_many_episodes_were_cut():
    assert rows_of(np.ones((2, 3)))[0].caption == ""
    assert rows_of(np.ones((2, 3)), 2)[0].caption == (
        "2 of 6 episodes still ran after 9 steps and count with what they had earned "
        "(eval_max_steps)"
    )


def test_a_table_of_small_returns_tells_seeds_apart():
    returns = np.array([[0.91, 0.95], [0.97, 0.99]])
    assert rows_of(returns)[1][1] == ["0.930", "0.980", "0.955"]
    assert rows_of(100 * returns)[1][1] == ["93.0", "98.0", "95.5"]


def test_agents_that_diverged_are_in_no_mean_of_the_episodes():
    returns = np.array([[0.0, 0.0], [3.0, 5.0], [5.0, 5.0]])
    _, cells = rows_of(returns, diverged=[1, -1, -1])
    assert cells[0] == ["0", "1", "2", "mean of 2"]
    lost, *means = cells[1]
    assert "diverged" in lost and lost.endswith("in update 2")
    assert means == ["4.00", "5.00", "4.50"]
    assert cells[3][1:] == ["3.00", "5.00", "3.00"]
    # Of the episodes 3, 5, 5 and 5, as the columns beside it.
    assert cells[2][1:] == ["1.00", "0.00", f"{0.75**0.5:.2f}"]
    assert rows_of(returns[:2], diverged=[1, -1])[0].row_count == 2


def test_a_confidence_that_resamples_cannot_reach_is_refused():
    values = np.random.default_rng(0).normal(size=(20, 3))
    words = "confidence 0.9999 is more than 2,000 resamples can say"
    with pytest.raises(ConfigError, match=words):
        statistics.mean_interval(values, confidence=0.9999)
    wide = statistics.mean_interval(values, confidence=0.999)
    assert (wide.low < statistics.mean_interval(values).low).all()
    many = np.random.default_rng(0).normal(size=1_000)  # It is taken as normal.
    found = statistics.mean_interval(many, confidence=0.9999)
    half = 3.8906 * many.std(ddof=1) / 1_000**0.5
    assert found.high - found.low == pytest.approx(2 * half, rel=1e-4)
    for confidence in (0, 1, 95, np.nan):
        with pytest.raises(ConfigError, match="confidence must be between 0 and 1"):
            statistics.mean_interval(values, confidence=confidence)
