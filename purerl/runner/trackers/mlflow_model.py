"""Policies as models of MLflow, which load back and act without purerl.

The model is the folder that `purerl.export_policy` writes, and the code of
`mlflow_policy.py` beside it (MLflow's "models from code"): nothing is pickled.
"""

import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import metadata, util
from pathlib import Path
from typing import Any

import numpy as np

from purerl.config import ConfigError
from purerl.runner.trackers.base import missing
from purerl.runner.trackers.mlflow import (
    STATUS,
    MLflowTracker,
    connect,
    find_experiment,
    set_limits,
)

CODE = Path(__file__).with_name("mlflow_policy.py")
PROGRESS_BAR = "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR"
# What loading a model takes, MLflow apart.
PACKAGES = ("jax", "flatbuffers", "numpy")


def log_policy(
    exported: str | Path,
    *,
    run_id: str | None = None,
    uri: str | None = None,
    experiment: str | None = None,
    name: str = "policy",
) -> str:
    """Keep an exported policy as a model of MLflow.

    `mlflow.pyfunc.load_model(address).predict(observations)` returns its deterministic
    actions, in a program that needs neither purerl nor Flax. Loading runs the code that
    lies in the model and unpickles nothing.

    Args:
        exported: The folder that `purerl.export_policy` wrote.
        run_id: The run of MLflow that the model belongs to, which stays as it is; a new
            run where not given, which ends as failed if the model cannot be kept.
        uri: The address of the store; not given: `MLFLOW_TRACKING_URI`, else
            `sqlite:///mlflow.db` in the working directory.
        experiment: The name of the experiment of a new run; not given:
            `MLFLOW_EXPERIMENT_NAME`, else `purerl`.
        name: The name of the model.

    Returns:
        The address of the model, `models:/m-...`.

    Raises:
        ConfigError: no exported policy, a damaged one, one that MLflow cannot call, a
            store that cannot be used, or MLflow is not installed.
    """
    folder = Path(exported).expanduser()
    about = _read(folder)
    if util.find_spec("mlflow") is None:
        raise missing("mlflow", "mlflow")
    tracker = MLflowTracker(uri, experiment)
    set_limits()
    os.environ.setdefault(PROGRESS_BAR, "false")
    try:
        client = connect(tracker.uri)
        experiment_id = ""
        if run_id is None:
            experiment_id = find_experiment(client, tracker.uri, tracker.experiment)
    except Exception as error:  # MLflow's own, those of databases and of files
        said = (str(error).strip() or "no reason given").splitlines()[0][:300]
        raise ConfigError(
            f"uri: MLflow cannot use this store ({type(error).__name__}: {said}); "
            "give the address of one, such as sqlite:///mlflow.db or "
            "http://host:5000."
        ) from error
    if run_id is not None:
        with _store(tracker.uri):
            return _log(folder, about, run_id, name)
    owner = client.create_run(experiment_id, run_name=folder.name).info.run_id
    try:
        with _store(tracker.uri):
            address = _log(folder, about, owner, name)
    except BaseException:
        # A store that has gone may refuse this too: the first error counts.
        with suppress(Exception):
            client.set_terminated(owner, STATUS["failed"])
        raise
    client.set_terminated(owner, STATUS["finished"])
    return address


def _read(folder: Path) -> dict[str, Any]:
    """Return the contents of `policy.json`.

    Raises:
        ConfigError: there is none, it is damaged, or MLflow cannot call such a policy.
    """
    path = folder / "policy.json"
    if not path.exists():
        raise ConfigError(
            f"exported: {folder} holds no policy.json; name a folder that "
            "purerl.export_policy, or `purerl export`, wrote."
        )
    try:
        about = dict(json.loads(path.read_text()))
        _ = about["memory"], about["observation"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ConfigError(
            f"exported: {path} is damaged ({error!r}); export the policy again."
        ) from None
    if about["memory"]:
        raise ConfigError(
            f"exported: the policy in {folder} remembers, and MLflow's predict takes "
            "observations alone; load policy.stablehlo itself, as its README.md shows."
        )
    return about


def _log(folder: Path, about: dict[str, Any], run_id: str, name: str) -> str:
    import mlflow.pyfunc
    from mlflow.models import Model, ModelSignature
    from mlflow.types import Schema, TensorSpec

    batch = -1 if about["batch"] == "any" else about["batch"]
    seen = about["observation"]  # An array, or arrays by name.
    parts = {None: seen} if set(seen) == {"shape", "dtype"} else seen
    inputs: list[Any] = [
        TensorSpec(np.dtype(part["dtype"]), (batch, *part["shape"]), name)
        for name, part in parts.items()
    ]
    info = Model.log(
        artifact_path=None,
        name=name,
        flavor=mlflow.pyfunc,
        run_id=run_id,
        python_model=str(CODE),
        artifacts={"policy": str(folder)},
        signature=ModelSignature(inputs=Schema(inputs)),
        # Given, for MLflow would import everything to find out.
        pip_requirements=[f"{p}=={metadata.version(p)}" for p in PACKAGES],
        metadata={"environment": about["environment"]},
    )
    return info.model_uri


@contextmanager
def _store(uri: str) -> Iterator[None]:
    """MLflow's models are kept in its global store: set for a while."""
    import mlflow

    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(uri)
    try:
        with warnings.catch_warnings():
            # It asks for types and an example, which the signature makes needless.
            warnings.simplefilter("ignore", UserWarning)
            yield
    finally:
        mlflow.set_tracking_uri(before)
