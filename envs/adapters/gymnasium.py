"""The only door to Gymnasium: playing a policy in its own environments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def play_in_gymnasium(
    env_id: str,
    policy: Callable[[np.ndarray], np.ndarray],
    *,
    episodes: int,
    seed: int = 0,
    **options: Any,
) -> tuple[np.ndarray, np.ndarray]:
    """Play whole episodes of a policy in the real Gymnasium environment.

    Args:
        env_id: Gymnasium's id.
        policy: `observations [E, ...] -> actions [E, ...]`, called once per step with
            the episodes side by side (those that ended are still in it).
        episodes: E.
        seed: the first episode's reset seed; the others follow.
        **options: of `gymnasium.make`.

    Returns:
        Undiscounted returns and lengths, `[E]` each.

    Raises:
        ValueError: Gymnasium is not installed, or has no such environment.
    """
    try:
        import gymnasium
    except ImportError:
        raise ValueError(
            "playing in Gymnasium needs the package gymnasium; install "
            "purerl[gymnasium]."
        ) from None
    try:
        envs = [gymnasium.make(env_id, **options) for _ in range(episodes)]
    except gymnasium.error.Error as error:
        raise ValueError(f"Gymnasium has no {env_id!r}: {error}") from None

    returns, lengths = np.zeros(episodes), np.zeros(episodes, int)
    obs = np.stack([env.reset(seed=seed + i)[0] for i, env in enumerate(envs)])
    running = np.ones(episodes, bool)
    while running.any():
        actions = np.asarray(policy(obs))
        for i in np.flatnonzero(running):
            action = actions[i].item() if actions[i].ndim == 0 else actions[i]
            obs[i], reward, terminated, truncated, _ = envs[i].step(action)
            returns[i] += float(reward)
            lengths[i] += 1
            running[i] = not (terminated or truncated)
    for env in envs:
        env.close()
    return returns, lengths
