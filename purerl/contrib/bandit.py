"""Bandit methods (Sutton and Barto 2018, chapter 2).

An episode is one problem: its arms have values that the agent finds out while it earns.
`epsilon_greedy` and `ucb` keep an estimate Q(a) of every arm's value, which moves after
the arm was pulled and paid r (equations 2.3 and 2.5),

    Q(a) <- Q(a) + step (r - Q(a)),   step = 1 / N(a) or learning_rate,

with N(a) the pulls so far. Epsilon-greedy takes an arm with the largest estimate, or
with probability epsilon a uniform one. The upper confidence bound (2.10) takes

    argmax_a Q(a) + exploration sqrt(ln t / N(a)),   at pull number t = 1, 2, ...,

and arms without a pull first. `gradient` has preferences H(a), takes an arm with the
probability pi(a) = softmax(H)(a), and moves all of them (2.12),

    H(a) <- H(a) + learning_rate (r - baseline) (1[a = taken] - pi(a)),

where the baseline is the average of the rewards before, at the first pull the reward
itself, or 0. Among equal arms one is taken at random.

Where an episode ends, the next one is another problem, so that estimates, counts and
preferences begin anew with its first pull. A population of problems is a `vmap` over
keys, so an agent has one environment.

Defaults are the book's: ten arms, 1,000 pulls, epsilon 0.1 (figure 2.2), a constant
step size of 0.1 (figure 2.3), c = 2 (figure 2.4).
"""

from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp

from purerl.acting import exploration, rollout
from purerl.acting.rollout import is_bad
from purerl.algorithms import Entry, every_step, pieces
from purerl.config import ConfigError, TrainConfig, config_dataclass, dynamic, static
from purerl.envs.base import Environment
from purerl.envs.wrappers import innermost, unwrap
from purerl.fields import FRACTION, NON_NEGATIVE, POSITIVE, one_of
from purerl.keys import init_keys
from purerl.types import Algorithm, Array, Metrics

METHODS = ("epsilon_greedy", "ucb", "gradient")
STEP_SIZES = ("constant", "sample_average")


@config_dataclass
class BanditConfig(TrainConfig):
    """Epsilon-greedy, upper confidence bounds and gradient bandits."""

    env: Any = static("KArmedBandit-v0", "Environment with one state.")
    total_timesteps: int = static(1_000, "Pulls of one agent.", POSITIVE)
    num_envs: int = static(1, "An agent has one problem at a time: 1.", POSITIVE)
    num_steps: int = static(1, "Pulls between two rows of metrics.", POSITIVE)
    method: str = static("epsilon_greedy", "What chooses arms.", one_of(*METHODS))
    step_size: str = static("constant", "Step size of estimates.", one_of(*STEP_SIZES))
    learning_rate: float = dynamic(0.1, "Constant step size.", POSITIVE)
    epsilon: float = dynamic(0.1, "Share of random pulls of epsilon_greedy.", FRACTION)
    exploration: float = dynamic(2.0, "Weight of ucb's bound.", NON_NEGATIVE)
    initial_value: float = dynamic(0.0, "Estimate before an arm's first pull.")
    baseline: bool = static(True, "Compare rewards with their average, in gradient.")
    num_evaluations: int = static(0, "Evaluations of the best arm.", NON_NEGATIVE)

    @property
    def sequential_steps(self) -> int:
        """Dependent steps of one update."""
        return self.num_steps


class Parts(NamedTuple):
    """The parts of the agent, bound in Python: structure, and the config's numbers."""

    config: BanditConfig
    stepper: rollout.Stepper
    num_arms: int


class Learner(NamedTuple):
    """The estimates that the agent has of a problem.

    Attributes:
        values: `[k]` estimates, or preferences of `gradient`.
        counts: `[k]` int32, pulls of each arm.
        mean_reward: `[]` average of all rewards.
    """

    values: Array
    counts: Array
    mean_reward: Array


class BanditState(NamedTuple):
    """Everything that training carries, arrays only.

    Attributes:
        params: `values`, `[k]`: estimates or preferences.
        counts: `[k]` int32, pulls of each arm in this problem.
        mean_reward: `[]` average of the rewards of this problem.
        envs: The environment between two steps.
        key: Random key of the agent, which never changes; every update's key is folded
            from it.
        update: `[]` int32, number of updates done.
    """

    params: dict[str, Array]
    counts: Array
    mean_reward: Array
    envs: rollout.EnvCarry
    key: Array
    update: Array


class Noise(NamedTuple):
    """The randomness of a pull.

    Attributes:
        coin: Whether a uniform arm is pulled, and which; its toss draws of softmax.
        tie: Number that decides which of several best arms is pulled, int32.
    """

    coin: exploration.Coin
    tie: Array


class Trace(NamedTuple):
    """The pulls of an update, of which its metrics are made, `[T]` each."""

    reward: Array
    optimal: Array
    regret: Array


def validate(config: BanditConfig, env: Environment) -> None:
    """Check what fields have to do with one another and with the environment.

    Raises:
        ConfigError: several environments, an environment with observations or without
            discrete actions, or fields that contradict one another.
    """
    if config.num_envs != 1:
        raise ConfigError(
            f"num_envs must be 1 for BanditConfig, got {config.num_envs}: an agent has "
            "one problem; use jax.vmap(train)(keys) or seeds."
        )
    states: Any = env.observation_space(env.default_params)
    actions: Any = env.action_space(env.default_params)
    if getattr(states, "n", None) != 1:
        raise ConfigError(
            f"BanditConfig needs an environment with a single state, Discrete(1), got "
            f"{states} of {env.name}; use TabularConfig where states have numbers."
        )
    if not hasattr(actions, "n"):
        raise ConfigError(
            f"BanditConfig needs Discrete actions, got {actions} of {env.name}."
        )
    if config.method == "gradient" and config.step_size != "constant":
        raise ConfigError(
            f"step_size must be 'constant' with method='gradient', got "
            f"{config.step_size!r}: preferences are no averages; set learning_rate."
        )


def make(
    config: BanditConfig, env: Environment, axis_name: str | None = None
) -> Algorithm:
    """Build a bandit method for a config and an environment.

    Args:
        config: Config of the agent; its leaves may be traced.
        env: Environment, from `resolve_env`.
        axis_name: Mapped axis over which environments are spread; there is but one.
    """
    stepper = rollout.make_stepper(config, env, axis_name)
    actions: Any = env.action_space(stepper.params)
    parts = Parts(config, stepper, int(actions.n))
    return every_step.algorithm(
        config, stepper, _steps(parts), partial(init, parts), partial(act, parts)
    )


def init(parts: Parts, key: Array) -> BanditState:
    """Know nothing, and begin a problem; the key is kept in the state."""
    envs = rollout.init_envs(parts.stepper, init_keys(key, 1)[0], 1)
    return _state(fresh(parts), envs, key, jnp.int32(0))


def _state(
    learner: Learner, envs: rollout.EnvCarry, key: Array, update: Array
) -> BanditState:
    params = {"values": learner.values}
    return BanditState(params, learner.counts, learner.mean_reward, envs, key, update)


def fresh(parts: Parts) -> Learner:
    """Return what is known before the first pull; preferences are equal."""
    config, shape = parts.config, (parts.num_arms,)
    first = 0.0 if config.method == "gradient" else config.initial_value
    values = jnp.broadcast_to(jnp.asarray(first, jnp.float32), shape)
    return Learner(values, jnp.zeros(shape, jnp.int32), jnp.float32(0.0))


def act(
    parts: Parts, state: BanditState, obs: Array, key: Array | None = None
) -> Array:
    """Return the arm of the largest value, or with a key one as in training.

    Args:
        state: State of one agent.
        obs: `[...]` observations, which say nothing.
        key: Random key, consumed; without one the first of the best arms is taken.
    """
    learner = _learner(state)
    shape = jnp.shape(obs)
    if key is None:
        best = jnp.argmax(learner.values).astype(jnp.int32)
        return jnp.broadcast_to(best, shape)
    return choose(parts, learner, draw_noise(parts, key, shape))


def _steps(parts: Parts) -> every_step.Steps:
    def pull(learner: Learner, envs: rollout.EnvCarry, noise: Noise) -> Array:
        return choose(parts, _known(parts, learner, envs), noise)

    def learn_from(*args: Any) -> tuple[Learner, Trace]:
        return _learn_from(parts, *args[:-1])  # All but the noise.

    def restart(state: BanditState, obs: Any) -> BanditState:
        return state._replace(envs=pieces.first_step(state.envs, obs))

    return every_step.Steps(
        draw=partial(draw_noise, parts),
        begin=_learner,
        act=pull,
        learn=learn_from,
        finish=partial(finish, parts),
        restart=restart,
    )


def finish(
    parts: Parts,
    state: BanditState,
    learner: Learner,
    envs: rollout.EnvCarry,
    trace: Trace,
    episodes: rollout.Episodes,
) -> tuple[BanditState, Metrics]:
    """Return the state and the metrics after the pulls of an update."""
    update = state.update + 1
    metrics = rollout.episode_metrics(episodes, parts.stepper.axis_name)
    steps = update.astype(jnp.uint32) * jnp.uint32(parts.config.steps_per_update)
    metrics |= {"env_steps": steps, "reward": trace.reward.mean()}
    if _knows_arms(parts):
        metrics["optimal_action"] = trace.optimal.mean()
        metrics["regret"] = trace.regret.mean()
    return _state(learner, envs, state.key, update), metrics


def _learner(state: BanditState) -> Learner:
    """Return the agent's estimates from its state."""
    return Learner(state.params["values"], state.counts, state.mean_reward)


def _known(parts: Parts, learner: Learner, envs: rollout.EnvCarry) -> Learner:
    """Return the estimates before a pull: fresh ones if it is its problem's first."""
    is_new = envs.episode_length[0] == 0
    return jax.tree.map(
        lambda first, known: jnp.where(is_new, first, known), fresh(parts), learner
    )


def draw_noise(parts: Parts, key: Array, shape: tuple[int, ...]) -> Noise:
    """Draw the randomness of pulls, `[*shape]` each.

    Args:
        key: Random key, consumed.
        shape: Leading shape, such as `(T, 1)`.
    """
    key_coin, key_tie = jax.random.split(key)
    coin = exploration.draw_coin(key_coin, shape, num_actions=parts.num_arms)
    tie = (jax.random.bits(key_tie, shape) >> 1).astype(jnp.int32)
    return Noise(coin, tie)


def choose(parts: Parts, learner: Learner, noise: Noise) -> Array:
    """Return the arms that are pulled, int32 of the shape of the noise.

    Args:
        learner: Estimates that the agent has of the problem.
        noise: `[...]` randomness of the pulls.
    """
    config = parts.config
    if config.method == "gradient":
        below = jnp.cumsum(jax.nn.softmax(learner.values))
        below = below / below[-1]  # Rounding leaves the last one near 1.
        toss = noise.coin.toss[..., None]
        below = jnp.broadcast_to(below, (*toss.shape[:-1], parts.num_arms))
        return jnp.argmax(below > toss, -1).astype(jnp.int32)
    values = learner.values
    if config.method == "ucb":
        time = (learner.counts.sum() + 1).astype(jnp.float32)
        bonus = jnp.sqrt(jnp.log(time) / jnp.maximum(learner.counts, 1))
        values = values + config.exploration * bonus
        values = jnp.where(learner.counts == 0, jnp.inf, values)
    values = jnp.broadcast_to(values, (*noise.tie.shape, parts.num_arms))
    best = exploration.best_at_random(values, noise.tie)
    if config.method == "ucb":
        return best
    return jnp.where(noise.coin.toss < config.epsilon, noise.coin.action, best)


def learn(config: BanditConfig, learner: Learner, arm: Array, reward: Array) -> Learner:
    """Learn from one pull.

    Args:
        config: Config of the agent.
        learner: Estimates before the pull.
        arm: `[]` int32, the arm that was pulled.
        reward: `[]`, what it paid.
    """
    values, counts, mean = learner
    counts = counts.at[arm].add(1)
    total = counts.sum()
    if config.method == "gradient":
        before = jnp.where(total == 1, reward, mean)
        advantage = reward - (before if config.baseline else 0.0)
        taken = jax.nn.one_hot(arm, values.shape[0])
        slope = taken - jax.nn.softmax(values)
        values = values + config.learning_rate * advantage * slope
    else:
        is_average = config.step_size == "sample_average"
        rate = 1.0 / counts[arm] if is_average else config.learning_rate
        values = values.at[arm].add(rate * (reward - values[arm]))
    return Learner(values, counts, mean + (reward - mean) / total)


def _learn_from(
    parts: Parts,
    learner: Learner,
    envs: rollout.EnvCarry,
    arm: Array,
    out: rollout.StepOutput,
) -> tuple[Learner, Trace]:
    """Learn from a pull, of which a bad one teaches nothing; and what is to be told."""
    known = _known(parts, learner, envs)
    optimal, regret = _judge(parts, envs, arm[0])
    learned = learn(parts.config, known, arm[0], out.reward[0])
    bad = is_bad(out)[0]
    learner = jax.tree.map(lambda old, new: jnp.where(bad, old, new), known, learned)
    return learner, Trace(out.reward[0], optimal, regret)


def _judge(parts: Parts, envs: rollout.EnvCarry, arm: Array) -> tuple[Array, Array]:
    """Return whether an arm is a best one, and its regret; for the metrics alone."""
    if not _knows_arms(parts):
        return jnp.float32(0.0), jnp.float32(0.0)
    state = jax.tree.map(lambda x: x[0], envs.state)
    env, params, state = unwrap(parts.stepper.env, parts.stepper.params, state)
    values = cast(Any, env).arm_values(state, params)
    best = values.max()
    return (values[arm] == best).astype(jnp.float32), best - values[arm]


def _knows_arms(parts: Parts) -> bool:
    """Return whether the innermost environment tells the values of its arms."""
    return hasattr(innermost(parts.stepper.env), "arm_values")


ENTRY = Entry(BanditConfig, validate, make)
