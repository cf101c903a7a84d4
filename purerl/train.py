"""make_train: a config becomes one pure function from a key to a trained agent."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import auto, schedules, warm_start
from purerl.acting.environment import (
    Environment,
    bind_params,
    check_contract,
    resolve_env,
    time_limit,
)
from purerl.acting.evaluate import evaluate_recurrent
from purerl.acting.observe import as_arrays, completed
from purerl.acting.policy import RecurrentPolicy, recurrence_of
from purerl.algorithms import entry_of
from purerl.algorithms.scheduled import check_environment_stays, follow_schedules
from purerl.config import ConfigError, TrainConfig, apply_overrides, validate_fields
from purerl.hooks import (
    NO_HOOKS,
    OBSERVED,
    Hooks,
    check_hooks,
    observations,
    with_metrics,
)
from purerl.keys import MAX_UPDATES, evaluation_key
from purerl.learning import packing
from purerl.learning.branches import change_if, traced_once
from purerl.learning.collectives import vary_like
from purerl.learning.parts import check_frozen
from purerl.precision import (
    algorithm_in_32_bits,
    in_32_bits,
    recurrence_in_32_bits,
)
from purerl.types import (
    Algorithm,
    Array,
    Evaluation,
    Metrics,
    Overrides,
    PyTree,
    Recurrence,
    TrainResult,
)

Train = Callable[..., TrainResult]


class Plan(NamedTuple):
    """The arithmetic of a run, fixed before tracing.

    Attributes:
        num_updates: U; `total_timesteps` rounded down to whole updates.
        steps_per_update: Environment steps of one update.
        evaluate_after: Numbers of finished updates after which to evaluate, ascending.
        eval_max_steps: Longest evaluation episode.
    """

    num_updates: int
    steps_per_update: int
    evaluate_after: tuple[int, ...]
    eval_max_steps: int


class Bound(NamedTuple):
    """A validated config with its environment and plan.

    Attributes:
        config: Config with a value in every field that was `auto`.
        env: The environment.
        plan: The arithmetic of the run.
        asked: The config as it was given.
    """

    config: TrainConfig
    env: Environment
    plan: Plan
    asked: TrainConfig

    def at(self, overrides: Overrides | None) -> TrainConfig:
        """Return the config that trains under overrides.

        They are put into the config as it was given: what is `auto` there follows what
        they change.

        Raises:
            ConfigError: see `apply_overrides`, `auto.check_overrides` and
                `TrainConfig.check_numbers`.
        """
        changed = apply_overrides(self.asked, overrides)
        auto.check_overrides(self.asked, overrides)
        config = auto.resolve(changed, self.env)
        config.check_numbers()
        return config

    @property
    def automatic(self) -> dict[str, Any]:
        """The values that `auto` stands for, by name of the field."""
        return auto.values(self.asked, self.config)

    def algorithm(self, config: TrainConfig, axis_name: str | None = None) -> Algorithm:
        """Make the algorithm of a config in this environment; schedules move in it.

        Args:
            config: Config, as `at` returns it; its leaves may be traced.
            axis_name: Mapped axis over which the agent's environments are spread, if
                any.
        """
        entry = entry_of(config)

        def make(config: TrainConfig) -> Algorithm:
            return entry.make(config, self.env, axis_name)

        return follow_schedules(config, make, self.plan.num_updates)


def bind(config: TrainConfig, on_host: bool = False) -> Bound:
    """Check everything that can be checked before tracing, and make the environment.

    Args:
        config: Config of the agent.
        on_host: Whether the environment may be one that is stepped on the host, and
            that no compiled program can hold.

    Raises:
        ConfigError: naming the field, the value, the constraint and the remedy.
    """
    entry = entry_of(config)
    validate_fields(config)
    env = resolve_env(config)
    if env.on_host and not on_host:
        raise ConfigError(
            f"env {env.name!r} is stepped on the host, and this needs an environment "
            "that a compiled program can hold; train with purerl.run(config, seeds=N) "
            "or `purerl train`, which take the agents in turns."
        )
    resolved = auto.resolve(config, env)
    check_environment_stays(resolved)
    entry.validate(schedules.at_start(resolved), env)
    resolved.check_numbers()
    check_contract(resolved, env)
    bound = Bound(resolved, env, make_plan(resolved, env), config)
    if resolved.frozen:
        init = bound.algorithm(resolved).init
        check_frozen(resolved.frozen, jax.eval_shape(init, jax.random.key(0)))
    return bound


@in_32_bits
def resolve(config: TrainConfig) -> TrainConfig:
    """Return the config with a value in every field that is `auto`, as it would train.

    Raises:
        ConfigError: see `bind`.
    """
    return bind(config, on_host=True).config


def make_plan(config: TrainConfig, env: Environment) -> Plan:
    """Plan updates and evaluations of a run.

    Evaluations are spread evenly and end with the run. Their number is the largest up
    to `num_evaluations` for which they take at most `eval_share` of training's
    environment steps and of its sequential steps; at least one.
    """
    num_updates = config.total_timesteps // config.steps_per_update
    if num_updates < 1:
        raise ConfigError(
            f"total_timesteps must cover at least one update of "
            f"{config.steps_per_update} steps, got {config.total_timesteps}."
        )
    if num_updates > MAX_UPDATES:
        raise ConfigError(
            f"total_timesteps may be {MAX_UPDATES:,} updates of "
            f"{config.steps_per_update} steps, got {config.total_timesteps:,}; make an "
            "update longer (num_envs, num_steps, rounds_per_update)."
        )
    max_steps = time_limit(config, env)
    by_steps = config.total_timesteps / (config.eval_episodes * max_steps)
    by_sequence = num_updates * config.sequential_steps / max_steps
    affordable = math.floor(config.eval_share * min(by_steps, by_sequence))
    count = min(config.num_evaluations, max(1, affordable), num_updates)
    after = [round((k + 1) * num_updates / count) for k in range(count)]
    return Plan(num_updates, config.steps_per_update, tuple(after), max_steps)


@in_32_bits
def make_algorithm(config: TrainConfig) -> Algorithm:
    """Make the three pure functions of a config: `init(key)`, `step(state)`, `act`.

    Where the environment is stepped on the host, `step` refuses, and `hosted` has the
    update in pieces.

    Raises:
        ConfigError: see `bind`.
    """
    bound = bind(config, on_host=True)
    return algorithm_in_32_bits(bound.algorithm(bound.config))


@in_32_bits
def make_policy(config: TrainConfig, state: PyTree) -> Callable[..., Any]:
    """Make the policy of one trained agent.

    Args:
        config: Config with which the agent was trained.
        state: `TrainResult.state` of one agent.

    Returns:
        `policy(obs, key=None) -> action`, on one observation or a batch; without a
        key the action is deterministic. Parts of an observation that only the critic
        sees (`critic_keys`) may be left out. Where the policy remembers the episode so
        far, a `purerl.acting.policy.RecurrentPolicy`: `memory = policy.init()`, then
        `policy(obs, memory, key=None) -> (action, memory)`.

    Raises:
        ConfigError: the state holds several agents, or its networks are not those of
            the config, as of another algorithm, environment or size.
    """
    warm_start.check_agent(state)
    bound = bind(config, on_host=True)
    algorithm = bound.algorithm(bound.config)
    check_acts(bound, algorithm, state)
    space = bound.env.observation_space(bound.env.default_params)
    complete = partial(completed, space, keys=getattr(bound.config, "actor_keys", ()))
    recurrence = algorithm.recurrence
    if recurrence is not None:

        def act(state: PyTree, obs: Any, *given: Any) -> tuple[Array, PyTree]:
            return recurrence.act(state, complete(obs), *given)

        whole = recurrence_in_32_bits(recurrence._replace(act=act))
        return RecurrentPolicy(whole, state)

    @in_32_bits
    def policy(obs: Array, key: Array | None = None) -> Array:
        return algorithm.act(state, complete(as_arrays(obs)), key)

    return policy


def check_acts(bound: Bound, algorithm: Algorithm, state: PyTree) -> None:
    """Refuse a state that a config's policy cannot act with.

    Args:
        bound: The config and its environment.
        algorithm: Algorithm of the config.
        state: State of one agent.

    Raises:
        ConfigError: see `warm_start.check_acts`.
    """
    fresh = jax.eval_shape(algorithm.init, jax.random.key(0))
    agent = f"an agent of {type(bound.config).__name__} in {bound.env.name}"
    warm_start.check_acts(state, fresh, agent)


@in_32_bits
def make_train(
    config: TrainConfig,
    *,
    axis_name: str | None = None,
    observe: Callable[[PyTree], PyTree] | None = None,
    metrics: Callable[[PyTree, Metrics], Metrics] | None = None,
    first_update: int | None = None,
) -> Train:
    """Make the whole training run as one pure function.

    Args:
        config: Config, which is checked here, before anything is traced, and never
            changed.
        axis_name: Name of a mapped axis over which one agent's environments are
            spread; None for an agent on one device. See `purerl.data_parallel`.
        observe: Function `(state) -> pytree of arrays`, called at every evaluation;
            `TrainResult.observed` has what it returned.
        metrics: Function `(state, metrics) -> dict of scalars`, called after every
            update; the scalars are added to the update's metrics.
        first_update: Number of updates that the states have done that `start` gets.
            It must be told where they are traced, and else follows from them.

    Returns:
        `train(key, overrides=None, start=None) -> TrainResult`, which `jax.jit`,
        `jax.vmap`, `jax.pmap` and `purerl.pmap` transform. `overrides` maps (dotted)
        names of dynamic fields to values. `start` is the state of an agent that goes
        on with all it has (one of `RunResult.state` too), or networks by name
        (`purerl.networks_of`) with which a run begins; the key is the agent's from
        then on. With the key that the state was trained with, an agent goes on as if
        it had not stopped.

    Raises:
        ConfigError: naming the field, the value, the constraint and the remedy.
    """
    bound = bind(config)
    hooks, plan = Hooks(observe, metrics), bound.plan
    if hooks != NO_HOOKS:
        check_hooks(hooks, bound.algorithm(bound.config), len(plan.evaluate_after))
    warm_start.check_first_update(first_update, plan.num_updates)

    @in_32_bits
    def train(
        key: Array, overrides: Overrides | None = None, start: PyTree = None
    ) -> TrainResult:
        check_key(key)
        segment = make_segment(bound, overrides, axis_name, hooks)
        if start is None:
            warm_start.check_needless(first_update)
            state, first = segment.init(key), 0
        else:
            state, first = warm_start.begin(
                segment.init, key, start, first_update, plan.num_updates
            )
        state, metrics, evaluation = segment.advance(
            state, first, plan.num_updates - first
        )
        observed = evaluation.pop(OBSERVED, None)
        return TrainResult(state, metrics, evaluation, observed)

    return train


class Segment(NamedTuple):
    """A run in pieces: `init`, then `advance` any number of times.

    Attributes:
        init: Function that makes the first state, `(key) -> state`.
        advance: `(state, first_update, length) -> (state, metrics, evaluation)`:
            `length` updates from number `first_update` on. `length` is static;
            `first_update` may be traced but must not be batched, so that "is it time
            to evaluate?" stays one branch for a whole population. Updates past the
            end of the run leave the state as it is. What hooks observe is an entry
            `observed` of the evaluation.
    """

    init: Callable[[Array], PyTree]
    advance: Callable[[PyTree, Any, int], tuple[PyTree, Metrics, Metrics]]


def make_segment(
    bound: Bound,
    overrides: Overrides | None = None,
    axis_name: str | None = None,
    hooks: Hooks = NO_HOOKS,
) -> Segment:
    """Make the run of a config and its overrides, to be advanced in segments.

    Args:
        bound: Config, environment and plan.
        overrides: Values of dynamic fields by name; they may be traced.
        axis_name: Mapped axis over which this agent's environments are spread, if any.
        hooks: Functions that are called while the agent trains.
    """
    config = bound.at(overrides)
    check_time_limit(bound, config)
    check_environment_stays(config)
    algorithm = with_metrics(bound.algorithm(config, axis_name), hooks)
    num_updates = bound.plan.num_updates
    is_due = np.isin(np.arange(num_updates) + 1, bound.plan.evaluate_after)
    env_params = bind_params(bound.env, config.env_params)
    recurrence = recurrence_of(algorithm)

    @traced_once
    def evaluate(state: PyTree) -> dict[str, Any]:
        played = evaluate_agent(bound, config, env_params, recurrence, state)
        return played | observations(hooks, state)

    def advance(
        state: PyTree, first_update: Any, length: int
    ) -> tuple[PyTree, Metrics, Metrics]:
        may_overrun = not isinstance(first_update, int) or (
            first_update + length > num_updates
        )
        update = partial(_update_or_keep, num_updates) if may_overrun else _update
        slots = max_evaluations(is_due, length, first_update)
        evaluations = _blank_rows(jax.eval_shape(evaluate, state), slots)
        state, evaluations = vary_like((state, evaluations), state.key)
        due = jnp.asarray(np.append(is_due, False))

        def body(carry: tuple, index: Array) -> tuple[tuple, Metrics]:
            state, evaluations, slot = carry
            state, metrics = update(algorithm, state, index)
            now = due[jnp.minimum(index, num_updates)]
            if slots:
                evaluations = jax.lax.cond(
                    now,
                    lambda: _write_row(evaluations, slot, evaluate(state)),
                    lambda: evaluations,
                )
            return (state, evaluations, slot + now), metrics

        indices = jnp.asarray(first_update, jnp.int32) + jnp.arange(length)
        carry = (state, evaluations, jnp.int32(0))
        (state, evaluations, _), metrics = packing.scan(body, carry, indices)
        return state, metrics, evaluations

    return Segment(algorithm.init, advance)


def evaluate_agent(
    bound: Bound,
    config: TrainConfig,
    env_params: PyTree,
    recurrence: Recurrence,
    state: PyTree,
) -> Metrics:
    """Play the deterministic policy's episodes, as `TrainResult.evaluation` keeps them.

    Args:
        bound: Environment and plan.
        config: Config with overrides, of which the number of episodes is read.
        env_params: Numbers of the environment.
        recurrence: Functions by which the algorithm acts with a memory.
        state: State of one agent.
    """
    result = evaluate_recurrent(
        bound.env,
        env_params,
        partial(recurrence.act, state),
        recurrence.init((config.eval_episodes,)),
        evaluation_key(state),
        num_episodes=config.eval_episodes,
        max_steps=bound.plan.eval_max_steps,
    )
    steps = state.update.astype(jnp.uint32) * jnp.uint32(bound.plan.steps_per_update)
    return {"env_steps": steps, **result._asdict()}


def evaluate_afresh(
    bound: Bound,
    config: TrainConfig,
    state: PyTree,
    key: Array,
    num_episodes: int | None = None,
) -> Evaluation:
    """Play fresh episodes of the deterministic policy of a trained agent.

    Args:
        bound: Environment and plan.
        config: Config with overrides, of which the environment's numbers are read.
        state: State of one agent.
        key: Random key of the episodes, consumed.
        num_episodes: Number of episodes, E; `eval_episodes` where not given.

    Returns:
        Undiscounted returns and lengths, `[E]` each.
    """
    recurrence = recurrence_of(bound.algorithm(config))
    env_params = bind_params(bound.env, config.env_params)
    episodes = num_episodes or config.eval_episodes
    return evaluate_recurrent(
        bound.env,
        env_params,
        partial(recurrence.act, state),
        recurrence.init((episodes,)),
        key,
        num_episodes=episodes,
        max_steps=bound.plan.eval_max_steps,
    )


def _update(
    algorithm: Algorithm, state: PyTree, index: Array
) -> tuple[PyTree, Metrics]:
    """Make update number `index`."""
    # The same number, but one for all agents of a `vmap` over states: what an algorithm
    # derives from it ("is the warm-up over?") is not batched either.
    new, metrics = algorithm.step(state._replace(update=index))
    return new._replace(update=state.update + 1), metrics


def _update_or_keep(
    num_updates: int, algorithm: Algorithm, state: PyTree, index: Array
) -> tuple[PyTree, Metrics]:
    """Make update number `index`, or none where the run has ended by then."""
    update = partial(_update, algorithm, index=index)
    return change_if(index < num_updates, update, state)


def _blank_rows(shapes: PyTree, count: int) -> PyTree:
    """Make `count` rows of zeros of the given shapes."""
    return jax.tree.map(lambda s: jnp.zeros((count, *s.shape), s.dtype), shapes)


def _write_row(rows: PyTree, index: Array, row: PyTree) -> PyTree:
    """Put a row in the place of the one at `index`."""
    return jax.tree.map(lambda all, new: all.at[index].set(new), rows, row)


def check_time_limit(bound: Bound, config: TrainConfig) -> None:
    """Refuse overrides by which evaluation episodes outlast the plan.

    The plan's longest episode is a Python number: it bounds a loop and the share of
    evaluations. An override that makes the time limit longer would be cut there.

    Raises:
        ConfigError: naming both limits and what to set.
    """
    planned = bound.plan.eval_max_steps
    if not bound.plan.evaluate_after:
        return
    limit = time_limit(config, bound.env)
    if limit > planned:
        raise ConfigError(
            f"override 'env_params.max_steps_in_episode' allows episodes of {limit} "
            f"steps, but evaluations are planned for {planned}. Set eval_max_steps to "
            "the longest episode, or num_evaluations=0."
        )


def max_evaluations(is_due: np.ndarray, length: int, first_update: Any = None) -> int:
    """Return the most evaluations that fall into `length` consecutive updates.

    Args:
        is_due: Whether an evaluation follows each update, `[U]`.
        length: Number of updates.
        first_update: Number of the first one, where it is known before tracing.
    """
    total = np.concatenate([[0], np.cumsum(is_due)])
    known = isinstance(first_update, int)
    starts = np.array([first_update]) if known else np.arange(len(is_due))
    ends = np.minimum(starts + length, len(is_due))
    return int((total[ends] - total[starts]).max())


def check_key(key: Array) -> None:
    """Refuse anything but one typed key.

    Raises:
        ConfigError: with what to call instead.
    """
    dtype = getattr(key, "dtype", None)
    if dtype is None or not jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key):
        is_array = dtype is not None and hasattr(key, "shape")
        got = f"{dtype}{list(key.shape)}" if is_array else type(key).__name__
        raise ConfigError(
            f"key must be a typed random key, such as jax.random.key(0), got {got}; "
            "wrap an old one, uint32[2], with jax.random.wrap_key_data."
        )
    if key.shape != ():
        raise ConfigError(
            f"train takes one key, got {key.shape} of them; use jax.vmap(train)(keys) "
            "or purerl.pmap(train, lanes=8)(keys)."
        )
