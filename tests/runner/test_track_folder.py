"""`purerl track`: exactly what a tracker has missed, and MLflow servers that die."""

import json
import os
import shutil

import pytest

import purerl
from purerl.cli import main
from purerl.config import ConfigError
from purerl.runner.trackers.base import Member, TrackedRun, ended
from purerl.runner.trackers.group import Group, begin_anew, told_in
from purerl.runner.trackers.mlflow import LIMITS, MLflowTracker, connect
from purerl.runner.trackers.tensorboard import EventFile, TensorBoardTracker
from purerl.storage.files import write_json

from .conftest import NUM_UPDATES, SEGMENT, run_tiny
from .told import RUN, Acts, Keeps, at, kill
from .tracked import WARNINGS, event_scalars, events, expected, mlflow_history

pytestmark = WARNINGS
SEEDS = (3, 5)
UPDATES = 9  # with rows: one of them has training and an evaluation


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in LIMITS:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def uri(tmp_path_factory):
    return f"sqlite:///{tmp_path_factory.mktemp('store')}/m.db"


def tracked(folder, name):
    return json.loads((folder / "trackers.json").read_text())[name]


class DiesOn(MLflowTracker):
    """Loses the server at a batch of the third segment, of the second seed.

    Args:
        is_answer_lost: the batch is written, and only its answer is lost.
    """

    background = False  # so that a segment is a batch

    def __init__(self, uri, is_answer_lost):
        super().__init__(uri, experiment=f"lost {is_answer_lost}")
        self.is_answer_lost = is_answer_lost

    def _send(self, id, rows):
        of_second = id == self._children.get(SEEDS[1])
        if of_second and rows[-1][1] == 3 * SEGMENT * 32:
            if self.is_answer_lost:
                super()._send(id, rows)
            raise OSError("the server is gone")
        super()._send(id, rows)


@pytest.mark.slow
@pytest.mark.parametrize("is_answer_lost", [False, True])
def test_mlflow_gets_exactly_the_rows_that_it_missed(
    tiny, tmp_path, capsys, uri, is_answer_lost
):
    from mlflow import MlflowClient

    out = tmp_path / "a run"
    run_tiny(tiny, seeds=SEEDS, out=out, trackers=[DiesOn(uri, is_answer_lost)])
    said = capsys.readouterr().err.replace("\n", "")
    entry = tracked(out, "mlflow")
    assert 0 < len(told_in(entry)) < UPDATES and entry["status"] == ""
    assert f"lacks {UPDATES - len(told_in(entry))} of {UPDATES} updates" in said
    assert f"purerl track '{out}' --track mlflow" in said

    assert main(["track", str(out)]) == 0
    assert f"MLflow: mlflow ui --backend-store-uri {uri}" in capsys.readouterr().err
    assert tracked(out, "mlflow")["told"] == [[0, UPDATES - 1]]
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name(f"lost {is_answer_lost}").experiment_id
    runs = client.search_runs([experiment])
    inner = {int(r.data.tags["seed"]): r for r in runs if "seed" in r.data.tags}
    (outer,) = [r for r in runs if "seed" not in r.data.tags]
    found = {seed: mlflow_history(client, run) for seed, run in inner.items()}
    wanted = {seed: expected(out, seed) for seed in SEEDS}
    assert found == wanted
    means = mlflow_history(client, outer)["train/entropy"]
    pairs = zip(*(wanted[seed]["train/entropy"] for seed in SEEDS), strict=True)
    assert means == [(a[0], (a[1] + b[1]) / 2) for a, b in pairs]
    assert {r.info.status for r in runs} == {"FINISHED"}
    kept = {f.path for f in client.list_artifacts(outer.info.run_id, "run")}
    assert kept == {"run/checkpoints", "run/config.yaml", "run/manifest.json"}

    assert main(["track", str(out), "--track", "mlflow"]) == 0  # nothing is doubled
    assert "has everything" in capsys.readouterr().err
    again = {seed: mlflow_history(client, run) for seed, run in inner.items()}
    assert again == wanted


def test_event_files_of_the_same_second_are_two_and_flush_means_on_disk(tmp_path):
    from tensorboardX.summary import scalar

    first, second = EventFile(tmp_path), EventFile(tmp_path)
    for step in range(100):  # more than tensorboardX's queue would have taken
        first.add(scalar("a", step), step)
        second.add(scalar("b", -step), step)
    for file in first, second:
        file.flush()
    found = event_scalars(tmp_path)
    assert found["a"] == [(step, step) for step in range(100)]
    assert found["b"] == [(step, -step) for step in range(100)]


def test_no_event_file_stays_open_and_a_row_is_one_event(tmp_path):
    """A process may open fewer files than a run may have seeds."""
    members = {n: Member(f"seed={n}", n, {}) for n in range(20)}
    tracker = TensorBoardTracker(tmp_path)
    tracker.begin(TrackedRun("run", {}, members))
    tracker.log(0, 1, {"kind": "train", "loss": 0.5, "entropy": 0.5})
    tracker.flush()  # What is imported on the way is imported by now.
    before = len(os.listdir("/dev/fd"))
    for seed in members:
        tracker.log(seed, 2, {"kind": "train", "loss": 0.5, "entropy": seed})
    tracker.flush()
    assert len(os.listdir("/dev/fd")) == before
    for seed in members:
        folder = tmp_path / "run" / f"seed={seed}"
        assert event_scalars(folder)["train/entropy"][-1] == (2, seed)
    # The first record says of which version the file is.
    assert len(list(events(tmp_path / "run" / "seed=1"))) == 1 + 1
    tracker.close()


def losses(folder, updates, logs=None):
    """Tell TensorBoard a loss for each update, and return what it shows of them."""
    told = Group([tracker := TensorBoardTracker(logs)], in_threads=False)
    told.begin(RUN._replace(folder=folder, name=folder.name), print)
    told.tell((0, {**at(update), "loss": update}) for update in updates)
    told.close("finished")
    return event_scalars(tracker.root / "seed=0")["train/loss"]


def test_tensorboard_has_every_row_once_wherever_the_folder_is(tmp_path):
    one, copied, moved = (tmp_path / name for name in ("one", "copied", "moved"))
    one.mkdir()
    assert losses(one, (1, 2, 3)) == [(32, 1), (64, 2), (96, 3)]
    shutil.copytree(one, copied)
    assert losses(copied, (1, 2, 3, 4)) == [(32, 1), (64, 2), (96, 3), (128, 4)]
    one.rename(moved)
    begin_anew(moved, 1)  # It is extended, and its rows are others from there on.
    assert losses(moved, (1, 5)) == [(32, 1), (160, 5)]


@pytest.mark.parametrize("is_extended", [False, True])
def test_tensorboard_elsewhere_keeps_the_run_of_which_one_is_a_copy(
    tmp_path, is_extended
):
    """A copy of the same name took the place of the original, and lacked rows."""
    one, copied, logs = (tmp_path / x for x in ("one", "backup/one", "logs"))
    one.mkdir()
    losses(one, (1, 2), logs)
    shutil.copytree(one, copied)
    if is_extended:
        begin_anew(copied, 1)
    assert losses(copied, (1, 3, 4), logs) == [(32, 1), (96, 3), (128, 4)]
    assert losses(one, (1, 2, 5), logs) == [(32, 1), (64, 2), (160, 5)]


def test_tensorboard_elsewhere_goes_on_with_a_run_of_another_name(tmp_path):
    one, moved, logs = (tmp_path / name for name in ("one", "moved", "logs"))
    one.mkdir()
    losses(one, (1, 2), logs)
    one.rename(moved)
    assert losses(moved, (1, 2, 3), logs) == [(32, 1), (64, 2), (96, 3)]
    assert [path.name for path in logs.iterdir()] == ["one"]


def test_tensorboard_has_the_members_of_a_longer_sweep_once(tmp_path):
    def tell(total):
        told = Group([TensorBoardTracker()], in_threads=False)
        run = RUN._replace(folder=tmp_path, is_sweep=True)
        told.begin(run, print, total, members=total)
        members = {n: Member(f"x={n}", None, {"x": n}) for n in range(total)}
        rows = [{**at(1), "loss": 0.5}]
        told.add(members, lambda: [ended(n, x, rows) for n, x in members.items()])
        told.close("finished")

    tell(1)
    tell(2)
    for n in range(2):
        found = event_scalars(tmp_path / "tensorboard" / f"x={n}")
        assert found == {"train/loss": [(32, 0.5)]}


def test_an_interrupted_run_goes_on_after_it_was_sent(tiny, tmp_path):
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run_tiny(tiny, out=out, trackers=[Acts(2 * SEGMENT, kill)])
    late = Keeps()
    assert purerl.track(out, [late])
    assert late.status == "interrupted" and set(late.updates) == {SEGMENT}
    then = Keeps()
    run_tiny(tiny, out=out, resume=True, trackers=[then])
    assert then.updates[0] > SEGMENT and then.updates[-1] == NUM_UPDATES
    assert len(late.updates) + len(then.updates) == 7 + 3
    assert then.status == "finished" and purerl.track(out, [Keeps()])


def test_a_run_that_has_saved_nothing_gets_a_sentence(tiny, tmp_path):
    out = tmp_path / "run"
    run_tiny(tiny, out=out, trackers=[])
    shutil.rmtree(out / "checkpoints")
    with pytest.raises(ConfigError, match="has saved nothing yet"):
        purerl.track(out, [Keeps()])


@pytest.mark.parametrize(
    ("manifest", "fragment"),
    [
        (None, "there is no run in"),
        ({"kind": "schedules"}, "of which trackers are told nothing"),
        ({"kind": "run"}, "no tracker has been told of"),
    ],
)
def test_folders_that_cannot_be_sent_get_a_sentence(
    tmp_path, capsys, manifest, fragment
):
    if manifest is not None:
        write_json(tmp_path / "manifest.json", manifest)
    assert main(["track", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert fragment in error and error.count("\n") == 1


def test_time_limits_are_those_of_the_user_if_there_are_any(monkeypatch, uri):
    connect(uri)
    assert {name: os.environ[name] for name in LIMITS} == LIMITS
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "77")
    connect(uri)
    assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "77"
