import numpy as np

from purerl.config import TrainConfig
from purerl.report import plots
from purerl.runner.result import RunResult


def _result(returns):
    returns = np.asarray(returns, float)
    steps = np.broadcast_to(np.arange(1, returns.shape[1] + 1) * 100, returns.shape)
    return RunResult(
        config=TrainConfig(),
        seeds=tuple(range(len(returns))),
        update=20,
        state=None,
        metrics={"env_steps": steps, "episode_return": returns},
        evaluation={},
        finished=True,
        compile_seconds=0.0,
        train_seconds=1.0,
        train_steps=1,
        out=None,
        diverged_at=np.full(len(returns), -1),
    )


def test_known_points_are_connected_where_no_episode_ended():
    nan = np.nan
    figure = plots.run_curve(_result([[1, nan, 3, nan], [nan, nan, 5, 7]]))
    lines = figure.axes[0].get_lines()
    for line in lines:
        assert np.isfinite(line.get_ydata()).all()  # a NaN would cut the line
    np.testing.assert_array_equal(lines[0].get_xdata(), [100, 300])
    np.testing.assert_array_equal(lines[1].get_xdata(), [300, 400])
    np.testing.assert_array_equal(lines[2].get_xdata(), [100, 300, 400])
    np.testing.assert_array_equal(lines[2].get_ydata(), [1, 4, 7])
    band = figure.axes[0].collections[0].get_paths()
    assert len(band) == 1  # in one piece


def test_a_curve_of_one_seed_is_one_line():
    nan = np.nan
    figure = plots.run_curve(_result([[nan, 2, nan, 4]]))
    (line,) = figure.axes[0].get_lines()
    np.testing.assert_array_equal(line.get_xdata(), [200, 400])
    np.testing.assert_array_equal(line.get_ydata(), [2, 4])
