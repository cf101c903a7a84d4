"""GridWorld-v0 and CliffWalking-v0: grids whose observation is the number of a cell."""

import dataclasses
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from .base import Array, Environment, EnvParams, EnvState, Obs, Step
from .options import two_whole_numbers
from .spaces import Discrete

Cell = tuple[int, int]
NOT_GIVEN: Cell = (-1, -1)

# Row and column change of: up, right, down, left. Row 0 is at the top.
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))


@struct.dataclass
class GridState(EnvState):
    """The place of the agent.

    Attributes:
        position: `[2]` int32, row and column.
    """

    position: Array


@struct.dataclass
class GridParams(EnvParams):
    """Numbers of a grid.

    Attributes:
        max_steps_in_episode: Time limit.
        step_reward: Reward of a step that neither reaches the goal nor falls.
        goal_reward: Reward of the step that reaches the goal.
        cliff_reward: Reward of a step into the cliff, where there is one.
    """

    max_steps_in_episode: int | Array = 1_000
    step_reward: float | Array = 0.0
    goal_reward: float | Array = 1.0
    cliff_reward: float | Array = 0.0


class Model(NamedTuple):
    """An environment as tables; `S` states and `A` actions.

    Attributes:
        next_state: `[S, A]` int, the state that an action leads to.
        reward: `[S, A]` float, what it pays.
        terminated: `[S, A]` bool, whether it ends the episode.
    """

    next_state: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray


def action_values(
    model: Model, gamma: float, epsilon: float = 0.0, tolerance: float = 1e-10
) -> np.ndarray:
    """Compute the action values of the best policy, or of the best that explores.

    Sutton and Barto (2018), chapters 3 and 4, in numpy on the host.

    Q(s, a) = r(s, a) + gamma (1 - terminated(s, a)) V(s') with the next state s' and

        V(s) = (1 - epsilon) max_a Q(s, a) + epsilon mean_a Q(s, a).

    With `epsilon=0` this is value iteration, and Q is that of the optimal policy. With
    another one it is the fixed point of SARSA and of expected SARSA, whose policies
    stay epsilon-greedy: the best among the policies that take every action with a
    probability of at least epsilon / A.

    Args:
        model: The environment as tables.
        epsilon: Probability of a uniform action.
        tolerance: Largest change of a value in the last sweep.

    Returns:
        float `[S, A]`.

    Raises:
        ValueError: the values do not settle, as where an episode without a discount
            never ends.
    """
    values = np.zeros(model.reward.shape)
    going_on = gamma * ~model.terminated
    for _ in range(1_000_000):
        state_values = (1 - epsilon) * values.max(1) + epsilon * values.mean(1)
        new = model.reward + going_on * state_values[model.next_state]
        change = np.abs(new - values).max()
        values = new
        if change <= tolerance:
            return values
    raise ValueError(f"the values do not settle with gamma={gamma}: use one below 1.")


@dataclasses.dataclass(unsafe_hash=True)
class GridWorld(Environment[GridState, GridParams]):
    """Walk from a start to a goal on an empty grid; only the goal pays.

    * observation: int32 `[]`, the number of the cell, row by row:
      `row * width + column`.
    * action: 0 up, 1 right, 2 down, 3 left. Moves off the grid leave the agent where it
      is.
    * reward: 1 for the step that reaches the goal, else 0.
    * terminated: on the goal. truncated: at `max_steps_in_episode`.

    The sizes are those of jym (github.com/RPegoud/jym), which has no time limit.

    Attributes:
        size: Height and width of the grid.
        start: Row and column in which every episode begins; the last cell of the grid
            where not given.
        goal: Row and column of the goal.
    """

    size: tuple[int, int] = (8, 12)
    start: Cell = NOT_GIVEN
    goal: Cell = (0, 0)

    title: ClassVar[str] = "GridWorld-v0"
    stochastic_transitions: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            ValueError: an option is no pair of whole numbers, start or goal is off the
                grid, or they are the same cell.
        """
        for name in ("size", "start", "goal"):
            setattr(self, name, two_whole_numbers(name, getattr(self, name)))
        height, width = self.size
        if self.start == NOT_GIVEN:
            self.start = (height - 1, width - 1)
        for name in ("start", "goal"):
            row, column = getattr(self, name)
            if not (0 <= row < height and 0 <= column < width):
                raise ValueError(
                    f"{name} must be a cell of the grid of {height} x {width}, counted "
                    f"from 0, got {row, column}."
                )
        if self.start == self.goal:
            raise ValueError(f"start and goal must be two cells, got {self.start}.")

    @property
    def default_params(self) -> GridParams:
        """The goal pays 1; 1,000 steps."""
        return GridParams()

    def reset_env(self, key: Array, params: GridParams) -> tuple[Obs, GridState]:
        """Stand on the start; nothing is drawn."""
        position = jnp.asarray(self.start, jnp.int32)
        return self._observe(position), GridState(jnp.int32(0), position)

    def step_env(
        self, key: Array, state: GridState, action: Array, params: GridParams
    ) -> Step:
        """Move by one cell."""
        edge = np.array(self.size, np.int32) - 1
        target = jnp.clip(
            state.position + jnp.asarray(MOVES, jnp.int32)[action], 0, edge
        )
        is_goal = jnp.all(target == jnp.asarray(self.goal, jnp.int32))
        falls = self.is_cliff(target)
        reward = jnp.where(is_goal, params.goal_reward, params.step_reward)
        reward = jnp.where(falls, params.cliff_reward, reward).astype(jnp.float32)
        position, terminated = self._land(target, is_goal, falls)
        next_state = GridState(state.time + 1, position)
        return self._observe(position), next_state, reward, terminated, {}

    def action_space(self, params: GridParams | None = None) -> Discrete:
        """Up, right, down, left."""
        return Discrete(len(MOVES))

    def observation_space(self, params: GridParams | None = None) -> Discrete:
        """Return the space of observations, one number for each cell."""
        return Discrete(self.size[0] * self.size[1])

    def model(self, params: GridParams | None = None) -> Model:
        """Tabulate what every action does in every cell; the time limit is left out.

        Cells in which no episode goes on (the goal, a cliff) have rows too, as if an
        episode began there.
        """
        params = self.default_params if params is None else params
        height, width = self.size
        rows, columns = np.divmod(np.arange(height * width), width)
        positions = jnp.asarray(np.stack([rows, columns], 1), jnp.int32)

        def act(position: Array, action: Array) -> tuple[Array, ...]:
            state = GridState(jnp.int32(0), position)
            obs, _, reward, terminated, _ = self.step_env(
                jax.random.key(0), state, action, params
            )
            return obs, reward, terminated

        each = jax.vmap(jax.vmap(act, (None, 0)), (0, None))
        return Model(*map(np.asarray, each(positions, jnp.arange(len(MOVES)))))

    def optimal_values(
        self, gamma: float, params: GridParams | None = None
    ) -> np.ndarray:
        """Compute the optimal action values, float `[cells, actions]`.

        The time limit is no part of the task; see `action_values`.

        Args:
            params: Numbers of the environment; `default_params` where not given.
        """
        return action_values(self.model(params), gamma)

    def is_cliff(self, position: Array | np.ndarray) -> Array:
        """Return whether a cell `[2]` belongs to the cliff; a grid world has none."""
        return jnp.bool_(False)

    def _land(self, target: Array, is_goal: Array, falls: Array) -> tuple[Array, Array]:
        """Return where a move to `target` ends, and whether the episode does."""
        return target, is_goal

    def _observe(self, position: Array) -> Array:
        return position[0] * jnp.int32(self.size[1]) + position[1]


@dataclasses.dataclass(unsafe_hash=True)
class CliffWalking(GridWorld):
    """Walk along a cliff to the goal behind it.

    * observation, action: those of `GridWorld`.
    * reward: -1 per step, -100 for a step into the cliff, 0 for the one that reaches
      the goal.
    * terminated: on the goal, and in the cliff where `cliff_ends`. truncated: at
      `max_steps_in_episode`.

    The cliff is the lowest row between the two lower corners, in which start and goal
    are. By default this is the task of jym (github.com/RPegoud/jym): 4 x 11 cells, and
    an episode ends in the cliff. Example 6.6 of Sutton and Barto (2018) has 12 columns,
    returns the agent to the start with the episode going on, and pays -1 for the last
    step too: `CliffWalking(size=(4, 12), cliff_ends=False)` with `goal_reward=-1`.

    Attributes:
        size: Height and width of the grid.
        start: Row and column of the start; the lower left corner where not given.
        goal: Row and column of the goal; the lower right corner where not given.
        cliff_ends: Whether an episode ends in the cliff. Where not, the agent is back
            at the start.
    """

    size: tuple[int, int] = (4, 11)
    start: Cell = NOT_GIVEN
    goal: Cell = NOT_GIVEN
    cliff_ends: bool = True

    title: ClassVar[str] = "CliffWalking-v0"

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            ValueError: an option is no pair of whole numbers, the grid is too small for
                a way around a cliff, or start or goal is not one of the two lower
                corners.
        """
        height, width = two_whole_numbers("size", self.size)
        if height < 2 or width < 3:
            raise ValueError(f"size must be at least 2 x 3, got {height} x {width}.")
        corners = {"start": (height - 1, 0), "goal": (height - 1, width - 1)}
        for name, corner in corners.items():
            given = two_whole_numbers(name, getattr(self, name))
            if given not in (NOT_GIVEN, corner):
                raise ValueError(
                    f"{name} must be the lower corner {corner}, got {given}."
                )
            setattr(self, name, corner)
        super().__post_init__()

    @property
    def default_params(self) -> GridParams:
        """-1 per step, -100 in the cliff, 0 at the goal; 1,000 steps."""
        return GridParams(step_reward=-1.0, goal_reward=0.0, cliff_reward=-100.0)

    def is_cliff(self, position: Array | np.ndarray) -> Array:
        """Return whether a cell `[2]` belongs to the cliff."""
        height, width = self.size
        row, column = position[0], position[1]
        return (row == height - 1) & (column > 0) & (column < width - 1)

    def _land(self, target: Array, is_goal: Array, falls: Array) -> tuple[Array, Array]:
        if self.cliff_ends:
            return target, is_goal | falls
        start = jnp.asarray(self.start, jnp.int32)
        return jnp.where(falls, start, target), is_goal
