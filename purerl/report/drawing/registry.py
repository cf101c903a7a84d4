"""The registry of drawings by environment."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from purerl import envs
from purerl.config import ConfigError
from purerl.envs.wrappers import innermost, unwrap
from purerl.report.drawing import grids, scenes
from purerl.report.drawing.grids import Draw

FPS = 25


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


_SWINGUPS = ("Balance", "BalanceSparse", "Swingup", "SwingupSparse")
_OBSERVED = (
    *("BernoulliBandit-misc", "Chicken-v0", "DiscountingChain-v0"),
    *("GaussianBandit-misc", "IteratedPrisonersDilemma-v0", "MatchingPennies-v0"),
    *("MemoryChain-bsuite", "SimpleBandit-bsuite", "UmbrellaChain-bsuite"),
)
# Drawings by the name of the environment, and their pace. The steps of CartPole last
# 20 ms; those of CartpoleSwingup last 10 ms, and it is drawn at half its pace.
_PLAIN: dict[str, tuple[Draw, int]] = {
    "CartPole-v1": (scenes.cartpole, 50),
    **{f"Cartpole{name}-v0": (scenes.swingup, 50) for name in _SWINGUPS},
    "Acrobot-v1": (scenes.acrobot, 15),
    "MountainCar-v0": (scenes.mountain_car, 30),
    "MountainCarContinuous-v0": (scenes.mountain_car, 30),
    "Pendulum-v1": (scenes.pendulum, 20),
    "Reacher-misc": (scenes.reacher, 20),
    "PointRobot-misc": (scenes.point_robot, 15),
    "Swimmer-misc": (scenes.swimmer, 20),
}
# Those that need the structure of the environment: walls, sizes.
_MADE: dict[str, tuple[Callable[[Any], Draw], int]] = {
    "Doors-v0": (grids.doors, 8),
    "GridWorld-v0": (grids.numbered, 8),
    "CliffWalking-v0": (grids.numbered, 8),
    "ObjectGrid-v0": (grids.objects, 8),
    "Maze-v0": (grids.maze, 8),
    "FourRooms-misc": (grids.rooms, 8),
    "MetaMaze-misc": (grids.rooms, 8),
    "FrozenLake-misc": (grids.frozen_lake, 5),
    "Catch-bsuite": (grids.catch, 5),
    "DeepSea-bsuite": (grids.deep_sea, 5),
    "Pong-misc": (scenes.pong, 20),
}
# Those that are made of something other than the state.
_BUILT_IN: dict[str, Callable[[Any], Drawing]] = {
    **dict.fromkeys(
        grids.GAMES,
        lambda env: Drawing(
            grids.game(env),
            12,
            lambda state, params, obs: env.wrapped.get_obs(state, params),
        ),
    ),
    "KArmedBandit-v0": lambda env: Drawing(
        partial(scenes.bars, title="values of the arms"),
        4,
        lambda state, params, obs: env.arm_values(state, params),
    ),
    **dict.fromkeys(
        _OBSERVED,
        lambda env: Drawing(scenes.bars, 4, lambda state, params, obs: obs),
    ),
}
_OWN: dict[str, Drawing] = {}


def register(name: str, draw: Draw, *, fps: int = FPS) -> None:
    """Let an environment be drawn by a function; what was registered is replaced.

    A method `render(state, params)` of the environment does the same.

    Args:
        name: Name of the environment (`env.name`), or of its class.
        draw: `(state, params) -> uint8 [height, width, 3]` of one environment's state
            on the host, every picture of the same size.
        fps: Pictures per second that suit it.

    Raises:
        ConfigError: the name is empty, or nothing can be called.
    """
    if not isinstance(name, str) or not name:
        raise ConfigError(f"name must be that of an environment, got {name!r}.")
    if not callable(draw):
        raise ConfigError(
            f"draw of {name} must be a function of (state, params), got {draw!r}."
        )
    _OWN[name] = Drawing(draw, check_fps(fps))


def check_fps(fps: Any) -> int:
    """Return a number of pictures per second.

    Raises:
        ConfigError: it is no whole number from 1 to 100.
    """
    if isinstance(fps, bool) or not isinstance(fps, int) or not 1 <= fps <= 100:
        raise ConfigError(
            f"fps must be a whole number of pictures per second from 1 to 100, got "
            f"{fps!r}."
        )
    return fps


def registered() -> tuple[str, ...]:
    """Return the names of environments that have a drawing, sorted."""
    return tuple(sorted({*_PLAIN, *_MADE, *_BUILT_IN, *_OWN}))


def drawing_of(env: envs.Environment) -> Drawing:
    """Return how an environment is drawn, also one with wrappers around it.

    What was registered comes first, then the drawings of this package, then the
    environment's own `render`.

    Raises:
        ConfigError: there is none, with what to do about it.
    """
    inside = innermost(env)
    wrapped = getattr(inside, "wrapped", inside)
    for name in (inside.name, type(inside).__name__, type(wrapped).__name__):
        if name in _OWN:
            return _OWN[name]
    if inside.name in _PLAIN:
        return Drawing(*_PLAIN[inside.name])
    if inside.name in _MADE:
        make, fps = _MADE[inside.name]
        return Drawing(make(inside), fps)
    if inside.name in _BUILT_IN:
        return _BUILT_IN[inside.name](inside)
    if inside.has_picture:
        return Drawing(inside.render)
    raise ConfigError(
        f"there is no drawing of {inside.name}: write one, draw(state, params) -> "
        "uint8 [height, width, 3], and call purerl.report.drawing.register("
        f"{inside.name!r}, draw), or give the environment a method render(state, "
        "params)."
    )


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
    inside = unwrap(env, params, state)
    return Moment(drawing.keep(inside.state, inside.params, obs), inside.params)
