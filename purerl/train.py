"""Training runs: a config becomes one pure function from a key to a trained agent."""

import dataclasses
import functools
import math
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.lax import dynamic_update_index_in_dim

from purerl import auto, schedules, warm_start
from purerl.accelerator import kernels
from purerl.acting import exploration
from purerl.acting.environment import (
    Environment,
    bind_params,
    check_contract,
    resolve_env,
    time_limit,
    with_params,
)
from purerl.acting.evaluate import evaluate as play_evaluation
from purerl.acting.policy import RecurrentPolicy, drawing, recurrence_of
from purerl.algorithms import entry_of
from purerl.algorithms.checks import check_frozen, check_optimisers, check_terms
from purerl.algorithms.own_terms import terms_of
from purerl.config import (
    ConfigError,
    TrainConfig,
    apply_overrides,
    is_part,
    shown,
    validate_fields,
)
from purerl.hooks import OBSERVED, check_observe, is_taken, with_metrics
from purerl.keys import MAX_UPDATES, evaluation_key, shape_of_keys
from purerl.learning.averages import vary_like
from purerl.learning.branches import change_if, traced_once
from purerl.learning.optimiser import annealed
from purerl.metrics import held
from purerl.networks.observe import as_arrays, completed
from purerl.precision import algorithm_in_32_bits, in_32_bits, recurrence_in_32_bits
from purerl.tracing import read_by, shape_of, shapes_of
from purerl.types import (
    Algorithm,
    Array,
    Evaluation,
    Hosted,
    Metrics,
    Overrides,
    PyTree,
    Recurrence,
    Schedule,
    TrainResult,
)


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
                `TrainConfig.check_numbers`; or a loss or an optimiser that the
                algorithm cannot take.
        """
        changed = apply_overrides(self.asked, overrides)
        auto.check_overrides(self.asked, overrides)
        self._check_parts(overrides)
        config = auto.resolve(changed, self.env)
        config.check_numbers()
        for name, value in (overrides or {}).items():
            if isinstance(value, Schedule):
                _check_schedule(self, name, value)
        return config

    def _check_parts(self, overrides: Overrides | None) -> None:
        """Refuse whole losses and optimisers that the algorithm cannot take."""
        given = (overrides or {}).items()
        parts = {name: x for name, x in given if is_part(x) and "." not in name}
        parts = {name: x for name, x in parts.items() if not isinstance(x, Schedule)}
        if parts:
            # The numbers of other overrides may be traced, which no check can read.
            config = dataclasses.replace(self.config, **parts)
            _validate(config, self.env)

    @property
    def automatic(self) -> dict[str, Any]:
        """The values that `auto` stands for, by name of the field."""
        return auto.values(self.asked, self.config)

    def algorithm(self, config: TrainConfig, axis_name: str | None = None) -> Algorithm:
        """Make the algorithm of a config in this environment; schedules move in it.

        Functions of `config.metrics` measure its updates, see `purerl.hooks`.

        Args:
            axis_name: Mapped axis over which the agent's environments are spread, if
                any.
        """
        entry = entry_of(config)

        def make(config: TrainConfig) -> Algorithm:
            return entry.make(with_params(config, self.env), self.env, axis_name)

        made = follow_schedules(config, make, self.plan.num_updates)
        if not config.metrics:
            return made
        moving = jax.eval_shape(lambda: self.moving(config, jnp.zeros(1, jnp.int32)))
        return with_metrics(made, config.metrics, list(moving), axis_name)

    def moving(self, config: TrainConfig, updates: Array) -> Metrics:
        """Return the numbers of a config that move, in each of some updates.

        Args:
            updates: `[K]` int32, numbers of the updates.

        Returns:
            `[K]` each, by (dotted) name; see `moving_numbers`.
        """
        return jax.vmap(lambda u: moving_numbers(config, u, self.plan.num_updates))(
            updates
        )


def bind(config: TrainConfig, on_host: bool = False, trains: bool = True) -> Bound:
    """Check everything that can be checked before tracing, and make the environment.

    Args:
        config: Config of the agent.
        on_host: Whether the environment may be one that is stepped on the host, and
            that no compiled program can hold.
        trains: Whether updates are to be made, which own metrics measure.

    Raises:
        ConfigError: naming the field, the value, the constraint and the remedy.
    """
    entry_of(config)
    validate_fields(config)
    env = resolve_env(config)
    if env.on_host and not on_host:
        raise ConfigError(
            f"env {env.name!r} is stepped on the host, and no compiled program can "
            "hold it; train with purerl.run(config, seeds=N) or `purerl train`."
        )
    resolved = auto.resolve(config, env)
    check_environment_stays(resolved)
    _validate(resolved, env)
    resolved.check_numbers()
    check_contract(resolved, env)
    bound = Bound(resolved, env, make_plan(resolved, env), config)
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if isinstance(value, Schedule):
            _check_schedule(bound, field.name, value)
    if resolved.frozen:
        init = bound.algorithm(resolved).init
        check_frozen(resolved.frozen, jax.eval_shape(init, jax.random.key(0)))
    if terms_of(resolved) and not env.on_host:
        _check_terms_are_read(bound)
    if config.metrics and trains and not env.on_host:
        check_metrics(bound)
    return bound


def _check_terms_are_read(bound: Bound) -> None:
    """Trace an update, in which terms are called; refuse those that none calls."""

    def reported(config: TrainConfig) -> Metrics:
        algorithm = bound.algorithm(config.replace(metrics=()))
        state = jax.eval_shape(algorithm.init, jax.random.key(0))
        return jax.eval_shape(algorithm.step, state)[1]

    plain = reported(bound.config.replace(extra_loss=None))
    metrics = reported(bound.config)
    for name in terms_of(bound.config):
        if name in plain or is_taken(name):
            raise ConfigError(
                f"extra_loss: {name} is reported already; give the term another name, "
                f"such as extra_loss={{'my_{name}': ...}}."
            )
        if name not in metrics:
            raise ConfigError(
                f"extra_loss must be None in {type(bound.config).__name__}, got {name}:"
                " nothing in its update adds terms to a loss. The learners with "
                "networks do, and on_policy.fit and gradient_step for an algorithm of "
                "your own."
            )


def _validate(config: TrainConfig, env: Environment) -> None:
    """Make the checks of an algorithm, and those of optimisers."""
    config = schedules.at_start(config)
    # Bounds of spaces are JAX's arrays in some environments, and those are read.
    with jax.ensure_compile_time_eval():
        entry_of(config).validate(config, env)
    check_optimisers(config)
    check_terms(config)


def _check_schedule(bound: Bound, name: str, schedule: Schedule) -> None:
    """Refuse a schedule of a number that is read at the start only.

    A number of an option that is off may be one: see `config.check_idle`.
    """
    values = {name: 0.0}
    if not bound.env.on_host and name in read_by_start(bound, values):
        check_may_move(bound, values, f"got {schedule!r}")


@in_32_bits
def resolve(config: TrainConfig) -> TrainConfig:
    """Return the config with a value in every field that is `auto`, as it would train.

    Raises:
        ConfigError: see `bind`.
    """
    return bind(config, on_host=True, trains=False).config


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
            f"{config.steps_per_update} steps, got {config.total_timesteps:,}."
        )
    max_steps = time_limit(config, env)
    by_steps = config.total_timesteps / (config.eval_episodes * max_steps)
    by_sequence = num_updates * config.sequential_steps / max_steps
    affordable = math.floor(config.eval_share * min(by_steps, by_sequence))
    count = min(config.num_evaluations, max(1, affordable), num_updates)
    after = [round((k + 1) * num_updates / count) for k in range(count)]
    return Plan(num_updates, config.steps_per_update, tuple(after), max_steps)


def follow_schedules(
    config: TrainConfig, make: Callable[[Any], Algorithm], num_updates: int
) -> Algorithm:
    """Make the algorithm of a config whose numbers may be schedules.

    An algorithm takes the numbers of its config as it finds them, traced or not, and
    knows nothing of schedules: inside the update it is made anew with the numbers of
    the moment. What is read when a state is made is that of the beginning of the run.

    Args:
        make: Function that makes the algorithm of a config without schedules.
    """
    if not schedules.is_moving(config):
        return make(config)
    moving = schedules.without_flags(config)
    first = make(schedules.at(moving, 0.0))

    def now(state: Any) -> Algorithm:
        return make(schedules.at(moving, state.update / num_updates))

    recurrence = first.recurrence
    if recurrence is not None:

        def remember(state: Any, *inputs: Any, **named: Any) -> tuple[Array, Any]:
            found = now(state).recurrence
            assert found is not None
            return found.act(state, *inputs, **named)

        recurrence = Recurrence(recurrence.init, remember)

    def hosted(update: Array) -> Hosted:
        found = make(schedules.at(moving, update / num_updates)).hosted
        assert found is not None
        return found(update)

    return Algorithm(
        init=first.init,
        step=lambda state: now(state).step(state),
        act=lambda state, *inputs, **named: now(state).act(state, *inputs, **named),
        recurrence=recurrence,
        hosted=None if first.hosted is None else hosted,
    )


def moving_numbers(config: TrainConfig, update: Array, num_updates: int) -> Metrics:
    """Return every number of a config that moves within a run, by name, `[]` each.

    Each is what the update begins with: schedules, annealed step sizes, epsilon, and
    the exponent of importance weights. They follow from the number of the update, so
    that no update has to report them.

    Args:
        update: `[]` int32, number of updates done.
    """
    config, share = schedules.without_flags(config), update / num_updates
    found = {name: one(share) for name, one in schedules.named(config).items()}
    now: Any = schedules.at(config, share)
    for name, rate in schedules.annealed_rates(now).items():
        found[name] = annealed(rate, now.learned_share(update), 1)
    decays = getattr(now, "epsilon_schedule", "constant") != "constant"
    if (decays or "epsilon_end" in found) and not getattr(now, "noisy", False):
        found["epsilon"] = exploration.epsilon_of_update(now, update)
    if getattr(now, "prioritised", False):
        done = jnp.minimum(update * (now.steps_per_update / now.total_timesteps), 1.0)
        exponent = now.importance_exponent
        found["importance_exponent"] = exponent + (1.0 - exponent) * done
    return {name: jnp.asarray(x, jnp.float32) for name, x in found.items()}


def check_environment_stays(config: TrainConfig) -> None:
    """Refuse schedules among the parameters of the environment.

    Raises:
        ConfigError: naming the field, and why.
    """
    if schedules.is_moving(config.env_params):
        raise ConfigError(
            "env_params must be numbers, got a schedule among them: evaluations would "
            "be of a task that moves. Give the environment numbers."
        )


# The numbers that a run reads, found in its traced program. Nobody has to say which
# numbers an option leaves idle, or which are read when an agent is made and never
# again: a program's outputs depend on them, or they do not.

# Answers that are kept: a search asks again for what a sweep has asked.
_KEPT = 256
_answers: dict[Hashable, frozenset[str]] = {}


def _remembered(find: Callable[[Any, Overrides], frozenset[str]]) -> Callable[..., Any]:
    """Make a function return the answer from memory where it was asked before."""

    @functools.wraps(find)
    def answer(run: Any, values: Overrides) -> frozenset[str]:
        leaves, structure = jax.tree.flatten(run.asked)
        asked, form = jax.tree.flatten(values)
        if any(isinstance(leaf, Tracer) for leaf in leaves):
            return find(run, values)
        try:
            numbers = tuple((np.shape(x), np.asarray(x).tobytes()) for x in leaves)
            shapes = tuple((shape_of(x).shape, str(shape_of(x).dtype)) for x in asked)
            question = (find, structure, numbers, form, shapes)
            hash(question)
        except TypeError:  # A part of the user's own that cannot be hashed.
            return find(run, values)
        if question not in _answers:
            if len(_answers) >= _KEPT:
                del _answers[next(iter(_answers))]
            _answers[question] = find(run, values)
        return _answers[question]

    return answer


@_remembered
def read_by_start(run: Any, values: Overrides) -> frozenset[str]:
    """Return the names of the numbers that are read when an agent is made.

    Args:
        run: Config and environment, a `Bound`.
    """
    return read_by(partial(_init, run), values, jax.random.key(0))


@_remembered
def read_by_updates(run: Any, values: Overrides) -> frozenset[str]:
    """Return the names of the numbers that updates read."""
    return read_by(partial(_step, run), values, first_state(run, values))


def check_may_move(run: Any, values: Overrides, asked: str) -> None:
    """Refuse to move numbers that no update of a run reads, or that have to stay.

    Args:
        values: A value of each number by (dotted) name.
        asked: What was to move them, for the message.

    Raises:
        ConfigError: naming the number, and why it cannot move.
    """
    read = frozenset(values) if run.env.on_host else read_by_updates(run, values)
    still = [name for name in values if name not in read]
    if still and still[0] not in read_by_start(run, values):
        raise ConfigError(nothing_reads(still[0], run, f"within a run, {asked}"))
    fields = dataclasses.fields(run.config)
    stays = {field.name for field in fields if field.metadata.get("stays")}
    reasons = dict.fromkeys(still, "it is read at the start of a run only") | {
        name: "what was learned means something else with another number"
        for name in values
        if name in stays
    }
    for name, reason in reasons.items():
        raise ConfigError(
            f"{name} cannot move within a run, {asked}: {reason}. Give it one number "
            "for the whole run; purerl.sweep, purerl.halving and purerl.tune search it."
        )


def check_metrics(run: Any) -> None:
    """Refuse functions of `config.metrics` that cannot measure an update, by shapes.

    Raises:
        ConfigError: saying what one returned, or that it is not there.
    """
    _measured(run, {})


def nothing_reads(name: str, run: Any, where: str) -> str:
    """Return the sentence that says that nothing reads a number.

    Args:
        name: Name of the number.
        where: Where it was to have an effect.
    """
    return (
        f"{name} has no effect {where}: with the other settings of this "
        f"{type(run.config).__name__}, in {run.env.name}, nothing in a run reads "
        "it. Turn on the option that reads it, or leave it out."
    )


def first_state(run: Any, values: Overrides) -> PyTree:
    """Return the shapes of the state that an agent with these numbers begins with."""
    return jax.eval_shape(partial(_init, run), shapes_of(values), jax.random.key(0))


def _init(run: Any, values: Overrides, key: Any) -> PyTree:
    return run.algorithm(run.at(values)).init(key)


def _step(run: Any, values: Overrides, state: PyTree) -> PyTree:
    return run.algorithm(run.at(values)).step(state)


@_remembered
def _measured(run: Any, values: Overrides) -> frozenset[str]:
    _, metrics = jax.eval_shape(partial(_step, run), values, first_state(run, values))
    return frozenset(metrics)


# A run in segments: updates in a scan, with evaluations between them.


class SegmentProgram(NamedTuple):
    """A run in pieces: `init`, then `advance` any number of times.

    Attributes:
        init: Function that makes the first state, `(key) -> state`.
        advance: `(state, first_update, length) -> (state, metrics, evaluation)`:
            `length` updates from number `first_update` on. `length` is static;
            `first_update` may be traced but must not be batched, so that "is it time
            to evaluate?" stays one branch for a whole population. Updates past the
            end of the run leave the state as it is. What is observed is an entry
            `observed` of the evaluation.
    """

    init: Callable[[Array], PyTree]
    advance: Callable[[PyTree, Any, int], tuple[PyTree, Metrics, Metrics]]


def make_segment(
    bound: Bound,
    overrides: Overrides | None = None,
    axis_name: str | None = None,
    observe: Callable[[PyTree], PyTree] | None = None,
) -> SegmentProgram:
    """Make the run of a config and its overrides, to be advanced in segments.

    Args:
        bound: Config, environment and plan.
        overrides: Values of dynamic fields by name; they may be traced.
        axis_name: Mapped axis over which this agent's environments are spread, if any.
        observe: Function of the state that is called at every evaluation.
    """
    config = bound.at(overrides)
    check_time_limit(bound, config)
    check_environment_stays(config)
    algorithm = bound.algorithm(config, axis_name)
    num_updates = bound.plan.num_updates
    is_due = np.isin(np.arange(num_updates) + 1, bound.plan.evaluate_after)
    env_params = bind_params(bound.env, config.env_params)
    recurrence = recurrence_of(algorithm)
    observe = observe and traced_once(observe)

    def evaluate(state: PyTree) -> dict[str, Any]:
        played = evaluate_agent(bound, config, env_params, recurrence, state)
        return played if observe is None else played | {OBSERVED: observe(state)}

    def advance(
        state: PyTree, first_update: Any, length: int
    ) -> tuple[PyTree, Metrics, Metrics]:
        may_overrun = not isinstance(first_update, int) or (
            first_update + length > num_updates
        )
        slots = max_evaluations(is_due, length, first_update)
        shapes = _evaluation_shapes(config.eval_episodes)
        if observe is not None:
            shapes[OBSERVED] = jax.eval_shape(observe, state)
        evaluations = jax.tree.map(
            lambda x: jnp.zeros((slots, *x.shape), x.dtype), shapes
        )
        state, evaluations = vary_like((state, evaluations), state.key)
        due = jnp.asarray(np.append(is_due, False))

        def body(carry: tuple, index: Array) -> tuple[tuple, Metrics]:
            state, evaluations, slot = carry
            update = partial(_update, algorithm, index=index)
            # None is made where the run has ended by then.
            is_left = index < num_updates
            state, metrics = (
                change_if(is_left, update, state) if may_overrun else update(state)
            )
            now = due[jnp.minimum(index, num_updates)]
            if slots:
                evaluations = jax.lax.cond(
                    now,
                    lambda: jax.tree.map(
                        lambda rows, row: dynamic_update_index_in_dim(
                            rows, row, slot, 0
                        ),
                        evaluations,
                        evaluate(state),
                    ),
                    lambda: evaluations,
                )
            return (state, evaluations, slot + now), metrics

        indices = jnp.asarray(first_update, jnp.int32) + jnp.arange(length)
        carry = (state, evaluations, jnp.int32(0))
        (state, evaluations, _), metrics = kernels.scan(body, carry, indices)
        return state, bound.moving(config, indices) | metrics, evaluations

    return SegmentProgram(algorithm.init, advance)


def _update(
    algorithm: Algorithm, state: PyTree, index: Array
) -> tuple[PyTree, Metrics]:
    """Make update number `index`."""
    # The same number, but one for all agents of a `vmap` over states: what an algorithm
    # derives from it ("is the warm-up over?") is not batched either.
    new, metrics = algorithm.step(state._replace(update=index))
    return new._replace(update=state.update + 1), metrics


def max_evaluations(is_due: np.ndarray, length: int, first_update: Any) -> int:
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
            f"override 'env_params.max_steps_in_episode' is {limit}, but evaluations "
            f"are planned for {planned}. Set eval_max_steps, or num_evaluations=0."
        )


def evaluate_agent(
    bound: Bound,
    config: TrainConfig,
    env_params: PyTree,
    recurrence: Recurrence,
    state: PyTree,
) -> Metrics:
    """Play the deterministic policy's episodes, as `TrainResult.evaluation` keeps them.

    Args:
        config: Config with overrides, of which the number of episodes is read.
        env_params: Numbers of the environment.
        recurrence: Functions by which the algorithm acts with a memory.
    """
    key, episodes = evaluation_key(state), config.eval_episodes
    result = _play(bound, env_params, recurrence, state, key, episodes)
    steps = state.update.astype(jnp.uint32) * jnp.uint32(bound.plan.steps_per_update)
    return {"env_steps": steps, **result._asdict()}


def _evaluation_shapes(episodes: int) -> dict[str, Any]:
    """The shapes of what `evaluate_agent` returns, without tracing it."""
    each = jax.ShapeDtypeStruct
    return {
        "env_steps": each((), jnp.uint32),
        "episode_return": each((episodes,), jnp.float32),
        "episode_length": each((episodes,), jnp.int32),
        "cut_episodes": each((), jnp.int32),
    }


def _play(
    bound: Bound,
    env_params: PyTree,
    recurrence: Recurrence,
    state: PyTree,
    key: Array,
    episodes: int,
) -> Evaluation:
    played = play_evaluation(
        bound.env,
        env_params,
        partial(recurrence.act, state),
        key,
        memory=recurrence.init((episodes,)),
        num_episodes=episodes,
        max_steps=bound.plan.eval_max_steps,
    )
    # Episodes that break count with what they had earned: 0, which is the best return
    # where all rewards are negative.
    returns = jnp.where(parameters_finite(state), played.episode_return, jnp.nan)
    return played._replace(episode_return=returns)


def parameters_finite(state: Any) -> Array:
    """Return whether all parameters of an agent are finite numbers, bool `[]`.

    Args:
        state: State of one agent; what it holds under `params` is looked at.
    """
    # Numbers are joined, and not flags: XLA makes a kernel for each layer of those.
    numbers = [
        leaf.ravel()
        for leaf in jax.tree.leaves(getattr(state, "params", ()))
        if jnp.issubdtype(leaf.dtype, jnp.floating)
    ]
    return jnp.isfinite(jnp.concatenate([*numbers, jnp.zeros(1)])).all()


def evaluate_afresh(
    bound: Bound,
    config: TrainConfig,
    state: PyTree,
    key: Array,
    num_episodes: int | None = None,
    deterministic: bool = True,
) -> Evaluation:
    """Play fresh episodes of a trained agent.

    Args:
        config: Config with overrides, of which the environment's numbers are read.
        key: Random key of the episodes, consumed.
        num_episodes: Number of episodes, E; `eval_episodes` where not given.
        deterministic: Whether the policy is, or draws its actions.
    """
    recurrence = recurrence_of(bound.algorithm(config))
    if not deterministic:
        key, key_act = jax.random.split(key)
        recurrence = drawing(recurrence, key_act)
    env_params = bind_params(bound.env, config.env_params)
    episodes = num_episodes or config.eval_episodes
    return _play(bound, env_params, recurrence, state, key, episodes)


# What is made of a config: a run, an algorithm, a policy.

Train = Callable[..., TrainResult]


@in_32_bits
def make_train(
    config: TrainConfig,
    *,
    axis_name: str | None = None,
    observe: Callable[[PyTree], PyTree] | None = None,
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
        first_update: Number of updates that the states have done that `start` gets; it
            must be told where they are traced, and is not compared with them there:
            after a wrong one, as many updates are made as it leaves of the run.

    Returns:
        `train(key, overrides=None, start=None) -> TrainResult`, which `jax.jit`,
        `jax.vmap`, `jax.pmap` and `purerl.pmap` transform. `overrides` maps (dotted)
        names of dynamic fields to values; one that nothing in the run reads changes
        nothing, where `purerl.sweep` refuses such an axis. `start` is the state of an
        agent that goes on with all it has (one of `RunResult.state` too), or networks
        by name (`purerl.networks_of`) with which a run begins; the key is the agent's
        from then on. With the key that trained the state, it goes on as if never
        stopped.

    Raises:
        ConfigError: naming the field, the value, the constraint and the remedy.
    """
    bound = bind(config)
    plan = bound.plan
    if observe is not None:
        made = bound.algorithm(bound.config)
        check_observe(observe, made, len(plan.evaluate_after))
    warm_start.check_first_update(first_update, plan.num_updates)

    @in_32_bits
    def train(
        key: Array, overrides: Overrides | None = None, start: PyTree = None
    ) -> TrainResult:
        check_key(key)
        segment = make_segment(bound, overrides, axis_name, observe)
        if start is None:
            if first_update:
                raise ConfigError(
                    f"first_update is {first_update:,}, and no start is given: give "
                    "train(key, start=state) the state that has done these updates."
                )
            state, first = segment.init(key), 0
        else:
            state, first = warm_start.begin(
                segment.init, key, start, first_update, bound, overrides
            )
        state, metrics, evaluation = segment.advance(
            state, first, plan.num_updates - first
        )
        observed = evaluation.pop(OBSERVED, None)
        return TrainResult(state, held(metrics), evaluation, observed)

    return train


def check_key(key: Any) -> None:
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


def _check_draw(key: Any) -> None:
    """Refuse anything but one key, typed or old, to draw actions with, or none."""
    if key is not None and shape_of_keys(key) != ():
        raise ConfigError(
            "key of a policy must be one key for all observations, got "
            f"{shown(key)}; for several use jax.vmap(policy)(obs, keys)."
        )


@in_32_bits
def make_algorithm(config: TrainConfig) -> Algorithm:
    """Make the three pure functions of a config: `init(key)`, `step(state)`, `act`.

    Where the environment is stepped on the host, `step` refuses, and `hosted` has the
    update in pieces.

    Raises:
        ConfigError: see `bind`.
    """
    bound = bind(config, on_host=True, trains=False)
    return algorithm_in_32_bits(bound.algorithm(bound.config))


@dataclasses.dataclass(frozen=True, eq=False)  # It is hashed by identity, for jax.jit.
class Policy:
    """A trained agent without a memory, see `make_policy`; it can be pickled.

    Attributes:
        config: Config with which the agent was trained.
        state: State of one agent.
    """

    config: TrainConfig
    state: PyTree
    _act: Callable[..., Array] = dataclasses.field(repr=False)

    def __call__(self, obs: Any, key: Array | None = None) -> Array:
        """Return the action `[...]` for observations; drawn with a key, else best."""
        return self._act(obs, key)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return make_policy, (self.config, self.state)


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
        `policy(obs, memory, key=None) -> (action, memory)`. Both can be pickled.

    Raises:
        ConfigError: the state holds several agents, or its networks are not those of
            the config, as of another algorithm, environment or size.
    """
    warm_start.check_agent(state)
    bound = bind(config, on_host=True, trains=False)
    algorithm = bound.algorithm(bound.config)
    check_acts(bound, algorithm, state)
    space = bound.env.observation_space(bound.env.default_params)
    complete = partial(completed, space, keys=getattr(bound.config, "actor_keys", ()))
    recurrence = algorithm.recurrence
    if recurrence is not None:

        def act(
            state: PyTree, obs: Any, memory: PyTree, key: Array | None = None
        ) -> tuple[Array, PyTree]:
            _check_draw(key)
            return recurrence.act(state, complete(obs), memory, key)

        whole = recurrence_in_32_bits(recurrence._replace(act=act))
        return RecurrentPolicy(whole, state, partial(make_policy, config, state))

    @in_32_bits
    def act_alone(obs: Array, key: Array | None = None) -> Array:
        _check_draw(key)
        return algorithm.act(state, complete(as_arrays(obs)), key)

    return Policy(config, state, act_alone)


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
