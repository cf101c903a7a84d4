"""Rows that trackers have past the checkpoint, where a run goes on otherwise."""

import pytest

import purerl
from purerl.runner.rows import by_member, read_rows
from purerl.runner.trackers.base import scalars
from purerl.runner.trackers.group import load_stored
from purerl.runner.trackers.mlflow import MLflowTracker
from tests.helpers import StopAfter, tiny_table

from .conftest import SEGMENT, run_tiny
from .told import RUN, Acts, Keeps, kill
from .tracked import WARNINGS, event_scalars, mlflow_history

pytestmark = WARNINGS
RARELY = {"checkpoint_seconds": 1e9}


def updates(tracker):
    return [update for kind, _, update in tracker.told if kind == "train"]


def killed(config, out, **options):
    """A run with a checkpoint after its first segment, whose trackers have three."""
    first = Keeps(id="a")
    options = {"out": out, **RARELY, **options}
    run_tiny(config, trackers=[first, "tensorboard", StopAfter(SEGMENT)], **options)
    assert purerl.load_run(out).update == SEGMENT
    again = [Keeps(id="a"), "tensorboard", Acts(3 * SEGMENT, kill)]
    with pytest.raises(KeyboardInterrupt):
        run_tiny(config, resume=True, trackers=again, **options)
    return again[0]


def assert_all_has_come_once(out, tracker, told=None):
    """A tracker and the event files have the rows of the run, each of them once."""
    wanted, lines = {}, read_rows(out / "metrics")
    for kind in ("train", "evaluation"):
        (rows,) = by_member(lines[kind], [0])
        for row in rows:
            for name, value in scalars({"kind": kind, **row}):
                wanted.setdefault(name, []).append(
                    (row["env_steps"], pytest.approx(value, nan_ok=True))
                )
    (rows,) = by_member(lines["train"], [0])
    assert (told or updates(tracker)) == [row["update"] for row in rows]
    assert event_scalars(out / "tensorboard" / "seed=0") == wanted
    entries = load_stored(out).values()
    assert len({repr(entry["told"]) for entry in entries}) == 1
    assert not any("replaces" in entry for entry in entries)


def test_a_longer_run_tells_anew_what_comes_after_its_checkpoint(tmp_path):
    out, config = tmp_path / "run", tiny_table(num_evaluations=7)
    killed(config, out)
    longer, new = config.replace(total_timesteps=4 * 640), Keeps(id="b")
    options = {"out": out, "resume": True, "extend": True}
    run_tiny(longer, trackers=[new, "tensorboard"], **options)
    assert (new.begun.id, new.begun.replaces) == (None, "a")
    assert_all_has_come_once(out, new)


def test_a_run_on_the_host_tells_anew_what_comes_after_its_checkpoint(tmp_path):
    out = tmp_path / "run"
    lake = {"env": "gymnasium/FrozenLake-v1", "env_kwargs": {}}
    config = tiny_table(**lake, num_evaluations=0)
    killed(config, out, lanes=None)
    run_tiny(config, out=out, resume=True, lanes=None, trackers=["tensorboard"])
    # Also one that was not there when the run went on.
    new = Keeps(id="b")
    assert load_stored(out)["keeps"]["replaces"] == "a"
    assert purerl.track(out, [new])
    assert_all_has_come_once(out, new)


def test_the_same_run_tells_nothing_twice(tmp_path):
    out, config = tmp_path / "run", tiny_table(num_evaluations=0)
    second, third = killed(config, out), Keeps(id="a")
    # With `extend`, as who repeats a command has it, and no step more.
    options = {"out": out, "resume": True, "extend": True}
    run_tiny(config, trackers=[third, "tensorboard"], **options)
    told = [SEGMENT, *updates(second), *updates(third)]
    assert updates(second) == [2 * SEGMENT, 3 * SEGMENT]
    assert_all_has_come_once(out, third, told)


@pytest.fixture
def uri(tmp_path):
    return f"sqlite:///{tmp_path}/m.db"


def child(client, tracker):
    query = f"tags.`mlflow.parentRunId` = '{tracker.id}'"
    (run,) = client.search_runs([tracker._experiment], query)
    return run


def test_mlflow_does_not_write_twice_what_it_has(uri):
    from mlflow import MlflowClient

    def tell(run, value, steps):
        tracker = MLflowTracker(uri)
        tracker.begin(run)
        for step in steps:
            row = {"kind": "train", "env_steps": step, "loss": value}
            tracker.log(0, step, row)
        tracker.close("interrupted")
        return tracker

    first = tell(RUN, 1.0, (1, 2, 3))
    tell(RUN._replace(id=first.id), 2.0, (2, 3, 4))  # Its answer was lost.
    client = MlflowClient(uri)
    for run in (client.get_run(first.id), child(client, first)):
        curve = [(1, 1.0), (2, 1.0), (3, 1.0), (4, 2.0)]
        assert mlflow_history(client, run)["train/loss"] == curve
        assert run.data.tags["purerl.train"] == "4"
    new = tell(RUN._replace(replaces=first.id), 3.0, (1,))
    assert mlflow_history(client, child(client, new))["train/loss"] == [(1, 3.0)]
