"""What all results have: a few lines, HTML, a picture, a frame; and joint pictures."""

import dataclasses
import sys
from types import SimpleNamespace

import matplotlib.figure
import numpy as np
import pytest

from purerl.cli import main
from purerl.config import ConfigError
from purerl.report import plots, statistics
from purerl.runner import progress
from tests.comparison.test_losses import make
from tests.report import synthetic

RUN = synthetic.run(12)


def half(run):
    """The same run with half of all returns."""
    evaluation = {
        name: x / 2 if "return" in name else x for name, x in run.evaluation.items()
    }
    metrics = {**run.metrics, "episode_return": run.metrics["episode_return"] / 2}
    return dataclasses.replace(run, metrics=metrics, evaluation=evaluation)


def test_a_run_is_a_few_lines_and_its_html_a_small_table_with_curves():
    final = RUN.scores()
    found = statistics.mean_interval(final)
    assert repr(RUN).splitlines() == [
        "RunResult: PPO, 12 agents in CartPole-v1",
        "  finished: 20 updates, 10k environment steps each",
        f"  last evaluation: mean return {final.mean():.1f} (95% interval: "
        f"{found.low:.1f} to {found.high:.1f})",
    ]
    html = RUN._repr_html_()
    assert html.count("<tr>") == 1 + 6 and "6 more rows in result.to_data" in html
    assert "<svg" in html and "12 agents, mean and 95% interval" in html
    assert len(html) < 100_000
    stopped = repr(dataclasses.replace(RUN, finished=False))
    assert "not finished: 20 updates" in stopped and "in memory alone" in stopped


def test_frames_have_a_row_per_agent_or_per_point():
    frame = RUN.to_dataframe()
    np.testing.assert_array_equal(frame["episode_return"], RUN.scores())
    np.testing.assert_array_equal(frame["seed"], RUN.seeds)
    curves = RUN.to_dataframe(curves=True)
    assert len(curves) == 12 * 20  # An evaluation stands in the row of its steps.
    table = curves.pivot(index="seed", columns="env_steps")
    trained = RUN.metrics["episode_return"]
    np.testing.assert_array_equal(table["episode_return"], trained)
    evaluated = table["evaluation_return"].dropna(axis=1)
    np.testing.assert_array_equal(evaluated.columns, RUN.evaluation["env_steps"][0])
    np.testing.assert_allclose(evaluated, RUN.evaluation["episode_return"].mean(-1))


def test_a_picture_is_a_figure_and_its_axes_and_goes_into_those_of_the_caller():
    figure, axes = RUN.plot()
    assert figure.axes == [axes] and axes.get_title(loc="left") == figure.get_label()
    own = matplotlib.figure.Figure().subplots(1, 2)
    drawn = RUN.plot(own[1])
    assert not own[0].lines and len(own[1].lines) == len(axes.lines)
    assert own[1].get_title(loc="left") == ""
    data, size = drawn._repr_png_()
    assert data.startswith(b"\x89PNG") and size["width"] > 0


@pytest.mark.parametrize(("columns", "width"), [(1, 3.25), (2, 6.75)])
def test_figures_of_a_paper_have_its_width_and_fonts(columns, width, tmp_path):
    figure, axes = RUN.plot(columns=columns)
    assert figure.get_figwidth() == width and figure.get_figheight() < width
    figure.canvas.draw()
    written = [axes.xaxis.label, *axes.get_xticklabels(), *axes.get_yticklabels()]
    assert {text.get_fontsize() for text in written} == {8}
    assert axes.get_title(loc="left") == ""
    assert figure.get_label() == "CartPole-v1: 12 agents, mean and 95% interval"
    path = plots.save(plots.Picture(figure, axes), tmp_path / "a.pdf")
    assert b"/FontFile2" in path.read_bytes()  # TrueType, and not Type 3
    assert RUN.plot().figure.get_figwidth() == 10.4  # The context has ended.
    with pytest.raises(ConfigError, match="columns must be 1 or 2, got 3"):
        RUN.plot(columns=3)


@pytest.mark.parametrize("statistic", ["iqm", "mean"])
def test_several_results_are_lines_with_intervals_of_one_picture(statistic):
    other = RUN.config.replace(env="Acrobot-v1")
    elsewhere = dataclasses.replace(half(RUN), config=other)
    named = [("PPO", RUN), ("DQN", half(RUN)), ("DQN", elsewhere)]
    figure, (left, right) = plots.curves(named, statistic)
    assert [x.get_text() for x in figure.legends[0].get_texts()] == ["PPO", "DQN"]
    assert left.get_title(loc="left") == "CartPole-v1"
    first, second = left.lines
    values = RUN.evaluation["episode_return"].mean(-1)
    expected = statistics.curve(values, statistic)
    np.testing.assert_allclose(first.get_ydata(), expected.value)
    np.testing.assert_allclose(second.get_ydata(), expected.value / 2)
    band = left.collections[0].get_paths()[0].vertices[:, 1]
    assert expected.low.min() == pytest.approx(band.min())
    assert expected.high.max() == pytest.approx(band.max())
    (third,) = right.lines  # DQN has its colour in each panel.
    assert third.get_color() == second.get_color() != first.get_color()
    with pytest.raises(ConfigError, match="two curves of CartPole-v1 are called 'DQN'"):
        plots.curves([*named, ("DQN", RUN)], statistic)


def test_sweeps_bring_their_best_point_and_comparisons_all_settings():
    grid = synthetic.grid()
    from purerl.report.plots import sweep_lines

    (line,) = sweep_lines(grid, "evaluation_return")["CartPole-v1"]
    assert line.name == "learning_rate=1e-3, entropy_coef=0.01, hidden_sizes=256-256"
    cell = grid.sel(learning_rate=1e-3, entropy_coef=0.01, hidden_sizes="256-256")
    expected = cell["evaluation_return"].values.mean(-1)
    np.testing.assert_allclose(line.values, expected)
    compared = make(np.ones((1, 2, 3)), environments=("CartPole-v1",))
    _, axes = plots.curves({"a": RUN, "b": compared}, "mean")
    names = [line.get_label() for line in axes.lines]
    assert axes.get_ylabel() == "training return"  # All of one kind.
    trained = RUN.metrics["episode_return"].mean(0)
    np.testing.assert_allclose(axes.lines[0].get_ydata(), trained)
    assert names == ["a", *(f"b: {name}" for name in compared.settings)]
    assert repr(compared).startswith("Comparison: settings in CartPole-v1\n")
    assert f"differences from {compared.baseline}" in compared._repr_html_()
    frame = compared.to_dataframe(curves=True)
    assert len(frame) == compared.dataset["curve"].size


def test_a_cell_of_a_notebook_has_one_bar_that_is_replaced(monkeypatch):
    shown = []

    def display(data, *, raw, display_id):
        assert raw and display_id
        shown.append(data)
        return SimpleNamespace(update=lambda data, raw: shown.append(data))

    fake = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=1))
    monkeypatch.setitem(sys.modules, "IPython", fake)
    monkeypatch.setitem(
        sys.modules, "IPython.display", SimpleNamespace(display=display)
    )
    monkeypatch.setattr(progress, "PAUSE", 0.0)
    with progress.Reporter(1_000) as reporter:
        reporter.update(400, 3.0)
        reporter.update(800, 4.0)
    first, *_, last = shown
    assert len(shown) == 3 and first["text/html"].count("<progress") == 1
    html = last["text/html"]
    assert html.count("<progress") == 1 and 'value="0.8000"' in html
    assert "return 4.00" in html and "left" not in html
    assert last["text/plain"].startswith("80%  ")


def test_folders_are_drawn_together(tmp_path, monkeypatch, capsys):
    """By the command, with the results of these folders made up."""
    from purerl.cli import results

    read = {"a": RUN, "b": half(RUN)}
    for name in read:
        (tmp_path / name).mkdir()
    monkeypatch.setattr(results, "look", lambda folder: read[folder.name])
    monkeypatch.setattr(results.kinds, "kind_of", lambda folder: "run")
    monkeypatch.chdir(tmp_path)
    args = ["plot", "a", "ours=b", "--iqm", "--columns", "1", "--out", "both.pdf"]
    assert main(args) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[0] == "written to both.pdf"
    assert "caption: CartPole-v1: interquartile mean of the seeds" in said
    assert (tmp_path / "both.pdf").read_bytes().startswith(b"%PDF")
    assert main(["plot", "a", "b"]) == 0 and (tmp_path / "curves.png").exists()
    assert main(["plot", "a", "--columns", "2"]) == 0
    assert (tmp_path / "a" / "curve.png").exists()
    assert main(["plot", "a", "a"]) == 2
    assert "NAME=FOLDER" in " ".join(capsys.readouterr().err.split())
    assert main(["plot", "a", "b", "--metric", "entrop"]) == 2
    assert "the run has no 'entrop'" in " ".join(capsys.readouterr().err.split())
