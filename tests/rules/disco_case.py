"""Trajectories and weights with which DiscoRL's authors' code was run, and ours is.

Everything is drawn by NumPy from fixed seeds in float64. What the authors' code made of
it in float64 is in `disco_reference.npz`, which `tests.rules.disco_reference` wrote.
"""

from typing import NamedTuple

import numpy as np

from purerl.rules.disco.weights import _PUBLISHED, Sizes, shapes_of

SIZES = Sizes(hidden=6, lifetime=4, prediction=5, units=3, embedding=2)
STEPS, BATCH, ACTIONS = 6, 3, 3
BINS, TOP = 11, 4.0
GAMMA, TRACE_DECAY, DECAY = 0.9, 0.8, 0.99
CALLS = 2  # one after the other, so that what is remembered counts


class Made(NamedTuple):
    """What a network made of T + 1 observations in a row.

    Attributes:
        logits: `[T + 1, B, A]`.
        y: `[T + 1, B, M]`.
        z: `[T + 1, B, A, M]`.
        q: `[T + 1, B, A, K]`.
        next_logits: `[T + 1, B, A, A]`.
    """

    logits: np.ndarray
    y: np.ndarray
    z: np.ndarray
    q: np.ndarray
    next_logits: np.ndarray


class Case(NamedTuple):
    """Trajectories, `[T, B]` each, and what the networks made of them."""

    action: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    behaviour: np.ndarray
    online: Made
    target: Made


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

    def made():
        lead = (STEPS + 1, BATCH)
        shapes = Made(
            (ACTIONS,), (size,), (ACTIONS, size), (ACTIONS, BINS), (ACTIONS, ACTIONS)
        )
        return Made(*(random.randn(*lead, *shape) for shape in shapes))

    return Case(
        action=random.randint(ACTIONS, size=(STEPS, BATCH)),
        reward=2.0 * random.randn(STEPS, BATCH),
        terminated=random.rand(STEPS, BATCH) < 0.25,
        behaviour=random.randn(STEPS, BATCH, ACTIONS),
        online=made(),
        target=made(),
    )
