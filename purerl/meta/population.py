"""A generation's members, and the keys of their training runs.

All members of a generation have the same keys (common random numbers): what tells them
apart is what is evolved. The next generation has others.
"""

from typing import NamedTuple

import jax
import numpy as np

from purerl.execution.members import Members, crossed
from purerl.types import Array, Overrides

# What to fold into a key: streams of random numbers that never meet. 3 is that of
# held-out seeds (`purerl.comparison.training`).
_STRATEGY, _ROLLOUTS, _BASELINE, _START = 0, 1, 2, 4


class Stopped(Exception):  # noqa: N818  (no error: somebody asked to stop)
    """A generation was left unfinished."""


class Population(NamedTuple):
    """Members that all train with the same keys.

    Attributes:
        keys: Keys of the runs of each member, `[R]`.
        overrides: Values that are evolved, leaves `[P, ...]`, on the host.
        size: The number of members, P.
    """

    keys: Array
    overrides: Overrides
    size: int

    @property
    def rollouts(self) -> int:
        """The number of runs of a member in an environment, R."""
        return self.keys.shape[0]

    @property
    def num_runs(self) -> int:
        """The number of runs in an environment, the rollouts of a member fastest."""
        return self.size * self.rollouts

    def runs(self, rows: np.ndarray) -> Members:
        """Return some of the runs, by their numbers."""
        return crossed(self.keys, self.overrides, rows)


def start_key(key: Array) -> Array:
    """Return the key of the strategy's first state."""
    return jax.random.fold_in(key, _START)


def strategy_keys(key: Array, generation: int) -> tuple[Array, Array]:
    """Return the keys of ask and tell."""
    both = jax.random.fold_in(jax.random.fold_in(key, _STRATEGY), generation)
    ask, tell = jax.random.split(both)
    return ask, tell


def rollout_keys(key: Array, generation: int, rollouts: int) -> Array:
    """Return keys `[R]` of a generation's runs, the same for every member.

    Args:
        key: The key of the evolution.
        generation: The number of the generation.
        rollouts: The number of runs of a member in an environment, R.
    """
    generation_key = jax.random.fold_in(jax.random.fold_in(key, _ROLLOUTS), generation)
    return jax.random.split(generation_key, rollouts)


def baseline_keys(key: Array, rollouts: int) -> Array:
    """Return keys `[R]` of the runs that a baseline is measured with."""
    return jax.random.split(jax.random.fold_in(key, _BASELINE), rollouts)
