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


Make = Callable[[Any], Drawing]


def _plain(draw: Draw, fps: int) -> Make:
    return lambda env: Drawing(draw, fps)


def _made(make: Callable[[Any], Draw], fps: int) -> Make:
    """Of what needs the structure of the environment: walls, sizes."""
    return lambda env: Drawing(make(env), fps)


def _game(env: Any) -> Drawing:
    def keep(state: Any, params: Any, obs: Any) -> Any:
        return env.wrapped.get_obs(state, params)

    return Drawing(grids.game(env), 12, keep)


def _bandit(env: Any) -> Drawing:
    draw = partial(scenes.bars, title="values of the arms")
    return Drawing(draw, 4, lambda state, params, obs: env.arm_values(state, params))


def _observed(env: Any) -> Drawing:
    return Drawing(scenes.bars, 4, lambda state, params, obs: obs)


_SWINGUPS = ("Balance", "BalanceSparse", "Swingup", "SwingupSparse")
_OBSERVED = (
    *("BernoulliBandit-misc", "Chicken-v0", "DiscountingChain-v0"),
    *("GaussianBandit-misc", "IteratedPrisonersDilemma-v0", "MatchingPennies-v0"),
    *("MemoryChain-bsuite", "SimpleBandit-bsuite", "UmbrellaChain-bsuite"),
)
# By the name of the environment, or of its class, what makes its drawing. The steps of
# CartPole last 20 ms; those of CartpoleSwingup 10 ms, and it is drawn at half its pace.
_DRAWINGS: dict[str, Make] = {
    "CartPole-v1": _plain(scenes.cartpole, 50),
    **{f"Cartpole{name}-v0": _plain(scenes.swingup, 50) for name in _SWINGUPS},
    "Acrobot-v1": _plain(scenes.acrobot, 15),
    "MountainCar-v0": _plain(scenes.mountain_car, 30),
    "MountainCarContinuous-v0": _plain(scenes.mountain_car, 30),
    "Pendulum-v1": _plain(scenes.pendulum, 20),
    "Reacher-misc": _plain(scenes.reacher, 20),
    "PointRobot-misc": _plain(scenes.point_robot, 15),
    "Swimmer-misc": _plain(scenes.swimmer, 20),
    "Doors-v0": _made(grids.doors, 8),
    "GridWorld-v0": _made(grids.numbered, 8),
    "CliffWalking-v0": _made(grids.numbered, 8),
    "ObjectGrid-v0": _made(grids.objects, 8),
    "Maze-v0": _made(grids.maze, 8),
    "FourRooms-misc": _made(grids.rooms, 8),
    "MetaMaze-misc": _made(grids.rooms, 8),
    "FrozenLake-misc": _made(grids.frozen_lake, 5),
    "Catch-bsuite": _made(grids.catch, 5),
    "DeepSea-bsuite": _made(grids.deep_sea, 5),
    "Pong-misc": _made(scenes.pong, 20),
    **dict.fromkeys(grids.GAMES, _game),
    "KArmedBandit-v0": _bandit,
    **dict.fromkeys(_OBSERVED, _observed),
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
    _DRAWINGS[name] = _plain(draw, check_fps(fps))


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
    return tuple(sorted(_DRAWINGS))


def drawing_of(env: envs.Environment) -> Drawing:
    """Return how an environment is drawn, also one with wrappers around it.

    What was registered comes first, then the drawings of this package, then the
    environment's own `render`.

    Raises:
        ConfigError: there is none, with what to do about it.
    """
    inside = innermost(env)
    wrapped = getattr(inside, "wrapped", inside)
    # Names of classes are none of this package's: they were registered.
    for name in (type(inside).__name__, type(wrapped).__name__, inside.name):
        if name in _DRAWINGS:
            return _DRAWINGS[name](inside)
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
    _, params, state = unwrap(env, params, state)
    return Moment(drawing.keep(state, params, obs), params)
