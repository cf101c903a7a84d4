"""Datasets of sweeps as rows, and the words and scales of their axes."""

import numpy as np
import pytest
import xarray as xr

from purerl.config import ConfigError
from purerl.report import sweep_data
from tests.report import synthetic


@pytest.fixture(scope="module")
def grid():
    return synthetic.grid()


def test_final_scores_are_the_last_evaluations_mean(grid):
    scores = sweep_data.read_scores(grid)
    place = scores.points.index(
        {"learning_rate": 3e-4, "entropy_coef": 0.03, "hidden_sizes": "64-64"}
    )
    cell = grid.sel(learning_rate=3e-4, entropy_coef=0.03, hidden_sizes="64-64")
    expected = cell["evaluation_return"].values[:, -1].mean(-1)
    np.testing.assert_allclose(scores.scores[place], expected)
    assert scores.grid == (5, 4, 2)
    turned = sweep_data.read_scores(grid.transpose("episode", "seed", ...))
    assert turned.points == scores.points
    np.testing.assert_array_equal(turned.scores, scores.scores)


def test_diverged_members_have_no_score_and_count_as_the_worst(grid):
    scores = sweep_data.read_scores(grid)
    assert scores.diverged.sum() > 3
    np.testing.assert_array_equal(np.isnan(scores.scores), scores.diverged)
    # Or as the lowest return of any on its way.
    worst = min(np.nanmin(scores.scores), np.nanmin(grid["episode_return"]))
    np.testing.assert_array_equal(scores.filled[scores.diverged], worst)
    best = scores.points[scores.ranking()[0]]
    assert best == max(scores.points, key=synthetic.quality)


def test_unfinished_members_count_by_their_last_row(grid):
    cut = grid.copy(deep=True)
    for name in ("return", "length", "env_steps"):
        cut[f"evaluation_{name}"][0, 0, 0, 2, 5:] = np.nan  # Interrupted, not diverged.
    scores = sweep_data.read_scores(cut)
    expected = grid["evaluation_return"].values[0, 0, 0, 2, 4].mean()
    assert scores.scores[0, 2] == pytest.approx(expected)
    cut["evaluation_return"][0, 0, 0, 2] = np.nan
    assert np.isnan(sweep_data.read_scores(cut).scores[0, 2])


def test_values_are_in_their_natural_order():
    points = tuple({"a": value} for value in ("256-256", "64-64", "8", "64-64"))
    zeros = np.zeros((4, 1))
    scores = sweep_data.Scores(("a",), points, zeros, zeros, zeros == 0, None)
    assert scores.values("a") == ["8", "64-64", "256-256"]
    mixed = tuple({"a": value} for value in (None, 3.0, "x"))
    assert scores._replace(points=mixed).values("a") == [None, 3.0, "x"]


@pytest.mark.parametrize(
    ("values", "log"),
    [
        ([1e-4, 3e-4, 1e-3, 3e-3, 1e-2], True),
        ([64, 128, 256, 512], True),
        ([1e-3, 1e-2], True),
        ([0.0, 0.01, 0.1], False),  # No place for zero.
        ([0.9, 0.95, 0.99], False),
        ([0.01, 0.02, 0.03, 0.05, 0.06, 0.08, 0.09], False),  # Spread evenly.
        ([1.0], False),
    ],
)
def test_scales(values, log):
    assert sweep_data.is_log(values) is log


def test_few_evaluations_make_no_curve(grid):
    assert sweep_data.curve_metric(grid) == "evaluation_return"
    few = grid.isel(evaluation=slice(3))
    assert sweep_data.curve_metric(few) == "episode_return"
    assert sweep_data.curve_metric(few.drop_vars("episode_return")) == sweep_data.SCORE
    nothing = few.assign(episode_return=few["episode_return"] * np.nan)
    assert sweep_data.curve_metric(nothing) == sweep_data.SCORE


def test_what_is_no_sweep(grid):
    with pytest.raises(ConfigError, match=r"has no 'reward'\. It has: diverged_at"):
        sweep_data.read_scores(grid, "reward")
    with pytest.raises(ConfigError, match=r"no member of the sweep has finished"):
        sweep_data.read_scores(xr.Dataset(coords={"seed": [0, 1]}, attrs=grid.attrs))
    with pytest.raises(ConfigError, match="must be that of a sweep, got another"):
        sweep_data.read_scores(xr.Dataset({"x": ("a", [1.0])}))
    nothing = grid.copy()
    nothing["evaluation_return"] = grid["evaluation_return"] * np.nan
    with pytest.raises(ConfigError, match="no member of the sweep has a final score"):
        _ = sweep_data.read_scores(nothing).filled
