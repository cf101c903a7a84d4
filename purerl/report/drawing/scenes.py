"""Drawings of environments: what moves in a plane, grids, observations."""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from purerl import envs
from purerl.envs.wrappers import innermost, unwrap
from purerl.report.drawing import canvas as c
from purerl.report.drawing.canvas import Canvas
from purerl.scale.devices import required

MOST = 24  # Numbers that have a bar each.
_LEFT, _RIGHT, _TOP, _BOTTOM = 24, 16, 34, 30


def cartpole(state: Any, params: Any) -> np.ndarray:
    """Draw CartPole: the track, the ends at which an episode terminates, the pole.

    Args:
        state: State of one environment.
        params: Numbers of the environment; a little more than the range of the cart is
            shown.
    """
    limit, length = float(params.x_threshold), 2 * float(params.length)
    canvas = Canvas((0.0, 0.25 * limit), (2.5 * limit, 1.85 * limit))
    for end in (-limit, limit):
        canvas.line([(end, -0.12 * limit), (end, 0.12 * limit)], c.ORANGE, 2)
    canvas.line([(-2 * limit, 0.0), (2 * limit, 0.0)], c.LINE, 2)
    _cart_and_pole(canvas, float(state.x), float(state.theta), length)
    return canvas.pixels()


def swingup(state: Any, params: Any) -> np.ndarray:
    """Draw CartpoleSwingup and its kin: the rail with its ends, the cart, the pole.

    Args:
        state: State of one environment.
        params: Numbers of the environment; the width of the picture is the rail.
    """
    rail, length = float(params.rail_length), float(params.pole_length)
    canvas = Canvas((0.0, 0.0), (2 * rail + 0.6, 2 * length + 0.6))
    canvas.line([(-rail, 0.0), (rail, 0.0)], c.LINE, 3)
    for end in (-rail, rail):
        canvas.line([(end, -0.12), (end, 0.12)], c.ORANGE, 3)
    motion = state.motion
    _cart_and_pole(canvas, float(motion.x), float(motion.theta), length)
    return canvas.pixels()


def _cart_and_pole(canvas: Canvas, x: float, theta: float, length: float) -> None:
    """The pole is hinged at the cart's centre; its angle is clockwise from upright."""
    wide, high = 22 / canvas.scale, 11 / canvas.scale
    canvas.box((x - wide, -high), (x + wide, high), c.DARK, 3)
    tip = (x + length * math.sin(theta), length * math.cos(theta))
    canvas.line([(x, 0.0), tip], c.YELLOW, 7)
    canvas.disc((x, 0.0), 4, c.PAPER)
    canvas.disc((x, 0.0), 2.5, c.BLUE)


def pendulum(state: Any, params: Any) -> np.ndarray:
    """Draw Pendulum: the rod, and a bar that is as long as the torque is large.

    Args:
        state: State of one environment; its angle is counter-clockwise from upright.
        params: Numbers of the environment.
    """
    length, theta = float(params.l), float(state.theta)
    canvas = Canvas((0.0, 0.0), (2.5 * length, 2.5 * length))
    tip = (-length * math.sin(theta), length * math.cos(theta))
    canvas.line([(0.0, 0.0), tip], c.BLUE, 12)
    canvas.disc((0.0, 0.0), 4, c.PAPER)
    push = float(np.ravel(state.last_u)[0]) / float(params.max_torque)
    # A bar to the side to which it pushes at the top, as long as the torque is large.
    along = (-0.6 * length * push, 1.15 * length)
    canvas.line([(0.0, 1.15 * length), along], c.ORANGE, 4)
    return canvas.pixels()


def acrobot(state: Any, params: Any) -> np.ndarray:
    """Draw Acrobot: two links that hang, and the height that the tip has to reach.

    Args:
        state: State of one environment; the first angle is from hanging, the second
            from the first link, both counter-clockwise.
        params: Numbers of the environment.
    """
    first, second = float(params.link_length_1), float(params.link_length_2)
    reach = 1.15 * (first + second)
    canvas = Canvas((0.0, 0.0), (2 * reach, 2 * reach))
    wide = 2 * reach
    canvas.line([(-wide, 1.0), (wide, 1.0)], c.GREEN, 2)
    one = float(state.joint_angle1)
    two = one + float(state.joint_angle2)
    elbow = (first * math.sin(one), -first * math.cos(one))
    tip = (elbow[0] + second * math.sin(two), elbow[1] - second * math.cos(two))
    canvas.line([(0.0, 0.0), elbow], c.BLUE, 10)
    canvas.line([elbow, tip], c.SKY, 10)
    for joint in ((0.0, 0.0), elbow):
        canvas.disc(joint, 4, c.PAPER, c.DARK)
    return canvas.pixels()


def mountain_car(state: Any, params: Any) -> np.ndarray:
    """Draw MountainCar, discrete or continuous: the valley, the car and the flag.

    Args:
        state: State of one environment.
        params: Numbers of the environment; a little more than the range of positions is
            shown.
    """
    low, high = float(params.min_position), float(params.max_position)
    canvas = Canvas(((low + high) / 2, 0.62), (1.2 * (high - low), 1.35))
    beyond = 0.5 * (high - low)
    grid = np.linspace(low - beyond, high + beyond, 160)
    hill = [(x, _height(x)) for x in grid]
    bottom = [(grid[-1], -1.0), (grid[0], -1.0)]
    canvas.shape([*hill, *bottom], c.SOFT)
    canvas.line(hill, c.LINE, 2)
    goal = float(params.goal_position)
    top = _height(goal) + 0.28
    canvas.line([(goal, _height(goal)), (goal, top)], c.DARK, 2)
    canvas.shape([(goal, top), (goal + 0.14, top - 0.05), (goal, top - 0.1)], c.GREEN)
    position = float(state.position)
    slope = math.atan(3 * 0.45 * math.cos(3 * position))
    radius = 10 / canvas.scale  # The car is a wheel that touches the ground.
    x = position - radius * math.sin(slope)
    canvas.disc((x, _height(position) + radius * math.cos(slope)), 10, c.BLUE, c.DARK)
    return canvas.pixels()


def _height(position: float) -> float:
    """Height of the track, from which the slope in its physics follows."""
    return 0.45 * math.sin(3 * position) + 0.55


def observation(state: Any, params: Any) -> np.ndarray:
    """Draw what an agent observes: rows and columns as cells, other numbers as bars.

    Each channel of a grid has a colour, the first ones above the others; three channels
    of bytes are a picture already.
    """
    leaves = jax.tree.leaves(state)
    if len(leaves) > 1 or np.ndim(leaves[0]) not in (2, 3):
        return bars(state, params)
    grid = np.asarray(leaves[0])
    grid = grid.reshape(*grid.shape[:2], -1)
    if grid.dtype == np.uint8 and grid.shape[2] == 3:
        return grid
    placed = []
    for channel in reversed(range(grid.shape[2])):
        colour = c.CHANNELS[channel % len(c.CHANNELS)]
        placed.append((colour, np.argwhere(grid[:, :, channel] > 0)))
    return cells(grid.shape[:2], *placed)


def bars(state: Any, params: Any, *, title: str = "observation") -> np.ndarray:
    """Draw an observation as bars: what the agent sees, number by number.

    A bar is full at the largest size of a number that is shown, or at 1 if that is
    larger. Of more than `MOST` numbers the first ones are drawn.

    Args:
        state: Observation: an array, or a pytree of arrays, in the order of its parts.
        params: Numbers of the environment, which the picture does not use.
        title: Name of the numbers, written above them.
    """
    parts = [np.asarray(leaf, float).ravel() for leaf in jax.tree.leaves(state)]
    numbers = np.concatenate(parts)
    shown = np.nan_to_num(numbers[:MOST])
    canvas = Canvas((c.WIDTH / 2, -c.HEIGHT / 2), (c.WIDTH, c.HEIGHT))
    more = f", the first {MOST} of {len(numbers):,}" if len(numbers) > MOST else ""
    canvas.text((_LEFT, -16), f"{title}{more}", c.DARK, 12)
    largest = max(1.0, float(np.abs(shown).max(initial=0.0)))
    middle = (_TOP + c.HEIGHT - _BOTTOM) / 2
    reach = (c.HEIGHT - _BOTTOM - _TOP) / 2
    width = (c.WIDTH - _LEFT - _RIGHT) / max(len(shown), 1)
    for index, number in enumerate(shown):
        left = _LEFT + index * width
        inside = (left + 0.12 * width, left + 0.88 * width)
        canvas.box((inside[0], -middle - reach), (inside[1], -middle + reach), c.SOFT)
        tall = reach * float(number) / largest
        low, high = sorted((-middle, -middle + tall))
        canvas.box(
            (inside[0], low), (inside[1], high), c.BLUE if tall > 0 else c.ORANGE
        )
    canvas.line([(_LEFT, -middle), (c.WIDTH - _RIGHT, -middle)], c.DARK, 1)
    return canvas.pixels()


# Grids.

Draw = Callable[[Any, Any], np.ndarray]
CELL = 9  # Pixels of a cell, of which one is the line beside it.
AGENT, GOAL, WALL, START = c.SKY, c.YELLOW, c.GREY, c.GREEN


def cells(shape: Sequence[int], *placed: tuple[str, Iterable[Any]]) -> np.ndarray:
    """Return the picture of a grid.

    Args:
        shape: Number of rows and columns.
        *placed: Colours, and row and column of the cells that have them; later ones lie
            above earlier ones.
    """
    grid = np.empty((*shape, 3), np.uint8)
    grid[:] = c.rgb(c.DUSK)
    for colour, places in placed:
        for row, column in places:
            grid[int(row), int(column)] = c.rgb(colour)
    picture = grid.repeat(CELL, 0).repeat(CELL, 1)
    picture[CELL - 1 :: CELL] = picture[:, CELL - 1 :: CELL] = c.rgb(c.NIGHT)
    return picture


def doors(env: Any) -> Draw:
    """Make the drawing of a Doors environment of any size."""
    wall = np.zeros(env.size, bool)
    wall[env.wall_row] = True
    wall[env.wall_row, env.doors] = False
    walls = WALL, np.argwhere(wall)
    return lambda state, params: cells(
        env.size, walls, (GOAL, [state.goal]), (AGENT, [state.agent])
    )


def rooms(env: Any) -> Draw:
    """Make the drawing of gymnax's FourRooms or MetaMaze."""
    free = np.asarray(env.wrapped.env_map).astype(bool)
    walls = WALL, np.argwhere(~free)
    return lambda state, params: cells(
        free.shape, walls, (GOAL, [state.goal]), (AGENT, [state.pos])
    )


def numbered(env: Any) -> Draw:
    """Make the drawing of a GridWorld or a CliffWalking of any size."""
    cliff = [cell for cell in np.ndindex(*env.size) if env.is_cliff(cell)]
    fixed = ("#9c4a2f", cliff), (START, [env.start]), (GOAL, [env.goal])
    return lambda state, params: cells(env.size, *fixed, (AGENT, [state.position]))


def objects(env: Any) -> Draw:
    """Make the drawing of an ObjectGrid: what pays is green, what costs is orange."""

    def draw(state: Any, params: Any) -> np.ndarray:
        rewards, places = np.asarray(params.rewards), np.asarray(params.cells)
        there, width = np.asarray(state.present, bool), env.size[1]
        shown = [
            (colour, [divmod(place, width) for place in places[there & of]])
            for colour, of in ((c.GREEN, rewards > 0), (c.ORANGE, rewards <= 0))
        ]
        return cells(env.size, *shown, (AGENT, [divmod(int(state.cell), width)]))

    return draw


def maze(env: Any) -> Draw:
    """Make the drawing of a Maze of any size; the agent looks at the pale cell."""

    def draw(state: Any, params: Any) -> np.ndarray:
        ahead = np.asarray(state.position) + env.moves[int(state.direction)]
        return cells(
            env.size,
            (c.LINE, [np.clip(ahead, 0, np.array(env.size) - 1)]),
            (WALL, np.argwhere(np.asarray(env.walls_of(params)))),
            (GOAL, [divmod(int(params.goal), env.size[1])]),
            (AGENT, [state.position]),
        )

    return draw


def frozen_lake(env: Any) -> Draw:
    """Make the drawing of gymnax's FrozenLake on any map."""
    tiles = np.asarray(env.wrapped.desc)
    # The numbers are those of gymnax: start, ice, hole, goal.
    colours = (START, "#8fb4cc", "#255a86", GOAL)
    fixed = [(x, np.argwhere(tiles == number)) for number, x in enumerate(colours)]

    def draw(state: Any, params: Any) -> np.ndarray:
        place = divmod(int(state.position), tiles.shape[1])
        return cells(tiles.shape, *fixed, (c.ORANGE, [place]))

    return draw


# The registry.

FPS, FPS_SEEN = 25, 8


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


def _bandit(env: Any) -> Drawing:
    draw = partial(bars, title="values of the arms")
    return Drawing(draw, 4, lambda state, params, obs: env.arm_values(state, params))


_SWINGUPS = ("Balance", "BalanceSparse", "Swingup", "SwingupSparse")
# By the name of the environment, or of its class: a drawing, or what makes it of the
# environment (its walls and sizes). The steps of CartPole last 20 ms; those of
# CartpoleSwingup 10 ms, and it is drawn at half its pace.
_DRAWINGS: dict[str, Drawing | Callable[[Any], Drawing]] = {
    "CartPole-v1": Drawing(cartpole, 50),
    **{f"Cartpole{name}-v0": Drawing(swingup, 50) for name in _SWINGUPS},
    "Acrobot-v1": Drawing(acrobot, 15),
    "MountainCar-v0": Drawing(mountain_car, 30),
    "MountainCarContinuous-v0": Drawing(mountain_car, 30),
    "Pendulum-v1": Drawing(pendulum, 20),
    "Doors-v0": lambda env: Drawing(doors(env), 8),
    "GridWorld-v0": lambda env: Drawing(numbered(env), 8),
    "CliffWalking-v0": lambda env: Drawing(numbered(env), 8),
    "ObjectGrid-v0": lambda env: Drawing(objects(env), 8),
    "Maze-v0": lambda env: Drawing(maze(env), 8),
    "FourRooms-misc": lambda env: Drawing(rooms(env), 8),
    "MetaMaze-misc": lambda env: Drawing(rooms(env), 8),
    "FrozenLake-misc": lambda env: Drawing(frozen_lake(env), 5),
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
    environment's own `render`, then its observation.
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
    if inside.name.endswith("-MinAtar"):
        seen = inside.wrapped.get_obs  # Wrappers may stack what is observed.
        return Drawing(observation, 12, lambda state, params, obs: seen(state, params))
    return Drawing(observation, FPS_SEEN, lambda state, params, obs: obs)


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
