"""Doors-v0 in NumPy, as a Gymnasium environment: the same task without JAX's programs.

It is what benchmarks compare the JAX environment with, and what agents of other stacks
train in. Importing this module registers it as `GYMNASIUM_ID`:

    import gymnasium
    from doors_numpy import GYMNASIUM_ID

    env = gymnasium.make(GYMNASIUM_ID, render_mode="rgb_array")
    env.reset(options={"agent": (14, 3), "goal": (0, 9)})

`envs.to_gymnasium("Doors-v0")` is the JAX environment behind the same interface, where
every step is a call of a compiled program.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import gymnasium
import numpy as np

from purerl.envs.adapters.gymnasium_env import RENDER_FPS
from purerl.envs.doors import AGENT, COLOURS, EMPTY, GOAL, MOVES, WALL, Doors

GYMNASIUM_ID = "purerl-numpy/Doors-v0"
SCALE = 10  # pixels per cell of a picture


class NumpyDoors(gymnasium.Env):
    """Walk through a door to the goal, stepped in NumPy; the rules are `envs.Doors`'s.

    Observations, rewards and flags equal those of the JAX environment to the last bit,
    from the same starts. Starts are drawn from Gymnasium's generator: the columns of
    agent and goal are independent. `terminated` and `truncated` are never both true.

    `reset(options={"agent": (row, column), "goal": (row, column)})` starts from given
    cells; what is not given is drawn. Other options do nothing.

    Attributes:
        task: The JAX environment, whose size, doors and kind of observation it has.
        max_steps_in_episode: Time limit, in steps.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 - the type is Gymnasium's
        "render_modes": ["rgb_array"],
        "render_fps": RENDER_FPS,
    }

    def __init__(
        self,
        size: tuple[int, int] = (15, 15),
        num_doors: int = 3,
        observation: Literal["cells", "planes", "coordinates"] = "cells",
        max_steps_in_episode: int = 60,
        render_mode: str | None = None,
    ) -> None:
        """Make an environment; see the class.

        Args:
            size: Height and width of the grid.
            num_doors: Number of doors.
            observation: Kind of observation, as in `envs.Doors`.
            max_steps_in_episode: Time limit, in steps.
            render_mode: `"rgb_array"`, or None for no pictures.

        Raises:
            ValueError: the doors do not fit, or an unknown kind, mode or limit.
        """
        self.task = Doors(size, num_doors, observation)
        if max_steps_in_episode < 1:
            raise ValueError(
                f"max_steps_in_episode must be 1 or more, got {max_steps_in_episode}."
            )
        if render_mode not in (None, "rgb_array"):
            raise ValueError(
                f"render_mode of Doors must be 'rgb_array' or None, got "
                f"{render_mode!r}."
            )
        self.max_steps_in_episode = max_steps_in_episode
        self.render_mode = render_mode
        height, width = self.task.size
        self._walls = np.full((height, width), EMPTY, np.int8)
        self._walls[self.task.wall_row] = WALL
        self._walls[self.task.wall_row, self.task.doors] = EMPTY
        space = self.task.observation_space()
        self.observation_space = gymnasium.spaces.Box(
            space.low, space.high, space.shape, np.float32
        )
        self.action_space = gymnasium.spaces.Discrete(len(MOVES))
        self._running = False
        self._agent, self._goal = (height - 1, 0), (0, 0)
        self._time = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode.

        Args:
            seed: Seed of Gymnasium's generator; not given: it goes on.
            options: `agent` and `goal`, cells to start from; see the class.

        Returns:
            The first observation, and an empty dictionary.

        Raises:
            ValueError: options that are no dictionary, a cell that is no free cell of
                the grid, or twice the same cell.
        """
        if not isinstance(options or {}, Mapping):
            raise ValueError(
                'options of reset must be a dictionary, such as {"goal": (0, 9)}, got '
                f"{options!r}."
            )
        given = options or {}
        super().reset(seed=seed)
        height, width = self.task.size
        agent, goal = (int(x) for x in self.np_random.integers(0, width, 2))
        self._agent = self._cell("agent", given.get("agent", (height - 1, agent)))
        self._goal = self._cell("goal", given.get("goal", (0, goal)))
        if self._agent == self._goal:
            raise ValueError(
                f"agent and goal must start on different cells, got {self._agent} for "
                "both."
            )
        self._time, self._running = 0, True
        return self._observe(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Take one step.

        Args:
            action: 0 stay, 1 right, 2 down, 3 left, 4 up.

        Returns:
            `obs, reward, terminated, truncated, info`; the info is empty.

        Raises:
            ResetNeeded: no episode is running.
            InvalidAction: not one of the five.
        """
        if not self._running:
            raise gymnasium.error.ResetNeeded(
                "no episode of Doors-v0 is running: call `reset`."
            )
        down, right = MOVES[self._move(action)]
        height, width = self.task.size
        row = min(max(self._agent[0] + down, 0), height - 1)
        column = min(max(self._agent[1] + right, 0), width - 1)
        before = self._agent
        if self._walls[row, column] != WALL:
            self._agent = (row, column)
        reward = self._distance(before) - self._distance(self._agent)
        self._time += 1
        terminated = self._agent == self._goal
        truncated = not terminated and self._time >= self.max_steps_in_episode
        self._running = not (terminated or truncated)
        return self._observe(), float(reward), terminated, truncated, {}

    def render(self) -> Any:
        """Draw the grid: agent blue, wall green, goal red on black.

        Returns:
            uint8 `[height * 10, width * 10, 3]`; None without a `render_mode`.
        """
        if self.render_mode is None:
            return None
        image = COLOURS[self._cells()]
        return image.repeat(SCALE, axis=0).repeat(SCALE, axis=1)

    @staticmethod
    def _move(action: Any) -> int:
        """An action as an integer, which may be NumPy's.

        Raises:
            InvalidAction: it is none of the five.
        """
        value = np.asarray(action)
        is_integer = value.shape == () and np.issubdtype(value.dtype, np.integer)
        if not is_integer or not 0 <= value < len(MOVES):
            raise gymnasium.error.InvalidAction(
                f"action must be an integer in 0 .. {len(MOVES) - 1}, got {action!r}."
            )
        return int(value)

    def _cell(self, name: str, given: Any) -> tuple[int, int]:
        """A cell as two integers.

        Raises:
            ValueError: it is no free cell of the grid.
        """
        cell = np.asarray(given)
        height, width = self.task.size
        if cell.shape == (2,) and np.issubdtype(cell.dtype, np.integer):
            row, column = map(int, cell)
            is_inside = 0 <= row < height and 0 <= column < width
            if is_inside and self._walls[row, column] != WALL:
                return row, column
        raise ValueError(
            f"{name} must be the row and column of a cell of the {height} x {width} "
            f"grid that is no wall, got {given!r}."
        )

    def _distance(self, cell: tuple[int, int]) -> np.float32:
        """Euclidean distance to the goal, rounded as the JAX environment rounds it."""
        down, right = cell[0] - self._goal[0], cell[1] - self._goal[1]
        return np.sqrt(np.float32(down * down + right * right))

    def _cells(self) -> np.ndarray:
        """The grid, int8 `[height, width]`."""
        cells = self._walls.copy()
        cells[self._goal] = GOAL
        cells[self._agent] = AGENT
        return cells

    def _observe(self) -> np.ndarray:
        if self.task.observation == "cells":
            return self._cells().reshape(-1).astype(np.float32)
        if self.task.observation == "planes":
            planes = np.zeros((*self.task.size, 3), np.float32)
            planes[(*self._agent, 0)] = 1
            planes[..., 1] = self._walls == WALL
            planes[(*self._goal, 2)] = 1
            return planes
        edge = np.array(self.task.size * 2, np.float32) - 1
        return np.array(self._agent + self._goal, np.float32) / edge


if GYMNASIUM_ID not in gymnasium.registry:
    gymnasium.register(id=GYMNASIUM_ID, entry_point=f"{__name__}:NumpyDoors")
