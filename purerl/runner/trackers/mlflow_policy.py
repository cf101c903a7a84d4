"""The code of a policy that is kept as a model of MLflow.

MLflow copies this file into the model and runs it where the model is loaded, so it
imports nothing of purerl: JAX, NumPy and MLflow are enough. Nothing is unpickled. The
policy itself is the folder that `purerl export` wrote, beside this file.
"""

import json
from pathlib import Path
from typing import Any

import mlflow.models
import numpy as np
from jax import export
from mlflow.pyfunc.model import PythonModel


class ExportedPolicy(PythonModel):
    """The deterministic policy of an exported folder.

    Attributes:
        about: Contents of `policy.json`.
    """

    def load_context(self, context: Any) -> None:
        """Read the folder, when MLflow loads the model."""
        folder = Path(context.artifacts["policy"])
        self.about = json.loads((folder / "policy.json").read_text())
        content = (folder / self.about["files"]["deterministic"]).read_bytes()
        self._policy = export.deserialize(bytearray(content))

    def predict(self, context, model_input, params=None):
        """Return the actions of some observations.

        Args:
            context: MLflow's knowledge of the model; it is not used.
            model_input: `[N, *shape]` observations as the environment gives them; a
                dictionary or a sequence of such where they have several parts.
            params: Further arguments from MLflow, of which there are none.

        Returns:
            `[N, ...]` actions as the environment takes them.
        """
        del context, params
        obs = _cast(self.about["observation"], model_input)
        return np.asarray(self._policy.call(obs))


def _cast(described: Any, given: Any) -> Any:
    if isinstance(described, list):
        return tuple(map(_cast, described, given))
    if isinstance(given, dict):
        return {name: _cast(described[name], part) for name, part in given.items()}
    return np.asarray(given, described["dtype"])


mlflow.models.set_model(ExportedPolicy())
