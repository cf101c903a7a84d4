"""The registry of drawings by environment."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from purerl import envs
from purerl.envs.wrappers import innermost, unwrap
from purerl.report.drawing import grids, scenes
from purerl.report.drawing.grids import Draw
from purerl.scale.devices import required

FPS, OBSERVED_FPS = 25, 8


class Drawing(NamedTuple):
    """The functions that make pictures of the moments of an environment.

    Attributes:
        draw: `(state, params) -> uint8 [height, width, 3]`, on the host.
        fps: Pictures per second that suit the environment.
        keep: `(state, params, obs) -> pytree of arrays`, what `draw` gets as its state;
            it is called in the compiled program.
    """

    draw: Draw
    fps: int = FPS
    keep: Callable[[Any, Any, Any], Any] = lambda state, params, obs: state


class Moment(NamedTuple):
    """The part of a moment that is kept: the arguments of `Drawing.draw`."""

    state: Any
    params: Any


def _game(env: Any) -> Drawing:
    def keep(state: Any, params: Any, obs: Any) -> Any:
        return env.wrapped.get_obs(state, params)

    return Drawing(grids.game(env), 12, keep)


def _bandit(env: Any) -> Drawing:
    draw = partial(scenes.bars, title="values of the arms")
    return Drawing(draw, 4, lambda state, params, obs: env.arm_values(state, params))


_SWINGUPS = ("Balance", "BalanceSparse", "Swingup", "SwingupSparse")
# By the name of the environment, or of its class: a drawing, or what makes it of the
# environment (its walls and sizes). The steps of CartPole last 20 ms; those of
# CartpoleSwingup 10 ms, and it is drawn at half its pace.
_DRAWINGS: dict[str, Drawing | Callable[[Any], Drawing]] = {
    "CartPole-v1": Drawing(scenes.cartpole, 50),
    **{f"Cartpole{name}-v0": Drawing(scenes.swingup, 50) for name in _SWINGUPS},
    "Acrobot-v1": Drawing(scenes.acrobot, 15),
    "MountainCar-v0": Drawing(scenes.mountain_car, 30),
    "MountainCarContinuous-v0": Drawing(scenes.mountain_car, 30),
    "Pendulum-v1": Drawing(scenes.pendulum, 20),
    "Doors-v0": lambda env: Drawing(grids.doors(env), 8),
    "GridWorld-v0": lambda env: Drawing(grids.numbered(env), 8),
    "CliffWalking-v0": lambda env: Drawing(grids.numbered(env), 8),
    "ObjectGrid-v0": lambda env: Drawing(grids.objects(env), 8),
    "Maze-v0": lambda env: Drawing(grids.maze(env), 8),
    "FourRooms-misc": lambda env: Drawing(grids.rooms(env), 8),
    "MetaMaze-misc": lambda env: Drawing(grids.rooms(env), 8),
    "FrozenLake-misc": lambda env: Drawing(grids.frozen_lake(env), 5),
    "Catch-bsuite": lambda env: Drawing(grids.catch(env), 5),
    "DeepSea-bsuite": lambda env: Drawing(grids.deep_sea(env), 5),
    "Pong-misc": lambda env: Drawing(scenes.pong(env), 20),
    **dict.fromkeys(grids.GAMES, _game),
    "KArmedBandit-v0": _bandit,
}


def register(name: str, draw: Draw, *, fps: int = FPS) -> None:
    """Let an environment be drawn by a function; what was registered is replaced.

    A method `render(state, params)` of the environment does the same.

    Args:
        name: Name of the environment (`env.name`), or of its class.
        draw: `(state, params) -> uint8 [height, width, 3]` of one environment's state
            on the host, every picture of the same size.
        fps: Pictures per second that suit it.

    Raises:
        ConfigError: no such number of pictures.
    """
    _DRAWINGS[name] = Drawing(draw, required("fps", fps))


def registered() -> tuple[str, ...]:
    """Return the names of environments that have a drawing, sorted."""
    return tuple(sorted(_DRAWINGS))


def drawing_of(env: envs.Environment) -> Drawing:
    """Return how an environment is drawn, also one with wrappers around it.

    What was registered comes first, then the drawings of this package, then the
    environment's own `render`, then its observation as bars.
    """
    inside = innermost(env)
    wrapped = getattr(inside, "wrapped", inside)
    # Names of classes are none of this package's: they were registered.
    for name in (type(inside).__name__, type(wrapped).__name__, inside.name):
        if name in _DRAWINGS:
            found = _DRAWINGS[name]
            return found if isinstance(found, Drawing) else found(inside)
    if inside.has_picture:
        return Drawing(inside.render)
    return Drawing(scenes.bars, OBSERVED_FPS, lambda state, params, obs: obs)


def moment_of(
    env: envs.Environment, drawing: Drawing, params: Any, state: Any, obs: Any
) -> Moment:
    """Return what is kept of a moment, inside the compiled program.

    Args:
        env: The environment, with its wrappers.
        drawing: Drawing of the environment.
        params: Numbers of the environment, distributions among them.
        state: State of one environment.
        obs: The observation.
    """
    _, params, state = unwrap(env, params, state)
    return Moment(drawing.keep(state, params, obs), params)
