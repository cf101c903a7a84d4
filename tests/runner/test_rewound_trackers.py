"""Rows that trackers have past the checkpoint, where a run goes on otherwise."""

import pytest

import purerl
from purerl.runner.rows import by_member, read_rows
from purerl.runner.trackers.base import Member, TrackedRun, scalars
from purerl.runner.trackers.group import load_stored, rewind
from purerl.runner.trackers.mlflow import MLflowTracker
from purerl.runner.trackers.tensorboard import EventFile, cut
from tests.helpers import StopAfter, tiny_config

from .conftest import SEGMENT, run_tiny
from .test_trackers import Keeps
from .told import RUN, group
from .tracked import event_scalars, event_tags, mlflow_history

# MLflow's own use of SQLAlchemy.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
RARELY = {"checkpoint_seconds": 1e9}


class KillsAfter(purerl.Tracker):
    """A kill between the rows of an update and its checkpoint."""

    background = False

    def __init__(self, update):
        self.update = update

    def log(self, kind, seed, row):
        if kind == "train" and row["update"] == self.update:
            raise KeyboardInterrupt


def kept(rows):
    """A tracker that goes on with the rows that it was told before."""
    tracker = Keeps(id="a")
    tracker.told = rows
    return tracker


def lines(out, kind):
    """The JSON lines of the first seed."""
    return by_member(read_rows(out / "metrics")[kind], [0])[0]


def written(out, kind):
    return [row["update"] for row in lines(out, kind)]


def told(rows, kind):
    return [update for found, _, update in rows if found == kind]


def killed(config, out, rows, **options):
    """A run with a checkpoint after its first segment, whose trackers have three."""
    options = {"out": out, **RARELY, **options}
    stops = StopAfter(SEGMENT)
    run_tiny(config, trackers=[kept(rows), "tensorboard", stops], **options)
    assert purerl.load_run(out).update == SEGMENT
    with pytest.raises(KeyboardInterrupt):
        run_tiny(
            config,
            resume=True,
            trackers=[kept(rows), "tensorboard", KillsAfter(3 * SEGMENT)],
            **options,
        )
    assert told(rows, "train") == [SEGMENT, 2 * SEGMENT, 3 * SEGMENT]


def assert_event_files_are_those_of_the_run(out):
    wanted = {}
    for kind in ("train", "evaluation"):
        for row in lines(out, kind):
            for name, value in scalars(kind, row):
                wanted.setdefault(name, []).append((row["env_steps"], value))
    found = event_scalars(out / "tensorboard" / "seed=0")
    assert {name: dict(curve) for name, curve in found.items()} == {
        name: {step: pytest.approx(value, nan_ok=True) for step, value in curve}
        for name, curve in wanted.items()
    }
    assert all(len(found[name]) == len(wanted[name]) for name in wanted)


def test_a_longer_run_tells_anew_what_comes_after_its_checkpoint(tmp_path, capsys):
    out, rows = tmp_path / "run", []
    config = tiny_config(num_evaluations=7)  # after every segment
    killed(config, out, rows)
    before = len(rows)
    longer = config.replace(total_timesteps=4 * 640)
    options = {"out": out, "resume": True, "extend": True}
    again = [kept(rows), "tensorboard", KillsAfter(4 * SEGMENT)]
    with pytest.raises(KeyboardInterrupt):
        run_tiny(longer, trackers=again, **options, **RARELY)
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("cannot take rows back") == 1
    assert f"'keeps' cannot take rows back: it keeps {before - 2} rows of" in said
    run_tiny(longer, trackers=[kept(rows), "tensorboard"], **options)
    assert "cannot take rows back" not in capsys.readouterr().err
    for kind in ("train", "evaluation"):
        mine = told(rows[:2] + rows[before:], kind)
        assert mine == written(out, kind)  # each of them once
    entries = load_stored(out)
    total = len(rows) - before + 2
    assert {entry["rows"] for entry in entries.values()} == {total}
    assert not any("rewound" in entry for entry in entries.values())
    assert_event_files_are_those_of_the_run(out)


def test_a_run_on_the_host_tells_anew_what_comes_after_its_checkpoint(tmp_path, capsys):
    out, rows = tmp_path / "run", []
    config = tiny_config(env="gymnasium/CartPole-v1", num_evaluations=0)
    killed(config, out, rows, lanes=None)
    run_tiny(config, out=out, resume=True, lanes=None, trackers=["tensorboard"])
    assert_event_files_are_those_of_the_run(out)
    # Also one that was not there when the run went on.
    assert load_stored(out)["keeps"]["rewound"] == {"step": SEGMENT * 32, "rows": 2}
    capsys.readouterr()
    assert purerl.track(out, [kept(rows)])
    assert "it keeps 2 rows of updates after the last" in capsys.readouterr().err
    assert told(rows[:1] + rows[3:], "train") == written(out, "train")


def test_the_same_run_tells_nothing_twice(tiny, tmp_path):
    out, rows = tmp_path / "run", []
    config = tiny.replace(num_evaluations=0)
    killed(config, out, rows)
    # With `extend`, as who repeats a command has it, and no step more.
    options = {"out": out, "resume": True, "extend": True}
    run_tiny(config, trackers=[kept(rows), "tensorboard"], **options)
    assert told(rows, "train") == written(out, "train")
    assert_event_files_are_those_of_the_run(out)


def test_a_tracker_that_cannot_begin_is_told_of_it_later(tmp_path):
    first, _ = group(Keeps(id="a"), folder=tmp_path)
    for update in (1, 2, 3):
        first.log("train", 0, {"update": update})
    first.close("interrupted")
    rewind(tmp_path, 2, 64)
    bad, _ = group(Keeps(fails="begin", id="a"), folder=tmp_path)
    bad.close("interrupted")
    rewind(tmp_path, 1, 32)  # The checkpoint of before was damaged, and deleted.
    assert load_stored(tmp_path)["keeps"]["rewound"] == {"step": 32, "rows": 2}
    good = Keeps(id="a")
    last, said = group(good, folder=tmp_path)
    assert good.begun.rewound == 32 and "it keeps 2 rows of" in said[0]
    for update in (1, 2, 3):
        last.log("train", 0, {"update": update})
    last.close("finished")
    assert good.told == [("train", 0, 2), ("train", 0, 3)]
    entry = {"id": "a", "rows": 3, "status": "finished", "options": {}}
    assert load_stored(tmp_path)["keeps"] == entry


def test_an_event_file_is_cut_and_what_is_no_row_stays(tmp_path):
    from tensorboardX.summary import scalar

    file = EventFile(tmp_path)
    for step in range(4):
        file.add(scalar("a", step), step)
    file.flush()
    (path,) = tmp_path.iterdir()
    with path.open("ab") as whole:
        whole.write(b"\x20\0\0\0\0\0\0\0a row that a kill cut short"[:20])
    cut(path, 1)
    assert event_scalars(tmp_path) == {"a": [(0, 0.0), (1, 1.0)]}
    size = path.stat().st_size
    cut(path, 5)
    assert path.stat().st_size == size
    cut(path, -1)
    assert event_tags(tmp_path) == set() and 0 < path.stat().st_size < size


@pytest.fixture(scope="module")
def uri(tmp_path_factory):
    return f"sqlite:///{tmp_path_factory.mktemp('store')}/m.db"


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")


def child(client, tracker):
    query = f"tags.`mlflow.parentRunId` = '{tracker.id}'"
    (run,) = client.search_runs([tracker._experiment], query)
    return run


def test_mlflow_takes_rows_of_steps_that_it_has(uri):
    from mlflow import MlflowClient

    def tell(run, value, steps):
        tracker = MLflowTracker(uri)
        tracker.begin(run)
        for step in steps:
            tracker.log("train", 0, {"env_steps": step, "loss": value})
        tracker.close("interrupted")
        return tracker

    first = tell(RUN, 1.0, (1, 2, 3))
    tell(RUN._replace(id=first.id, rewound=1), 9.0, ())  # Killed before it has rows.
    tell(RUN._replace(id=first.id), 2.0, (1, 2, 3, 4))
    client = MlflowClient(uri)
    both = [(1, 1.0), (2, 1.0), (2, 2.0), (3, 1.0), (3, 2.0), (4, 2.0)]
    for run in (client.get_run(first.id), child(client, first)):
        assert mlflow_history(client, run)["train/loss"] == both
        assert run.data.tags["purerl.train"] == "4"


def test_mlflow_goes_on_with_a_member_whose_params_were_lost(uri):
    from mlflow import MlflowClient

    class Lost(MLflowTracker):
        def _log_params(self, id, values):
            if id != self.id:
                raise TimeoutError("read timed out")
            super()._log_params(id, values)

    member = Member("rate=0.1", 3, {"rate": 0.1})
    sweep = TrackedRun("sweep", {}, {}, is_sweep=True)
    first = Lost(uri, "members")
    first.begin(sweep._replace(members={7: member}))
    with pytest.raises(TimeoutError):
        first.log("train", 7, {"env_steps": 1, "loss": 1.0})
    members = {}  # A sweep knows its members when they are told.
    again = MLflowTracker(uri, "members")
    again.begin(sweep._replace(id=first.id, members=members))
    members[7] = member
    again.log("train", 7, {"env_steps": 1, "loss": 1.0})
    again.end_member(7)
    again.close()
    client = MlflowClient(uri)
    run = child(client, first)
    assert run.data.params == {"rate": "0.1", "seed": "3"}
    assert run.data.metrics == {"train/loss": 1.0}
