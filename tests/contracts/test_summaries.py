"""Every tool writes `summary.json` into its folder, whoever calls it."""

import json

import pytest

import purerl
from tests.helpers import StopAfter, tiny_config

CONFIG = tiny_config(num_evaluations=1)
AXES = {"learning_rate": [1e-3, 1e-2]}
SHARED = {"lanes": 2, "segment_updates": 10, "progress": False}


def run(out, resume):
    return purerl.run(CONFIG, seeds=2, out=out, resume=resume, **SHARED)


def sweep(out, resume):
    return purerl.sweep(CONFIG, AXES, seeds=1, out=out, **SHARED)


def pbt(out, resume):
    options = {"population": 2, "num_rounds": 2, "quantile": 0.5}
    return purerl.pbt(CONFIG, AXES, out=out, **options, **SHARED)


def halving(out, resume):
    options = {"num_points": 2, "brackets": "one", "eta": 2, "min_updates": 10}
    return purerl.halving(CONFIG, AXES, out=out, **options, **SHARED)


def evolve(out, resume):
    options = {"population": 2, "rollouts": 1, "generations": 1}
    return purerl.evolve(CONFIG, "learning_rate", out=out, **options, **SHARED)


def tune(out, resume):
    options = {"trials": 2, "seeds": 1, "holdout_seeds": 0, "pruner": None}
    more = {"lanes": 2, "progress": False}
    return purerl.tune(CONFIG, AXES, out=out, **options, **more)


@pytest.mark.parametrize(
    ("tool", "facts"),
    [
        (run, {"agents": 2, "env_steps": 2 * 640}),
        (sweep, {"members": 2, "trained_members": 2}),
        (pbt, {"training_steps": 2 * 640, "best_seed": 0}),
        (halving, {"best_seed": 0}),
        (evolve, {"generations_run": 1}),
        (tune, {"trials": 2}),
    ],
)
def test_a_call_of_the_library_writes_the_summary(tool, facts, tmp_path):
    path = tmp_path / "out" / "summary.json"
    tool(path.parent, resume=False)
    written = json.loads(path.read_text())
    assert written.items() >= facts.items()
    tool(path.parent, resume=True)  # It had finished: the times stay.
    assert json.loads(path.read_text()) == written


def test_a_run_that_is_stopped_has_no_summary_yet(tmp_path):
    purerl.run(
        CONFIG, out=tmp_path, trackers=[StopAfter(10)], checkpoint_seconds=0.0, **SHARED
    )
    assert not (tmp_path / "summary.json").exists()
    assert purerl.run(CONFIG, out=tmp_path, resume=True, **SHARED).finished
    assert json.loads((tmp_path / "summary.json").read_text())["agents"] == 1
