"""What MLflow, TensorBoard and W&B hold of a run that was killed once and resumed.

The run stops after update 9, whose rows had been told to all trackers, and before the
checkpoint of update 9: it goes on from update 6.
"""

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import purerl
from purerl import serialise
from purerl.runner.trackers.base import Member, TrackedRun, ended, files_of
from purerl.runner.trackers.group import Group
from purerl.runner.trackers.mlflow import MLflowTracker, absolute, connect

from .conftest import NUM_UPDATES, SEGMENT, assert_same_bits, run_tiny
from .told import RUN, Acts, at, kill
from .tracked import (
    WARNINGS,
    event_scalars,
    event_tags,
    expected,
    mlflow_history,
    wandb_history,
    wandb_records,
)

pytestmark = WARNINGS
SEEDS = (3, 5)
TOLD = 3 * SEGMENT


@pytest.fixture(scope="module")
def tracked(tiny, tmp_path_factory):
    root = tmp_path_factory.mktemp("tracked")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("WANDB_MODE", raising=False)
        for name in ("CACHE", "CONFIG", "DATA"):
            patch.setenv(f"WANDB_{name}_DIR", str(root / "home"))
        uri = f"sqlite:///{root}/store/m.db"
        trackers = [purerl.make_tracker("mlflow", uri=uri), "tensorboard", "wandb"]
        out = root / "run"
        with pytest.raises(KeyboardInterrupt):
            run_tiny(tiny, seeds=SEEDS, out=out, trackers=[*trackers, Acts(TOLD, kill)])
        assert purerl.load_run(out).update == TOLD - SEGMENT
        before = {path.name for path in (out / "wandb").glob("offline-run-*")}
        result = run_tiny(tiny, seeds=SEEDS, out=out, resume=True)
        yield SimpleNamespace(out=out, uri=uri, result=result, before=before)


@pytest.fixture(scope="module")
def store(tracked):
    from mlflow import MlflowClient

    client = MlflowClient(tracked.uri)
    experiment = client.get_experiment_by_name("purerl")
    runs = client.search_runs([experiment.experiment_id])
    outer = [r for r in runs if "mlflow.parentRunId" not in r.data.tags]
    inner = [r for r in runs if "mlflow.parentRunId" in r.data.tags]
    return SimpleNamespace(client=client, outer=outer, inner=inner)


@pytest.mark.slow
def test_mlflow_nests_a_run_per_seed_in_one_run(tracked, store, tiny):
    (outer,) = store.outer
    assert outer.info.run_name == "run" and outer.info.status == "FINISHED"
    params = outer.data.params
    assert params["learning_rate"] == str(tiny.learning_rate)
    assert params["policy_loss"] == "ClipDrift(clip_eps=0.2)"
    assert set(serialise.to_dict(tiny)) <= set(params) and params["seeds"] == "2"
    assert outer.data.tags["env"] == tiny.env
    assert sorted(r.info.run_name for r in store.inner) == ["seed=3", "seed=5"]
    for run in store.inner:
        assert run.info.status == "FINISHED"
        assert run.data.tags["mlflow.parentRunId"] == outer.info.run_id
        assert run.data.params == {"seed": run.data.tags["seed"]}


def test_mlflow_has_the_mean_over_seeds(tracked, store):
    found = mlflow_history(store.client, store.outer[0])
    one, two = (expected(tracked.out, seed) for seed in SEEDS)
    for name in ("train/entropy", "evaluation/episode_return"):
        pairs = zip(one[name], two[name], strict=True)
        means = [(step, (a + b) / 2) for (step, a), (_, b) in pairs]
        np.testing.assert_allclose(found[name], means, rtol=1e-12)


def means(folder, *calls, **run):
    """MLflow's means over two members: calls tell rows `(member, update, values)`."""
    folder.mkdir()
    members = {seed: Member(f"seed={seed}", seed, {}) for seed in (0, 1)}
    for rows in calls:
        tracker = MLflowTracker(uri=f"sqlite:///{folder.parent}/mlflow.db")
        told = Group([tracker], in_threads=False)
        told.begin(RUN._replace(members=members, folder=folder, **run), print)
        told.tell((seed, {**at(update), **values}) for seed, update, values in rows)
        told.close("interrupted")
    client = connect(tracker.uri)
    found = mlflow_history(client, client.get_run(tracker.id))
    return {name: [mean for _, mean in points] for name, points in found.items()}


def test_mlflow_has_no_diverged_agent_in_its_means(tmp_path):
    losses = [(0, 1, 2.0), (1, 1, 4.0), (0, 2, 3.0), (1, 2, math.nan)]
    losses += [(0, 3, 4.0), (1, 3, 8.0)]
    rows = [(seed, update, {"loss": loss}) for seed, update, loss in losses]
    # It knows who diverged before it was stopped too.
    for name, calls in {"one": [rows], "two": [rows[:4], rows]}.items():
        assert means(tmp_path / name, *calls) == {"train/loss": [3.0, 3.0, 4.0]}
    # An own metric may be unknown, and a member of a search take another's state.
    rows = [(0, 1, 2.0, math.nan), (1, 1, 4.0, 1.0), (0, 2, 6.0, 3.0), (1, 2, 8.0, 1.0)]
    told = [(seed, update, {"loss": x, "ratio": y}) for seed, update, x, y in rows]
    for name, about in {
        "own": {"config": {"metrics": ["lab:ratio"]}},
        "search": {"kind": "pbt"},
    }.items():
        found = means(tmp_path / name, told, **about)
        assert found == {"train/loss": [3.0, 7.0], "train/ratio": [1.0, 2.0]}


def test_mlflow_keeps_a_run_that_loads(tracked, store):
    place = Path(store.outer[0].info.artifact_uri.removeprefix("file://"))
    assert (place / "figures/curve.png").read_bytes().startswith(b"\x89PNG")
    saved = purerl.load_run(place / "run")
    assert saved.update == NUM_UPDATES and saved.seeds == SEEDS
    assert_same_bits(saved.state, purerl.load_run(tracked.out).state)


def test_tensorboard_has_a_folder_per_seed_and_every_row_once(tracked):
    root = tracked.out / "tensorboard"
    assert sorted(p.name for p in root.iterdir() if p.is_dir()) == ["seed=3", "seed=5"]
    assert event_tags(root) == {"config/text_summary", "figures/curve"}
    for seed in SEEDS:
        found, wanted = (
            event_scalars(root / f"seed={seed}"),
            expected(tracked.out, seed),
        )
        assert set(found) == set(wanted)
        for name, curve in wanted.items():
            np.testing.assert_allclose(found[name], curve, rtol=1e-6, err_msg=name)


def test_wandb_offline_has_a_run_per_seed_in_one_group_and_every_row_once(tracked):
    folders = sorted((tracked.out / "wandb").glob("offline-run-*"))
    assert len(tracked.before) == 2 and len(folders) == 4
    ids = set()
    for seed in SEEDS:
        files = [
            path for folder in folders for path in folder.glob(f"run-*-{seed}.wandb")
        ]
        records = [wandb_records(path) for path in files]
        started = [next(r.run for r in part if r.HasField("run")) for part in records]
        assert len({run.run_id for run in started}) == 1  # the same run goes on
        assert {run.display_name for run in started} == {f"run seed={seed}"}
        ids |= {run.run_group for run in started}
        config = {c.key: c.value_json for c in started[0].config.update}
        assert config["seed"] == str(seed) and config["num_steps"] == "16"
        found: dict[str, list] = {}
        for row in (row for part in records for row in wandb_history(part)):
            for name, value in row.items():
                if name.startswith(("train/", "evaluation/")):
                    assert row["_step"] == row["env_steps"]
                    found.setdefault(name, []).append((row["env_steps"], value))
        wanted = expected(tracked.out, seed)
        assert set(found) == set(wanted)
        for name, curve in wanted.items():
            np.testing.assert_allclose(found[name], curve, rtol=1e-12, err_msg=name)
    assert ids == {"run"}


def test_wandb_keeps_the_files_of_the_run(tracked):
    (folder,) = [
        path
        for path in (tracked.out / "wandb").glob("offline-run-*-3")
        if path.name not in tracked.before
    ]
    assert purerl.load_run(folder / "files/run").update == NUM_UPDATES
    (record,) = folder.glob("*.wandb")
    saved = {
        item.path
        for r in wandb_records(record)
        if r.HasField("files")
        for item in r.files.files
    }
    assert {"run/config.yaml", "run/manifest.json"} <= saved
    assert "run/checkpoints/20.npz" in saved


def member(number, rate):
    params = {"learning_rate": rate, "policy_loss": {"type": "ClipDrift"}}
    rows = [
        {"kind": "train", "env_steps": 32, "episodes": 1, "episode_return": 10 * rate},
        {"kind": "evaluation", "env_steps": 48, "episode_return": [1.0, 3.0]},
        {"kind": "train", "env_steps": 64, "episodes": 0, "episode_return": None},
    ]
    return ended(number, Member(f"learning_rate={rate}, seed=7", 7, params), rows)


MEMBERS = [member(number, rate) for number, rate in enumerate((0.1, 0.2))]


def tell(tracker, config, folder=None):
    """Tell a tracker of a sweep of two members, as the sweep itself does."""
    first = {0: MEMBERS[0].ended}
    group = Group([tracker], in_threads=False)
    with group:
        run = TrackedRun("rates", config, first, folder, is_sweep=True)
        group.begin(run, print, len(MEMBERS))
        group.add(range(len(MEMBERS)), lambda: MEMBERS)
        group.close("finished", files_of(folder, sweep=["config.yaml"]))
    assert group.lacks_nothing


def test_a_sweep_is_one_mlflow_run_with_a_run_per_member(tracked, tmp_path, store):
    from mlflow import MlflowClient

    tracker = purerl.make_tracker("mlflow", uri=tracked.uri, experiment="sweep")
    (tmp_path / "config.yaml").write_text("algorithm: ppo\n")
    config = {"algorithm": "ppo", "gamma": 0.9}
    tell(tracker, config, tmp_path)
    client = MlflowClient(tracked.uri)
    experiment = client.get_experiment_by_name("sweep").experiment_id
    (outer,) = client.search_runs([experiment], "tags.kind = 'sweep'")
    assert outer.info.run_name == "rates" and outer.info.status == "FINISHED"
    assert outer.data.params == {"algorithm": "ppo", "gamma": "0.9"}
    assert [f.path for f in client.list_artifacts(outer.info.run_id, "sweep")] == [
        "sweep/config.yaml"
    ]
    best = client.search_runs(
        [experiment],
        f"tags.`mlflow.parentRunId` = '{outer.info.run_id}' "
        "and params.learning_rate = '0.2'",
    )
    (inner,) = best
    assert inner.data.params == {
        "learning_rate": "0.2",
        "policy_loss": "ClipDrift()",
        "seed": "7",
    }
    assert mlflow_history(store.client, inner) == {
        "train/episodes": [(32, 1.0), (64, 0.0)],
        "train/episode_return": [(32, 2.0)],
        "evaluation/episode_return": [(48, 2.0)],
        "evaluation/episode_return_min": [(48, 1.0)],
        "evaluation/episode_return_max": [(48, 3.0)],
    }


def test_an_address_holds_in_another_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert absolute("sqlite:///mlflow.db") == f"sqlite:///{tmp_path}/mlflow.db"
    assert absolute("http://127.0.0.1:5000") == "http://127.0.0.1:5000"
