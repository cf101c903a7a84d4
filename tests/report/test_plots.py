"""Pictures show the numbers they should; looks were judged by eye."""

import json

import numpy as np
import pytest
import xarray as xr
from matplotlib.text import Text
from rich.console import Console

from purerl.config import ConfigError
from purerl.report import page, plots, statistics, style, tables
from purerl.report.html import write_page
from purerl.report.plots import comparison_figure, is_followed
from purerl.report.sweep_data import by_environment, read_scores
from purerl.space.axes import in_a_line
from tests.report import synthetic
from tests.report.synthetic import AXES, printed


@pytest.fixture(scope="module")
def grid():
    return synthetic.grid()


@pytest.fixture(scope="module")
def random():
    return synthetic.random()


def texts(figure):
    return [text.get_text() for text in figure.findobj(Text) if text.get_text()]


def test_curve_of_a_value_is_the_iqm_of_its_best_setting(grid):
    figure, _ = plots.sweep_curves(grid, "entropy_coef")
    assert figure.get_figwidth() == style.PAGE_WIDTH  # not two thirds of a page
    line = figure.axes[0].lines[1]  # 0.01, whose best is 1e-3 with 256-256
    cell = grid.sel(learning_rate=1e-3, entropy_coef=0.01, hidden_sizes="256-256")
    values = cell["evaluation_return"].values.mean(-1)
    expected = statistics.curve(values).value
    np.testing.assert_allclose(line.get_ydata(), expected, rtol=1e-6)
    np.testing.assert_allclose(line.get_xdata(), cell["evaluation_env_steps"].values[0])
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["0", "0.01", "0.03", "0.1"]
    assert figure.legends[0].get_title().get_text() == "entropy_coef"


def test_diverged_members_pull_a_curve_down(grid):
    alive = grid.isel(entropy_coef=[1], hidden_sizes=[1])
    dead = alive.copy(deep=True)
    some = {"learning_rate": 2, "entropy_coef": 0, "hidden_sizes": 0}
    dead["evaluation_return"][some | {"evaluation": slice(5, None)}] = np.nan
    dead["diverged_at"][some] = 300
    found = [plots.sweep_curves(data, "learning_rate") for data in (alive, dead)]
    before, after = (drawn.axes.lines[2].get_ydata() for drawn in found)
    np.testing.assert_array_equal(before[:5], after[:5])
    # All of them count as the worst of all lines that are drawn.
    worst = np.nanmin(dead["evaluation_return"].values.mean(-1))
    assert (after[5:] == worst).all() and (before[5:] > worst + 50).all()


def test_only_the_points_after_the_end_of_a_run_are_missing_for_good():
    nan = np.nan
    values = np.array([[nan, 1.0, nan, 2.0, nan], [nan] * 5])
    followed = [[True, True, True, True, False], [False] * 5]
    np.testing.assert_array_equal(is_followed(values), followed)


def test_a_run_that_failed_is_in_the_curve_of_a_comparison():
    nan = np.nan
    runs = ("environment", "setting", "seed")
    data = xr.Dataset(
        {
            "curve": (
                (*runs, "piece"),
                [[[[1.0, 3.0], [2.0, nan]], [[nan, 5.0], [7.0, 9.0]]]],
            ),
            "env_steps": (("environment", "setting", "piece"), [[[8, 16], [8, 16]]]),
            "final_return": (runs, [[[3.0, nan], [5.0, 9.0]]]),
        },
        {"environment": ["CartPole-v1"], "setting": ["a", "b"], "seed": [0, 1]},
    ).astype(float)
    figure, _ = comparison_figure(data)
    drawn = [line.get_ydata() for line in figure.axes[0].lines]
    # Worth 1, the worst of all, from its end on; without an episode it is no failure.
    np.testing.assert_allclose(drawn, [[1.5, 2.0], [7.0, 7.0]])
    assert figure.get_label().endswith("; 1 run failed, the worst from its end on")
    whole = comparison_figure(data.fillna(4.0))
    assert "failed" not in whole.figure.get_label()


def test_best_configurations_are_named_by_what_differs(grid):
    chosen = plots.choose_lines(read_scores(grid), None, most=2)
    assert chosen[:2] == ("entropy_coef", "learning_rate=1e-3, hidden_sizes=256-256")
    assert [name for name, _ in chosen[2]] == ["0.01", "0"]
    # Of more values than lines, both ends and the best, which is 1e-3.
    few = plots.choose_lines(read_scores(grid), "learning_rate", most=3)[2]
    assert [name for name, _ in few] == ["1e-4", "1e-3", "0.01"]


def test_heat_map_cells(grid):
    scores = read_scores(grid)
    figure, _ = plots.heat_map(grid)
    shown = figure.axes[0].images[0].get_array()
    np.testing.assert_allclose(shown, scores.means.reshape(5, 4, 2).mean(2).T)
    square = figure.axes[0].patches[0]
    assert (square.get_x(), square.get_y()) == (1.5, 0.5)
    assert {"1e-4", "3e-4", "0.1"} <= set(texts(figure))
    small, _ = plots.heat_map(grid.isel(learning_rate=[0, 1], entropy_coef=[0, 1]))
    small.canvas.draw()
    (title,) = [t for t in small.findobj(Text) if "mean over seeds" in t.get_text()]
    assert title.get_window_extent().x1 <= small.bbox.x1  # It is within the picture.


def test_slices_show_all_and_best(grid):
    data = grid.isel(learning_rate=[1, 2, 3])
    (figure, _), scores = plots.slices(data), read_scores(data)
    panel = figure.axes[0]
    assert panel.get_xscale() == "log"
    assert figure.axes[1].get_xscale() == "linear"  # It has a zero.
    best, every = (line.get_ydata() for line in panel.lines)
    filled = scores.filled.reshape(3, 4, 2, -1)
    expected = statistics.estimate(filled[1].reshape(8, -1).T).value
    assert every[1] == pytest.approx(expected)
    assert best[1] == pytest.approx(statistics.estimate(filled[1, 1, 1]).value)


def test_dots_of_a_random_design_have_a_star_on_the_best(random):
    figure, _ = plots.slices(random)
    scores = read_scores(random)
    star = figure.axes[0].lines[-1]
    best = int(scores.means.argmax())
    assert star.get_xdata()[0] == scores.points[best]["learning_rate"]
    assert star.get_ydata()[0] == scores.means[best]
    assert figure.axes[0].get_xscale() == "log"
    assert figure.axes[1].get_xscale() == "linear"


def test_settings_of_nearly_equal_values_have_names_of_their_own():
    """Discounts are told apart just below 1; others by as many digits as it takes."""
    few = synthetic.grid().isel(learning_rate=range(4), entropy_coef=1, hidden_sizes=0)
    for values, names in (
        ([0.99, 0.999, 0.9995, 0.9999], ["0.99", "0.999", "0.9995", "0.9999"]),
        ([3e-4, 3.001e-4, 1e-3, 0.01], ["3e-4", "3.001e-4", "1e-3", "0.01"]),
        ([1.0, 2.0, 2e6, 2_000_001], ["1", "2", "2e6", "2.000001e6"]),
    ):
        data = few.assign_coords(learning_rate=values)
        for by in (None, "learning_rate"):
            _, _, lines = plots.choose_lines(read_scores(data), by)
            found = {values[p]: name for name, p in lines}
            assert found == dict(zip(values, names, strict=True))
        assert len(plots.seed_scores(data).axes.get_yticklabels()) == 4
    data = few.assign_coords(learning_rate=[0.99, 0.999, 0.9995, 0.9999])
    table = printed(tables.best_table(data))
    assert " 0.9995 " in table and " 1 " not in table
    assert in_a_line({"gamma": 0.99995, "rate": 1.23456e-4}).startswith("gamma=0.99995")


def test_seeds_and_their_losses(grid):
    figure, _ = plots.seed_scores(grid, "learning_rate")
    lost = read_scores(grid).diverged.reshape(5, 4, 2, 6)[4]
    assert lost.any()
    assert any("lost" in text and text.startswith("0.01") for text in texts(figure))


@pytest.mark.parametrize("draw", [plots.heat_map, plots.slices, plots.seed_scores])
def test_pictures_of_last_values_say_of_which_metric(grid, draw):
    data = grid.assign(policy_loss=grid["episode_return"])
    for metric, words in (("episode_return", "score"), ("policy_loss", "policy loss")):
        figure, _ = draw(data, metric=metric)
        said = [text for text in texts(figure) if "final " in text]
        assert len(said) >= 2 and all(f"final {words}" in text for text in said)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda g, r: plots.sweep_curves(g, "learning_rat"), "learning_rate"),
        (lambda g, r: plots.heat_map(g, "entropy_coef", "entropy_coef"), "twice"),
        (lambda g, r: plots.heat_map(r), "needs a grid"),
        (lambda g, r: plots.slices(g.isel(dict.fromkeys(AXES, 0))), "no axis left"),
        (
            lambda g, r: plots.heat_map(g.isel(entropy_coef=[0], hidden_sizes=[0])),
            "two",
        ),
    ],
)
def test_bad_input_is_one_sentence(grid, random, call, words):
    with pytest.raises(ConfigError, match=words):
        call(grid, random)


def test_saving_is_atomic(tmp_path):
    figure = style.new_figure()
    path = tmp_path / "a.png"
    path.write_bytes(b"old")
    with pytest.raises(ValueError, match="unknown kind of picture"):
        plots.save(figure, tmp_path / "a.xyz")
    figure.savefig = None  # type: ignore[method-assign]
    with pytest.raises(TypeError):
        plots.save(figure, path)
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.png"]
    with pytest.raises(OSError, match=r"missing/x\.html'$"):
        write_page(tmp_path / "missing" / "x.html", "title", {})


def test_the_ends_beside_a_mean_are_those_of_the_mean():
    """Of ten runs the interval of the mean is not that of the IQM."""
    data = synthetic.grid(num_seeds=12).isel(hidden_sizes=[1], entropy_coef=[1])
    scores = read_scores(data)
    best = scores.filled[scores.ranking()[0]]
    found = statistics.mean_interval(best)
    assert found.text(1) != statistics.estimate(best).text(1)
    table = tables.best_table(data, 1)
    names = [str(column.header) for column in table.columns]
    cells = [next(iter(column.cells)) for column in table.columns]
    assert names[-4:] == ["mean", "95% interval", "IQM", "lost"]
    assert cells[:4] == ["1e-3", "0.01", "256-256", f"{best.mean():,.1f}"]
    assert cells[-3] == found.text(1, "95% interval")
    # The page shows the same rows.
    assert tables.best_rows(scores)[1][0][3:] == [*cells[-4:-1], 0]


def test_the_title_of_a_narrow_table_is_one_line():
    title = "schedule of member 2 of search 0"
    console = Console(width=80)
    with console.capture() as printed:
        console.print(tables.table(title, ["update"], [[4]]))
    assert printed.get().splitlines()[0].strip() == title


def unfinished(grid):
    """A sweep of which the best value of an axis and some seeds have not begun."""
    data = grid.copy(deep=True)
    for name in data.data_vars:
        missing = -1 if name == "diverged_at" else np.nan
        data[name].values[2] = missing
        data[name].values[3, 0, 0, :2] = missing
    return data


def test_pictures_and_tables_of_an_unfinished_sweep(grid):
    data = unfinished(grid)
    for by in (None, "learning_rate", "entropy_coef"):
        figure, _ = plots.sweep_curves(data, by)
        assert "50 of 240 members missing" in " ".join(texts(figure))
        assert figure.axes[0].lines
        assert "1e-3" not in texts(figure)
    drawn = read_scores(data)
    assert not set(drawn.ranking()) & set(range(16, 24))
    shown = plots.heat_map(data).axes.images[0].get_array()
    np.testing.assert_array_equal(np.isnan(shown).all(0), np.arange(5) == 2)
    assert len(plots.slices(data).axes[0].lines[0].get_xdata()) == 4
    table = tables.best_table(data, 3)
    assert "best 3 of 40 configurations, 6 seeds each; 50 of 240" in str(table.title)
    sections = page.sweep_sections(data)
    assert "50 of 240 members missing" in sections["Best configurations"]


ENVS = ("CartPole-v1", "Catch-bsuite")


def tasks(design="grid"):
    """A sweep over environments, of which the second pays a hundredth."""
    one = synthetic.grid(num_seeds=4).isel(hidden_sizes=1, entropy_coef=1, drop=True)
    other = one.copy(deep=True)
    for name in ("episode_return", "evaluation_return"):
        other[name] = one[name] / 100
    both = xr.concat([one, other], xr.Variable("env", list(ENVS)))
    names = ["env", "learning_rate"]
    both.attrs.update(axes=json.dumps(names), design=design)
    if design == "grid":
        return both
    flat = both.stack(point=names).reset_index("point")
    return flat.transpose("point", ...)


@pytest.mark.parametrize("design", ["grid", "zip"])
def test_pictures_choose_among_points_of_one_environment(design):
    data = tasks(design)
    parts = by_environment(data)
    assert tuple(parts) == ENVS
    for draw in (plots.sweep_curves, plots.seed_scores):
        for by in (None, "learning_rate"):
            with pytest.raises(ConfigError, match=r"result\.sel\(env='CartPole-v1'\)"):
                draw(data, by)
            title = " ".join(texts(draw(parts["Catch-bsuite"], by).figure))
            assert "Catch-bsuite" in title and "CartPole-v1" not in title
        assert set(ENVS) <= set(" ".join(texts(draw(data, "env").figure)).split())
    with pytest.raises(ConfigError, match="2 environments"):
        tables.best_table(data)
    with pytest.raises(ConfigError, match="2 environments"):
        plots.slices(data)
    assert plots.slices(parts["Catch-bsuite"]).axes


@pytest.mark.parametrize("design", ["grid", "zip"])
def test_a_member_that_diverged_is_the_worst_of_its_own_environment(design):
    data = tasks(design)
    assert read_scores(data).diverged.any()
    figure, _ = plots.sweep_curves(data, "env", metric="episode_return")
    parts = by_environment(data)
    filled = []
    for line, part in zip(figure.axes[0].lines, parts.values(), strict=True):
        filled.append(read_scores(part).filled)
        part = xr.concat([part], "env") if design == "grid" else part
        alone = plots.sweep_curves(part, "env", metric="episode_return")
        expected = alone.axes.lines[0].get_ydata()
        np.testing.assert_array_equal(line.get_ydata(), expected)
    np.testing.assert_array_equal(read_scores(data).filled, np.concatenate(filled))


@pytest.mark.parametrize("design", ["grid", "zip"])
def test_a_page_has_a_part_for_each_environment_with_scores(design):
    data = tasks(design)
    assert "Seeds" in page.sweep_sections(by_environment(data)["Catch-bsuite"])
    for name in ("episode_return", "evaluation_return"):
        data[name] = data[name].where(data["env"] == "CartPole-v1")
    sections = page.sweep_sections(data)
    assert {name for name in sections if "Seeds" in name} == {"CartPole-v1: Seeds"}
    assert "No member of Catch-bsuite has a score." in "".join(sections.values())


def test_what_was_selected_is_drawn(grid):
    """A value of an axis, also of all axes, and a seed."""
    one = grid.sel(hidden_sizes="256-256")
    line = plots.sweep_curves(one, "entropy_coef").axes.lines[1]
    whole = plots.sweep_curves(grid, "entropy_coef").axes.lines[1]
    np.testing.assert_array_equal(line.get_ydata(), whole.get_ydata())
    np.testing.assert_array_equal(
        read_scores(one).scores, read_scores(grid).scores[1::2]
    )
    seed = read_scores(one.isel(seed=2))
    np.testing.assert_array_equal(seed.scores, read_scores(one).scores[:, 2:3])
    point = one.isel(learning_rate=2, entropy_coef=1)
    assert read_scores(point).points == ({},)
    assert plots.seed_scores(point).axes.lines and plots.sweep_curves(point).axes


def test_known_points_are_connected_where_no_episode_ended():
    nan = np.nan
    figure, _ = plots.learning_curve(
        synthetic.run(returns=[[1, nan, 3, nan], [nan, nan, 5, 7]])
    )
    lines = figure.axes[0].get_lines()
    for line in lines:
        assert np.isfinite(line.get_ydata()).all()  # a NaN would cut the line
    np.testing.assert_array_equal(lines[0].get_xdata(), [500, 1500])
    np.testing.assert_array_equal(lines[1].get_xdata(), [1500, 2000])
    np.testing.assert_array_equal(lines[2].get_xdata(), [500, 1500, 2000])
    np.testing.assert_array_equal(lines[2].get_ydata(), [1, 4, 7])
    band = figure.axes[0].collections[0].get_paths()
    assert len(band) == 1  # in one piece
    (line,) = plots.learning_curve(synthetic.run(returns=[[nan, 2, nan, 4]])).axes.lines
    np.testing.assert_array_equal(line.get_xydata(), [[1000, 2], [2000, 4]])
