"""The door to Gymnasium; importing it does not import Gymnasium.

Out: any environment of this package as a `gymnasium.Env`, as a
`gymnasium.vector.VectorEnv`, or under a name of `gymnasium.make`. In: agents train and
play in Gymnasium's own environments through `gymnasium_host`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .packages import require_package

if TYPE_CHECKING:
    from ..base import Environment
    from .gymnasium_env import GymnasiumEnv, GymnasiumVectorEnv


def to_gymnasium(env: str | Environment | Any, **options: Any) -> GymnasiumEnv:
    """Wrap an environment as a `gymnasium.Env`; see `GymnasiumEnv` for its keys.

    Args:
        env: An id of `envs.make`, an `Environment`, or an object of the gymnax 1.0
            contract.
        **options: `params`, numbers of the environment by name or the whole structure;
            `render_mode`, which is `"rgb_array"` where the environment has a picture;
            and options of `envs.make`.

    Raises:
        ValueError: Gymnasium is not installed; unknown id, option, number or mode.
        TypeError: the object does not keep the contract.
    """
    require_package("gymnasium")
    from .gymnasium_env import GymnasiumEnv

    return GymnasiumEnv(env, **options)


def to_gymnasium_vector(
    env: str | Environment | Any, *, num_envs: int, **options: Any
) -> GymnasiumVectorEnv:
    """Wrap an environment as a `gymnasium.vector.VectorEnv`; see `GymnasiumVectorEnv`.

    Args:
        env: Environment, as in `to_gymnasium`.
        num_envs: Number of lanes N, stepped by one compiled program.
        **options: Options, as in `to_gymnasium`; the lanes share the numbers.

    Raises:
        ValueError: as `to_gymnasium`, or `num_envs` is not positive.
        TypeError: the object does not keep the contract.
    """
    require_package("gymnasium")
    from .gymnasium_env import GymnasiumVectorEnv

    return GymnasiumVectorEnv(env, num_envs=num_envs, **options)


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
