"""Playing a policy in Gymnasium's environments, one by one or as a vector."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from ..base import EVALUATION_STEPS
from .require import require_package

if TYPE_CHECKING:
    import gymnasium

# Observations and actions are arrays, or dictionaries and tuples of arrays.
Policy = Callable[[Any], Any]


def play_in_gymnasium(
    env_id: str,
    policy: Policy,
    *,
    episodes: int,
    seed: int = 0,
    max_steps: int = EVALUATION_STEPS,
    **options: Any,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Play episodes of a policy in the real Gymnasium environment.

    Args:
        env_id: Gymnasium's id.
        policy: `observations [E, ...] -> actions [E, ...]`, called once per step with
            the episodes side by side (those that ended are still in it).
        episodes: Number E of episodes.
        seed: The first episode's reset seed; the others follow.
        max_steps: Longest episode.
        **options: Options of `gymnasium.make`.

    Returns:
        Undiscounted returns, lengths, and whether each episode was cut, `[E]` each. One
        that still ran after `max_steps` counts with what it had earned by then.

    Raises:
        ValueError: Gymnasium is not installed, or has no such environment.
    """
    require_package("gymnasium")
    import gymnasium

    try:
        envs = [gymnasium.make(env_id, **options) for _ in range(episodes)]
    except gymnasium.error.Error as error:
        raise ValueError(f"Gymnasium has no {env_id!r}: {error}") from None

    returns, lengths = np.zeros(episodes), np.zeros(episodes, int)
    obs = [env.reset(seed=seed + i)[0] for i, env in enumerate(envs)]
    running = np.ones(episodes, bool)
    for _ in range(max_steps):
        if not running.any():
            break
        actions = _on_host(policy(jax.tree.map(lambda *x: np.stack(x), *obs)))
        for i in np.flatnonzero(running):
            action = jax.tree.map(partial(_one_of, number=int(i)), actions)
            obs[i], reward, terminated, truncated, _ = envs[i].step(action)
            returns[i] += float(reward)
            lengths[i] += 1
            running[i] = not (terminated or truncated)
    for env in envs:
        env.close()
    return returns, lengths, running


def play_in_vector(
    envs: gymnasium.vector.VectorEnv,
    policy: Policy,
    *,
    seed: int = 0,
    max_steps: int = EVALUATION_STEPS,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Play the first episode of every lane of a Gymnasium vector environment.

    One episode per lane and no more: counting whatever ends first would favour short
    episodes. A lane that has ended is stepped on, and nothing of it counts.

    Args:
        envs: Any vector environment that resets its lanes by itself; left open.
        policy: Policy, `observations [N, ...] -> actions [N, ...]`.
        seed: Seed of the reset.
        max_steps: Longest episode.

    Returns:
        What `play_in_gymnasium` returns, `[N]` each.

    Raises:
        ValueError: the environment does not reset its lanes.
    """
    from gymnasium.vector import AutoresetMode

    if envs.metadata.get("autoreset_mode") is AutoresetMode.DISABLED:
        raise ValueError(
            f"{envs} does not reset the lanes that end (AutoresetMode.DISABLED): make "
            "it with AutoresetMode.SAME_STEP or NEXT_STEP."
        )
    returns, lengths = np.zeros(envs.num_envs), np.zeros(envs.num_envs, int)
    running = np.ones(envs.num_envs, bool)
    obs, _ = envs.reset(seed=seed)
    for _ in range(max_steps):
        if not running.any():
            break
        actions = _on_host(policy(obs))
        obs, reward, terminated, truncated, _ = envs.step(actions)
        returns += np.where(running, reward, 0.0)
        lengths += running
        running &= ~(terminated | truncated)
    return returns, lengths, running


def _on_host(actions: Any) -> Any:
    """A batch of actions as arrays of the host, part by part; a list is one array."""
    return jax.tree.map(np.asarray, actions, is_leaf=lambda x: isinstance(x, list))


def _one_of(actions: np.ndarray, number: int) -> Any:
    """An action of a batch, a number of Python where it is a single one."""
    action = actions[number]
    return action.item() if action.ndim == 0 else action
