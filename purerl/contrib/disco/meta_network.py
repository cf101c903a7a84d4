"""DiscoRL's network, which makes targets of trajectories (Oh et al. 2025, Methods).

It has two recurrent parts. One reads every trajectory from its last step to its first.
The other lives as long as the agent: it takes one step per update, of a mean over the
trajectories, and what it remembers scales what the first one puts out.
"""

import hashlib
import io
import zipfile
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl.atomic import open_arrays
from purerl.config import ConfigError
from purerl.learning.averages import pmean
from purerl.learning.small_networks import dense, signed_log
from purerl.networks.recurrent import LSTMMemory, lstm
from purerl.rules.learned import read_backwards
from purerl.types import Array, PyTree


class Predictions(NamedTuple):
    """The outputs of the network on observations, for A actions.

    Attributes:
        logits: `[..., A]` logits of the policy.
        y: `[..., M]` logits of the prediction of the observation.
        z: `[..., A, M]` logits of the prediction of each action.
        q: `[..., A, K]` logits of each action's value, see `learning.small_networks`.
        next_logits: `[..., A, A]` logits of the policy after each action.
    """

    logits: Array
    y: Array
    z: Array
    q: Array
    next_logits: Array


class Values(NamedTuple):
    """The values and advantages of trajectories, computed from the action values.

    With the online network's policy `pi` and its action values `Q`, those `Q'` of the
    target network, and the targets `G` that `learner.retrace` makes of `Q'`.

    Attributes:
        value: `[T, B]` values `sum_a pi(a|s) Q(s, a)`.
        next_value: `[T, B]` values of the observations after the steps and before any
            reset.
        target_q: `[T, B, A]` action values `Q'(s, a)` of the target network.
        target: `[T, B]` targets `G`.
        advantage: `[T, B]` advantages `G - V'(s)` with `V'(s) = sum_a pi(a|s) Q'(s,
            a)`.
        action_advantage: `[T, B, A]` advantages `Q'(s, a) - V'(s)` of all actions.
        standardised: `[T, B]` advantages less their moving mean, over their moving
            deviation.
        action_standardised: `[T, B, A]` advantages of all actions, standardised by the
            moments of `advantage`.
    """

    value: Array
    next_value: Array
    target_q: Array
    target: Array
    advantage: Array
    action_advantage: Array
    standardised: Array
    action_standardised: Array


class DiscoInputs(NamedTuple):
    """Trajectories as a rule sees them, without observations.

    Attributes:
        action: `[T, B]` int, the actions that were taken.
        reward: `[T, B]` rewards, as the environment gave them.
        terminated: `[T, B]` bool, the episode ended in a state of value zero.
        truncated: `[T, B]` bool, the episode was cut (time limit).
        behaviour: `[T, B, A]` logits of the policy that chose the actions.
        online: Outputs of the network that learns.
        next_online: Outputs of the network that learns on the observations after the
            steps and *before* any reset.
        target: Outputs of the target network.
        next_target: Outputs of the target network on the observations after the steps
            and *before* any reset.
        values: `Values` of the trajectories; None before they are known.
    """

    action: Array
    reward: Array
    terminated: Array
    truncated: Array
    behaviour: Array
    online: Predictions
    next_online: Predictions
    target: Predictions
    next_target: Predictions
    values: Any = None

    @property
    def done(self) -> Array:
        """`[T, B]` bool, the step is the last one of its episode."""
        return self.terminated | self.truncated


class DiscoTargets(NamedTuple):
    """The targets that the network shall come nearer to: logits of distributions.

    Attributes:
        logits: `[T, B, A]` logits of the policy.
        y: `[T, B, M]` logits of the prediction of the observation.
        z: `[T, B, M]` logits of the prediction of the action that was taken.
    """

    logits: Array
    y: Array
    z: Array


def of_action(x: Array, action: Array) -> Array:
    """Return what belongs to the actions that were taken, `[T, B, ...]`.

    Args:
        x: `[T, B, A, ...]` values of all actions.
        action: `[T, B]` int, the actions that were taken.
    """
    # A sum with one term is used because the gradient of a look-up writes number by
    # number.
    is_taken = action[..., None] == jnp.arange(x.shape[2])[None, None]
    is_taken = is_taken.reshape(*is_taken.shape, *[1] * (x.ndim - 3))
    return jnp.where(is_taken, x, 0.0).sum(2)


# The numbers of inputs of a step, without the embeddings of the actions, and of an
# action.
NUM_OF_STEP = 23
NUM_OF_ACTION = 9

Params = dict[str, PyTree]


def embed(params: Params, name: str, logits: Array) -> Array:
    """Return one number `[..., 1]` of each distribution.

    Args:
        name: Name of the layers: `y` or `z`, with or without a prefix.
        logits: `[..., M]` logits of the distributions.
    """
    hidden = jax.nn.relu(dense(params[f"{name}_embedding"], jax.nn.softmax(logits)))
    return dense(params[f"{name}_number"], hidden)


def among_actions(layer: tuple[Array, Array], x: Array) -> Array:
    """Return relu units of each action, which also see the mean over the actions.

    Args:
        layer: Kernel `[2 I, O]` and bias `[O]`, shared by all actions.
        x: `[..., A, I]` inputs of each action.
    """
    mean = jnp.broadcast_to(x.mean(axis=-2, keepdims=True), x.shape)
    return jax.nn.relu(dense(layer, jnp.concatenate([x, mean], axis=-1)))


def of_steps(params: Params, prefix: str, inputs: DiscoInputs) -> tuple[Array, Array]:
    """Return what the network sees of every step, and its embedding of every action.

    Returns:
        `[T, B, 23 + 2 E]` and `[T, B, A, E]`.
    """
    values, action = inputs.values, inputs.action
    policy, behaviour, target = (
        jax.nn.softmax(logits)
        for logits in (inputs.online.logits, inputs.behaviour, inputs.target.logits)
    )
    next_policy = jax.nn.softmax(inputs.next_online.logits)
    z = embed(params, f"{prefix}z", inputs.online.z)[..., 0]
    target_z = embed(params, f"{prefix}z", inputs.target.z)[..., 0]

    def of_z(z: Array, after: Predictions) -> list[Array]:
        """Return its values: of the action, the policy's mean, the maximum."""
        next_z = embed(params, f"{prefix}z", after.z)[..., 0]
        return [
            of_action(z, action),
            (z * policy).sum(-1),
            (next_z * next_policy).sum(-1),
            z.max(-1),
            next_z.max(-1),
        ]

    def of_y(logits: Array) -> Array:
        return embed(params, f"{prefix}y", logits)[..., 0]

    known = (policy, behaviour, target, z, target_z)
    embedding = _of_actions(params, prefix, inputs, known)
    numbers = [
        of_action(policy, action),
        of_action(behaviour, action),
        signed_log(inputs.reward),
        1.0 - inputs.terminated,
        signed_log(values.value),
        signed_log(values.next_value),
        signed_log(values.advantage),
        values.standardised,
        of_action(target, action),
        *(of_y(inputs.online.y), of_y(inputs.next_online.y)),
        *(of_y(inputs.target.y), of_y(inputs.next_target.y)),
        *of_z(z, inputs.next_online),
        *of_z(target_z, inputs.next_target),
    ]
    seen = [
        jnp.stack(numbers, axis=-1),
        embedding.mean(2),
        of_action(embedding, action),
    ]
    return jnp.concatenate(seen, axis=-1), embedding


def _of_actions(
    params: Params, prefix: str, inputs: DiscoInputs, known: tuple[Array, ...]
) -> Array:
    """Return the embedding `[T, B, A, E]` of every action.

    Args:
        known: Policies and predictions, `[T, B, A]` each.
    """
    values = inputs.values
    each = [
        *known,
        *(signed_log(values.target_q), signed_log(values.action_advantage)),
        values.action_standardised,
        jax.nn.one_hot(inputs.action, known[0].shape[-1]),
    ]
    embedding = jnp.stack(each, axis=-1)
    for number in (1, 2):
        embedding = among_actions(params[f"{prefix}action_{number}"], embedding)
    return embedding


LIFETIME = "lifetime_"


def init_lifetime(params: Params) -> LSTMMemory:
    """Return the memory `[L]` of an agent that is about to begin: zeros."""
    size = params["lifetime_gain"][0].shape[0]
    return LSTMMemory(jnp.zeros(size), jnp.zeros(size))


def apply(
    params: Params,
    inputs: DiscoInputs,
    memory: LSTMMemory,
    axis_name: str | None = None,
) -> tuple[DiscoTargets, LSTMMemory]:
    """Return the targets of trajectories, and the agent's next memory.

    Args:
        params: Layers by name, see `weights.shapes_of`.
        memory: The agent's memory `[L]`.
        axis_name: Mapped axis over which trajectories are spread, if any.
    """
    x, of_actions = of_steps(params, "", inputs)
    (kernel, bias), features = params["trajectory_lstm"], x.shape[-1]
    gates = dense((kernel[:features], bias), x)
    hidden = read_backwards(kernel[features:], gates, inputs.done)
    gain = dense(params["lifetime_gain"], memory.hidden)
    hidden = hidden * jnp.broadcast_to(gain, hidden.shape)
    wide = jnp.broadcast_to(
        hidden[:, :, None], (*of_actions.shape[:3], hidden.shape[-1])
    )
    units = among_actions(
        params["policy_hidden"], jnp.concatenate([wide, of_actions], axis=-1)
    )
    targets = DiscoTargets(
        logits=dense(params["policy"], units)[..., 0],
        y=dense(params["y"], hidden),
        z=dense(params["z"], hidden),
    )
    seen, _ = of_steps(params, LIFETIME, inputs)
    summary = dense(params["summary"], hidden)
    of_y = embed(params, f"{LIFETIME}y", targets.y)
    found = dense(
        params["lifetime_input"], jnp.concatenate([seen, summary, of_y], axis=-1)
    )
    mean = pmean(found.mean((0, 1)), axis_name)
    return targets, _one_step(params["lifetime_lstm"], mean, memory)


def _one_step(layer: tuple[Array, Array], x: Array, memory: LSTMMemory) -> LSTMMemory:
    kernel, bias = layer
    return lstm(kernel[len(x) :], dense((kernel[: len(x)], bias), x), memory)


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


def read(path: str, sha256: str = "") -> tuple[Params, str]:
    """Return the layers of a file in the authors' format, and its SHA-256.

    Args:
        path: Path of the file, such as `disco_103.npz`.
        sha256: Digest that the file must have; empty for any file.

    Raises:
        ConfigError: there is no such file, it is another one than it was, or it does
            not hold such a network.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(
            f"rule must be a file of weights that can be read, got {path!r}: "
            f"{error.strerror}; see docs/algorithms/disco.md."
        ) from None
    found = hashlib.sha256(content).hexdigest()
    if sha256 and found != sha256:
        raise ConfigError(
            f"rule must have the weights that it was made with, and {path!r} holds "
            f"others: its SHA-256 is not {sha256}; DiscoRule.load makes another rule."
        )
    return _layers(path, content), found


@lru_cache(maxsize=4)
def _layers(path: str, content: bytes) -> Params:
    """The layers of a file; arrays must be there, finite, and fit one another."""
    try:
        with open_arrays(io.BytesIO(content)) as file:
            arrays = {name: file[name] for name in file.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
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
