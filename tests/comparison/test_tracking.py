"""A comparison in trackers: every setting once, when it has been trained."""

import numpy as np
import pytest

import purerl
from purerl.comparison.api import _Loop
from tests.comparison.small import SMALL
from tests.helpers import tiny_table
from tests.runner.told import Told

CONFIG = tiny_table()
SETTINGS = {"slow": {"learning_rate": 1e-3}, "long": {"num_steps": 32}}


def compare(out, tracker, settings=SETTINGS):
    return purerl.compare(CONFIG, settings, out=out, trackers=[tracker], **SMALL)


def check(told, result):
    """Rows are the scores and curves of the result."""
    for number, name in enumerate(result.settings):
        *curve, (kind, last) = told.rows[number]
        place = result.environments[0]
        known, steps = result.curves[place][number], result.steps[place][number]
        known, steps = known[:, np.isfinite(steps)], steps[np.isfinite(steps)]
        assert [row["env_steps"] for _, row in curve] == steps.tolist()
        np.testing.assert_array_equal([r["episode_return"] for _, r in curve], known.T)
        assert kind == "measure"
        for measure, scores in result.scores.items():
            np.testing.assert_array_equal(last[measure], scores[0, number])
        assert told.members[number].params["setting"] == name
        assert told.members[number].params.items() >= SETTINGS[name].items()


def test_settings_are_told_as_they_end_and_the_others_when_it_goes_on(
    tmp_path, monkeypatch
):
    first, second, out = Told(), Told(), tmp_path / "out"
    first.background = False
    train_part = _Loop._train_part

    def stops(self, *args):
        if first.rows:
            raise KeyboardInterrupt
        return train_part(self, *args)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(_Loop, "_train_part", stops)
        compare(out, first)
    assert first.ended == [0] and first.status == "interrupted"
    result = compare(out, second)
    assert second.has_gone_on and second.ended == [1]
    second.rows |= first.rows
    second.members |= first.members
    check(second, result)


def test_a_setting_in_the_place_of_another_is_told(tmp_path):
    """A tracker took it for the one whose number it has, and had everything already."""
    first, second, third = Told(), Told(), Told()
    compare(tmp_path, first)
    other = {"slow": SETTINGS["slow"], "fast": {"learning_rate": 1e-2}}
    compare(tmp_path, second, other)
    assert second.run.id is None and second.run.replaces == "there"
    for tracker, names in ((first, SETTINGS), (second, other)):
        told = {n: member.params["setting"] for n, member in tracker.members.items()}
        assert told == dict(enumerate(names)) and sorted(tracker.ended) == [0, 1]
    compare(tmp_path, third, other)
    assert not third.members  # The tracker has them.
