"""Drawings of grids: cells in colours, and beside them what the colours stand for.

The games of MinAtar are those of Young and Tian (2019), as gymnax has them: their
states are grids of 10 x 10 cells with a channel for each kind of object.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from purerl.report.drawing import canvas as c
from purerl.report.drawing.canvas import Canvas

if TYPE_CHECKING:
    from PIL.Image import Image

SIDE = 228  # Pixels that a grid may be wide or high.
ROUND = 0.38  # The radius of a disc, in cells.
_EDGE = (c.HEIGHT - SIDE) / 2

Draw = Callable[[Any, Any], np.ndarray]


class Kind(NamedTuple):
    """A kind of thing that stands in cells of a grid.

    Attributes:
        name: The name in the legend; none if empty.
        colour: Colour of the cell or disc.
        radius: Radius of a disc, in cells; 0 for a square.
    """

    name: str
    colour: str
    radius: float = 0.0


# Kinds, and the row and column of each cell where they stand.
Placed = Iterable[tuple[Kind, Iterable[Any]]]


def scene(
    shape: Sequence[int],
    legend: Sequence[Kind],
    moving: Callable[[Any, Any], Placed],
    fixed: Placed = (),
) -> Draw:
    """Make the drawing of a grid at the left of a picture, its legend at the right.

    Args:
        shape: Number of rows and columns.
        legend: The kinds, in the order of the legend.
        moving: What stands where, `(state, params)`, from the lowest to the highest.
        fixed: What always stands below.
    """
    cell = SIDE / max(shape)  # Pixels.
    high, wide = (number * cell for number in shape)
    left, top = _EDGE + (SIDE - wide) / 2, _EDGE + (SIDE - high) / 2

    def place(canvas: Canvas, kind: Kind, row: float, column: float) -> None:
        x, y = left + column * cell, top + row * cell
        if kind.radius:
            middle = (x + cell / 2, -y - cell / 2)
            canvas.disc(middle, kind.radius * cell, kind.colour)
            return
        gap = 0.04 * cell
        low, above = (x + gap, -(y + cell - gap)), (x + cell - gap, -(y + gap))
        canvas.box(low, above, kind.colour, 0.12 * cell)

    def paint(canvas: Canvas, placed: Placed) -> None:
        for kind, cells in placed:
            for row, column in cells:
                place(canvas, kind, float(row), float(column))

    @cache
    def background() -> "Image":
        canvas = _canvas()
        paint(canvas, [(Kind("", c.DUSK), np.ndindex(*shape)), *fixed])
        for line, kind in enumerate(kind for kind in legend if kind.name):
            x, y = 2 * _EDGE + SIDE - 2, -(18 + 19 * line)
            if kind.radius:
                canvas.disc((x + 5, y), 5, kind.colour)
            else:
                canvas.box((x, y - 5), (x + 10, y + 5), kind.colour, 2)
            canvas.text((x + 15, y), kind.name, "#c9d1d9", 10.5)
        return canvas.image

    def draw(state: Any, params: Any) -> np.ndarray:
        canvas = _canvas(background())
        paint(canvas, moving(state, params))
        return canvas.pixels()

    return draw


def _canvas(picture: "Image | None" = None) -> Canvas:
    """A canvas whose unit is a pixel and whose origin is the upper left corner."""
    return Canvas((c.WIDTH / 2, -c.HEIGHT / 2), (c.WIDTH, c.HEIGHT), c.NIGHT, picture)


AGENT = Kind("agent", c.SKY, ROUND)
GOAL = Kind("goal", c.YELLOW)
WALL = Kind("wall", c.GREY)
START = Kind("start", c.GREEN)


def doors(env: Any) -> Draw:
    """Make the drawing of a Doors environment of any size."""
    wall = np.zeros(env.size, bool)
    wall[env.wall_row] = True
    wall[env.wall_row, env.doors] = False
    return scene(
        env.size,
        (AGENT, GOAL, WALL),
        lambda state, params: [(GOAL, [state.goal]), (AGENT, [state.agent])],
        [(WALL, np.argwhere(wall))],
    )


def rooms(env: Any) -> Draw:
    """Make the drawing of gymnax's FourRooms or MetaMaze."""
    free = np.asarray(env.wrapped.env_map).astype(bool)
    return scene(
        free.shape,
        (AGENT, GOAL, WALL),
        lambda state, params: [(GOAL, [state.goal]), (AGENT, [state.pos])],
        [(WALL, np.argwhere(~free))],
    )


def numbered(env: Any) -> Draw:
    """Make the drawing of a GridWorld or a CliffWalking of any size."""
    cliff = [cell for cell in np.ndindex(*env.size) if env.is_cliff(cell)]
    fall = Kind("cliff", "#9c4a2f")
    return scene(
        env.size,
        (AGENT, GOAL, START, *([fall] if cliff else [])),
        lambda state, params: [(AGENT, [state.position])],
        [(fall, cliff), (START, [env.start]), (GOAL, [env.goal])],
    )


def objects(env: Any) -> Draw:
    """Make the drawing of an ObjectGrid of any size."""
    pays, costs = Kind("pays", c.GREEN), Kind("costs", c.ORANGE)

    def moving(state: Any, params: Any) -> Placed:
        rewards, cells = np.asarray(params.rewards), np.asarray(params.cells)
        for k in np.flatnonzero(np.asarray(state.present)):
            yield pays if rewards[k] > 0 else costs, [divmod(cells[k], env.size[1])]
        yield AGENT, [divmod(int(state.cell), env.size[1])]

    return scene(env.size, (AGENT, pays, costs), moving)


def maze(env: Any) -> Draw:
    """Make the drawing of a Maze of any size; a dot shows where the agent looks."""
    dot = Kind("", c.NIGHT, 0.12)

    def moving(state: Any, params: Any) -> Placed:
        yield WALL, np.argwhere(np.asarray(env.walls_of(params)))
        yield GOAL, [divmod(int(params.goal), env.size[1])]
        yield AGENT, [state.position]
        row, column = (int(number) for number in state.position)
        down, right = env.moves[int(state.direction)]
        yield dot, [(row + 0.22 * down, column + 0.22 * right)]

    return scene(env.size, (AGENT, GOAL, WALL), moving)


def frozen_lake(env: Any) -> Draw:
    """Make the drawing of gymnax's FrozenLake on any map."""
    tiles = np.asarray(env.wrapped.desc)
    start, _, hole, goal = range(4)  # The numbers are those of gymnax; 1 is ice.
    ice, water = Kind("ice", "#8fb4cc"), Kind("hole", "#255a86")
    agent = Kind("agent", c.ORANGE, ROUND)
    return scene(
        tiles.shape,
        (agent, GOAL, water, ice, START),
        lambda state, params: [(agent, [divmod(int(state.position), tiles.shape[1])])],
        [
            (ice, np.ndindex(*tiles.shape)),
            (water, np.argwhere(tiles == hole)),
            (START, np.argwhere(tiles == start)),
            (GOAL, np.argwhere(tiles == goal)),
        ],
    )


def catch(env: Any) -> Draw:
    """Make the drawing of gymnax's Catch of any size."""
    ball, paddle = Kind("ball", c.YELLOW, ROUND), Kind("paddle", c.SKY)
    return scene(
        (int(env.wrapped.rows), int(env.wrapped.columns)),
        (ball, paddle),
        lambda state, params: [
            (paddle, [(state.paddle_y, state.paddle_x)]),
            (ball, [(state.ball_y, state.ball_x)]),
        ],
    )


def deep_sea(env: Any) -> Draw:
    """Make the drawing of gymnax's DeepSea of any size; the treasure is at the end."""
    size = int(env.wrapped.size)
    chest, last = Kind("treasure", c.YELLOW), size - 1

    def moving(state: Any, params: Any) -> Placed:
        # After the last row the episode is over, and the agent below the grid.
        yield AGENT, [(min(int(state.row), last), min(int(state.column), last))]

    return scene((size, size), (AGENT, chest), moving, [(chest, [(last, last)])])


_TRAIL = "#55606d"
# Channels from what lies below to what lies above: number, and what stands there.
GAMES: dict[str, tuple[tuple[int, Kind], ...]] = {
    "Breakout-MinAtar": (
        (2, Kind("trail", _TRAIL, ROUND)),
        (3, Kind("brick", c.ORANGE)),
        (0, Kind("paddle", c.SKY)),
        (1, Kind("ball", c.YELLOW, ROUND)),
    ),
    "Asterix-MinAtar": (
        (2, Kind("trail", _TRAIL)),
        (1, Kind("enemy", c.ORANGE)),
        (3, Kind("gold", c.YELLOW, ROUND)),
        (0, Kind("player", c.SKY)),
    ),
    "Freeway-MinAtar": (
        *(
            (number, Kind("" if number > 2 else "trail", _TRAIL))
            for number in range(2, 7)
        ),
        (1, Kind("car", c.ORANGE)),
        (0, Kind("chicken", c.YELLOW, ROUND)),
    ),
    "SpaceInvaders-MinAtar": (
        (1, Kind("alien", c.PINK)),
        (5, Kind("its bullet", c.ORANGE, ROUND)),
        (4, Kind("bullet", c.YELLOW, ROUND)),
        (0, Kind("cannon", c.SKY)),
    ),
    "Seaquest-MinAtar": (
        (7, Kind("oxygen", c.PAPER)),
        (8, Kind("on board", c.GREEN)),
        (9, Kind("diver", c.GREEN, ROUND)),
        (5, Kind("fish", c.PINK)),
        (6, Kind("enemy", c.ORANGE)),
        (4, Kind("its bullet", c.ORANGE, ROUND)),
        (2, Kind("bullet", c.YELLOW, ROUND)),
        (1, Kind("", c.BLUE)),
        (0, Kind("submarine", c.SKY)),
    ),
}


def game(env: Any) -> Draw:
    """Make the drawing of one of `GAMES`, whose states are grids with channels."""
    layers = GAMES[env.name]
    return scene(
        (10, 10),
        [kind for _, kind in reversed(layers)],
        lambda state, params: [
            (kind, np.argwhere(np.asarray(state)[..., channel] > 0))
            for channel, kind in layers
        ],
    )
