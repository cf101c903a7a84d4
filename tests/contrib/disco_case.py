"""Trajectories and weights with which DiscoRL's authors' code was run, and ours is.

Everything is drawn by NumPy from fixed seeds in float64. What the authors' code made of
it in float64 is in `disco_reference.npz`; tests/contrib/disco_reference.py of commit
ffab7c12 wrote it.
"""

from typing import Any, NamedTuple

import numpy as np

from purerl.contrib.disco.rules import _PUBLISHED, Predictions, Sizes, shapes_of

SIZES = Sizes(hidden=6, lifetime=4, prediction=5, units=3, embedding=2)
STEPS, BATCH, ACTIONS = 6, 3, 3
BINS, TOP = 11, 4.0
GAMMA, TRACE_DECAY, DECAY = 0.9, 0.8, 0.99
CALLS = 2  # one after the other, so that what is remembered counts
# The agent's network: two layers, the recurrent model, its heads.
OBS_SIZE, LAYERS, MODEL, HEAD = 4, (4, 3), 3, 2
HEADS = {"z": "mlp", "next_logits": "mlp_1", "q": "mlp_2"}
# Layers of the agent's network as flax has them here, and the authors' names of them.
NETWORK = {
    "torso.Dense_0": "mlp/~_embedding_pass/torso/~/linear_0",
    "embedding": "mlp/~_embedding_pass/torso/~/linear_1",
    "logits": "mlp/~_head_pass/torso_head/~/linear_0",
    "y": "mlp/~_head_pass/torso_head_1/~/linear_0",
    "root": "mlp/linear",
    **{f"{ours}_hidden_0": f"mlp/{name}/~/linear_0" for ours, name in HEADS.items()},
    **{ours: f"mlp/{name}/~/linear_1" for ours, name in HEADS.items()},
}
MODEL_LAYER = "mlp/action_cond/linear"


class Case(NamedTuple):
    """Trajectories, `[T, B]` each, and what the networks made of them."""

    action: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    behaviour: np.ndarray
    online: Predictions
    target: Predictions


def published(sizes=SIZES, seed=0):
    """Random weights under the names and with the shapes of the authors' file."""
    random = np.random.RandomState(seed)
    arrays = {}
    for name, (fan_in, fan_out) in sorted(shapes_of(sizes).items()):
        kernel = random.randn(fan_in, fan_out) / np.sqrt(fan_in)
        theirs = _PUBLISHED[name]
        is_convolution = "conv" in theirs
        arrays[f"{theirs}/w"] = kernel[None] if is_convolution else kernel
        arrays[f"{theirs}/b"] = 0.3 * random.randn(fan_out)
    return arrays


def case(call, sizes=SIZES):
    """The trajectories of a call."""
    random = np.random.RandomState(100 + call)
    size = sizes.prediction

    def made():  # of T + 1 observations in a row
        lead = (STEPS + 1, BATCH)
        shapes = (
            *((ACTIONS,), (size,), (ACTIONS, size), (ACTIONS, BINS)),
            (ACTIONS, ACTIONS),
        )
        arrays: Any = [random.randn(*lead, *shape) for shape in shapes]
        return Predictions(*arrays)

    return Case(
        action=random.randint(ACTIONS, size=(STEPS, BATCH)),
        reward=2.0 * random.randn(STEPS, BATCH),
        terminated=random.rand(STEPS, BATCH) < 0.25,
        behaviour=random.randn(STEPS, BATCH, ACTIONS),
        online=made(),
        target=made(),
    )


class Played(NamedTuple):
    """Observations in a row, `[T + 1, B, ...]`; one trajectory ends with its episode.

    In the authors' agent a step after the end of an episode counts for nothing, which
    is an episode's first step; so none is in the middle.
    """

    obs: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    discount: np.ndarray
    behaviour: np.ndarray


def played():
    """The trajectories from which the agent learns."""
    random = np.random.RandomState(200)
    lead = (STEPS + 1, BATCH)
    discount = np.ones(lead)
    discount[-1, 0] = 0.0
    return Played(
        obs=random.randn(*lead, OBS_SIZE),
        action=random.randint(ACTIONS, size=lead),
        reward=2.0 * random.randn(*lead),
        discount=discount,
        behaviour=random.randn(*lead, ACTIONS),
    )


def network(seed):
    """Weights of the agent's network under the authors' names, kernel and bias."""
    random = np.random.RandomState(300 + seed)
    size = SIZES.prediction
    outputs = {"z": size, "next_logits": ACTIONS, "q": BINS}
    shapes = {
        "torso.Dense_0": (OBS_SIZE, LAYERS[0]),
        "embedding": LAYERS,
        "logits": (LAYERS[1], ACTIONS),
        "y": (LAYERS[1], size),
        "root": (LAYERS[1], MODEL),
        **{f"{name}_hidden_0": (MODEL, HEAD) for name in outputs},
        **{name: (HEAD, number) for name, number in outputs.items()},
    }
    shapes = {NETWORK[name]: shape for name, shape in shapes.items()}
    shapes[MODEL_LAYER] = (ACTIONS + MODEL, 4 * MODEL)
    return {
        name: (random.randn(*shape), 0.3 * random.randn(shape[1]))
        for name, shape in shapes.items()
    }


def in_flax(layers, forget=0.0):
    """Weights, or gradients, of the authors' names as our network has them.

    Args:
        layers: Kernel and bias by the authors' names.
        forget: What their forget gate adds to its bias.
    """

    def ordered(x):
        enter, new, keep, leave = np.split(x, 4, axis=-1)
        return np.concatenate([enter, keep, new, leave], axis=-1)

    kernel, bias = (ordered(x) for x in layers[MODEL_LAYER])
    bias[MODEL : 2 * MODEL] += forget
    found: dict[str, Any] = {
        "actions": kernel[:ACTIONS],
        "recurrent": kernel[ACTIONS:],
        "gates": bias,
    }
    for ours, theirs in NETWORK.items():
        outer, _, inner = ours.rpartition(".")
        place = found.setdefault(outer, {}) if outer else found
        place[inner] = dict(zip(("kernel", "bias"), layers[theirs], strict=True))
    return {"params": found}
