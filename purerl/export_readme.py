"""The README beside an exported policy: code that uses it, with its shapes."""

from collections.abc import Callable
from typing import Any


def _is_array(about: Any) -> bool:
    """Return whether this describes one array, not an observation of several parts."""
    return isinstance(about, dict) and set(about) == {"shape", "dtype"}


def _parts(about: Any, write: Callable[[Any], str]) -> str:
    """The code of an array, or of the dictionary or tuple of arrays."""
    if _is_array(about):
        return write(about)
    if isinstance(about, dict):
        inside = (f'"{key}": {_parts(part, write)}' for key, part in about.items())
        return f"{{{', '.join(inside)}}}"
    return f"({', '.join(_parts(part, write) for part in about)},)"


def _zeros(rows: int, about: Any) -> str:
    """Code that makes `rows` of what is described."""

    def write(array: Any) -> str:
        shape = ", ".join(map(str, [rows, *array["shape"]]))
        return f'np.zeros(({shape},), "{array["dtype"]}")'

    return _parts(about, write)


def _lengths(batch: Any, about: Any) -> str:
    """The lengths of the axes of what is described."""

    def write(array: Any) -> str:
        return f"[{', '.join(map(str, [batch, *array['shape']]))}]"

    return _parts(about, write)


def readme(about: dict[str, Any]) -> str:
    """Return how to use the folder, with this agent's shapes.

    Args:
        about: Contents of `policy.json`.
    """
    batch = "batch" if about["batch"] == "any" else about["batch"]
    rows = 8 if about["batch"] == "any" else about["batch"]
    zeros = ", ".join(_zeros(rows, m) for m in about["memory"])
    call = "action = policy.call(obs)"
    if about["memory"]:
        call = (
            f"memory = [{zeros}]  # zero at the start of an episode\n"
            "action, *memory = policy.call(obs, *memory)"
        )
    text = f"""# A policy for {about["environment"]}

Trained and exported by purerl {about["versions"]["purerl"]}. To use it takes JAX alone:
`pip install jax flatbuffers`.

```python
import numpy as np
from jax import export

with open("{about["files"]["deterministic"]}", "rb") as file:
    policy = export.deserialize(bytearray(file.read()))
obs = {_zeros(rows, about["observation"])}
{call}
```

Observations are {_lengths(batch, about["observation"])} {_form(about["environment"])};
what the policy does to them, such as normalisation, is inside. `policy.json` has the
spaces and the config of the training run, `weights.safetensors` the parameters and
statistics by name.
"""
    if about["key"]:
        words = about["key"]["shape"]
        text += f"""
`{about["files"]["sampled"]}` draws its actions: its last argument is the data of a
random key, `jax.random.key_data(key)`, {about["key"]["dtype"]} {words}.
"""
    return text + _of_onnx(about)


def _form(environment: str) -> str:
    """In which form observations are taken, as the end of a clause."""
    if environment.split("/")[0] not in ("gymnasium", "envpool"):
        return "as the environment gives them"
    return """as the environment gives
them, but whole numbers count from 0 (take away the `start` of their space), and
pictures of bytes are `[height, width, channels]`. Choices of actions count from 0,
too: add the `start` of their space"""


def _of_onnx(about: dict[str, Any]) -> str:
    """Return the use of the policy without JAX; nothing where it is not ONNX."""
    name = about["files"].get("onnx")
    if not name:
        return ""
    memory = " and `memory0`, ... in the order of `policy.json`" * bool(about["memory"])
    after = " and `next_memory0`, ..." * bool(about["memory"])
    return f"""
`{name}` is the same policy as ONNX, for programs without JAX. Its inputs are `obs` (of
several parts `obs.KEY`){memory}, its outputs `action`{after}:

```py
import onnxruntime

policy = onnxruntime.InferenceSession("{name}")
print([x.name for x in policy.get_inputs()], [x.name for x in policy.get_outputs()])
action, *memory = policy.run(None, inputs)  # inputs: a dictionary of arrays by name
```
"""
