"""A study in trackers: every trial once, when it has finished."""

import numpy as np
import pytest

import purerl
from purerl.train import bind
from tests.runner.told import Told

from .conftest import tune


def test_no_score_is_told_at_a_step_before_it_was_measured(chain, tmp_path):
    told, out = Told(), tmp_path / "study"
    config = chain.replace(total_timesteps=16 * 16, num_evaluations=2)
    assert bind(config).plan.evaluate_after == (8, 16)
    result = tune(config, out=out, trials=2, reports=9, trackers=[told])
    for row in result.rows:
        assert list(row.curve) == [8 * 16, 16 * 16]
        steps = [numbers["env_steps"] for _, numbers in told.rows[row.number]]
        assert steps == [8 * 16, 16 * 16, 16 * 16]
    assert purerl.load_tune(out, config).rows == result.rows


@pytest.mark.slow
def test_a_tracker_is_told_every_trial_of_a_study_and_its_files(chain, tmp_path):
    told, out = Told(), tmp_path / "study"
    result = tune(chain, out=out, sampler="random", trackers=[told])
    assert sorted(told.ended) == [row.number for row in result.rows]
    assert told.status == "finished" and told.run.kind == "tune"
    for row in result.rows:
        *curve, (kind, last) = told.rows[row.number]
        assert {r["env_steps"]: r["score"] for _, r in curve} == row.curve
        assert kind == "trial" and np.mean(last["score"]) == row.score
        member = told.members[row.number]
        assert member.params.items() >= row.params.items()
        assert member.params["state"] == "complete" and member.seed is None
    assert {"study/trials.json", "study/best.yaml", "sweep/config.yaml"} <= set(
        told.files
    )
