"""What every result owes: `best()` with the same names, and one `load`."""

import numpy as np
import pytest

import purerl
from tests.helpers import assert_same_bits, slow_but, tiny_config

CONFIG = tiny_config(total_timesteps=384)  # twelve updates
AXES = {"learning_rate": [1e-3, 1e-2]}
SMALL = {"lanes": 2, "segment_updates": 4, "progress": False}
CALLS = {
    "run": lambda out: purerl.run(CONFIG, seeds=2, out=out, **SMALL),
    "sweep": lambda out: purerl.sweep(CONFIG, AXES, seeds=2, out=out, **SMALL),
    "pbt": lambda out: purerl.pbt(
        CONFIG, AXES, population=2, ready_updates=4, out=out, **SMALL
    ),
    "halving": lambda out: purerl.halving(
        CONFIG, AXES, num_points=4, eta=2, min_updates=4, out=out, **SMALL
    ),
    "tune": lambda out: purerl.tune(
        CONFIG, AXES, trials=2, reports=3, holdout_seeds=0, lanes=2, out=out,
        progress=False,
    ),
    "evolve": lambda out: purerl.evolve(
        CONFIG, "learning_rate", population=2, generations=2, out=out, **SMALL
    ),
}  # fmt: skip


@pytest.fixture(scope="module", params=slow_but(CALLS, "pbt", "halving", "tune"))
def result(request, tmp_path_factory):
    return CALLS[request.param](tmp_path_factory.mktemp(request.param) / "out")


def test_the_best_has_a_config_a_score_and_a_point(result):
    best = result.best()
    assert isinstance(best.config, purerl.PPOConfig)
    assert np.isfinite(best.score)
    # A point, a score and a config are what is first in all of them.
    shared = (best.point, best.score, best.config)
    assert all(x is y for x, y in zip(best, shared, strict=False))
    if isinstance(result, purerl.RunResult):
        last = result.evaluation["episode_return"][best.point["seed"], -1]
        assert best.score == last.mean() == max(_final(result))
        return
    rate = float(np.asarray(best.point["learning_rate"]))
    assert float(best.config.learning_rate) == pytest.approx(rate, rel=1e-6)


def _final(run):
    return run.evaluation["episode_return"][:, -1].mean(-1)


def test_every_result_is_shown_in_a_few_lines_drawn_and_tabulated(result):
    lines = repr(result).splitlines()
    assert 2 <= len(lines) <= 6 and len(repr(result)) < 600
    assert lines[0].startswith(f"{type(result).__name__}: ")
    assert "finished: " in lines[1] and lines[-1] == f"  in {result.out}"
    figure, axes = result.plot()
    assert set(np.ravel(np.array(axes, object))) <= set(figure.axes)
    assert len(result.to_dataframe()) >= 2
    html = result._repr_html_()
    assert "<table" in html and ("<svg" in html or "<img" in html)
    assert len(html) < 150_000


def test_load_reads_what_the_call_returned(result):
    loaded = purerl.load(result.out)
    assert type(loaded) is type(result)
    assert loaded.best().score == pytest.approx(result.best().score, rel=1e-6)
    assert loaded.finished


def test_load_reads_comparisons(tmp_path):
    settings = {"slow": {"learning_rate": 1e-4}, "fast": {"learning_rate": 1e-2}}
    found = purerl.compare(CONFIG, settings, seeds=2, out=tmp_path, **SMALL)
    again = purerl.load(tmp_path)
    for name, scores in found.scores.items():
        np.testing.assert_array_equal(again.scores[name], scores)


def test_a_run_that_is_read_is_the_run(tmp_path):
    run = purerl.run(CONFIG, seeds=2, out=tmp_path / "run", **SMALL)
    loaded = purerl.load(tmp_path / "run")
    assert loaded.seeds == run.seeds
    assert_same_bits(loaded.state, run.state)
    for name, values in run.evaluation.items():
        np.testing.assert_array_equal(loaded.evaluation[name], values)


def test_load_says_what_it_cannot_read(tmp_path):
    with pytest.raises(purerl.ConfigError, match="there is no run in"):
        purerl.load(tmp_path)
