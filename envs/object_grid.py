"""ObjectGrid-v0: a grid with objects that pay, end the episode, and respawn.

The tabular grid worlds on which Oh et al. (2020, "Discovering Reinforcement Learning
Algorithms", arXiv:2007.08794) learned a rule of reinforcement learning. Where the
objects are, what they pay and how they behave are numbers, so that a distribution of
tasks is a distribution of parameters: see `ObjectGrid.draw_params`.
"""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from .base import Array, Environment, EnvParams, EnvState, Obs, Step
from .options import one_of, two_whole_numbers, whole_number
from .spaces import Box, Discrete, Space

# Row and column change of: up, right, down, left, stay. Row 0 is at the top.
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1), (0, 0))
OBSERVATIONS = ("number", "vector")


@struct.dataclass
class ObjectGridState(EnvState):
    """The place of the agent, and the objects that are there.

    Attributes:
        cell: `[]` int32, number of the agent's cell, row by row.
        present: `[K]` bool, objects that can be collected.
    """

    cell: Array
    present: Array


@struct.dataclass
class ObjectGridParams(EnvParams):
    """Numbers of a grid with K objects; cells are counted row by row.

    Attributes:
        max_steps_in_episode: Time limit.
        start: Cell in which every episode begins.
        cells: `[K]` int32, cell of each object.
        rewards: `[K]` float32, reward for collecting it.
        termination_probabilities: `[K]` float32, probability that the episode
            ends with it.
        respawn_probabilities: `[K]` float32, probability that it respawns, in each step
            after the one that collected it.
    """

    max_steps_in_episode: int | Array = 50
    start: int | Array = 0
    cells: Any = None
    rewards: Any = None
    termination_probabilities: Any = None
    respawn_probabilities: Any = None


@dataclasses.dataclass(unsafe_hash=True)
class ObjectGrid(Environment[ObjectGridState, ObjectGridParams]):
    """Walk on a grid and collect objects; some pay, some cost, some end the episode.

    * observation: with `number` int32 `[]`, the number of the state,
      `cell + cells * sum_k 2^k present_k`; with `vector` float32 `[cells + K]`, the
      cell as a one-hot vector and which objects are there.
    * action: 0 up, 1 right, 2 down, 3 left, 4 stay. Moves off the grid leave the agent
      where it is.
    * reward: the sum of the rewards of the objects that were in the cell after the
      move. They are gone then.
    * terminated: with the probability of each object that was collected. truncated: at
      `max_steps_in_episode`.
    * Every object that was gone before the step respawns with its probability, even
      under the agent, who then collects it in the next step.

    By default the first object pays 1 and the others -1, each ends the episode with
    probability one half, and respawns with probability 0.05.

    Attributes:
        size: Height and width of the grid.
        num_objects: Number K of objects, at most 8.
        observation: Kind of the observation, `number` or `vector`.
    """

    size: tuple[int, int] = (5, 5)
    num_objects: int = 3
    observation: str = "number"

    title: ClassVar[str] = "ObjectGrid-v0"

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            ValueError: an option is of another kind, or the objects and the start do
                not find a cell each.
        """
        self.size = two_whole_numbers("size", self.size)
        self.num_objects = whole_number("num_objects", self.num_objects, least=1)
        if min(self.size) < 1:
            raise ValueError(f"size must be at least 1 x 1, got {self.size}.")
        most = min(8, self.num_cells - 1)
        if self.num_objects > most:
            raise ValueError(
                f"num_objects must be at most {most} on a grid of {self.num_cells} "
                f"cells, got {self.num_objects}."
            )
        one_of("observation", self.observation, OBSERVATIONS)

    @property
    def num_cells(self) -> int:
        """Number of cells of the grid."""
        return self.size[0] * self.size[1]

    @property
    def default_params(self) -> ObjectGridParams:
        """The first object pays, the others cost; they are spread over the grid."""
        number = self.num_objects
        cells = (np.arange(number) + 1) * (self.num_cells - 1) // number
        rewards = np.where(np.arange(number) == number - 1, 1.0, -1.0)
        return ObjectGridParams(
            cells=cells[::-1].astype(np.int32),
            rewards=rewards[::-1].astype(np.float32),
            termination_probabilities=np.full(number, 0.5, np.float32),
            respawn_probabilities=np.full(number, 0.05, np.float32),
        )

    def draw_params(self, key: Array) -> ObjectGridParams:
        """Draw a task: cells, rewards and probabilities, all by the key.

        The start and the objects have different cells. The first object pays between 0
        and 1, every other one between -1 and 1. Probabilities to end the episode are
        log-uniform between 0.01 and 1, those to respawn between 0.001 and 0.1, and
        the time limit is log-uniform between 20 and 100 steps: the distribution called
        `small` in the code of Jackson et al. (2023, github.com/EmptyJackson/groove),
        without walls. A `vmap` over keys draws a distribution of tasks.

        Args:
            key: Random key, consumed.
        """
        number = self.num_objects
        keys = jax.random.split(key, 6)
        places = jax.random.permutation(keys[0], self.num_cells)[: number + 1]
        first = jax.random.uniform(keys[1], (1,))
        others = jax.random.uniform(keys[2], (number - 1,), minval=-1.0)
        limit = _log_uniform(keys[5], (), 20.0, 100.0)
        return ObjectGridParams(
            max_steps_in_episode=jnp.round(limit).astype(jnp.int32),
            start=places[0].astype(jnp.int32),
            cells=places[1:].astype(jnp.int32),
            rewards=jnp.concatenate([first, others]),
            termination_probabilities=_log_uniform(keys[3], (number,), 0.01, 1.0),
            respawn_probabilities=_log_uniform(keys[4], (number,), 0.001, 0.1),
        )

    def draw_level(self, key: Array, params: ObjectGridParams) -> ObjectGridParams:
        """Draw a task as `draw_params` does, with the time limit of `params`."""
        drawn = self.draw_params(key)
        return dataclasses.replace(
            params,
            start=drawn.start,
            cells=drawn.cells,
            rewards=drawn.rewards,
            termination_probabilities=drawn.termination_probabilities,
            respawn_probabilities=drawn.respawn_probabilities,
        )

    def reset_env(
        self, key: Array, params: ObjectGridParams
    ) -> tuple[Obs, ObjectGridState]:
        """Stand on the start, with every object there; nothing is drawn."""
        state = ObjectGridState(
            time=jnp.int32(0),
            cell=jnp.asarray(params.start, jnp.int32),
            present=jnp.ones(self.num_objects, jnp.bool_),
        )
        return self._observe(state), state

    def step_env(
        self,
        key: Array,
        state: ObjectGridState,
        action: Array,
        params: ObjectGridParams,
    ) -> Step:
        """Move, and collect what is there."""
        chances = jax.random.uniform(key, (2, self.num_objects))
        cell = self._move(state.cell, action)
        collected = state.present & (jnp.asarray(params.cells) == cell)
        reward = jnp.where(collected, jnp.asarray(params.rewards), 0.0).sum()
        ends = collected & (chances[0] < jnp.asarray(params.termination_probabilities))
        respawned = chances[1] < jnp.asarray(params.respawn_probabilities)
        next_state = ObjectGridState(
            time=state.time + 1,
            cell=cell,
            present=(state.present | respawned) & ~collected,
        )
        obs, reward = self._observe(next_state), reward.astype(jnp.float32)
        return obs, next_state, reward, ends.any(), {}

    def action_space(self, params: ObjectGridParams | None = None) -> Discrete:
        """Up, right, down, left, stay."""
        return Discrete(len(MOVES))

    def observation_space(self, params: ObjectGridParams | None = None) -> Space:
        """Return the space of the states' numbers, or of vectors of zeros and ones."""
        if self.observation == "number":
            return Discrete(self.num_cells * 2**self.num_objects)
        return Box(0.0, 1.0, (self.num_cells + self.num_objects,))

    def expected_return(
        self, params: ObjectGridParams | None = None, policy: str = "optimal"
    ) -> float:
        """Compute the expected return of an episode, by dynamic programming over time.

        With `t` steps left, `p_s` the probabilities of the next states and `e` that of
        the end,

            V_t(s) = max_a or mean_a of  r(s, a) + (1 - e(s, a)) sum_s' p_s' V_{t-1}(s')

        Rewards are not discounted, and the time limit is part of the task.

        Args:
            policy: `optimal`: the best policy, which knows the time; `uniform`: every
                action with the same probability.

        Raises:
            ValueError: another policy.
        """
        one_of("policy", policy, ("optimal", "uniform"))
        choose = np.max if policy == "optimal" else np.mean
        params = self.default_params if params is None else params
        masks, kept, reward, going_on = self._tables(params)
        start = int(params.start)
        each = jax.vmap(jax.vmap(self._move, (None, 0)), (0, None))
        target = np.asarray(each(jnp.arange(self.num_cells), jnp.arange(len(MOVES))))
        values = np.zeros((self.num_cells, len(masks)))
        for _ in range(int(params.max_steps_in_episode)):
            # Of arriving in a cell with some objects there: [cells, masks].
            arrived = reward + going_on * np.einsum("cmn,cn->cm", kept, values)
            values = choose(arrived[target], axis=1)
        return float(values[start, -1])

    def _tables(self, params: ObjectGridParams) -> tuple[np.ndarray, ...]:
        """Return the effects of arriving in each cell with each set of objects.

        Returns:
            The sets `[2^K, K]`; probabilities of the next set `[cells, 2^K, 2^K]`;
            reward `[cells, 2^K]`; probability that the episode goes on, likewise.
        """
        number = self.num_objects
        masks = (np.arange(2**number)[:, None] >> np.arange(number) & 1).astype(bool)
        there = np.arange(self.num_cells)[:, None] == np.asarray(params.cells)
        collected = there[:, None] & masks[None]
        reward = (collected * np.asarray(params.rewards, float)).sum(-1)
        ends = np.asarray(params.termination_probabilities, float)
        going_on = np.prod(np.where(collected, 1.0 - ends, 1.0), axis=-1)
        back = np.asarray(params.respawn_probabilities, float)
        present = np.where(masks, 1.0, back)[None] * ~collected  # [cells, 2^K, K]
        each = np.where(masks, present[:, :, None], 1.0 - present[:, :, None])
        return masks, each.prod(-1), reward, going_on

    def _move(self, cell: Any, action: Any) -> Array:
        height, width = self.size
        change = jnp.asarray(MOVES, jnp.int32)[action]
        row = jnp.clip(cell // width + change[0], 0, height - 1)
        column = jnp.clip(cell % width + change[1], 0, width - 1)
        return (row * width + column).astype(jnp.int32)

    def _observe(self, state: ObjectGridState) -> Array:
        if self.observation == "vector":
            here = jax.nn.one_hot(state.cell, self.num_cells, dtype=jnp.float32)
            return jnp.concatenate([here, state.present.astype(jnp.float32)])
        powers = jnp.asarray(2 ** np.arange(self.num_objects), jnp.int32)
        number = (state.present * powers).sum(dtype=jnp.int32)
        return state.cell + jnp.int32(self.num_cells) * number


def _log_uniform(key: Array, shape: tuple[int, ...], low: float, high: float) -> Array:
    """Numbers between two ends, every order of magnitude equally likely."""
    share = jax.random.uniform(key, shape)
    return low * (high / low) ** share
