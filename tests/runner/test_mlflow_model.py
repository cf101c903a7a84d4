"""Policies as models of MLflow: they load back, without purerl, and act alike."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import purerl
from purerl.cli import main
from purerl.config import ConfigError
from tests import boxes
from tests.helpers import tiny_config

from .conftest import run_tiny

pytest.importorskip("mlflow.pyfunc")
# MLflow's own use of SQLAlchemy.
pytestmark = [pytest.mark.filterwarnings("ignore::DeprecationWarning")]

# What a stranger runs, who has MLflow and JAX; pickles of any kind are refused.
SCRIPT = """
import sys
for name in ("purerl", "flax", "optax", "distrax", "gymnax", "brax"):
    sys.modules[name] = None
import mlflow, numpy as np
import cloudpickle, pickle

def refuse(*args, **kwargs):
    raise RuntimeError("unpickled")

pickle.load = pickle.loads = cloudpickle.load = cloudpickle.loads = refuse
mlflow.set_tracking_uri(sys.argv[1])
model = mlflow.pyfunc.load_model(sys.argv[2])
given = dict(np.load(sys.argv[3]))
obs = given.pop("") if "" in given else given
np.save(sys.argv[4], model.predict(obs))
"""


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def played_by_a_stranger(tmp_path, uri, address, obs):
    np.savez(tmp_path / "given.npz", **(obs if isinstance(obs, dict) else {"": obs}))
    places = [str(tmp_path / name) for name in ("given.npz", "found.npy")]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, uri, address, *places],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return np.load(places[1])


def test_observations_of_several_parts_are_cast_part_by_part():
    from purerl.runner.trackers.mlflow_policy import ExportedPolicy

    policy = ExportedPolicy()
    number, picture = {"shape": [], "dtype": "int32"}, {"shape": [2], "dtype": "uint8"}
    policy.about = {"observation": [number, {"picture": picture}]}
    seen: list = []
    policy._policy = SimpleNamespace(call=seen.append)
    policy.predict(None, [[3], {"picture": [[1, 2]]}])
    ((place, parts),) = seen
    assert place.dtype == np.int32 and place.tolist() == [3]
    assert parts["picture"].dtype == np.uint8


@pytest.mark.slow(optimised=False)
def test_what_fails_leaves_a_failed_run_and_a_run_of_the_users_alone(
    tmp_path, monkeypatch
):
    from mlflow import MlflowClient
    from mlflow.models import Model

    uri = f"sqlite:///{tmp_path}/m.db"
    client = MlflowClient(uri)
    own = client.create_run(client.create_experiment("own")).info.run_id

    def full(**options):
        raise OSError("the disk is full")

    monkeypatch.setattr(Model, "log", full)
    folder = described(tmp_path, batch="any", environment="Pendulum-v1")
    for run_id in (own, None):
        with pytest.raises(OSError, match="the disk is full"):
            purerl.log_policy(folder, uri=uri, run_id=run_id)
    experiment = client.get_experiment_by_name("purerl")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FAILED"
    assert client.get_run(own).info.status == "RUNNING"


@pytest.mark.slow
def test_a_tracked_runs_policy_is_kept_with_the_run_and_acts(tiny, tmp_path, capsys):
    from mlflow import MlflowClient

    uri, out = f"sqlite:///{tmp_path}/store/m.db", tmp_path / "run"
    tracker = purerl.make_tracker("mlflow", uri=uri)
    result = run_tiny(tiny, seeds=(3, 5), out=out, trackers=[tracker])
    run_id = json.loads((out / "trackers.json").read_text())["mlflow"]["id"]
    words = ["export", str(out), "--seed", "5", "--out", str(tmp_path / "exported")]
    assert main([*words, "--mlflow"]) == 0
    address = capsys.readouterr().out.split()[-1]
    client = MlflowClient(uri)
    kept = client.get_logged_model(address.removeprefix("models:/"))
    assert kept.source_run_id == run_id and kept.name == "policy"
    assert client.get_run(run_id).info.status == "FINISHED"

    obs = 0.3 * np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    state = jax.tree.map(lambda x: x[1], result.state)
    wanted = purerl.make_policy(tiny, state)(obs)
    found = played_by_a_stranger(tmp_path, uri, address, obs)
    np.testing.assert_array_equal(found, wanted)
    assert len(set(found.tolist())) == 2  # else any policy would do


@pytest.mark.slow
def test_observations_in_parts_have_a_model_too(tmp_path):
    config = tiny_config(env=boxes.Masked())
    state = jax.jit(purerl.make_train(config))(jax.random.key(0)).state
    folder = purerl.export_policy(config, state, tmp_path / "exported")
    uri = f"sqlite:///{tmp_path}/m.db"
    address = purerl.log_policy(folder, uri=uri, experiment="parts")
    space = config.env.observation_space(config.env.default_params)
    keys = jax.random.split(jax.random.key(1), 32)
    obs = jax.device_get(jax.vmap(space.sample)(keys))
    wanted = purerl.make_policy(config, state)(obs)
    found = played_by_a_stranger(tmp_path, uri, address, obs)
    np.testing.assert_array_equal(found, wanted)


def described(tmp_path, **changes):
    about = {"memory": [], "observation": {"shape": [4], "dtype": "float32"}}
    (tmp_path / "policy.json").write_text(json.dumps({**about, **changes}))
    return tmp_path


def test_what_mlflow_cannot_call_is_refused_in_a_sentence(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=r"holds no exported policy"):
        purerl.log_policy(tmp_path)
    memory = [{"shape": [8], "dtype": "float32"}]
    with pytest.raises(ConfigError, match="remembers"):
        purerl.log_policy(described(tmp_path, memory=memory))
    for text in ("{", "[]", '{"memory": []}'):
        (tmp_path / "policy.json").write_text(text)
        with pytest.raises(ConfigError, match=r"policy\.json is damaged \("):
            purerl.log_policy(tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'purerl\[tracking\]'"):
        purerl.log_policy(described(tmp_path))


def test_a_store_that_mlflow_cannot_use_is_refused_in_a_sentence(tmp_path, monkeypatch):
    pytest.importorskip("mlflow")
    monkeypatch.setenv("HOME", str(tmp_path))
    described(tmp_path, batch="any", environment="Pendulum-v1")
    with pytest.raises(ConfigError, match=r"uri: MLflow cannot use this store \("):
        purerl.log_policy("~", uri="nothing://here")
