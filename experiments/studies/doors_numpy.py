"""Doors-v0 in NumPy, as a Gymnasium environment: the same task without JAX's programs.

It is what the study "doors" compares the JAX environment with, and what agents of other
stacks train in. Importing this module registers it as `GYMNASIUM_ID`.

`envs.to_gymnasium("Doors-v0")` is the JAX environment behind the same interface, where
every step is a call of a compiled program.
"""

from typing import Any

import gymnasium
import numpy as np

from purerl.envs.doors import AGENT, EMPTY, GOAL, MOVES, WALL, Doors

GYMNASIUM_ID = "purerl-numpy/Doors-v0"
TASK = Doors()
HEIGHT, WIDTH = TASK.size
LIMIT = 60  # Steps after which an episode is cut.
WALLS = np.full((HEIGHT, WIDTH), EMPTY, np.int8)
WALLS[TASK.wall_row] = WALL
WALLS[TASK.wall_row, TASK.doors] = EMPTY


class NumpyDoors(gymnasium.Env):
    """Walk through a door to the goal; the rules are those of `envs.Doors`.

    Observations, rewards and flags equal those of the JAX environment to the last bit,
    from the same starts. Starts are drawn from Gymnasium's generator: the columns of
    agent and goal are independent. `reset(options={"agent": (14, 3), "goal": (0, 9)})`
    starts from given cells.
    """

    observation_space = gymnasium.spaces.Box(
        float(EMPTY), float(max(AGENT, GOAL, WALL)), (HEIGHT * WIDTH,), np.float32
    )
    action_space = gymnasium.spaces.Discrete(len(MOVES))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode; return the first observation."""
        super().reset(seed=seed)
        agent, goal = (int(x) for x in self.np_random.integers(0, WIDTH, 2))
        cells = {"agent": (HEIGHT - 1, agent), "goal": (0, goal), **(options or {})}
        self._agent, self._goal = (tuple(map(int, x)) for x in cells.values())
        self._time = 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Take one step: 0 stay, 1 right, 2 down, 3 left, 4 up."""
        down, right = MOVES[int(action)]
        row = min(max(self._agent[0] + down, 0), HEIGHT - 1)
        column = min(max(self._agent[1] + right, 0), WIDTH - 1)
        before = self._distance()
        if WALLS[row, column] != WALL:
            self._agent = (row, column)
        self._time += 1
        terminated = self._agent == self._goal
        truncated = not terminated and self._time >= LIMIT
        reward = float(before - self._distance())
        return self._observe(), reward, terminated, truncated, {}

    def _distance(self) -> np.float32:
        """Euclidean distance to the goal, rounded as the JAX environment rounds it."""
        down, right = (a - b for a, b in zip(self._agent, self._goal, strict=True))
        return np.sqrt(np.float32(down * down + right * right))

    def _observe(self) -> np.ndarray:
        cells = WALLS.copy()
        cells[self._goal] = GOAL
        cells[self._agent] = AGENT
        return cells.reshape(-1).astype(np.float32)


if GYMNASIUM_ID not in gymnasium.registry:
    gymnasium.register(id=GYMNASIUM_ID, entry_point=f"{__name__}:NumpyDoors")
