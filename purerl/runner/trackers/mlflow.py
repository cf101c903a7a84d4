"""MLflow: a run, and nested in it one run per seed (of a sweep: per point and seed).

The outer run holds the config as params, the mean over seeds of every metric, figures
and the files of the run; a nested run holds the metrics of one seed, with `seed` (and a
sweep's values) as params, so that MLflow's table sorts and compares them. Steps are
`env_steps`. The folder `run` of the outer run's artifacts is a run's folder:
`purerl.load_run` reads it.

The store is a SQLite file unless another address is given. A resumed run goes on in
the same outer and nested runs. Every batch of metrics carries a tag with the step that
it reaches (`purerl.train`): one whose answer was lost is not written twice. Metrics
cannot be deleted: where a run goes on otherwise than it went, a new run begins. A
server is given `LIMITS`, unless the user's environment says otherwise.
"""

import itertools
import json
import logging
import math
import os
import time
import warnings
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from purerl.config import ConfigError
from purerl.hooks import reports
from purerl.runner.trackers.base import (
    Row,
    TrackedRun,
    Tracker,
    flat_params,
    require,
    scalars,
)
from purerl.runner.trackers.group import reason
from purerl.serialise import env_name

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Run

DEFAULT_URI = "sqlite:///mlflow.db"
STATUS = {"finished": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}
# Most metrics and params of one request (the limits of MLflow's REST interface).
MAX_METRICS, MAX_PARAMS = 1000, 100
MOST = 50_000  # Most runs that one search returns.
PARENT = "mlflow.parentRunId"
TAG = "purerl."
# Environment variables of MLflow's client: seconds, and repetitions.
LIMITS = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
}


class MLflowTracker(Tracker):
    """Nested runs in an MLflow store.

    Args:
        uri: Address of the store; not given: `MLFLOW_TRACKING_URI`, else
            `sqlite:///mlflow.db` in the working directory, which `mlflow ui` opens.
            Artifacts of a SQLite store lie beside it, in `mlruns`.
        experiment: Name of the experiment; not given: `MLFLOW_EXPERIMENT_NAME`, else
            `purerl`.
    """

    name = "mlflow"

    def __init__(self, uri: str | None = None, experiment: str | None = None) -> None:
        given = uri or os.environ.get("MLFLOW_TRACKING_URI") or DEFAULT_URI
        self.uri = absolute(given)
        self.experiment = (
            experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or "purerl"
        )

    @property
    def options(self) -> dict[str, Any]:
        """See `make_tracker`."""
        return {"uri": self.uri, "experiment": self.experiment}

    def begin(self, run: TrackedRun) -> None:
        """Create the outer run, or open it and its nested runs again."""
        self._run = run
        self._children: dict[int, str] = {}
        # By run the rows that wait: kind, step and metrics.
        self._pending: dict[str, list[tuple[str, int, list[Metric]]]]
        self._pending = defaultdict(list)
        # The last step of a run and kind that the store has.
        self._written: dict[tuple[str, str], int] = {}
        self._means: dict[tuple[str, int], list[dict[str, float]]] = defaultdict(list)
        self._diverged: set[int] = set()  # Means leave them out.
        self._client = connect(self.uri)
        self._experiment = find_experiment(self._client, self.uri, self.experiment)
        if run.id is not None:
            self.id = run.id
            self._client.update_run(run.id, status="RUNNING")
            self._recall(self._client.get_run(run.id))
            self._children = self._find_children()
            return
        tags = {
            "mlflow.source.name": "purerl",
            "mlflow.source.type": "LOCAL",
            "algorithm": str(run.config.get("algorithm", "")),
            "env": env_name(run.config.get("env", "")),
            "kind": run.kind or ("sweep" if run.is_sweep else "run"),
        }
        params = flat_params(run.config)
        if not run.is_sweep and not run.kind:
            params["seeds"] = str(len(run.members))
        self.id = self._create(run.name, tags, params)

    def log(self, member: int, step: int, row: Row) -> None:
        """Keep the numbers of a row until `flush`."""
        kind, values = row["kind"], dict(scalars(row))
        self._add(self._child(member), kind, values, step)
        if self._has_diverged(values):
            self._diverged.add(member)
        if not self._run.is_sweep and member not in self._diverged:
            self._means[kind, step].append(values)

    def flush(self) -> None:
        """Write what was logged, as few requests per run as there can be."""
        for (kind, step), rows in self._means.items():
            known = {
                name: [x for row in rows if math.isfinite(x := row.get(name, math.nan))]
                for name in dict.fromkeys(name for row in rows for name in row)
            }
            means = {name: sum(x) / len(x) for name, x in known.items() if x}
            self._add(self._outer, kind, means, step)
        self._means.clear()
        for id, rows in self._pending.items():
            while rows:
                # At least one row, and no row is cut in two.
                ends = itertools.accumulate(len(metrics) for *_, metrics in rows)
                count = max(1, sum(end <= MAX_METRICS for end in ends))
                self._send(id, rows[:count])
                del rows[:count]
        self._pending.clear()

    def _send(self, id: str, rows: list[tuple[str, int, list["Metric"]]]) -> None:
        """Write some rows of a run, and up to where they reach, in one request."""
        from mlflow.entities import RunTag

        # If a kind is repeated, its last step counts.
        steps = {kind: str(step) for kind, step, _ in rows}
        self._client.log_batch(
            id,
            metrics=[metric for *_, metrics in rows for metric in metrics],
            tags=[RunTag(f"{TAG}{kind}", step) for kind, step in steps.items()],
        )

    def end_member(self, member: int) -> None:
        """Write and end a nested run."""
        self.flush()
        if member in self._children:
            self._client.set_terminated(self._children.pop(member), "FINISHED")

    def artifact(self, path: Path, name: str) -> None:
        """Keep a file with the outer run."""
        subfolder, _, last = name.rpartition("/")
        if path.name != last:
            raise ValueError(f"{path} cannot be kept under another name, {name}")
        self._client.log_artifact(self._outer, str(path), subfolder or None)

    def close(self, status: str = "finished") -> None:
        """End all runs."""
        self.flush()
        for child in self._children.values():
            self._client.set_terminated(child, STATUS[status])
        self._client.set_terminated(self._outer, STATUS[status])

    def where(self) -> str:
        """See `Tracker`."""
        is_file = self.uri.startswith("sqlite:")
        look = f"{'mlflow ui --backend-store-uri ' * is_file}{self.uri}"
        return f"MLflow: {look} (experiment {self.experiment}, run {self._run.name})"

    @property
    def _outer(self) -> str:
        assert self.id is not None
        return self.id

    def _find_children(self) -> dict[int, str]:
        children, query = {}, f"tags.`{PARENT}` = '{self._outer}'"
        for run in self._client.search_runs(
            [self._experiment], query, max_results=MOST
        ):
            if self._run.is_sweep and run.info.status == STATUS["finished"]:
                continue  # No row of this member will come.
            children[member := int(run.data.tags["member"])] = run.info.run_id
            if self._has_diverged(run.data.metrics):
                self._diverged.add(member)
            self._recall(run)
            self._client.update_run(run.info.run_id, status="RUNNING")
        return children

    def _has_diverged(self, values: Mapping[str, float]) -> bool:
        """Whether a number of a run's agent is not finite, own metrics apart."""
        own = self._run.config.get("metrics") or ()
        # A member of a search may go on with the state of another.
        return not self._run.kind and any(
            not (math.isfinite(value) or reports(name.partition("/")[2], own))
            for name, value in values.items()
        )

    def _child(self, seed: int) -> str:
        if seed not in self._children:
            member = self._run.members[seed]
            tags = {PARENT: self._outer, "member": str(seed)}
            if member.seed is not None:
                tags["seed"] = str(member.seed)
            params = flat_params(member.labels)
            self._children[seed] = self._create(member.name, tags, params)
        return self._children[seed]

    def _recall(self, run: "Run") -> None:
        """Take over up to which step a run has been written."""
        for name, value in run.data.tags.items():
            if name.startswith(TAG):
                place = run.info.run_id, name.removeprefix(TAG)
                self._written[place] = int(value)

    def _add(self, id: str, kind: str, values: dict[str, float], step: int) -> None:
        from mlflow.entities import Metric

        if step <= self._written.get((id, kind), -1):
            return
        now = int(time.time() * 1000)
        # A database has no infinities; what overflowed has diverged.
        metrics = [
            Metric(name, value if math.isfinite(value) else math.nan, now, step)
            for name, value in values.items()
        ]
        self._pending[id].append((kind, step, metrics))

    def _create(self, name: str, tags: dict[str, str], values: dict[str, str]) -> str:
        """Make a run with params; return its identity."""
        from mlflow.entities import Param

        created = self._client.create_run(self._experiment, run_name=name, tags=tags)
        id, params = created.info.run_id, [Param(n, x) for n, x in values.items()]
        for first in range(0, len(params), MAX_PARAMS):
            self._client.log_batch(id, params=params[first : first + MAX_PARAMS])
        return id


def database(uri: str) -> Path | None:
    """Return the file of a SQLite store; None for another store, or one in memory."""
    scheme, separator, path = uri.partition(":///")
    return Path(path) if separator and scheme.startswith("sqlite") and path else None


def absolute(uri: str) -> str:
    """Return an address that holds in a resumed run's working directory too."""
    file = database(uri)
    if file is None:
        return uri
    return f"{uri.partition(':///')[0]}:///{file.absolute()}"


def find_experiment(client: "MlflowClient", uri: str, name: str) -> str:
    """Return the identity of an experiment, which is made where there is none.

    Args:
        client: Client of the store.
        uri: Address of the store; artifacts of a SQLite file lie beside it.
        name: Name of the experiment.
    """
    known = client.get_experiment_by_name(name)
    if known is not None:
        return known.experiment_id
    file = database(uri)
    location = (file.parent / "mlruns").as_uri() if file else None
    return client.create_experiment(name, artifact_location=location)


def connect(uri: str) -> "MlflowClient":
    """Return a client of a store; a SQLite file is made where there is none."""
    from mlflow import MlflowClient

    for name, value in LIMITS.items():
        os.environ.setdefault(name, value)
    # A new store tells of each of its tables; a person wants to see the training.
    for name in ("alembic", "mlflow.store.db.utils"):
        logging.getLogger(name).setLevel(logging.WARNING)
    file = database(uri)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
    return MlflowClient(tracking_uri=uri)


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
    require("mlflow", ["mlflow"])
    tracker = MLflowTracker(uri, experiment)
    os.environ.setdefault(PROGRESS_BAR, "false")
    owner = run_id
    try:
        client = connect(tracker.uri)
        if run_id is None:
            where = find_experiment(client, tracker.uri, tracker.experiment)
            owner = client.create_run(where, run_name=folder.name).info.run_id
    except Exception as error:  # MLflow's own, those of databases and of files
        raise ConfigError(
            f"uri: MLflow cannot use this store ({reason(error)}); give the address "
            "of one, such as sqlite:///mlflow.db or http://host:5000."
        ) from error
    assert owner is not None
    status = "failed"
    try:
        address = _log(folder, about, tracker.uri, owner, name)
        status = "finished"
    finally:
        if run_id is None:
            # A store that has gone may refuse this too: the first error counts.
            with suppress(Exception):
                client.set_terminated(owner, STATUS[status])
    return address


def _read(folder: Path) -> dict[str, Any]:
    """Return the contents of `policy.json`.

    Raises:
        ConfigError: there is none, it is damaged, or MLflow cannot call such a policy.
    """
    try:
        about = dict(json.loads((folder / "policy.json").read_text()))
        _ = about["memory"], about["observation"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ConfigError(
            f"exported: {folder} holds no exported policy, or its policy.json is "
            f"damaged ({error!r}); export the policy again."
        ) from None
    if about["memory"]:
        raise ConfigError(
            f"exported: the policy in {folder} remembers, and MLflow's predict takes "
            "observations alone."
        )
    return about


def _log(folder: Path, about: dict[str, Any], uri: str, run_id: str, name: str) -> str:
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
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(uri)  # Models are kept in MLflow's global store.
    try:
        with warnings.catch_warnings():
            # It asks for types and an example, which the signature makes needless.
            warnings.simplefilter("ignore", UserWarning)
            return Model.log(
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
            ).model_uri
    finally:
        mlflow.set_tracking_uri(before)
