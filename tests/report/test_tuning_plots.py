import dataclasses

import numpy as np
import pytest

import purerl
from purerl.report import search_plots as plots
from purerl.report import style, tables
from purerl.tuning.result import Row, TuneResult
from purerl.tuning.space import Space
from tests.report.synthetic import printed

SCORES = [3.0, 1.0, None, 5.0, 4.0, None, 2.0]
STATES = ["complete"] * 2 + ["pruned"] + ["complete"] * 2 + ["diverged", "complete"]
AXES = {
    "learning_rate": purerl.loguniform(1e-4, 1e-2),
    "gamma": purerl.uniform(0.9, 0.99),
    "hidden_sizes": [(8,), (64, 64)],
}


@pytest.fixture(scope="module")
def space():
    return Space(purerl.PPOConfig(), AXES)


@pytest.fixture(scope="module")
def result(space):
    rows = []
    for number, (score, state) in enumerate(zip(SCORES, STATES, strict=True)):
        params = {
            "learning_rate": 1e-4 * 2.0**number,
            "gamma": 0.9 + 0.01 * number,
            "hidden_sizes": ("8", "64-64")[number % 2],
        }
        curve = {100: 0.5} if state == "pruned" else {}
        seeds = (score,)
        rows.append(Row(number, state, score, params, seeds, 1, curve, not number, ""))
    shares = {"learning_rate": 0.25, "gamma": 0.65, "hidden_sizes": 0.1}
    return TuneResult(space, tuple(rows), None, shares, True, {}, None)


def test_the_best_trial_has_values_and_a_trial_without_a_score_a_dash(result):
    best = result.best()
    assert best.point == {
        "learning_rate": 8e-4,
        "gamma": 0.93,
        "hidden_sizes": (64, 64),
    }
    assert best.config == purerl.PPOConfig(**best.point)
    text = printed(tables.trials_table(result))
    assert "nan" not in text and "pruned" in text


def lines(axes):
    return {line.get_label(): line for line in axes.get_lines()}


def test_history_shows_every_trial_where_it_is(result):
    found = lines(plots.study_history(result.rows).axes)
    points = [[0, 3], [1, 1], [3, 5], [4, 4], [6, 2]]
    assert found["complete"].get_xydata().tolist() == points
    assert found["best so far"].get_ydata().tolist() == [3, 3, 5, 5, 5, 5]
    assert found["pruned, at its last score"].get_xydata().tolist() == [[2, 0.5]]
    assert found["default"].get_ydata() == [3.0, 3.0]


def test_importance_has_a_bar_per_axis_the_longest_on_top(result):
    axes = plots.study_importance(result.importance).axes
    widths = [bar.get_width() for bar in axes.patches]
    assert widths == [0.1, 0.25, 0.65]
    assert [t.get_text() for t in axes.get_yticklabels()][-1] == "gamma"


def test_slices_mark_the_best_on_every_axis(result, space):
    figure, _ = plots.study_slices(result.rows, space.drawn())
    stars = [axes.get_lines()[0].get_xydata()[0] for axes in figure.axes[:3]]
    np.testing.assert_allclose(stars[0], [8e-4, 5.0])
    np.testing.assert_allclose(stars[1], [0.93, 5.0])
    assert abs(stars[2][0] - 1) <= 0.2 and stars[2][1] == 5.0
    assert figure.axes[0].get_xscale() == "log"


def test_contours_are_of_pairs_of_the_most_important_axes(result, space):
    figure, _ = plots.study_figures(result.rows, result.importance, space.drawn())[
        "contour"
    ]
    pairs = [(axes.get_xlabel(), axes.get_ylabel()) for axes in figure.axes[:3]]
    assert pairs == [
        ("gamma", "learning_rate"),
        ("gamma", "hidden_sizes"),
        ("learning_rate", "hidden_sizes"),
    ]


def test_a_smooth_surface_is_the_score_where_one_trial_is(monkeypatch):
    at = np.array([0.0, 1.0])
    monkeypatch.setattr(plots, "CELLS", 3)
    surface, near = plots._smooth(at, at, np.array([2.0, 6.0]))
    np.testing.assert_allclose(np.diag(surface), [2.0, 4.0, 6.0], atol=1e-6)
    assert near[0, 0] == 1.0 and near[0, 2] < 1e-6
    # Shares of the width of the picture, which is larger by a tenth.
    line, shares = plots._line(style.Axis(log=True), np.array([1e-4, 1e-3, 1e-2]))
    np.testing.assert_allclose(shares, [1 / 22, 0.5, 21 / 22])
    np.testing.assert_allclose(line[1], 1e-3)
    line, shares = plots._line(style.Axis(names=["a", "b"]), np.array([1.0]))
    np.testing.assert_allclose((*line, *shares), [-0.5, 0.5, 1.5, 0.75])


def test_a_study_without_a_complete_trial_has_no_pictures(result, space):
    rows = tuple(row for row in result.rows if row.state != "complete")
    assert plots.study_figures(rows, result.importance, space.drawn()) == {}
    none = dataclasses.replace(result, rows=rows)
    assert "<table" in none._repr_html_() and "<svg" not in none._repr_html_()
    with pytest.raises(purerl.ConfigError, match="no trial of the study is complete"):
        none.plot()


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        (["Adam(b1=0.9)", "SGD(momentum=0.0)"], ["Adam", "SGD"]),
        (["Huber(delta=1)", "Huber(delta=2)"], ["Huber(delta=1)", "Huber(delta=2)"]),
        ([2, 0.5], ["2", "0.5"]),
    ],
)
def test_parts_are_labelled_by_their_class_where_it_tells_them_apart(names, labels):
    figure = style.new_figure()
    axes = figure.subplots()
    plots.Axis(False, names).set_up(axes, "x")
    assert [text.get_text() for text in axes.get_xticklabels()] == labels
