"""`--track` and `--tracking-uri`: by name, by address, and afterwards with --resume."""

import dataclasses

import pytest

from purerl import serialise
from purerl.cli import main, tools
from purerl.config import ConfigError
from purerl.runner import options
from purerl.runner.rows import by_member, read_rows
from purerl.runner.trackers import Tracker
from purerl.runner.trackers.group import load_stored
from tests.helpers import tiny_config
from tests.runner.tracked import event_scalars

RUN = ("--lanes", "2", "--segment-updates", "3", "--no-progress")
# MLflow's own use of SQLAlchemy.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.slow(optimised=False)
def test_track_by_name_and_afterwards(tmp_path, capsys):
    from mlflow import MlflowClient

    config, out = tmp_path / "tiny.yaml", tmp_path / "run"
    serialise.to_yaml(tiny_config(), config)
    uri = f"sqlite:///{tmp_path}/m.db"
    train = ["train", "--config", str(config), "--seeds", "2", "--out", str(out), *RUN]
    assert main([*train, "--track", "mlflow", "--tracking-uri", uri]) == 0
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("purerl").experiment_id
    names = [run.info.run_name for run in client.search_runs([experiment])]
    assert sorted(names) == ["run", "seed=0", "seed=1"]

    # A tracker that comes late is told everything; the one of before nothing twice.
    late = ["train", "--resume", str(out), "--no-progress", "--track", "tensorboard"]
    assert main([*late, "--track", "mlflow"]) == 0
    assert "had finished already" in capsys.readouterr().out
    curve = event_scalars(out / "tensorboard/seed=1")["train/entropy"]
    (rows,) = by_member(read_rows(out / "metrics")["train"], [1])
    assert [step for step, _ in curve] == [row["env_steps"] for row in rows]
    runs = client.search_runs([experiment], "tags.seed = '1'")
    (run,) = runs
    history = client.get_metric_history(run.info.run_id, "train/entropy")
    assert len(history) == len(rows)
    assert set(load_stored(out)) == {"mlflow", "tensorboard"}


@pytest.mark.parametrize(
    ("flags", "fragment"),
    [
        (["--track", "mlfow"], "there is no tracker 'mlfow'. Did you mean 'mlflow'?"),
        (["--tracking-uri", "sqlite:///x.db"], "add --track mlflow"),
    ],
)
def test_mistakes_print_one_sentence(tmp_path, capsys, flags, fragment):
    out = tmp_path / "run"
    assert main(["train", "--out", str(out), *flags]) == 2
    error = capsys.readouterr().err
    assert fragment in error and error.count("\n") == 1
    assert not out.exists()


AXIS = ("--axis", "gamma=uniform(0.9,0.99)")
COMMANDS = {
    "train": ("train.run", ()),
    "sweep": ("tools.SWEEP", ("--axis", "gamma=0.9,0.99")),
    "pbt": ("tools.PBT", AXIS),
    "halving": ("tools.HALVING", AXIS),
    "tune": ("tools.TUNE", AXIS),
    "evolve": ("evolve.evolve", ("--evolve", "gamma")),
    "compare": ("tools.compare", ("--setting", "own:")),
    "transfer": ("tools.compare", ("--loss", "squared")),
}


class Made(Tracker):
    def __init__(self, uri):
        self.uri = uri


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_that_trains_takes_an_address_of_mlflow(
    command, tmp_path, monkeypatch, capsys
):
    """What the command gives to its function in Python, which is not called."""
    function, words = COMMANDS[command]
    told = []

    def stop(*args, trackers, **kwargs):
        told.append(trackers)
        raise ConfigError("stopped before any training")

    known = getattr(tools, command.upper(), None)
    stops = stop if known is None else dataclasses.replace(known, call=stop)
    monkeypatch.setattr(f"purerl.cli.{function}", stops)
    monkeypatch.setattr(options, "make_tracker", lambda name, uri: Made(uri))
    words = [command, *words, "--out", str(tmp_path), "--tracking-uri", "sqlite:///x"]
    assert main(words) == 2
    assert "add --track mlflow" in capsys.readouterr().err
    assert main([*words, "--track", "mlflow", "--track", "wandb"]) == 2
    ((made, other),) = told
    assert (made.uri, other) == ("sqlite:///x", "wandb")
