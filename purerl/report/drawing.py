"""Drawings of environments, and videos of them: the only door to Pillow and FFmpeg.

A drawing is a function of a state and the environment's numbers, which returns a
picture. `register` adds one.
"""

import io
import math
import tempfile
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from purerl import envs
from purerl.acting.evaluate import Recording
from purerl.atomic import write_atomic
from purerl.config import ConfigError
from purerl.envs.wrappers import innermost, unwrap
from purerl.report.style import COLOURS, INK
from purerl.scale.devices import required

if TYPE_CHECKING:
    from PIL.Image import Image


BLUE, ORANGE, GREEN, PINK, YELLOW, SKY, PURPLE, GREY = COLOURS
DARK = INK
PAPER, SOFT, LINE = "#ffffff", "#eef1f4", "#b6bec7"
NIGHT, DUSK = "#1b2129", "#2b333d"  # The background of grids, and its cells.
# Colours of the channels of an observed grid.
CHANNELS = (SKY, YELLOW, "#55606d", ORANGE, PINK, GREEN, PAPER, PURPLE)
WIDTH, HEIGHT = 320, 240  # The size of a drawing in pixels.
_FINE = 3

Point = tuple[float, float]
Place = Sequence[float] | np.ndarray


def pillow(name: str) -> ModuleType:
    """Import a module of Pillow, such as `Image`.

    Raises:
        ConfigError: Pillow is not installed.
    """
    import importlib

    try:
        return importlib.import_module(f"PIL.{name}")
    except ImportError:
        raise ConfigError(
            "pictures of episodes need the package pillow: pip install 'purerl[video]'."
        ) from None


def rgb(colour: str) -> tuple[int, ...]:
    """Return the red, green and blue of a colour, bytes."""
    return pillow("ImageColor").getrgb(colour)


@cache
def font(size: float) -> Any:
    """Return the font of captions and legends in a size in pixels."""
    return pillow("ImageFont").load_default(size)


class Canvas:
    """A picture of `WIDTH x HEIGHT` pixels that is painted in its own coordinates.

    x grows to the right and y upwards, in the same unit, which is as large as the
    picture allows; `centre` lies in its middle.

    Attributes:
        scale: Pixels per unit.
    """

    def __init__(
        self,
        centre: Point = (0.0, 0.0),
        size: Point = (WIDTH, HEIGHT),
        background: str = PAPER,
    ) -> None:
        """Make an empty one.

        Args:
            centre: The point in the middle of the picture.
            size: Width and height that have to fit, in units.
            background: Colour of what is not painted.
        """
        self.scale = min(WIDTH / size[0], HEIGHT / size[1])
        self.centre = centre
        image = pillow("Image")
        full = (WIDTH * _FINE, HEIGHT * _FINE)
        self.image = image.new("RGB", full, background)
        self._draw = pillow("ImageDraw").Draw(self.image)

    def _at(self, point: Place) -> Point:
        """Column and row of a point in the picture that is painted."""
        column = WIDTH / 2 + (float(point[0]) - self.centre[0]) * self.scale
        row = HEIGHT / 2 - (float(point[1]) - self.centre[1]) * self.scale
        return column * _FINE, row * _FINE

    def line(self, points: Sequence[Place], colour: str, width: float = 2.0) -> None:
        """Paint a line with round ends.

        Args:
            points: Points of the line, at least two.
            colour: Colour to draw it in.
            width: Width of the line in pixels.
        """
        ends = [self._at(point) for point in points]
        pixels = max(1, round(width * _FINE))
        self._draw.line(ends, fill=colour, width=pixels, joint="curve")
        if pixels > _FINE:
            for column, row in (ends[0], ends[-1]):
                self._disc(column, row, pixels / 2 - 0.5, colour)

    def disc(self, point: Place, radius: float, colour: str, edge: str = "") -> None:
        """Paint a disc.

        Args:
            point: Centre, in units.
            radius: Radius in pixels.
            colour: Colour to draw it in.
            edge: Colour of a line of a pixel around it, if any.
        """
        self._disc(*self._at(point), radius * _FINE, colour, edge)

    def _disc(
        self, column: float, row: float, radius: float, colour: str, edge: str = ""
    ) -> None:
        box = (column - radius, row - radius, column + radius, row + radius)
        self._draw.ellipse(box, fill=colour, outline=edge or None, width=_FINE)

    def box(self, low: Place, high: Place, colour: str, radius: float = 0.0) -> None:
        """Paint a rectangle.

        Args:
            low: Lower left corner, in units.
            high: Upper right corner, in units.
            colour: Colour to draw it in.
            radius: Radius of its corners in pixels.
        """
        left, bottom = self._at(low)
        right, top = self._at(high)
        # Pillow counts the last pixel in.
        inside = (left, top, max(left, right - 1), max(top, bottom - 1))
        self._draw.rounded_rectangle(inside, radius * _FINE, fill=colour)

    def shape(self, points: Sequence[Place], colour: str) -> None:
        """Paint a polygon."""
        self._draw.polygon([self._at(point) for point in points], fill=colour)

    def text(
        self,
        point: Place,
        words: str,
        colour: str = DARK,
        size: float = 12,
        anchor: str = "lm",
    ) -> None:
        """Write a line of text.

        Args:
            point: Place of the anchor, in units.
            words: The text.
            colour: Colour to draw it in.
            size: Height of the font in pixels.
            anchor: Point of the text that lies at the anchor, as Pillow names it: `lm`
                is the left end at half the height.
        """
        self._draw.text(
            self._at(point), words, fill=colour, font=font(size * _FINE), anchor=anchor
        )

    def pixels(self) -> np.ndarray:
        """Return what is painted, uint8 `[HEIGHT, WIDTH, 3]`."""
        return np.asarray(self.image.reduce(_FINE))


# What moves in a plane, grids, observations.

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
        canvas.line([(end, -0.12 * limit), (end, 0.12 * limit)], ORANGE, 2)
    canvas.line([(-2 * limit, 0.0), (2 * limit, 0.0)], LINE, 2)
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
    canvas.line([(-rail, 0.0), (rail, 0.0)], LINE, 3)
    for end in (-rail, rail):
        canvas.line([(end, -0.12), (end, 0.12)], ORANGE, 3)
    motion = state.motion
    _cart_and_pole(canvas, float(motion.x), float(motion.theta), length)
    return canvas.pixels()


def _cart_and_pole(canvas: Canvas, x: float, theta: float, length: float) -> None:
    """The pole is hinged at the cart's centre; its angle is clockwise from upright."""
    wide, high = 22 / canvas.scale, 11 / canvas.scale
    canvas.box((x - wide, -high), (x + wide, high), DARK, 3)
    tip = (x + length * math.sin(theta), length * math.cos(theta))
    canvas.line([(x, 0.0), tip], YELLOW, 7)
    canvas.disc((x, 0.0), 4, PAPER)
    canvas.disc((x, 0.0), 2.5, BLUE)


def pendulum(state: Any, params: Any) -> np.ndarray:
    """Draw Pendulum: the rod, and a bar that is as long as the torque is large.

    Args:
        state: State of one environment; its angle is counter-clockwise from upright.
        params: Numbers of the environment.
    """
    length, theta = float(params.l), float(state.theta)
    canvas = Canvas((0.0, 0.0), (2.5 * length, 2.5 * length))
    tip = (-length * math.sin(theta), length * math.cos(theta))
    canvas.line([(0.0, 0.0), tip], BLUE, 12)
    canvas.disc((0.0, 0.0), 4, PAPER)
    push = float(np.ravel(state.last_u)[0]) / float(params.max_torque)
    # A bar to the side to which it pushes at the top, as long as the torque is large.
    along = (-0.6 * length * push, 1.15 * length)
    canvas.line([(0.0, 1.15 * length), along], ORANGE, 4)
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
    canvas.line([(-wide, 1.0), (wide, 1.0)], GREEN, 2)
    one = float(state.joint_angle1)
    two = one + float(state.joint_angle2)
    elbow = (first * math.sin(one), -first * math.cos(one))
    tip = (elbow[0] + second * math.sin(two), elbow[1] - second * math.cos(two))
    canvas.line([(0.0, 0.0), elbow], BLUE, 10)
    canvas.line([elbow, tip], SKY, 10)
    for joint in ((0.0, 0.0), elbow):
        canvas.disc(joint, 4, PAPER, DARK)
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
    canvas.shape([*hill, *bottom], SOFT)
    canvas.line(hill, LINE, 2)
    goal = float(params.goal_position)
    top = _height(goal) + 0.28
    canvas.line([(goal, _height(goal)), (goal, top)], DARK, 2)
    canvas.shape([(goal, top), (goal + 0.14, top - 0.05), (goal, top - 0.1)], GREEN)
    position = float(state.position)
    slope = math.atan(3 * 0.45 * math.cos(3 * position))
    radius = 10 / canvas.scale  # The car is a wheel that touches the ground.
    x = position - radius * math.sin(slope)
    canvas.disc((x, _height(position) + radius * math.cos(slope)), 10, BLUE, DARK)
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
        colour = CHANNELS[channel % len(CHANNELS)]
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
    canvas = Canvas((WIDTH / 2, -HEIGHT / 2), (WIDTH, HEIGHT))
    more = f", the first {MOST} of {len(numbers):,}" if len(numbers) > MOST else ""
    canvas.text((_LEFT, -16), f"{title}{more}", DARK, 12)
    largest = max(1.0, float(np.abs(shown).max(initial=0.0)))
    middle = (_TOP + HEIGHT - _BOTTOM) / 2
    reach = (HEIGHT - _BOTTOM - _TOP) / 2
    width = (WIDTH - _LEFT - _RIGHT) / max(len(shown), 1)
    for index, number in enumerate(shown):
        left = _LEFT + index * width
        inside = (left + 0.12 * width, left + 0.88 * width)
        canvas.box((inside[0], -middle - reach), (inside[1], -middle + reach), SOFT)
        tall = reach * float(number) / largest
        low, high = sorted((-middle, -middle + tall))
        canvas.box((inside[0], low), (inside[1], high), BLUE if tall > 0 else ORANGE)
    canvas.line([(_LEFT, -middle), (WIDTH - _RIGHT, -middle)], DARK, 1)
    return canvas.pixels()


# Grids.

Draw = Callable[[Any, Any], np.ndarray]
CELL = 9  # Pixels of a cell, of which one is the line beside it.
AGENT, GOAL, WALL, START = SKY, YELLOW, GREY, GREEN


def cells(shape: Sequence[int], *placed: tuple[str, Iterable[Any]]) -> np.ndarray:
    """Return the picture of a grid.

    Args:
        shape: Number of rows and columns.
        *placed: Colours, and row and column of the cells that have them; later ones lie
            above earlier ones.
    """
    grid = np.empty((*shape, 3), np.uint8)
    grid[:] = rgb(DUSK)
    for colour, places in placed:
        for row, column in places:
            grid[int(row), int(column)] = rgb(colour)
    picture = grid.repeat(CELL, 0).repeat(CELL, 1)
    picture[CELL - 1 :: CELL] = picture[:, CELL - 1 :: CELL] = rgb(NIGHT)
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
            for colour, of in ((GREEN, rewards > 0), (ORANGE, rewards <= 0))
        ]
        return cells(env.size, *shown, (AGENT, [divmod(int(state.cell), width)]))

    return draw


def maze(env: Any) -> Draw:
    """Make the drawing of a Maze of any size; the agent looks at the pale cell."""

    def draw(state: Any, params: Any) -> np.ndarray:
        ahead = np.asarray(state.position) + env.moves[int(state.direction)]
        return cells(
            env.size,
            (LINE, [np.clip(ahead, 0, np.array(env.size) - 1)]),
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
        return cells(tiles.shape, *fixed, (ORANGE, [place]))

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
    inside: Any = innermost(env)
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


# Films: episodes side by side, a caption over each, as a GIF or an MP4.

FORMATS = ("gif", "mp4")
PAGE = "html"  # The format of what is a page, not a film.
CAPTION = 44  # Height of what stands over a drawing, in pixels.
COLUMNS = 4  # Panels beside one another.
GIF_FPS = 50  # Most frames per second of a GIF: viewers slow down faster ones.
_PAUSE_MS = 1_500  # The last frame of an episode stays for so long.
_COLOURS = 255  # One of the 256 of a GIF is left for what did not change.
_SAMPLES = 8  # Number of frames from which the colours are chosen.


class Film:
    """The frames of some agents' episodes, drawn when they are asked for.

    The e-th episodes of all agents begin together; one that has ended stays on its last
    frame until the longest of them has.

    Attributes:
        titles: Names of the agents, from the left to the right, in rows of `COLUMNS`.
        played: Recordings on the host, the axis of the agents before the others.
        times: Episode and step of each frame.
        size: Width and height in pixels.
    """

    def __init__(
        self, titles: Sequence[str], played: Recording, drawing: Drawing
    ) -> None:
        """Lay it out."""
        self.titles, self.played, self.drawing = titles, played, drawing
        self.times = [
            (number, step)
            for number, longest in enumerate(played.episode_length.max(0))
            for step in range(1 + longest)
        ]
        self.columns = min(len(titles), COLUMNS)
        rows = -(-len(titles) // self.columns)
        self.size = (WIDTH * self.columns, (HEIGHT + CAPTION) * rows)

    def frame(self, index: int) -> "Image":
        """Draw one frame."""
        episode, step = self.times[index]
        whole = pillow("Image").new("RGB", self.size, PAPER)
        for member in range(len(self.titles)):
            at = min(step, int(self.played.episode_length[member, episode]))
            row, column = divmod(member, self.columns)
            left, top = column * WIDTH, row * (HEIGHT + CAPTION)
            place = member, at, episode
            state, params = jax.tree.map(lambda x, p=place: x[p], self.played.kept)
            drawn = fitted(self.drawing.draw(state, params))
            across = left + (WIDTH - drawn.width) // 2
            whole.paste(drawn, (across, top + CAPTION + (HEIGHT - drawn.height) // 2))
            self._write_caption(whole, place, (left, top))
        return whole

    def _write_caption(
        self, picture: "Image", place: tuple[int, int, int], corner: tuple[int, int]
    ) -> None:
        draw, (left, top) = pillow("ImageDraw").Draw(picture), corner
        if left:
            draw.line([(left, top), (left, top + CAPTION + HEIGHT)], fill=LINE)
        which, earned, at = self.captions(*place)
        end = ORANGE if at.endswith(("ended", "cut")) else DARK
        for x, y, words, size, colour in (
            (10, 13, self.titles[place[0]], 14, DARK),
            (WIDTH - 10, 13, which, 11, DARK),
            (10, 32, earned, 12, DARK),
            (WIDTH - 10, 32, at, 12, end),
        ):
            anchor = "lm" if x < WIDTH / 2 else "rm"
            draw.text((left + x, top + y), words, colour, font(size), anchor=anchor)

    def captions(self, member: int, step: int, episode: int) -> tuple[str, str, str]:
        """Return what is written over a frame: the episode, the return, the step."""
        played, count = self.played, self.played.episode_length.shape[1]
        which = f"episode {episode + 1} of {count}" if count > 1 else ""
        end = "  ended" if played.ended[member, episode] else "  cut"
        is_over = step == played.episode_length[member, episode]
        earned = return_text(float(played.episode_return[member, step, episode]))
        return which, f"return {earned}", f"step {step:,}{end if is_over else ''}"


def fitted(drawn: Any) -> "Image":
    """Return a drawing as large as its place in a panel allows.

    Args:
        drawn: Picture, uint8 `[height, width, 3]`.

    Raises:
        ConfigError: it is something else.
    """
    array = np.asarray(drawn)
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3:
        found = f"{array.dtype} {list(array.shape)}"
        what = "a drawing must return a picture, uint8 [height, width, 3]"
        raise ConfigError(f"{what}, got {found}.")
    image = pillow("Image")
    picture = image.fromarray(array)
    # A drawing with few pixels has cells, which stay sharp; one with many is smoothed.
    is_small = 2 * picture.width <= WIDTH and 2 * picture.height <= HEIGHT
    how = image.Resampling.NEAREST if is_small else image.Resampling.LANCZOS
    return pillow("ImageOps").contain(picture, (WIDTH, HEIGHT), how)


def return_text(value: float) -> str:
    """Return a return as captions have it: whole numbers without a fraction."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"


def write_film(path: Path, film: Film, kind: str, fps: int) -> None:
    """Write a film in a format of `FORMATS`, so that no reader sees half of it.

    Raises:
        ConfigError: a package is missing, or a drawing is no picture.
        OSError: the file cannot be written.
    """
    write_atomic(path, (_gif if kind == "gif" else _mp4)(film, fps))


def check_format(kind: str, fps: int) -> None:
    """Refuse, before anything runs, what cannot be written.

    Raises:
        ConfigError: naming the package that is missing, or the limit.
    """
    pillow("Image")
    if kind == "mp4":
        _ffmpeg()
    elif fps > GIF_FPS:
        most = f"programs show of a GIF, {GIF_FPS}"
        raise ConfigError(f"fps {fps} is more than {most}: give fewer, or an mp4.")


def _gif(film: Film, fps: int) -> bytes:
    image, count = pillow("Image"), len(film.times)
    # One palette for all frames, from some of them.
    samples = sorted({round(i * (count - 1) / _SAMPLES) for i in range(_SAMPLES + 1)})
    shown = np.concatenate([np.asarray(film.frame(index)) for index in samples])
    palette = image.fromarray(shown).quantize(_COLOURS, image.Quantize.MEDIANCUT)
    near_white = np.array(palette.getpalette()) >= 250  # Pillow compares six bits.
    colours = np.where(near_white, 255, palette.getpalette())
    palette.putpalette(colours.tolist())
    every = (
        film.frame(index).quantize(palette=palette, dither=image.Dither.NONE)
        for index in range(count)
    )
    # A GIF counts hundredths of a second.
    pauses = [10 * round(100 / fps)] * count
    for index, (episode, _) in enumerate(film.times):
        if index + 1 == count or film.times[index + 1][0] != episode:
            pauses[index] = _PAUSE_MS
    buffer = io.BytesIO()
    options = {"save_all": True, "append_images": every, "duration": pauses}
    next(every).save(buffer, format="GIF", loop=0, disposal=1, **options)
    return buffer.getvalue()


def _mp4(film: Film, fps: int) -> bytes:
    ffmpeg = _ffmpeg()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "film.mp4"
        options: Any = {"codec": "libx264", "quality": None, "macro_block_size": 2}
        options["output_params"] = ["-crf", "18", "-movflags", "+faststart"]
        options["ffmpeg_log_level"] = "error"
        writer = ffmpeg.write_frames(str(path), film.size, fps=fps, **options)
        with warnings.catch_warnings():
            # JAX warns of forks; this one becomes another program at once.
            warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)
            writer.send(None)
        try:
            for index in range(len(film.times)):
                writer.send(np.ascontiguousarray(film.frame(index)))
        finally:
            writer.close()
        return path.read_bytes()


@cache
def _ffmpeg() -> Any:
    try:
        import imageio_ffmpeg
    except ImportError:
        raise ConfigError(
            "MP4 needs the package imageio-ffmpeg: pip install 'purerl[video]'."
        ) from None
    return imageio_ffmpeg
