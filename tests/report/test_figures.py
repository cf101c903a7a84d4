"""Every figure is drawn into axes of the caller's, and is a figure and its axes."""

import inspect

import matplotlib.figure
import numpy as np
import pytest
import xarray as xr

from purerl import losses, optimisers
from purerl.config import ConfigError
from purerl.report import plots, search_plots
from purerl.tuning.result import Row
from tests.report import synthetic

RUN = synthetic.run(3)
RANDOM = synthetic.random(6, 3)
GRID = synthetic.grid(3, 6)
rng = np.random.default_rng(0)


def search(**variables):
    """A search of two seeds, four members, three rounds or rungs."""
    coords = {"seed": [0, 1], "updates": ("round", [10, 20, 30])}
    return xr.Dataset(variables, coords)


MEMBERS = ("seed", "round", "member")
POPULATION = search(
    score=(MEMBERS, rng.normal(size=(2, 3, 4))),
    learning_rate=(MEMBERS, rng.uniform(1e-4, 1e-2, (2, 3, 4))),
    gamma=(MEMBERS, rng.uniform(0.9, 1.0, (2, 3, 4))),
)
HALVING = search(
    score=(("seed", "point", "round"), rng.normal(size=(2, 4, 3))),
    bracket=("point", [0, 0, 1, 1]),
    trained_updates=(("seed", "point"), np.full((2, 4), 30)),
    learning_rate=(("seed", "point"), rng.uniform(1e-4, 1e-2, (2, 4))),
    gamma=(("seed", "point"), rng.uniform(0.9, 1.0, (2, 4))),
)
AXES = ("learning_rate", "gamma")
LINEAGES = {0: np.array([0, 1, 2])}
DRAWN = {"learning_rate": plots.Axis(log=True), "gamma": plots.Axis()}
POINTS = [{"learning_rate": 1e-3 * (i + 1), "gamma": 0.9 + 0.01 * i} for i in range(5)]
TRIALS = [
    Row(i, "complete", i % 3, point, (i % 3,), 1, {}, not i, "")
    for i, point in enumerate(POINTS)
]
HISTORY = dict.fromkeys(("mean", "std", "best", "failed"), np.arange(4.0))
SETTINGS = {"population": 4, "rollouts": 2, "evolve": ["value_loss"]}
SETTINGS |= {"fitness": "final_return", "strategy": {"name": "open-es"}}
COMPARED = xr.Dataset(
    {
        "curve": (("environment", "setting", "seed", "piece"), np.ones((2, 2, 3, 4))),
        "env_steps": (("environment", "setting", "piece"), np.ones((2, 2, 4))),
        "final_return": (("environment", "setting", "seed"), np.ones((2, 2, 3))),
    },
    {"environment": ["a", "b"], "setting": ["c", "d"]},
)
SHARES = {"learning_rate": 0.7, "gamma": 0.3}
RETURNS = np.ones((4, 2))

# Every function that draws, with its arguments and the number of its panels.
FIGURES = [
    (plots.learning_curve, (RUN,), 1),
    (plots.metric_curves, (RUN, ["episode_return", "evaluation_return"]), 2),
    (plots.comparison_figure, (COMPARED,), 2),
    (plots.curves, ({"PPO": RUN},), 1),
    (plots.curves_figure, (RUN.lines("episode_return"),), 1),
    (plots.evolution_curve, (HISTORY, SETTINGS), 1),
    (plots.evolution_returns, (RETURNS, ["a", "b"]), 2),
    (plots.sweep_curves, (GRID, "learning_rate"), 1),
    (plots.heat_map, (GRID,), 1),
    (plots.slices, (GRID,), 3),
    (plots.slices, (RANDOM,), 3),
    (plots.seed_scores, (GRID,), 1),
    (plots.score_groups, ({"a": np.arange(5.0)},), 1),
    (plots.population_scores, (POPULATION, LINEAGES), 2),
    (plots.population_values, (POPULATION, AXES, LINEAGES), 2),
    (plots.halving_scores, (HALVING,), 2),
    (plots.halving_values, (HALVING, AXES), 2),
    (plots.request_scores, ([np.arange(3.0), np.array([np.nan, 4.0])],), 1),
    (plots.loss_figure, (losses.SquaredError(),), 2),
    (plots.value_loss_figure, (losses.HuberError(1.0),), 2),
    (plots.drift_figure, (losses.ClipDrift(0.1),), 7),
    (plots.optimiser_figure, (optimisers.LearnedOptimiser(),), 3),
    (search_plots.study_history, (TRIALS,), 1),
    (search_plots.study_importance, (SHARES,), 1),
    (search_plots.study_slices, (TRIALS, DRAWN), 2),
    (search_plots.study_contour, (TRIALS, DRAWN, AXES), 1),
]


@pytest.mark.parametrize(("draw", "arguments", "count"), FIGURES)
def test_a_figure_is_drawn_alone_or_into_axes_of_the_callers(draw, arguments, count):
    figure, axes = draw(*arguments)
    panels = list(np.atleast_1d(np.asarray(axes, object)).ravel())
    assert len(panels) == count and set(panels) <= set(figure.axes)
    own = matplotlib.figure.Figure(figsize=(4 * count, 4), layout="constrained")
    given = own.subplots(1, count, squeeze=False)[0]
    drawn = draw(*arguments, ax=given)
    assert drawn.figure is own
    assert list(np.atleast_1d(np.asarray(drawn.axes, object)).ravel()) == list(given)
    assert all(panel.has_data() for panel in given)
    own.canvas.draw()
    with pytest.raises(ConfigError, match="ax must be"):
        draw(*arguments, ax=own.subplots(1, count + 1))


def test_a_population_says_which_line_is_bold():
    axes = plots.population_scores(POPULATION, LINEAGES).axes[0]
    words = [text.get_text() for text in axes.get_legend().get_texts()]
    assert words == ["members", "what led to the best one"]


def test_every_figure_is_among_the_rows():
    modules = (plots, search_plots)
    functions = {
        function
        for module in modules
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
    }
    drawing = {f for f in functions if f.__annotations__["return"] is plots.Picture}
    assert drawing == {draw for draw, *_ in FIGURES}
