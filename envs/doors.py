"""Doors-v0: through a door in a wall to the goal.

The task is that of an online comparison of JAX and Torch DQN ("Doors"), with its
rules put right: agent and goal columns are drawn independently (one key drew both, so
that the goal was always straight ahead), a blocked move pays nothing (it paid the
progress it would have made, so that standing under the wall was profitable), an
episode lasts exactly its limit (it lasted one step more).
"""

import dataclasses
from typing import ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from .base import Array, Environment, EnvParams, EnvState, Obs, Step
from .options import one_of
from .spaces import Box, Discrete

EMPTY, AGENT, WALL, GOAL = range(4)

# Row and column change of: stay, right, down, left, up. Row 0 is at the top.
MOVES = ((0, 0), (0, 1), (1, 0), (0, -1), (-1, 0))

# RGB: goal red, wall green, agent blue, as in the original.
COLOURS = np.array([(0, 0, 0), (0, 0, 255), (0, 255, 0), (255, 0, 0)], np.uint8)


@struct.dataclass
class DoorsState(EnvState):
    """The places of agent and goal; the walls never move.

    Attributes:
        agent: `[2]` int32, row and column.
        goal: `[2]` int32, row and column.
    """

    agent: Array
    goal: Array


@struct.dataclass
class DoorsParams(EnvParams):
    """Numbers of the task.

    Attributes:
        max_steps_in_episode: Time limit.
        reward_scale: Reward for one cell of progress.
    """

    max_steps_in_episode: int | Array = 60
    reward_scale: float | Array = 1.0


class DoorsOptimum(NamedTuple):
    """The length and the return of the shortest path from each start.

    Attributes:
        length: `[width, width]` int, steps by agent column and goal column; the time
            limit where the goal is out of reach.
        episode_return: `[width, width]` float, best return by agent column and goal
            column.
        mean_length: Mean of `length` over all starts.
        mean_return: Mean of `episode_return` over all starts.
        solvable: Share of starts whose goal can be reached in time.
    """

    length: np.ndarray
    episode_return: np.ndarray
    mean_length: float
    mean_return: float
    solvable: float


@dataclasses.dataclass(unsafe_hash=True)
class Doors(Environment[DoorsState, DoorsParams]):
    """Walk from the bottom row through a door in the middle wall to the goal above.

    * observation, by `observation`: `"cells"`: float32 `[height * width]`, the grid
      row by row, 0 empty, 1 agent, 2 wall, 3 goal; `"planes"`: float32
      `[height, width, 3]`, one-hot for agent, wall, goal; `"coordinates"`: float32
      `[4]`, row and column of agent, then of goal, each divided by its largest value.
    * action: 0 stay, 1 right, 2 down, 3 left, 4 up. Moves into the wall or off the
      grid leave the agent where it is.
    * reward: Euclidean distance to the goal before the move less that after it, so
      the return is the initial distance less the last one.
    * terminated: on the goal. truncated: at `max_steps_in_episode`.
    * start: agent on the bottom row, goal on the top row, columns independent.

    The wall is row `height // 2`. Its doors are at the columns 0, s, 2s, ... with
    s = height // num_doors (by height: the original's rule). The original then opens
    every such column that fits; here there are exactly `num_doors`. (At 15 x 15 with
    four doors the original had five, at 0, 3, 6, 9 and 12.)

    Attributes:
        size: Height and width of the grid.
        num_doors: Number of doors.
        observation: Kind of observation.
    """

    size: tuple[int, int] = (15, 15)
    num_doors: int = 3
    observation: Literal["cells", "planes", "coordinates"] = "cells"

    title: ClassVar[str] = "Doors-v0"
    stochastic_transitions: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            ValueError: the grid is too small, or the doors do not fit.
        """
        self.size = (int(self.size[0]), int(self.size[1]))
        height, width = self.size
        if height < 3 or width < 2:
            raise ValueError(f"size must be at least 3 x 2, got {height} x {width}.")
        if not 1 <= self.num_doors <= height:
            raise ValueError(
                f"num_doors must be between 1 and the height ({height}), got "
                f"{self.num_doors}."
            )
        if self.doors[-1] >= width:
            raise ValueError(
                f"num_doors ({self.num_doors}) puts a door at column {self.doors[-1]}, "
                f"off a grid {width} wide."
            )
        one_of("observation", self.observation, ("cells", "planes", "coordinates"))

    @property
    def default_params(self) -> DoorsParams:
        """The default parameters, with a time limit of 60 steps."""
        return DoorsParams()

    @property
    def wall_row(self) -> int:
        """The row of the wall."""
        return self.size[0] // 2

    @property
    def doors(self) -> np.ndarray:
        """Columns of the doors, int `[num_doors]`."""
        return np.arange(self.num_doors) * (self.size[0] // self.num_doors)

    def reset_env(self, key: Array, params: DoorsParams) -> tuple[Obs, DoorsState]:
        """Draw the two columns."""
        height, width = self.size
        columns = jax.random.randint(key, (2,), 0, width, dtype=jnp.int32)
        state = DoorsState(
            time=jnp.int32(0),
            agent=jnp.stack([jnp.int32(height - 1), columns[0]]),
            goal=jnp.stack([jnp.int32(0), columns[1]]),
        )
        return self._observe(state), state

    def step_env(
        self, key: Array, state: DoorsState, action: Array, params: DoorsParams
    ) -> Step:
        """Move if the way is free, and pay the progress."""
        edge = np.array(self.size, np.int32) - 1
        target = jnp.clip(state.agent + jnp.asarray(MOVES, jnp.int32)[action], 0, edge)
        in_door = jnp.any(target[1] == jnp.asarray(self.doors, jnp.int32))
        is_free = (target[0] != self.wall_row) | in_door
        agent = jnp.where(is_free, target, state.agent)
        progress = _distance(state.agent, state.goal) - _distance(agent, state.goal)
        next_state = DoorsState(state.time + 1, agent, state.goal)
        terminated = jnp.all(agent == state.goal)
        reward = params.reward_scale * progress
        return self._observe(next_state), next_state, reward, terminated, {}

    def action_space(self, params: DoorsParams | None = None) -> Discrete:
        """Stay, right, down, left, up."""
        return Discrete(len(MOVES))

    def observation_space(self, params: DoorsParams | None = None) -> Box:
        """Return the space that the field `observation` names."""
        height, width = self.size
        if self.observation == "cells":
            return Box(EMPTY, GOAL, (height * width,))
        if self.observation == "planes":
            return Box(0.0, 1.0, (height, width, 3))
        return Box(0.0, 1.0, (4,))

    def optimum(self, max_steps_in_episode: int | None = None) -> DoorsOptimum:
        """Compute what the shortest path achieves from every start.

        A path uses height - 1 upward moves and, through the best door d, |a - d| +
        |d - g| sideways ones. With a limit L some goals are out of reach; then the
        best return is that of the cell nearest to the goal among those reachable.

        Args:
            max_steps_in_episode: Time limit; unlimited where not given.
        """
        height, width = self.size
        columns, doors = np.arange(width), self.doors
        agent, goal = columns[:, None, None], columns[None, :, None]
        sideways = (np.abs(agent - doors) + np.abs(doors - goal)).min(axis=-1)
        length = height - 1 + sideways
        initial = np.hypot(height - 1, agent[..., 0] - goal[..., 0])
        limit = np.inf if max_steps_in_episode is None else max_steps_in_episode
        nearest = self._nearest_within(limit)
        solved = length <= limit
        returns = np.where(solved, initial, initial - nearest)
        length = np.minimum(length, limit).astype(int)
        return DoorsOptimum(
            length=length,
            episode_return=returns,
            mean_length=float(length.mean()),
            mean_return=float(returns.mean()),
            solvable=float(solved.mean()),
        )

    def render(
        self, state: DoorsState, params: DoorsParams | None = None, scale: int = 10
    ) -> np.ndarray:
        """Draw the grid: agent blue, wall green, goal red on black.

        Args:
            state: State of one environment.
            params: Numbers of the environment, which the picture does not use.
            scale: Pixels per cell.

        Returns:
            uint8 `[height * scale, width * scale, 3]`.
        """
        image = COLOURS[np.asarray(self._cells(state))]
        return image.repeat(scale, axis=0).repeat(scale, axis=1)

    def _nearest_within(self, limit: float) -> np.ndarray:
        """Least distance to the goal within `limit` steps, `[agent, goal]`."""
        height, width = self.size
        row, column = np.mgrid[:height, :width]
        in_wall = (row == self.wall_row) & ~np.isin(column, self.doors)
        agent = np.arange(width)[:, None, None]
        up = height - 1 - row
        direct = up + np.abs(agent - column)
        doors = self.doors[:, None, None, None]
        through = (np.abs(agent - doors) + np.abs(doors - column)).min(axis=0) + up
        steps = np.where(row > self.wall_row, direct, through)
        reachable = (steps <= limit) & ~in_wall
        goal = np.arange(width)[:, None, None]
        distance = np.hypot(row, column - goal)
        return np.where(reachable[:, None], distance, np.inf).min(axis=(-2, -1))

    def _cells(self, state: DoorsState) -> Array:
        """The grid, int32 `[height, width]`; the agent hides what it stands on."""
        grid = np.full(self.size, EMPTY, np.int32)
        grid[self.wall_row] = WALL
        grid[self.wall_row, self.doors] = EMPTY
        cells = jnp.where(self._mark(state.goal), GOAL, grid)
        return jnp.where(self._mark(state.agent), AGENT, cells)

    def _mark(self, position: Array) -> Array:
        """Bool `[height, width]`, true at one cell. Compares: a scatter is slower."""
        height, width = self.size
        in_row = jnp.arange(height) == position[0]
        in_column = jnp.arange(width) == position[1]
        return in_row[:, None] & in_column[None, :]

    def _observe(self, state: DoorsState) -> Array:
        if self.observation == "cells":
            return self._cells(state).reshape(-1).astype(jnp.float32)
        if self.observation == "planes":
            wall = np.zeros(self.size, bool)
            wall[self.wall_row] = True
            wall[self.wall_row, self.doors] = False
            planes = (
                self._mark(state.agent),
                jnp.asarray(wall),
                self._mark(state.goal),
            )
            return jnp.stack(planes, axis=-1).astype(jnp.float32)
        edge = np.array(self.size * 2, np.float32) - 1
        return jnp.concatenate([state.agent, state.goal]) / edge


def _distance(a: Array, b: Array) -> Array:
    """Euclidean distance of two cells, float32 `[]`."""
    return jnp.sqrt(jnp.sum((a - b) ** 2).astype(jnp.float32))
