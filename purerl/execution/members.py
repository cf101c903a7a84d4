"""Members, the agents that one program trains, and the blocks that hold them."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl.scale.devices import Worker
from purerl.types import Array, Overrides


class Members(NamedTuple):
    """Agents that one program trains.

    Attributes:
        keys: Random keys `[N]`, one per agent.
        overrides: Values of dynamic fields by name, leaves `[N, ...]`.
    """

    keys: Array
    overrides: Overrides

    @property
    def size(self) -> int:
        """The number of members, N."""
        return self.keys.shape[0]

    def take(self, index: np.ndarray) -> "Members":
        """Return the members of some numbers, in their order."""
        return jax.tree.map(lambda x: x[index], self)

    def block(self, start: int, lanes: int) -> "Members":
        """Return `lanes` members from number `start` on, padded with the last one."""
        return self.lanes(np.arange(start, min(start + lanes, self.size)), lanes)

    def lanes(self, numbers: np.ndarray, lanes: int) -> "Members":
        """Return at most `lanes` members as a block, filled up with the last one."""
        index = fill(numbers, lanes)
        return jax.tree.map(lambda x: jnp.asarray(x)[index], self)


def every(overrides: Overrides, num_points: int, seeds: Sequence[int]) -> Members:
    """Return every point with every seed, the seeds fastest.

    Args:
        overrides: Values of the points, leaves `[P, ...]`.
        num_points: The number of points, P.
        seeds: Seeds of the agents of each point; the key of a seed is `key(seed)`.
    """
    keys = jax.vmap(jax.random.key)(jnp.asarray(seeds, jnp.uint32))
    return crossed(keys, overrides, np.arange(num_points * len(seeds)))


def crossed(keys: Array, overrides: Overrides, rows: np.ndarray) -> Members:
    """Return some rows of every point with every key, the keys fastest.

    Args:
        keys: Keys `[R]`.
        overrides: Values of the points on the host, leaves `[P, ...]`.
        rows: Numbers of members: number `p * R + r` is point `p` with key `r`.
    """
    points, repeats = np.divmod(rows, keys.shape[0])
    return Members(
        keys[repeats], jax.tree.map(lambda x: np.asarray(x)[points], overrides)
    )


def fill(numbers: np.ndarray, lanes: int) -> np.ndarray:
    """Return numbers `[lanes]`: those given, then the last of them again."""
    return numbers[np.minimum(np.arange(lanes), len(numbers) - 1)]


class Block(NamedTuple):
    """The lanes that one call advances.

    Attributes:
        rows: Numbers of the members in it, ascending; lanes beyond them are copies of
            the last one.
        worker: The worker whose device holds its states.
    """

    rows: np.ndarray
    worker: Worker

    @property
    def size(self) -> int:
        """Members in it."""
        return len(self.rows)


def cut(num_members: int, lanes: int, workers: Sequence[Worker]) -> list[Block]:
    """Cut a population into blocks, handed to the workers in turn.

    Args:
        num_members: The number of members of the population.
        lanes: The width of a block, W.
        workers: The workers that hold the blocks.
    """
    return [
        Block(
            np.arange(start, min(start + lanes, num_members)),
            workers[number % len(workers)],
        )
        for number, start in enumerate(range(0, num_members, lanes))
    ]
