"""Acting with a memory: one protocol for policies with one and without."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl.accelerator.kernels import forget
from purerl.config import ConfigError
from purerl.keys import shape_of_keys
from purerl.networks.observe import as_arrays
from purerl.types import Algorithm, Array, PyTree, Recurrence


@dataclasses.dataclass(frozen=True, eq=False)  # It is hashed by identity, for jax.jit.
class RecurrentPolicy:
    """A trained agent that remembers the episode so far, with the memory in your hands.

        memory = policy.init()
        while not done:
            action, memory = policy(obs, memory)

    All three are pure functions that `jax.jit`, `jax.vmap` and `jax.lax.scan` take.

    Attributes:
        recurrence: Functions by which the algorithm acts with a memory.
        state: State of one agent.
        remade: Call that makes this policy anew, as one that is pickled is.
    """

    recurrence: Recurrence
    state: PyTree
    remade: partial

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.remade.func, self.remade.args

    def init(self, shape: int | tuple[int, ...] = ()) -> PyTree:
        """Return the memory of `[*shape]` episodes that are about to begin.

        Args:
            shape: Shape of the batch of episodes, or their number; `()` for one.
        """
        is_number = isinstance(shape, int | np.integer)
        return self.recurrence.init((int(shape),) if is_number else tuple(shape))

    def __call__(
        self, obs: Array, memory: PyTree = None, key: Array | None = None
    ) -> tuple[Array, PyTree]:
        """Act on the next observation of every episode.

        Args:
            obs: `[*shape, *obs_shape]` observations.
            memory: `[*shape, ...]` memory, from `init` or the call before.
            key: Random key, consumed; without one the action is the deterministic one.

        Returns:
            The action, and the memory with `obs` in it.

        Raises:
            ConfigError: without a memory, or with a key in its place.
        """
        if memory is None or shape_of_keys(memory) is not None:
            raise ConfigError(
                "this policy remembers the episode so far: begin with memory = "
                "policy.init(), then action, memory = policy(obs, memory, key=None)."
            )
        return self.recurrence.act(self.state, as_arrays(obs), memory, key)

    def restart(self, memory: PyTree, done: Array) -> PyTree:
        """Clear the memory where an episode ended, `done` `[*shape]`.

        For loops over environments that reset by themselves: call it between the step
        that ended an episode and the next episode's first observation.
        """
        return forget(memory, jnp.asarray(done))


def recurrence_of(algorithm: Algorithm) -> Recurrence:
    """Return how an algorithm's policy acts; one without memory gets an empty one."""
    if algorithm.recurrence is not None:
        return algorithm.recurrence

    def act(
        state: PyTree, obs: Array, memory: PyTree, key: Array | None = None
    ) -> tuple[Array, PyTree]:
        return algorithm.act(state, obs, key), memory

    return Recurrence(lambda shape: (), act)


def drawing(recurrence: Recurrence, key: Array) -> Recurrence:
    """Return the policy that draws its actions; the key is part of its memory."""

    def act(
        state: PyTree, obs: Array, memory: tuple[PyTree, Array]
    ) -> tuple[Array, tuple[PyTree, Array]]:
        kept, key = memory
        key, key_now = jax.random.split(key)
        action, kept = recurrence.act(state, obs, kept, key_now)
        return action, (kept, key)

    return Recurrence(lambda shape: (recurrence.init(shape), key), act)
