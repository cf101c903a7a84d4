"""Folders of searches in an environment whose module is not here any more."""

import sys

import numpy as np
import pytest

import purerl
from purerl.cli import main
from tests.helpers import tiny_config

LAB = """
import dataclasses
from purerl import envs

@dataclasses.dataclass(unsafe_hash=True)
class Mass(envs.CartPole):
    mass: float = 1.0
"""
AXES = {"learning_rate": purerl.loguniform(1e-4, 1e-2)}
SEARCHES = {
    "pbt": lambda *a, **o: purerl.pbt(*a, AXES, population=2, ready_updates=4, **o),
    "halving": lambda *a, **o: purerl.halving(
        *a, AXES, num_points=2, min_updates=2, eta=2, **o
    ),
    "tune": lambda *a, **o: purerl.tune(
        *a, AXES, trials=2, seeds=2, holdout_seeds=0, **o
    ),
    "evolve": lambda *a, **o: purerl.evolve(
        *a, "learning_rate", population=2, generations=2, lanes=2, **o
    ),
}
METRICS = {
    "tune": lambda result: [row.curve for row in result.rows],
    "evolve": lambda result: result.history["returns"],
}


@pytest.mark.slow(optimised=False)
@pytest.mark.parametrize("name", SEARCHES)
def test_metrics_are_read_and_the_module_is_named(name, tmp_path, monkeypatch, capsys):
    (tmp_path / "absent_lab.py").write_text(LAB)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    import absent_lab  # type: ignore[import-not-found]

    config = tiny_config(env=absent_lab.Mass(2.0), total_timesteps=256)
    made = SEARCHES[name](config, out="new", progress=False)
    monkeypatch.delitem(sys.modules, "absent_lab")
    capsys.readouterr()
    loaded = purerl.load("new")
    assert "--import absent_lab" in capsys.readouterr().err
    if name != "tune":
        assert "absent_lab:Mass(mass=2.0)" in repr(loaded)
    metrics = METRICS.get(name, lambda result: result.dataset["episode_return"].values)
    np.testing.assert_array_equal(metrics(loaded), metrics(made))
    assert main(["report", "new"]) == 0 and main(["plot", "new"]) == 0
    assert "absent_lab" not in sys.modules
