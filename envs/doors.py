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
        length: `[width, width]` int, steps by agent column and goal column.
        episode_return: `[width, width]` float, returns likewise.
    """

    length: np.ndarray
    episode_return: np.ndarray


@dataclasses.dataclass(unsafe_hash=True)
class Doors(Environment[DoorsState, DoorsParams]):
    """Walk from the bottom row through a door in the middle wall to the goal above.

    * observation, by `observation`: `"cells"`: float32 `[height * width]`, the grid
      row by row, 0 empty, 1 agent, 2 wall, 3 goal; `"planes"`: float32
      `[height, width, 3]`, one-hot for agent, wall, goal.
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
    observation: Literal["cells", "planes"] = "cells"

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
        one_of("observation", self.observation, ("cells", "planes"))

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
        return Box(0.0, 1.0, (height, width, 3))

    def optimum(self) -> DoorsOptimum:
        """Compute what the shortest path achieves from every start.

        A path uses height - 1 upward moves and, through the best door d, |a - d| +
        |d - g| sideways ones; its return is the initial distance. The time limit is
        left out.
        """
        height, width = self.size
        agent, goal = np.arange(width)[:, None], np.arange(width)
        through = np.abs(agent - self.doors)[:, None] + np.abs(
            self.doors - goal[:, None]
        )
        length = height - 1 + through.min(axis=-1)
        return DoorsOptimum(length, np.hypot(height - 1, agent - goal))

    def _is_wall(self) -> np.ndarray:
        """Bool `[height, width]`, true in the wall but for its doors."""
        wall = np.zeros(self.size, bool)
        wall[self.wall_row] = True
        wall[self.wall_row, self.doors] = False
        return wall

    def _mark(self, position: Array) -> Array:
        """Bool `[height, width]`, true at one cell. Compares: a scatter is slower."""
        height, width = self.size
        in_row = jnp.arange(height) == position[0]
        in_column = jnp.arange(width) == position[1]
        return in_row[:, None] & in_column[None, :]

    def _observe(self, state: DoorsState) -> Array:
        agent, goal = self._mark(state.agent), self._mark(state.goal)
        wall = self._is_wall()
        if self.observation == "planes":
            planes = jnp.stack([agent, jnp.asarray(wall), goal], axis=-1)
            return planes.astype(jnp.float32)
        # The agent hides what it stands on.
        cells = jnp.where(goal, GOAL, np.where(wall, WALL, EMPTY).astype(np.int32))
        return jnp.where(agent, AGENT, cells).reshape(-1).astype(jnp.float32)


def _distance(a: Array, b: Array) -> Array:
    """Euclidean distance of two cells, float32 `[]`."""
    return jnp.sqrt(jnp.sum((a - b) ** 2).astype(jnp.float32))
