"""The figures of docs/results/speed.md show the numbers that the benchmarks wrote."""

import json

import figures
import pytest


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


def test_the_seconds_of_a_gpu_are_drawn_in_the_order_of_the_agents(
    tmp_path, monkeypatch
):
    def part(agents, **seconds):
        rows = [{"who": w, "agents": agents, "seconds": s} for w, s in seconds.items()]
        rows.append({"who": "other", "agents": agents, "error": "no memory"})
        (folder / f"ppo-{agents}.json").write_text(json.dumps({"rows": rows}))

    folder = tmp_path / "gpu-day"
    folder.mkdir()

    part(64, purerl=[2.0])
    part(2, purerl=[9.0, 1.0, 1.5, 1.25], peer=[4.0])
    monkeypatch.setattr(figures, "RESULTS", tmp_path)
    monkeypatch.setattr(figures, "_estimated", lambda config, agents: 0.5 * agents)
    (axes,) = figures.gpu_agents({"device": "gpu NVIDIA X"}).axes
    drawn = {line.get_label(): line.get_xydata().tolist() for line in axes.lines}
    # The first of several runs warms up.
    assert drawn["purerl, measured"] == [[2, 1.25], [64, 2.0]]
    assert drawn["peer, measured"] == [[2, 4.0]] and len(drawn) == 3
    assert axes.get_title(loc="left").endswith("on one NVIDIA X")
