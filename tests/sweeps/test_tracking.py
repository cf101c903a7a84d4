"""A sweep in trackers: members while it runs, every one once, also after a failure."""

import json

import pytest

from purerl.execution import cohort
from purerl.sweeps import loop
from tests.runner.told import Told

from .conftest import RATES, run_sweep

AXES = {"learning_rate": RATES[:2]}
MEMBERS = [(rate, seed) for rate in RATES[:2] for seed in (0, 1)]


def members_of(told):
    """The members that a tracker was told, in their order."""
    members = told.members.values()
    return [(member.params["learning_rate"], member.seed) for member in members]


def one_by_one(workers, tasks, one):
    return [one(workers[0], task) for task in tasks]


@pytest.mark.slow
def test_members_are_told_while_a_sweep_runs_and_the_rest_when_it_goes_on(
    tiny, tmp_path, monkeypatch
):
    out, first, again = tmp_path / "swept", Told(), Told()
    trained = []

    def stops(*args, **kwargs):
        if len(trained) == 2:
            # Chunks of before have been told: nothing waits for the sweep's end.
            assert members_of(first) == MEMBERS[:2]
            raise KeyboardInterrupt
        trained.append(args)
        return curves_of(*args, **kwargs)

    curves_of = loop.curves_of
    first.background = False  # Training waits for it, so that the order is known.
    options = {"seeds": 2, "out": out, "lanes": 1}
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(loop, "curves_of", stops)
        patch.setattr(cohort, "run_blocks", one_by_one)
        run_sweep(tiny, AXES, trackers=[first], **options)
    assert first.status == "interrupted"
    entry = json.loads((out / "trackers.json").read_text())["told"]
    assert (entry["told"], entry["status"]) == ([[0, 1]], "interrupted")
    assert run_sweep(tiny, AXES, trackers=[again], **options).finished
    # Two workers train at once from here on: each member is told when it ends.
    assert again.has_gone_on and sorted(members_of(again)) == MEMBERS[2:]
    assert again.status == "finished"
