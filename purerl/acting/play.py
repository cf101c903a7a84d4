"""Playing whole episodes in environments that are stepped on the host."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from purerl.types import HostMetrics, PyTree


class HostEnvs(Protocol):
    """`B` environments that are stepped from Python; see `envs.adapters.host`.

    Attributes:
        num_envs: Number B of environments.
    """

    num_envs: int

    def reset(self, seed: int) -> Any:
        """Start an episode in each; first observations `[B, ...]`."""
        ...

    def step(self, action: np.ndarray) -> Any:
        """Step each, with restarts; what the adapter's `HostStep` lists."""
        ...

    def close(self) -> None:
        """Close the environments."""
        ...


def play_episodes(
    envs: HostEnvs,
    act: Callable[[Any, PyTree], tuple[Any, PyTree]],
    memory: PyTree,
    seed: int,
    max_steps: int,
) -> HostMetrics:
    """Play the first episode of every environment, and no other.

    An environment whose episode has ended is stepped on, and nothing of it counts. An
    episode that still runs after `max_steps`, or that breaks, is cut: it counts with
    what it has earned by then.

    Args:
        envs: The `E` environments to play in.
        act: Policy, `(obs [E, ...], memory) -> (action, memory)`.
        memory: Memory of episodes that are about to begin, `[E, ...]`.
        seed: Seed of the first environment; the others follow.
        max_steps: Longest episode.

    Returns:
        The fields of `types.Evaluation`, by name.
    """
    returns = np.zeros(envs.num_envs, np.float32)
    lengths = np.zeros(envs.num_envs, np.int32)
    running, broken = np.ones(envs.num_envs, bool), np.zeros(envs.num_envs, bool)
    obs = envs.reset(seed)
    for _ in range(max_steps):
        action, memory = act(obs, memory)
        step = envs.step(action)
        returns += np.where(running, step.reward, np.float32(0))
        now_broken = running & step.terminated & step.truncated
        lengths += running & ~now_broken
        broken |= now_broken
        running &= ~(step.terminated | step.truncated)
        obs = step.obs
        if not running.any():
            break
    return {
        "episode_return": returns,
        "episode_length": lengths,
        "cut_episodes": (running | broken).sum(dtype=np.int32),
    }
