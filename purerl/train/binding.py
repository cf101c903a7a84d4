"""A config with its environment and its plan: what is known before tracing."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from purerl import auto, schedules
from purerl.acting import exploration
from purerl.acting.environment import (
    Environment,
    check_contract,
    resolve_env,
    time_limit,
    with_params,
)
from purerl.algorithms import entry_of
from purerl.algorithms.checks import check_frozen, check_optimisers, check_terms
from purerl.algorithms.own_terms import terms_of
from purerl.config import (
    ConfigError,
    TrainConfig,
    apply_overrides,
    is_part,
    validate_fields,
)
from purerl.hooks import is_taken, with_metrics
from purerl.keys import MAX_UPDATES
from purerl.learning.optimiser import annealed
from purerl.precision import in_32_bits
from purerl.train.reads import check_may_move, check_metrics, read_by_start
from purerl.types import (
    Algorithm,
    Array,
    Hosted,
    Metrics,
    Overrides,
    Recurrence,
    Schedule,
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
