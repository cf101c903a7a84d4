"""A study in trackers: every trial once, when it has finished."""

import numpy as np

import purerl
from purerl.train import bind
from tests.runner.told import Told

from .conftest import tune


def test_every_trial_is_told_and_no_score_before_it_was_measured(chain, tmp_path):
    told, out = Told(), tmp_path / "study"
    config = chain.replace(total_timesteps=16 * 16, num_evaluations=2)
    assert bind(config).plan.evaluate_after == (8, 16)
    result = tune(config, out=out, trials=2, reports=9, trackers=[told])
    assert sorted(told.ended) == [row.number for row in result.rows]
    assert told.status == "finished" and told.run.kind == "tune"
    for row in result.rows:
        assert list(row.curve) == [8 * 16, 16 * 16]
        *curve, (kind, last) = told.rows[row.number]
        assert [(r["env_steps"], r["score"]) for _, r in curve] == [*row.curve.items()]
        assert kind == "trial" and np.mean(last["score"]) == row.score
        assert last["env_steps"] == 16 * 16
        member = told.members[row.number]
        assert member.params.items() >= row.params.items()
        assert member.params["state"] == "complete" and member.seed is None
    files = {"study/trials.json", "study/best.yaml", "sweep/config.yaml"}
    assert files <= set(told.files)
    assert purerl.load_tune(out, config).rows == result.rows
