"""The layers of DiscoRL's network: their shapes, random ones, and published ones.

The authors' file `disco_103.npz` names its arrays as their program does. They are read
into the layers of `meta_network` by the table below.
"""

import hashlib
import io
import zipfile
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from purerl.config import ConfigError
from purerl.contrib.disco.meta_network import NUM_OF_ACTION, NUM_OF_STEP, Params

# Our names of the layers, and the authors' names.
_EMBEDDINGS = {
    "y_embedding": "mlp/~/linear_0",
    "y_number": "mlp/~/linear_1",
    "z_embedding": "mlp_1/~/linear_0",
    "z_number": "mlp_1/~/linear_1",
    "action_1": "sequential/conv1_d",
    "action_2": "sequential/conv1_d_1",
}
_PUBLISHED = {
    "lifetime_gain": "lstm/linear",
    "summary": "lstm/linear_1",
    "y": "lstm/linear_2",
    "z": "lstm/linear_3",
    "policy": "lstm/linear_4",
    "policy_hidden": "lstm/sequential_1/conv1_d",
    "trajectory_lstm": "lstm/lstm/linear",
    "lifetime_lstm": "lstm/~/meta_lstm/~unroll/lstm/linear",
    "lifetime_input": "lstm/~/meta_lstm/~unroll/mlp_2/~/linear_0",
    **{name: f"lstm/{theirs}" for name, theirs in _EMBEDDINGS.items()},
    **{
        f"lifetime_{name}": f"lstm/~/meta_lstm/~unroll/{theirs}"
        for name, theirs in _EMBEDDINGS.items()
    },
}
_RECURRENT = ("trajectory_lstm", "lifetime_lstm")


class Sizes(NamedTuple):
    """Sizes of the network; the defaults are the published ones.

    Attributes:
        hidden: Units of the network that reads trajectories.
        lifetime: Units of the network that lives as long as the agent.
        prediction: M, numbers of the predictions.
        units: Units of each hidden layer.
        embedding: Numbers of the embedding of an action.
    """

    hidden: int = 256
    lifetime: int = 128
    prediction: int = 600
    units: int = 16
    embedding: int = 2


def shapes_of(sizes: Sizes) -> dict[str, tuple[int, int]]:
    """Return the shape of each layer's kernel by name; a bias has the second number."""
    hidden, lifetime, prediction, units, embedding = sizes
    seen = NUM_OF_STEP + 2 * embedding
    embeddings = {
        "y_embedding": (prediction, units),
        "y_number": (units, 1),
        "z_embedding": (prediction, units),
        "z_number": (units, 1),
        "action_1": (2 * NUM_OF_ACTION, units),
        "action_2": (2 * units, embedding),
    }
    return {
        **embeddings,
        **{f"lifetime_{name}": shape for name, shape in embeddings.items()},
        "trajectory_lstm": (seen + hidden, 4 * hidden),
        "lifetime_gain": (lifetime, hidden),
        "summary": (hidden, 1),
        "y": (hidden, prediction),
        "z": (hidden, prediction),
        "policy_hidden": (2 * (hidden + embedding), units),
        "policy": (units, 1),
        "lifetime_input": (seen + 2, units),
        "lifetime_lstm": (units + lifetime, 4 * lifetime),
    }


def draw(sizes: Sizes, seed: int) -> Params:
    """Draw random layers: normal kernels of a variance of 1 / inputs, zero biases.

    Args:
        sizes: Sizes of the network.
        seed: Seed of the kernels.
    """
    random = np.random.default_rng(seed)

    def layer(fan_in: int, fan_out: int) -> tuple[np.ndarray, np.ndarray]:
        kernel = random.standard_normal((fan_in, fan_out)) / np.sqrt(fan_in)
        return kernel.astype(np.float32), np.zeros(fan_out, np.float32)

    return {name: layer(*shape) for name, shape in shapes_of(sizes).items()}


def digest_of(path: str) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits.

    Raises:
        ConfigError: the file cannot be read.
    """
    return hashlib.sha256(_bytes_of(path)).hexdigest()


def read(path: str, sha256: str = "") -> Params:
    """Read the layers of a file in the authors' format.

    Args:
        path: Path of the file, such as `disco_103.npz`.
        sha256: Digest that `digest_of` must return; empty for any file.

    Raises:
        ConfigError: there is no such file, it is another one than it was, or it does
            not hold such a network.
    """
    content = _bytes_of(path)
    if sha256 and hashlib.sha256(content).hexdigest() != sha256:
        raise ConfigError(
            f"rule must have the weights that it was made with, and {path!r} holds "
            f"others: its SHA-256 is not {sha256}; put the file back, or make the rule "
            "anew with DiscoRule.load."
        )
    return _layers(path, content)


def _bytes_of(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(
            f"rule must be a file of weights that can be read, got {path!r}: "
            f"{error.strerror}; docs/algorithms/disco.md says where disco_103.npz can "
            "be had."
        ) from None


@lru_cache(maxsize=4)
def _layers(path: str, content: bytes) -> Params:
    """The layers of a file; arrays must be there, finite, and fit one another."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (ValueError, OSError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise _unfit(path, f"is no .npz file of arrays ({error})") from None
    found = {}
    for name, theirs in _PUBLISHED.items():
        missing = [f"{theirs}/{x}" for x in "wb" if f"{theirs}/{x}" not in arrays]
        if missing:
            raise _unfit(path, f"has no array {missing[0]!r}")
        kernel, bias = (np.asarray(arrays[f"{theirs}/{x}"], np.float32) for x in "wb")
        if not (np.isfinite(kernel).all() and np.isfinite(bias).all()):
            raise _unfit(path, f"has no finite weights in the layer {theirs!r}")
        # A convolution over single actions is a dense layer that all actions share.
        found[name] = (kernel[0] if kernel.ndim == 3 else kernel, bias)
    last = {name: np.atleast_1d(bias).shape[-1] for name, (_, bias) in found.items()}
    sizes = Sizes(
        hidden=last["lifetime_gain"],
        lifetime=last["lifetime_lstm"] // 4,
        prediction=last["y"],
        units=last["action_1"],
        embedding=last["action_2"],
    )
    for name, shape in shapes_of(sizes).items():
        shapes = tuple(np.shape(array) for array in found[name])
        if shapes != (shape, shape[1:]):
            raise _unfit(
                path,
                f"is none: the layer {_PUBLISHED[name]!r} has the shapes {shapes[0]} "
                f"and {shapes[1]}, where the others need {shape} and {shape[1:]}",
            )
    for name in _RECURRENT:
        found[name] = _in_our_order(*found[name])
    return found


def _unfit(path: str, why: str) -> ConfigError:
    return ConfigError(
        f"rule must be a file of DiscoRL's weights, as disco_103.npz is, and {path!r} "
        f"{why}."
    )


def _in_our_order(kernel: np.ndarray, bias: np.ndarray) -> tuple[Any, Any]:
    """The gates in the order of `networks.recurrent`, the second two exchanged.

    The authors' forget gate adds 1 to its bias, which here is in it.
    """

    def exchanged(x: np.ndarray) -> np.ndarray:
        enter, new, keep, leave = np.split(x, 4, axis=-1)
        return np.concatenate([enter, keep, new, leave], axis=-1)

    size = len(bias) // 4
    bias = exchanged(bias)
    bias[size : 2 * size] += 1.0
    return exchanged(kernel), bias
