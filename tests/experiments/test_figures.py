"""The figures of docs/performance.md show the numbers that the benchmarks wrote."""

import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "experiments" / "benchmarks"
sys.path.insert(0, str(FOLDER))

import figures  # noqa: E402


def lengths(figure):
    (axes,) = figure.axes
    return [bar.get_width() for bar in axes.patches]


def words(figure):
    (axes,) = figure.axes
    return [text.get_text() for text in axes.texts]


def test_a_bar_is_as_long_as_a_program_has_kernels():
    found = {
        "ppo-cartpole": {"agents": 1024, "kernels": 2_000_000},
        "td3-pendulum": {"agents": 64, "kernels": 9_000_000},
        "rejax": {"agents": 1024, "kernels": 5_000_000},
    }
    figure = figures.kernels(found)
    assert lengths(figure) == [2.0, 5.0]
    assert words(figure) == [" 2.00 M", " 5.00 M (2.5 x)"]


def test_the_share_is_that_of_the_medians():
    found = {
        "hardware": {"cores": 2, "cpu": "a CPU"},
        "one agent": {"purerl": [1e5, 9e4, 2e5], "products": [2e5, 1e5, 3e5]},
        "large_product_gflops": 145.0,
    }
    figure = figures.share(found)
    assert lengths(figure) == pytest.approx([100.0, 200.0])
    assert words(figure) == ["100k", "200k, of which training reaches 50%"]


def test_a_figure_without_numbers_is_left_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(figures, "RESULTS", figures.ROOT / "nowhere")
    monkeypatch.setattr(figures, "IMAGES", tmp_path)
    figures.main()
    assert "is not there" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())
