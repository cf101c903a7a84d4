"""The door to Gymnasium, both ways; importing it does not import Gymnasium.

Out: any environment of this package as a `gymnasium.Env`, as a
`gymnasium.vector.VectorEnv`, or under a name of `gymnasium.make`. In: a policy plays in
Gymnasium's own environments. Agents are trained in these on the host, through
`gymnasium_host`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from ..base import EVALUATION_STEPS
from .packages import require_package

if TYPE_CHECKING:
    from ..base import Environment
    from .gymnasium_env import GymnasiumEnv, GymnasiumVectorEnv

# Observations and actions are arrays, or dictionaries and tuples of arrays.
Policy = Callable[[Any], Any]


def to_gymnasium(
    env: str | Environment | Any,
    *,
    params: Any = None,
    render_mode: str | None = None,
    seed: int | None = None,
    **options: Any,
) -> GymnasiumEnv:
    """Wrap an environment as a `gymnasium.Env`; see `GymnasiumEnv` for its keys.

    Args:
        env: An id of `envs.make`, an `Environment`, or an object of the gymnax 1.0
            contract.
        params: Numbers of the environment: names and values, or the whole structure.
        render_mode: `"rgb_array"` where the environment has a picture, or None.
        seed: Seed of the first `reset` that is given none.

    Raises:
        ValueError: Gymnasium is not installed; unknown id, option, number or mode.
        TypeError: the object does not keep the contract.
    """
    require_package("gymnasium")
    from .gymnasium_env import GymnasiumEnv

    return GymnasiumEnv(
        env, params=params, render_mode=render_mode, seed=seed, **options
    )


def to_gymnasium_vector(
    env: str | Environment | Any,
    *,
    num_envs: int,
    params: Any = None,
    render_mode: str | None = None,
    seed: int | None = None,
    **options: Any,
) -> GymnasiumVectorEnv:
    """Wrap an environment as a `gymnasium.vector.VectorEnv`; see `GymnasiumVectorEnv`.

    Args:
        env: Environment, as in `to_gymnasium`.
        num_envs: Number of lanes N, stepped by one compiled program.
        params: Numbers of the environment, as in `to_gymnasium`; shared by the lanes.
        render_mode: Kind of picture, as in `to_gymnasium`.
        seed: Seed of the first `reset` that is given none; lane i gets `seed + i`.

    Raises:
        ValueError: as `to_gymnasium`, or `num_envs` is not positive.
        TypeError: the object does not keep the contract.
    """
    require_package("gymnasium")
    from .gymnasium_env import GymnasiumVectorEnv

    numbers = {"num_envs": num_envs, "params": params, "seed": seed}
    return GymnasiumVectorEnv(env, render_mode=render_mode, **numbers, **options)


def register_in_gymnasium() -> Mapping[str, str]:
    """Let `gymnasium.make` and `gymnasium.make_vec` find every id of `envs.make`.

    The names are `purerl/` and the id, with `-` where the id has `/`:
    `purerl/CartPole-v1`, `purerl/brax-halfcheetah`. Names that are there already stay,
    so that it can be called again after `envs.register`.

    Returns:
        Gymnasium's name of each id.

    Raises:
        ValueError: Gymnasium is not installed.
    """
    require_package("gymnasium")
    import gymnasium

    from ..registry import registered
    from .gymnasium_env import ENTRY_POINTS, gymnasium_id

    names = {id: gymnasium_id(id) for id in registered()}
    for id, name in names.items():
        if name not in gymnasium.registry:
            gymnasium.register(id=name, kwargs={"env": id}, **ENTRY_POINTS)
    return names


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

    def one(actions: np.ndarray, number: int) -> Any:
        action = actions[number]
        return action.item() if action.ndim == 0 else action

    returns, lengths = np.zeros(episodes), np.zeros(episodes, int)
    obs = [env.reset(seed=seed + i)[0] for i, env in enumerate(envs)]
    running = np.ones(episodes, bool)
    for _ in range(max_steps):
        if not running.any():
            break
        actions = _on_host(policy(jax.tree.map(lambda *x: np.stack(x), *obs)))
        for i in np.flatnonzero(running):
            action = jax.tree.map(lambda x, i=int(i): one(x, i), actions)
            obs[i], reward, terminated, truncated, _ = envs[i].step(action)
            returns[i] += float(reward)
            lengths[i] += 1
            running[i] = not (terminated or truncated)
    for env in envs:
        env.close()
    return returns, lengths, running


def _on_host(actions: Any) -> Any:
    """A batch of actions as arrays of the host, part by part; a list is one array."""
    return jax.tree.map(np.asarray, actions, is_leaf=lambda x: isinstance(x, list))
