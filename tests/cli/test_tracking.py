"""`--track` and `--tracking-uri`: by name, by address, and afterwards with --resume."""

import pytest

from purerl import serialise
from purerl.cli import main, results
from purerl.runner.rows import by_member, read_rows
from purerl.runner.trackers.group import begin_anew, load_stored
from purerl.storage.files import write_json
from tests.helpers import tiny_config
from tests.runner.tracked import WARNINGS, event_scalars

RUN = ("--lanes", "2", "--segment-updates", "3", "--no-progress")
pytestmark = WARNINGS


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


def test_a_policy_of_a_run_that_mlflow_begins_anew_is_kept_in_its_store(
    tmp_path, monkeypatch
):
    """After an extension without trackers the run of MLflow is another one's."""
    kept = []
    monkeypatch.setattr(results, "log_policy", lambda *_, **where: kept.append(where))
    entry = {"id": "a", "told": [[0, 2]], "options": {"uri": "sqlite:////m.db"}}
    write_json(tmp_path / "trackers.json", {"mlflow": entry})
    results._log(tmp_path, None, tmp_path)
    results._log(tmp_path, "http://host", tmp_path)
    begin_anew(tmp_path, 1)
    results._log(tmp_path, None, tmp_path)
    ids = [(where["run_id"], where["uri"]) for where in kept]
    here = "sqlite:////m.db"
    assert ids == [("a", here), (None, "http://host"), (None, here)]
