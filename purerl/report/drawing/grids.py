"""Drawings of grids: cells in colours, and beside them what the colours stand for."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from purerl.report.drawing import canvas as c
from purerl.report.drawing.canvas import Canvas

if TYPE_CHECKING:
    from PIL.Image import Image

SIDE = 228  # Pixels that a grid may be wide or high.
_EDGE = (c.HEIGHT - SIDE) / 2


class Kind(NamedTuple):
    """A kind of thing that stands in cells of a grid.

    Attributes:
        name: The name in the legend; none if empty.
        colour: Colour of the cell or disc.
        is_round: Whether it is a disc, not a square.
    """

    name: str
    colour: str
    is_round: bool = False


class Grid(NamedTuple):
    """A grid at the left of a picture, and its legend at the right.

    Attributes:
        shape: Number of rows and columns.
        kinds: Kinds of things that can stand in a cell, in the order of the legend.
    """

    shape: tuple[int, int]
    kinds: tuple[Kind, ...]

    @property
    def cell(self) -> float:
        """Width of a cell in pixels."""
        return SIDE / max(self.shape)

    def corner(self, row: float, column: float) -> tuple[float, float]:
        """Upper left corner of a cell in the picture, as column and row of pixels."""
        high, wide = (number * self.cell for number in self.shape)
        left, top = _EDGE + (SIDE - wide) / 2, _EDGE + (SIDE - high) / 2
        return left + column * self.cell, top + row * self.cell

    def start(self, fixed: Sequence[tuple[Kind, np.ndarray]] = ()) -> "Image":
        """Paint what never changes: the cells, the legend, and what always stands.

        Args:
            fixed: Kinds and where they stand, bool `[rows, columns]`.
        """
        canvas = _canvas(c.NIGHT)
        for row, column in np.ndindex(*self.shape):
            self.fill(canvas, row, column, c.DUSK)
        for kind, where in fixed:
            self.put(canvas, kind, where)
        for line, kind in enumerate(kind for kind in self.kinds if kind.name):
            _legend(canvas, kind, line)
        return canvas.image

    def put(self, canvas: Canvas, kind: Kind, where: np.ndarray) -> None:
        """Paint a kind in every cell where it stands.

        Args:
            canvas: The picture.
            kind: The kind.
            where: Bool `[rows, columns]`.
        """
        for row, column in np.argwhere(where):
            self.place(canvas, kind, int(row), int(column))

    def place(self, canvas: Canvas, kind: Kind, row: int, column: int) -> None:
        """Paint a kind in one cell.

        Args:
            canvas: The picture.
            kind: The kind.
            row: Row of the cell, 0 at the top.
            column: Column of the cell, 0 at the left.
        """
        if not kind.is_round:
            self.fill(canvas, row, column, kind.colour)
            return
        left, top = self.corner(row, column)
        middle = (left + self.cell / 2, -top - self.cell / 2)
        canvas.disc(middle, 0.38 * self.cell, kind.colour)

    def fill(self, canvas: Canvas, row: int, column: int, colour: str) -> None:
        """Paint the square of one cell.

        Args:
            canvas: The picture.
            row: Row of the cell.
            column: Column of the cell.
            colour: The colour.
        """
        left, top = self.corner(row, column)
        gap = 0.04 * self.cell
        low = (left + gap, -(top + self.cell - gap))
        high = (left + self.cell - gap, -(top + gap))
        canvas.box(low, high, colour, 0.12 * self.cell)


def over(picture: "Image | None") -> Canvas:
    """Return a canvas over a painted background, whose unit is a pixel.

    Its origin is the upper left corner, so that y is minus the row of pixels.
    """
    return _canvas(c.NIGHT, picture)


def _canvas(background: str, picture: "Image | None" = None) -> Canvas:
    return Canvas(
        (c.WIDTH / 2, -c.HEIGHT / 2), (c.WIDTH, c.HEIGHT), background, picture
    )


def _legend(canvas: Canvas, kind: Kind, line: int) -> None:
    left, row = 2 * _EDGE + SIDE - 2, 18 + 19 * line
    if kind.is_round:
        canvas.disc((left + 5, -row), 5, kind.colour)
    else:
        canvas.box((left, -row - 5), (left + 10, -row + 5), kind.colour, 2)
    canvas.text((left + 15, -row), kind.name, "#c9d1d9", 10.5)


AGENT = Kind("agent", c.SKY, True)
GOAL = Kind("goal", c.YELLOW)
WALL = Kind("wall", c.GREY)

Draw = Callable[[Any, Any], np.ndarray]


def doors(env: Any) -> Draw:
    """Make the drawing of a Doors environment of any size."""
    grid = Grid(tuple(env.size), (AGENT, GOAL, WALL))
    wall = np.zeros(grid.shape, bool)
    wall[env.wall_row] = True
    wall[env.wall_row, env.doors] = False
    return _walk(grid, wall, lambda state: (state.agent, state.goal))


def numbered(env: Any) -> Draw:
    """Make the drawing of a GridWorld or a CliffWalking of any size."""
    shape: tuple[int, int] = env.size
    cliff = np.array([bool(env.is_cliff(cell)) for cell in np.ndindex(*shape)])
    begin, fall = Kind("start", c.GREEN), Kind("cliff", "#9c4a2f")
    kinds = (AGENT, GOAL, begin, *([fall] if cliff.any() else []))
    grid = Grid(shape, kinds)
    here = np.indices(shape)
    start, goal = (np.all(here.T == place, -1).T for place in (env.start, env.goal))

    @cache
    def background() -> "Image":
        fixed = [(fall, cliff.reshape(shape)), (begin, start), (GOAL, goal)]
        return grid.start(fixed)

    def draw(state: Any, params: Any) -> np.ndarray:
        del params
        canvas = over(background())
        row, column = map(int, np.asarray(state.position))
        grid.place(canvas, AGENT, row, column)
        return canvas.pixels()

    return draw


def objects(env: Any) -> Draw:
    """Make the drawing of an ObjectGrid of any size."""
    pays, costs = Kind("pays", c.GREEN), Kind("costs", c.ORANGE)
    grid = Grid(tuple(env.size), (AGENT, pays, costs))

    @cache
    def background() -> "Image":
        return grid.start()

    def draw(state: Any, params: Any) -> np.ndarray:
        canvas = over(background())
        rewards, cells = np.asarray(params.rewards), np.asarray(params.cells)
        for k in np.flatnonzero(np.asarray(state.present)):
            kind = pays if rewards[k] > 0 else costs
            grid.place(canvas, kind, *divmod(int(cells[k]), env.size[1]))
        grid.place(canvas, AGENT, *divmod(int(state.cell), env.size[1]))
        return canvas.pixels()

    return draw


def maze(env: Any) -> Draw:
    """Make the drawing of a Maze of any size; a dot shows where the agent looks."""
    grid = Grid(tuple(env.size), (AGENT, GOAL, WALL))

    @cache
    def background() -> "Image":
        return grid.start()

    def draw(state: Any, params: Any) -> np.ndarray:
        canvas = over(background())
        grid.put(canvas, WALL, np.asarray(env.walls_of(params)))
        grid.place(canvas, GOAL, *divmod(int(params.goal), env.size[1]))
        row, column = (int(number) for number in state.position)
        grid.place(canvas, AGENT, row, column)
        down, right = env.moves[int(state.direction)]
        left, top = grid.corner(row + 0.5 + 0.22 * down, column + 0.5 + 0.22 * right)
        canvas.disc((left, -top), 0.12 * grid.cell, c.NIGHT)
        return canvas.pixels()

    return draw


def rooms(env: Any) -> Draw:
    """Make the drawing of gymnax's FourRooms or MetaMaze."""
    free = np.asarray(env.wrapped.env_map).astype(bool)
    grid = Grid(free.shape, (AGENT, GOAL, WALL))
    return _walk(grid, ~free, lambda state: (state.pos, state.goal))


def _walk(
    grid: Grid, wall: np.ndarray, places: Callable[[Any], tuple[Any, Any]]
) -> Draw:
    """A walk of an agent to a goal between walls; `places` are those of the two."""

    @cache
    def background() -> "Image":
        return grid.start([(WALL, wall)])

    def draw(state: Any, params: Any) -> np.ndarray:
        del params
        canvas = over(background())
        agent, goal = (map(int, np.asarray(place)) for place in places(state))
        grid.place(canvas, GOAL, *goal)
        grid.place(canvas, AGENT, *agent)
        return canvas.pixels()

    return draw


def frozen_lake(env: Any) -> Draw:
    """Make the drawing of gymnax's FrozenLake on any map."""
    tiles = np.asarray(env.wrapped.desc)
    start, _, hole, goal = range(4)  # The numbers are those of gymnax; 1 is ice.
    ice = Kind("ice", "#8fb4cc")
    water, begin = Kind("hole", "#255a86"), Kind("start", c.GREEN)
    agent = Kind("agent", c.ORANGE, True)
    grid = Grid(tiles.shape, (agent, GOAL, water, ice, begin))

    @cache
    def background() -> "Image":
        fixed = [(ice, tiles == tiles), (water, tiles == hole)]
        return grid.start([*fixed, (begin, tiles == start), (GOAL, tiles == goal)])

    def draw(state: Any, params: Any) -> np.ndarray:
        del params
        canvas = over(background())
        row, column = divmod(int(state.position), tiles.shape[1])
        grid.place(canvas, agent, row, column)
        return canvas.pixels()

    return draw


def catch(env: Any) -> Draw:
    """Make the drawing of gymnax's Catch of any size."""
    ball, paddle = Kind("ball", c.YELLOW, True), Kind("paddle", c.SKY)
    grid = Grid((int(env.wrapped.rows), int(env.wrapped.columns)), (ball, paddle))

    @cache
    def background() -> "Image":
        return grid.start()

    def draw(state: Any, params: Any) -> np.ndarray:
        del params
        canvas = over(background())
        grid.place(canvas, paddle, int(state.paddle_y), int(state.paddle_x))
        grid.place(canvas, ball, int(state.ball_y), int(state.ball_x))
        return canvas.pixels()

    return draw


def deep_sea(env: Any) -> Draw:
    """Make the drawing of gymnax's DeepSea of any size; the treasure is at the end."""
    size = int(env.wrapped.size)
    chest = Kind("treasure", c.YELLOW)
    grid = Grid((size, size), (AGENT, chest))
    end = np.zeros(grid.shape, bool)
    end[-1, -1] = True

    @cache
    def background() -> "Image":
        return grid.start([(chest, end)])

    def draw(state: Any, params: Any) -> np.ndarray:
        del params
        canvas = over(background())
        # After the last row the episode is over, and the agent below the grid.
        row, column = min(int(state.row), size - 1), min(int(state.column), size - 1)
        grid.place(canvas, AGENT, row, column)
        return canvas.pixels()

    return draw
