"""Maze-v0: find the goal of a maze of which only a window around the agent is seen.

The mazes of Dennis et al. (2020, "Emergent complexity and zero-shot transfer via
unsupervised environment design", arXiv:2012.02096), on which Jiang et al. (2021,
"Replay-guided adversarial environment design", arXiv:2110.02439) replayed levels. A
level, which is the walls, the start and the goal, consists of numbers of the
environment, so that levels can be drawn, stored and replayed: see `Maze.draw_level`.
"""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from .base import Array, Environment, EnvParams, EnvState, Obs, Step
from .options import two_whole_numbers, whole_number
from .spaces import Box, Discrete

# Row and column change of the directions: right, down, left, up. Row 0 is at the top.
MOVES = ((0, 1), (1, 0), (0, -1), (-1, 0))
# Left turns against the clock, right with it; forward is a move by one cell.
TURN_LEFT, TURN_RIGHT, FORWARD = range(3)
UNREACHABLE = 2**30
"""What `Maze.distances` says of a place from which no way leads to the goal."""
# Most walls of a drawn maze of 13 x 13 cells, as in the environment of variable blocks
# of github.com/facebookresearch/dcd; mazes of other sizes have the same share.
_MOST_WALLS, _OF_CELLS = 60, 169
NOT_GIVEN = -1


@struct.dataclass
class MazeState(EnvState):
    """The place of the agent, and the direction in which it looks.

    Attributes:
        position: `[2]` int32, row and column.
        direction: `[]` int32, 0 right, 1 down, 2 left, 3 up.
    """

    position: Array
    direction: Array


@struct.dataclass
class MazeParams(EnvParams):
    """Numbers of a maze of H x W cells, which are counted row by row.

    Start and goal are free whatever `walls` says of their cells, and must differ.

    Attributes:
        max_steps_in_episode: Time limit.
        walls: `[H, W]` bool, whether a cell is a wall.
        start: Cell in which every episode begins.
        start_direction: Direction in which the agent looks there.
        goal: Cell of the goal.
        time_penalty: Share of the reward that is lost until the time limit.
    """

    max_steps_in_episode: int | Array = 250
    walls: Any = None
    start: int | Array = 0
    start_direction: int | Array = 0
    goal: int | Array = 1
    time_penalty: float | Array = 0.9


@dataclasses.dataclass(unsafe_hash=True)
class Maze(Environment[MazeState, MazeParams]):
    """Turn and walk to the goal of a maze, of which a window ahead is seen.

    * observation: float32 `[2 V^2 + 4]`: which cells of the window are walls (or
      outside of the maze), which is the goal, and the direction, as zeros and ones. The
      window has V x V cells row by row, turned so that the agent looks up, and
      stands in the middle of its lowest row. Walls hide nothing.
    * action: 0 turn left, 1 turn right, 2 go forward. A wall or the edge ahead leaves
      the agent where it is.
    * reward: `1 - 0.9 n / T` in the step n that ends on the goal, with T steps in an
      episode, else 0.
    * terminated: on the goal. truncated: at `max_steps_in_episode`.

    By default four rooms are connected by doors, the start is in the first cell, and
    the goal in the last one.

    Attributes:
        size: Height and width H x W, at least 3 x 3; no border of walls is needed.
        view: V, odd.
        max_walls: The most walls of a level that is drawn; 60 of 169 cells (the mazes
            of 13 x 13) where not given.
    """

    size: tuple[int, int] = (13, 13)
    view: int = 5
    max_walls: int = NOT_GIVEN

    title: ClassVar[str] = "Maze-v0"
    stochastic_transitions: ClassVar[bool] = False
    moves: ClassVar[tuple[tuple[int, int], ...]] = MOVES

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            ValueError: an option is of another kind, the maze is too small, the window
                has no middle, or the walls leave no room for start and goal.
        """
        self.size = two_whole_numbers("size", self.size)
        if min(self.size) < 3:
            raise ValueError(f"size must be at least 3 x 3, got {self.size}.")
        self.view = whole_number("view", self.view, least=1)
        if self.view % 2 == 0:
            raise ValueError(f"view must be odd, got {self.view}.")
        self.max_walls = whole_number("max_walls", self.max_walls, least=NOT_GIVEN)
        if self.max_walls == NOT_GIVEN:
            self.max_walls = _MOST_WALLS * self.num_cells // _OF_CELLS
        if self.max_walls > self.num_cells - 2:
            raise ValueError(
                f"max_walls must be at most {self.num_cells - 2} in a maze of "
                f"{self.num_cells} cells, got {self.max_walls}."
            )

    @property
    def num_cells(self) -> int:
        """Number of cells of the maze."""
        return self.size[0] * self.size[1]

    @property
    def default_params(self) -> MazeParams:
        """Four rooms with doors between them; from the first cell to the last one."""
        height, width = self.size
        walls = np.zeros(self.size, bool)
        walls[height // 2], walls[:, width // 2] = True, True
        # A door in each half of both walls, never where they cross.
        for row in (height // 4, max(height - 1 - height // 4, height // 2 + 1)):
            walls[row, width // 2] = False
        for column in (width // 4, max(width - 1 - width // 4, width // 2 + 1)):
            walls[height // 2, column] = False
        return MazeParams(walls=walls, goal=self.num_cells - 1)

    def draw_level(self, key: Array, params: MazeParams) -> MazeParams:
        """Draw walls, start, direction and goal; the other numbers stay.

        The number of walls is uniform between 0 and `max_walls`, and they, the start
        and the goal have different cells, all of them alike. Not every level can be
        solved: see `distances`.
        """
        keys = jax.random.split(key, 3)
        order = jnp.argsort(jax.random.uniform(keys[0], (self.num_cells,)))
        number = jax.random.randint(keys[1], (), 0, self.max_walls + 1)
        place = jnp.zeros(self.num_cells, jnp.int32)
        place = place.at[order].set(jnp.arange(self.num_cells, dtype=jnp.int32))
        walls = (place >= 2) & (place < 2 + number)
        return dataclasses.replace(
            params,
            walls=walls.reshape(self.size),
            start=order[0].astype(jnp.int32),
            start_direction=jax.random.randint(keys[2], (), 0, len(MOVES)),
            goal=order[1].astype(jnp.int32),
        )

    def reset_env(self, key: Array, params: MazeParams) -> tuple[Obs, MazeState]:
        """Stand on the start; nothing is drawn."""
        state = MazeState(
            time=jnp.int32(0),
            position=self._place(params.start),
            direction=jnp.asarray(params.start_direction, jnp.int32),
        )
        return self._observe(state, params), state

    def step_env(
        self, key: Array, state: MazeState, action: Array, params: MazeParams
    ) -> Step:
        """Turn, or go forward."""
        turn = jnp.asarray((-1, 1, 0), jnp.int32)[action]
        direction = (state.direction + turn) % len(MOVES)
        ahead = state.position + jnp.asarray(MOVES, jnp.int32)[direction]
        moves = (action == FORWARD) & ~self._is_wall(ahead, params)
        position = jnp.where(moves, ahead, state.position)
        state = MazeState(state.time + 1, position, direction)
        is_goal = jnp.all(position == self._place(params.goal))
        late = params.time_penalty * state.time / params.max_steps_in_episode
        reward = jnp.where(is_goal, 1.0 - late, 0.0).astype(jnp.float32)
        return self._observe(state, params), state, reward, is_goal, {}

    def action_space(self, params: MazeParams | None = None) -> Discrete:
        """Turn left, turn right, go forward."""
        return Discrete(3)

    def observation_space(self, params: MazeParams | None = None) -> Box:
        """Zeros and ones."""
        return Box(0.0, 1.0, (2 * self.view**2 + len(MOVES),))

    def walls_of(self, params: MazeParams) -> Array:
        """Return which cells are walls, `[H, W]` bool; start and goal are none."""
        walls = jnp.asarray(params.walls, bool).reshape(-1)
        walls = walls.at[jnp.stack([jnp.asarray(params.start), params.goal])].set(False)
        return walls.reshape(self.size)

    def distances(self, params: MazeParams) -> Array:
        """Count the actions to the goal from every direction and cell.

        This is a breadth-first search backwards from the goal, in which all places are
        looked at in each step; the time limit is left out.

        Returns:
            int32 `[4, H, W]`; `UNREACHABLE` in walls and where no way leads to the
            goal.
        """
        walls = self.walls_of(params)
        goal = self._place(params.goal)
        is_goal = jnp.zeros(self.size, bool).at[goal[0], goal[1]].set(True)
        height, width = self.size

        def sweep(found: Array) -> Array:
            # Beyond the edge nothing is nearer.
            around = jnp.pad(
                found, ((0, 0), (1, 1), (1, 1)), constant_values=UNREACHABLE
            )
            ahead = jnp.stack(
                [
                    around[k, 1 + r : 1 + r + height, 1 + c : 1 + c + width]
                    for k, (r, c) in enumerate(MOVES)
                ]
            )
            turned = jnp.minimum(jnp.roll(found, 1, 0), jnp.roll(found, -1, 0))
            nearer = 1 + jnp.minimum(ahead, turned)
            return jnp.where(walls[None], UNREACHABLE, jnp.minimum(found, nearer))

        def moved(carry: tuple[Array, Array]) -> Array:
            return jnp.any(carry[0] != carry[1])

        start = jnp.full((len(MOVES), *self.size), UNREACHABLE, jnp.int32)
        start = jnp.where(is_goal[None], 0, start)
        found, _ = jax.lax.while_loop(
            moved, lambda carry: (sweep(carry[0]), carry[0]), (sweep(start), start)
        )
        return found

    def shortest_path(self, params: MazeParams) -> Array:
        """Count the actions of the shortest way to the goal, int32 `[]`.

        It is `UNREACHABLE` where there is no way: such a level cannot be solved.
        """
        row, column = self._place(params.start)
        direction = jnp.asarray(params.start_direction, jnp.int32)
        return self.distances(params)[direction, row, column]

    def optimal_return(self, params: MazeParams) -> Array:
        """Compute the return of the shortest way, float32 `[]`.

        It is 0 where no way reaches the goal within the time limit.
        """
        steps = self.shortest_path(params)
        limit = params.max_steps_in_episode
        late = params.time_penalty * steps / limit
        return jnp.where(steps <= limit, 1.0 - late, 0.0).astype(jnp.float32)

    def _place(self, cell: Any) -> Array:
        """Row and column `[2]` of a cell's number."""
        cell = jnp.asarray(cell, jnp.int32)
        return jnp.stack([cell // self.size[1], cell % self.size[1]])

    def _is_wall(self, places: Array, params: MazeParams) -> Array:
        """Return whether places `[..., 2]` are walls or outside of the maze."""
        edge = jnp.asarray(self.size, jnp.int32) - 1
        inside = jnp.clip(places, 0, jnp.broadcast_to(edge, places.shape))
        is_outside = jnp.any(inside != places, axis=-1)
        return is_outside | self.walls_of(params)[inside[..., 0], inside[..., 1]]

    def _observe(self, state: MazeState, params: MazeParams) -> Array:
        rows, columns = np.indices((self.view, self.view))
        ahead = jnp.asarray(self.view - 1 - rows.reshape(-1), jnp.int32)[:, None]
        aside = jnp.asarray(columns.reshape(-1) - self.view // 2, jnp.int32)[:, None]
        moves = jnp.asarray(MOVES, jnp.int32)
        forward, right = moves[state.direction], moves[(state.direction + 1) % 4]
        seen = state.position[None] + ahead * forward[None] + aside * right[None]
        walls = self._is_wall(seen, params)
        goal = jnp.all(seen == self._place(params.goal)[None], axis=-1)
        direction = jnp.arange(len(MOVES)) == state.direction
        return jnp.concatenate([walls, goal, direction]).astype(jnp.float32)
