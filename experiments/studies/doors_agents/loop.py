"""DQN's loop around Gymnasium's Doors-v0, in NumPy, for a learner of any framework.

`train` steps a vector of environments, keeps what happened in a replay buffer, and
lets a `Learner` act and take gradient steps: `torch_dqn` has one in PyTorch, `flax_dqn`
one in Flax. The settings are a `purerl.DQNConfig`, and what is done with them is what
`purerl.make_train` does: rounds of a step of every environment and some gradient steps,
exploration that depends on the number of the step, targets in which only `terminated`
ends the future.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from doors_numpy import NumpyDoors
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from purerl import DQNConfig

Greedy = Callable[[np.ndarray], np.ndarray]


class Batch(NamedTuple):
    """Transitions, each field with a leading axis of them.

    Attributes:
        obs: float32 `[N, 225]`.
        action: int64 `[N]`.
        reward: float32 `[N]`.
        next_obs: float32 `[N, 225]`, the observation before any reset.
        terminated: float32 `[N]`, 1 where the task ended. A time limit is not an end.
    """

    obs: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    next_obs: np.ndarray
    terminated: np.ndarray


def blank(count: int, width: int) -> Batch:
    """Return a batch of zeros.

    Args:
        count: Number of transitions.
        width: Numbers of an observation.
    """
    return Batch(
        obs=np.zeros((count, width), np.float32),
        action=np.zeros(count, np.int64),
        reward=np.zeros(count, np.float32),
        next_obs=np.zeros((count, width), np.float32),
        terminated=np.zeros(count, np.float32),
    )


class Learner(Protocol):
    """A network and its optimiser, in any framework."""

    def greedy(self, obs: np.ndarray) -> np.ndarray:
        """Return the actions of the greatest value, `[N]`, for `[N, 225]`."""
        ...

    def learn(self, batch: Batch) -> None:
        """Take one gradient step, and update the target network where it is due."""
        ...


class Replay:
    """The last `capacity` transitions, sampled uniformly with replacement.

    Args:
        capacity: Number of transitions that are kept.
        width: Numbers of an observation.
    """

    def __init__(self, capacity: int, width: int) -> None:
        self.capacity, self.added = capacity, 0
        self._fields = blank(capacity, width)

    def add(self, batch: Batch) -> None:
        """Keep some transitions in place of the oldest."""
        count = len(batch.action)
        places = np.arange(self.added, self.added + count) % self.capacity
        for field, values in zip(self._fields, batch, strict=True):
            field[places] = values
        self.added += count

    def sample(self, rng: np.random.Generator, size: int) -> Batch:
        """Draw `size` transitions."""
        places = rng.integers(0, min(self.added, self.capacity), size)
        return Batch(*(field[places] for field in self._fields))


class Course(NamedTuple):
    """The course of a training run, a row per `rounds_per_update` rounds.

    Attributes:
        env_steps: Environment steps so far.
        episode_return: Mean return of the episodes that ended in the row.
        episode_length: Their mean length; the mean step-wise reward is the quotient.
        seconds: Seconds since the start.
    """

    env_steps: list[int]
    episode_return: list[float]
    episode_length: list[float]
    seconds: list[float]


def epsilon_at(config: DQNConfig, env_step: int) -> float:
    """Return the share of random actions at an environment step: a linear decay."""
    share = min(env_step / config.epsilon_steps, 1.0)
    return config.epsilon_start + share * (config.epsilon_end - config.epsilon_start)


def train(learner: Learner, config: DQNConfig, seed: int) -> Course:
    """Train a learner in Gymnasium's vector of environments.

    Args:
        learner: The network and its optimiser.
        config: Settings; `epsilon_steps` is a number.
        seed: Seed of the starts, of exploration and of replay.

    Returns:
        How it went.
    """
    rng = np.random.default_rng(seed)
    envs = SyncVectorEnv(
        [NumpyDoors] * config.num_envs, autoreset_mode=AutoresetMode.SAME_STEP
    )
    obs, _ = envs.reset(seed=seed)
    replay = Replay(config.capacity, obs.shape[1])
    returns, lengths = np.zeros(config.num_envs), np.zeros(config.num_envs)
    ended: list[tuple[float, float]] = []
    course, began = Course([], [], [], []), time.perf_counter()
    for number in range(config.total_timesteps // config.num_envs):
        env_step = number * config.num_envs
        action = explore(learner, config, rng, obs, env_step)
        next_obs, reward, terminated, truncated, info = envs.step(action)
        last = before_reset(next_obs, info)
        replay.add(Batch(obs, action, reward, last, terminated))
        obs = next_obs
        returns, lengths = returns + reward, lengths + 1
        done = terminated | truncated
        ended += zip(returns[done], lengths[done], strict=True)
        returns[done] = lengths[done] = 0
        if env_step + config.num_envs >= config.learning_starts:
            for _ in range(config.gradient_steps):
                learner.learn(replay.sample(rng, config.batch_size))
        if (number + 1) % config.rounds_per_update == 0:
            _note(course, env_step + config.num_envs, ended, began)
            ended = []
    envs.close()
    return course


def explore(
    learner: Learner,
    config: DQNConfig,
    rng: np.random.Generator,
    obs: np.ndarray,
    env_step: int,
) -> np.ndarray:
    """Return epsilon-greedy actions, a coin for every environment.

    Args:
        learner: The network.
        config: Settings of the exploration.
        rng: Source of what is drawn.
        obs: `[B, 225]`.
        env_step: Number of the first environment's step.
    """
    random = rng.integers(0, 5, len(obs))
    if env_step < config.learning_starts:
        return random
    coin = rng.random(len(obs)) < epsilon_at(config, env_step)
    return np.where(coin, random, learner.greedy(obs))


def before_reset(next_obs: np.ndarray, info: dict[str, Any]) -> np.ndarray:
    """Return the observations that the steps led to, where some lanes were reset.

    Args:
        next_obs: `[B, 225]`, the first observation of the next episode where one ended.
        info: The vector environment's, with `final_obs` where one ended.
    """
    if "final_obs" not in info:
        return next_obs
    last = next_obs.copy()
    for lane in np.flatnonzero(info["_final_obs"]):
        last[lane] = info["final_obs"][lane]
    return last


def _note(course: Course, env_steps: int, ended: list, began: float) -> None:
    means = np.mean(ended, axis=0) if ended else (np.nan, np.nan)
    row = (env_steps, *map(float, means), time.perf_counter() - began)
    columns: tuple[list[Any], ...] = tuple(course)
    for column, value in zip(columns, row, strict=True):
        column.append(value)


class Score(NamedTuple):
    """The score of a policy from all 225 starts, each played once.

    Attributes:
        episode_return: Mean return; at most 15.21.
        episode_length: Mean length.
        solved: Share of the starts from which it reaches the goal.
    """

    episode_return: float
    episode_length: float
    solved: float

    @property
    def stepwise(self) -> float:
        """Mean return over mean length, the source's score; .776 for shortest paths."""
        return self.episode_return / self.episode_length

    def numbers(self) -> dict[str, float]:
        """Return all four by name."""
        return {**self._asdict(), "stepwise": self.stepwise}


def score(greedy: Greedy) -> Score:
    """Play a deterministic policy from every start of Doors-v0."""
    width = 15
    envs = [NumpyDoors() for _ in range(width * width)]
    starts = [
        {"agent": (14, agent), "goal": (0, goal)}
        for agent in range(width)
        for goal in range(width)
    ]
    obs = np.stack(
        [env.reset(options=o)[0] for env, o in zip(envs, starts, strict=True)]
    )
    returns, lengths = np.zeros(len(envs)), np.zeros(len(envs))
    solved, running = np.zeros(len(envs), bool), np.ones(len(envs), bool)
    while running.any():
        actions = greedy(obs)
        for i in np.flatnonzero(running):
            obs[i], reward, terminated, truncated, _ = envs[i].step(actions[i])
            returns[i] += reward
            lengths[i] += 1
            solved[i] = terminated
            running[i] = not (terminated or truncated)
    return Score(float(returns.mean()), float(lengths.mean()), float(solved.mean()))
