"""Temporal-difference control with a table of action values.

Sutton and Barto (2018), "Reinforcement Learning: An Introduction", chapter 6. After
every step of the environment the value of the action taken moves towards a target,

    Q(s, a) <- Q(s, a) + learning_rate (r + gamma (1 - terminated) V(s') - Q(s, a)),

and the methods differ in what stands for V(s'):

    q_learning      max_a Q(s', a)                  (Watkins 1989; section 6.5)
    sarsa           Q(s', a'), with the action a' that is then taken     (section 6.4)
    expected_sarsa  sum_a pi(a|s') Q(s', a), pi epsilon-greedy           (section 6.6)
    double_q        Q2(s', argmax_a Q1(s', a)), where a coin decides which of two tables
                    is Q1 and moves; actions follow their sum
                    (van Hasselt 2010; section 6.7)

An episode that terminated is not bootstrapped; one that was truncated is, from the
observation before the reset. Among actions of equal value one is taken at random, and
expected SARSA's policy shares its probability among them. Where one environment steps
at a time this is the textbook's algorithm. With several, all act on the same table, and
a cell that some of them visit in one step moves by the mean of their errors.

Defaults are those of jym (github.com/RPegoud/jym) for its grid world: gamma 0.9, step
size 0.1, epsilon 0.1, 100,000 steps of one environment.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from purerl.acting import exploration, rollout
from purerl.acting.rollout import is_bad
from purerl.algorithms import every_step, pieces
from purerl.config import ConfigError, TrainConfig, config_dataclass, dynamic, static
from purerl.envs.base import Environment
from purerl.fields import FRACTION, POSITIVE, one_of
from purerl.keys import init_keys
from purerl.learning.averages import after, pmean, psum
from purerl.types import Algorithm, Array, Metrics

METHODS = ("q_learning", "sarsa", "expected_sarsa", "double_q")
NONE = -1  # Stands in the place of a next action that is not chosen yet.


@config_dataclass
class TabularConfig(TrainConfig):
    """Q-learning, SARSA, expected SARSA and double Q-learning with a table."""

    env: Any = "GridWorld-v0"
    total_timesteps: int = 100_000
    num_envs: int = static(1, "Environments; errors in a cell are averaged.", POSITIVE)
    num_steps: int = static(100, "Steps between two rows of metrics.", POSITIVE)
    method: str = static("q_learning", "What is bootstrapped on.", one_of(*METHODS))
    gamma: float = 0.9
    learning_rate: float = dynamic(0.1, "Share of its error a value moves.", FRACTION)
    epsilon: float = dynamic(0.1, "Share of random actions.", FRACTION)
    initial_value: float = dynamic(0.0, "Value of every action at first.")

    @property
    def sequential_steps(self) -> int:
        """Dependent steps of one update, in each of which the table moves."""
        return self.num_steps


class Parts(NamedTuple):
    """The parts of the agent, bound in Python: structure, and the config's numbers."""

    config: TabularConfig
    stepper: rollout.Stepper
    num_states: int
    num_actions: int


class TabularState(NamedTuple):
    """Everything that training carries, arrays only.

    Attributes:
        params: The tables under `q`, `[K, S, A]`: one, or the two of double Q-learning.
        visits: `[S, A]` int32, how often every action was taken in every state.
        next_action: `[B]` int32, the action that SARSA has chosen for the next step, or
            -1.
        envs: The environments between two steps.
        key: Random key of the agent, which never changes; every update's key is folded
            from it.
        update: `[]` int32, number of updates done.
    """

    params: dict[str, Array]
    visits: Array
    next_action: Array
    envs: rollout.EnvCarry
    key: Array
    update: Array


class Noise(NamedTuple):
    """The randomness of a step of all environments, `[B]` each.

    Attributes:
        coin: Coin of the action.
        tie: Number that decides which of several best actions is taken, int32.
        table: Whether the second table of double Q-learning moves, bool.
        next_coin: Coin of SARSA's next action.
        next_tie: Number that decides which of several best actions is bootstrapped on,
            int32.
    """

    coin: exploration.Coin
    tie: Array
    table: Array
    next_coin: exploration.Coin
    next_tie: Array


class Learner(NamedTuple):
    """The part of the state that a step changes.

    Attributes:
        q: `[K, S, A]` tables of action values.
        next_action: `[B]` int32 next actions, as in `TabularState`.
    """

    q: Array
    next_action: Array


class Trace(NamedTuple):
    """The steps of an update, from which its metrics are made, `[T, B]` each."""

    obs: Array
    action: Array
    reward: Array
    value: Array
    error: Array


def validate(config: TabularConfig, env: Environment) -> None:
    """Check what fields have to do with one another and with the environment.

    Raises:
        ConfigError: states or actions have no numbers, or networks are asked for.
    """
    states: Any = env.observation_space(env.default_params)
    actions: Any = env.action_space(env.default_params)
    if not (hasattr(states, "n") and hasattr(actions, "n")):
        raise ConfigError(
            f"TabularConfig needs the number of a state as observation and of an "
            f"action, Discrete(n), got {states} and {actions} of {env.name}; use an "
            "algorithm with a network, or a wrapper that numbers the states."
        )


def make(
    config: TabularConfig, env: Environment, axis_name: str | None = None
) -> Algorithm:
    """Build a tabular method for a config and an environment; see `build`.

    Args:
        axis_name: Mapped axis over which this agent's environments are spread, if any.
    """
    parts = build(config, env, axis_name)
    return every_step.algorithm(
        config,
        parts.stepper,
        steps_of(parts),
        partial(init, parts),
        partial(act, parts),
    )


def build(
    config: TabularConfig, env: Environment, axis_name: str | None = None
) -> Parts:
    """Bind a config and its environment: what the functions below work with.

    Args:
        axis_name: Mapped axis over which this agent's environments are spread.
    """
    stepper = rollout.make_stepper(config, env, axis_name)
    states: Any = env.observation_space(stepper.params)
    actions: Any = env.action_space(stepper.params)
    return Parts(config, stepper, int(states.n), int(actions.n))


def init(parts: Parts, key: Array) -> TabularState:
    """Fill the tables, and start the environments; the key is kept in the state."""
    config = parts.config
    num_envs = rollout.per_device(config.num_envs, parts.stepper.axis_name)
    num_tables = 2 if config.method == "double_q" else 1
    shape = (parts.num_states, parts.num_actions)
    initial = jnp.asarray(config.initial_value, jnp.float32)
    return TabularState(
        params={"q": jnp.broadcast_to(initial, (num_tables, *shape))},
        visits=jnp.zeros(shape, jnp.int32),
        next_action=jnp.full(num_envs, NONE, jnp.int32),
        envs=rollout.init_envs(parts.stepper, init_keys(key, 1)[0], num_envs),
        key=key,
        update=jnp.int32(0),
    )


def act(
    parts: Parts, state: TabularState, obs: Array, key: Array | None = None
) -> Array:
    """Return the greedy action, or with a key the epsilon-greedy one.

    Args:
        state: State of one agent.
        obs: `[...]` numbers of states.
        key: Random key, consumed; without one the first of the best actions is taken.
    """
    values = _values(state.params["q"], jnp.asarray(obs).astype(jnp.int32))
    if key is None:
        return jnp.argmax(values, -1).astype(jnp.int32)
    noise = draw_noise(parts, key, values.shape[:-1])
    return _explore(parts, values, noise.coin, noise.tie)


def steps_of(parts: Parts) -> every_step.Steps:
    """Return the functions of which an update is made."""

    def restart(state: TabularState, obs: Any) -> TabularState:
        chosen = jnp.full_like(state.next_action, NONE)
        return state._replace(
            next_action=chosen, envs=pieces.first_step(state.envs, obs)
        )

    return every_step.Steps(
        draw=partial(draw_noise, parts),
        begin=lambda state: Learner(state.params["q"], state.next_action),
        act=partial(choose, parts),
        learn=partial(learn, parts),
        finish=partial(finish, parts),
        restart=restart,
    )


def finish(
    parts: Parts,
    state: TabularState,
    learner: Learner,
    envs: rollout.EnvCarry,
    trace: Trace,
    episodes: rollout.Episodes,
) -> tuple[TabularState, Metrics]:
    """Return the state and the metrics after the steps of an update.

    Args:
        state: State before the update.
        learner: Tables and next actions after the steps.
        envs: The environments after the last step.
        trace: `[T, B]`, what the steps were.
        episodes: Ends of the episodes.
    """
    axis, update = parts.stepper.axis_name, state.update + 1
    # How often each action was taken in each state, `[S, A]`.
    one = after(jnp.float32(1.0), learner.q.sum(), axis)
    zeros = jnp.zeros((parts.num_states, parts.num_actions))
    counted = psum(zeros.at[trace.obs, trace.action].add(one), axis).astype(jnp.int32)
    visits = state.visits + counted
    params, chosen = {"q": learner.q}, learner.next_action
    new = TabularState(params, visits, chosen, envs, state.key, update)
    trace = after(trace, counted.sum().astype(jnp.float32), axis)
    means = {
        "reward": trace.reward.mean(),
        "td_error": jnp.abs(trace.error).mean(),
        "q_value": trace.value.mean(),
    }
    means = pmean(means, axis)
    episodes = after(episodes, means["td_error"], axis)
    steps = update.astype(jnp.uint32) * jnp.uint32(parts.config.steps_per_update)
    ends = rollout.episode_metrics(episodes, axis)
    return new, {"env_steps": steps, **ends, **means}


def draw_noise(parts: Parts, key: Array, shape: tuple[int, ...]) -> Noise:
    """Draw the randomness of actions and updates, `[*shape]` each.

    Args:
        key: Random key, consumed.
        shape: Leading shape, such as `(T, B)`.
    """
    draw_coin = partial(exploration.draw_coin, num_actions=parts.num_actions)
    keys = jax.random.split(key, 3)
    numbers = (jax.random.bits(keys[2], (3, *shape)) >> 1).astype(jnp.int32)
    return Noise(
        coin=draw_coin(keys[0], shape),
        tie=numbers[0],
        table=numbers[1] < 2**30,
        next_coin=draw_coin(keys[1], shape),
        next_tie=numbers[2],
    )


def choose(
    parts: Parts, learner: Learner, envs: rollout.EnvCarry, noise: Noise
) -> Array:
    """Return the actions `[B]` that are taken: epsilon-greedy ones, or SARSA's.

    Args:
        learner: Tables, and the actions that SARSA has chosen.
        noise: `[B]` randomness of the step.
    """
    values = _values(learner.q, envs.obs)
    action = _explore(parts, values, noise.coin, noise.tie)
    if parts.config.method == "sarsa":
        chosen = learner.next_action
        action = jnp.where(chosen == NONE, action, chosen)
    return action


def learn(
    parts: Parts,
    learner: Learner,
    envs: rollout.EnvCarry,
    action: Array,
    out: rollout.StepOutput,
    noise: Noise,
) -> tuple[Learner, Trace]:
    """Move the tables after a step of all environments.

    Args:
        learner: The learner: everything that the step changes.
        action: `[B]` actions that were taken.
        out: Outcome of the actions.
        noise: `[B]` randomness of the step.
    """
    q, obs = learner.q, envs.obs
    chosen = bootstrap_action(parts, q, out.next_obs, noise)
    error, value = td_error(parts.config, q, obs, action, out, chosen, noise.table)
    q = move(parts, q, obs, action, error, noise.table, ~is_bad(out))
    done, next_action = out.terminated | out.truncated, learner.next_action
    if parts.config.method == "sarsa":  # What begins an episode is chosen anew.
        next_action = jnp.where(done, NONE, chosen)
    return Learner(q, next_action), Trace(obs, action, out.reward, value, error)


def bootstrap_action(parts: Parts, q: Array, next_obs: Array, noise: Noise) -> Array:
    """Return the actions `[B]` whose values SARSA and double Q-learning bootstrap on.

    SARSA takes an epsilon-greedy one, which is then taken. Double Q-learning takes the
    best one of the table that moves, of several best ones one at random.

    Args:
        q: `[K, S, A]` tables of action values.
        next_obs: `[B]` states after the step, before any reset.
        noise: `[B]` randomness of the step.
    """
    if parts.config.method != "double_q":
        values = _values(q, next_obs)
        return _explore(parts, values, noise.next_coin, noise.next_tie)
    own = jnp.where(noise.table[:, None], q[1, next_obs], q[0, next_obs])
    return exploration.best_at_random(own, noise.next_tie)


def td_error(
    config: TabularConfig,
    q: Array,
    obs: Array,
    action: Array,
    out: rollout.StepOutput,
    next_action: Array,
    table: Array,
) -> tuple[Array, Array]:
    """Compute the errors `[B]` of the values that a step moves, and these values.

    Args:
        config: Config of the agent.
        q: `[K, S, A]` tables of action values.
        obs: `[B]` states before the step.
        action: `[B]` actions that were taken.
        out: Outcome of the actions.
        next_action: `[B]` next actions, from `bootstrap_action`.
        table: `[B]`, whether the second table of double Q-learning moves.
    """
    after_it = q[:, out.next_obs]  # [K, B, A]
    before = q[:, obs, action]  # [K, B]
    value, values = before[0], after_it[0]
    if config.method == "double_q":
        value = jnp.where(table, before[1], before[0])
        values = jnp.where(table[:, None], after_it[0], after_it[1])
    if config.method in ("sarsa", "double_q"):
        next_value = jnp.take_along_axis(values, next_action[:, None], -1)[:, 0]
    elif config.method == "expected_sarsa":
        policy = exploration.policy_of(values, config.epsilon)
        next_value = (policy * values).sum(-1)
    else:
        next_value = values.max(-1)
    discount = config.gamma * (1.0 - out.terminated)
    return out.reward + discount * next_value - value, value


def move(
    parts: Parts,
    q: Array,
    obs: Array,
    action: Array,
    error: Array,
    table: Array,
    counts: Array,
) -> Array:
    """Move the tables `[K, S, A]` by the errors of a step.

    Args:
        error: `[B]` errors of the values of `action` in `obs`.
        table: `[B]`, whether the second table of double Q-learning moves.
        counts: `[B]` bool, whether the step moves anything: not a bad one.
    """
    error = jnp.where(counts, error, 0.0)
    rate = parts.config.learning_rate
    is_double = parts.config.method == "double_q"
    which = table.astype(jnp.int32) if is_double else jnp.zeros_like(obs)
    place = which, obs, action
    if parts.config.num_envs == 1:
        return q.at[place].add(rate * error)
    both = jnp.stack([error, counts.astype(error.dtype)], -1)
    both = jnp.zeros((*q.shape, 2)).at[place].add(both)
    total = psum(both, parts.stepper.axis_name)
    return q + rate * total[..., 0] / jnp.maximum(total[..., 1], 1.0)


def _values(q: Array, obs: Array) -> Array:
    """The values `[..., A]` that actions follow: the table's, or the sum of both."""
    return q[:, obs].sum(0)


def _explore(parts: Parts, values: Array, coin: exploration.Coin, tie: Array) -> Array:
    """The epsilon-greedy action, of several best ones one at random."""
    greedy = exploration.best_at_random(values, tie)
    return jnp.where(coin.toss < parts.config.epsilon, coin.action, greedy)
