"""purerl.self_tune and purerl.meta_train: numbers that agents tune while they learn.

`self_tune` is one life: every few updates the meta-gradient of what the last of them
have led to moves the numbers by a step of Adam, and the agent goes on from where it is
with the new ones (Xu, van Hasselt and Silver 2018, arXiv:1805.09801; Zahavy et al.
2020, arXiv:2002.12928). The rollout that judges is the one that the next update learns
from.

In `meta_train` many agents share the numbers, each in a task of its own. Every step
makes some updates of all agents, and moves the numbers by a step of Adam along the mean
of their meta-gradients. An agent whose run is over begins again, with fresh parameters
and in another task, so that what is learned has to help from the beginning of a run to
its end. Lifetimes are staggered: at any moment the agents are of all ages. That is how
learned update rules are trained (Oh et al. 2020, arXiv:2007.08794; 2025,
doi:10.1038/s41586-025-09761-x).
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from purerl.acting.environment import bind_params
from purerl.acting.policy import recurrence_of
from purerl.algorithms.outer import OuterLoss
from purerl.config import ConfigError, TrainConfig, check_mapping, is_concrete
from purerl.learning.sequences import flatten
from purerl.meta.genome import Names
from purerl.metagradient import api
from purerl.metrics import held
from purerl.precision import in_32_bits
from purerl.scale.devices import as_count, required
from purerl.train import (
    Bound,
    bind,
    check_environment_stays,
    check_key,
    check_time_limit,
    evaluate_agent,
)
from purerl.types import Array, Metrics, Overrides, PyTree


class SelfTuned(NamedTuple):
    """The result of a run that tuned itself.

    Attributes:
        state: The final state of the agent, as `TrainResult` has it.
        metrics: Metrics of the updates, `[U]` each.
        evaluation: Episodes of the deterministic policy at the end, `[1, E]`; empty
            where the config wants none.
        overrides: The tuned numbers at the end, by name of the field, for `make_train`.
        course: `[R]` each, a row for every meta-gradient: `update`, the number of
            updates before the ones that it went through; `objective`, the outer loss
            after them; `gradient_norm`; and under the name of each field the numbers
            that they were made with.
    """

    state: PyTree
    metrics: Metrics
    evaluation: Metrics
    overrides: Overrides
    course: dict[str, Any]


@in_32_bits
def self_tune(
    config: TrainConfig,
    tune: Names,
    *,
    unroll: int = 1,
    every: int | None = None,
    meta_learning_rate: api.StepSize = 1e-2,
    objective: str | OuterLoss | None = None,
    reference: Overrides | None = None,
) -> Callable[..., SelfTuned]:
    """Make a training run in which the agent tunes its own numbers, a pure function.

    A meta-gradient that is not finite moves nothing.

    Args:
        config: The config of the agent; its values are where the numbers begin.
        tune: The name of a field, several, or names with scales; see `meta_gradient`.
        unroll: The number of updates that a meta-gradient goes through, K.
        every: The number of updates from one meta-gradient to the next, of which it
            goes through the last K; K where not given.
        meta_learning_rate: The step size of Adam on the coordinates without bounds, or
            a function from the number of meta-gradients so far to it, such as
            `optax.linear_schedule(1e-2, 0.0, 1_000)`. A step size of 0.01 is about one
            per cent of a learning rate for each meta-gradient.
        objective: The outer loss; see `meta_gradient`.
        reference: Values of dynamic fields that the outer loss has in place of the
            config's own.

    Returns:
        `train(key, overrides=None) -> SelfTuned`, which `jax.jit`, `jax.vmap` and
        `purerl.pmap` transform. `overrides` maps (dotted) names of dynamic fields to
        values, which updates, outer loss and evaluation have and nothing tunes, such as
        the physics of the environment; `train` refuses those that are tuned.

    Raises:
        ConfigError: see `meta_gradient`; or `every` is less than `unroll` or more than
            the updates of the run.
    """
    meta = api.MetaGradientFunction(
        config, tune, unroll, objective, reference, word="tune"
    )
    bound, every = bind(config), as_count("every", every) or unroll
    num_updates = bound.plan.num_updates
    if not unroll <= every <= num_updates:
        raise ConfigError(
            f"every must be at least unroll ({unroll}) and at most the updates of the "
            f"run ({num_updates}), got {every}."
        )
    api.check_step_size(meta_learning_rate)
    optim = optax.adam(meta_learning_rate)

    @in_32_bits
    def train(key: Array, overrides: Overrides | None = None) -> SelfTuned:
        check_key(key)
        return _train(bound, meta, every, optim, key, dict(overrides or {}))

    return train


def _train(
    bound: Bound,
    meta: api.MetaGradientFunction,
    every: int,
    optim: optax.GradientTransformation,
    key: Array,
    fixed: Overrides,
) -> SelfTuned:
    asked = bound.at(fixed)
    check_time_limit(bound, asked)
    check_environment_stays(asked)

    def moving(values: api.Values, first: Array, length: int) -> Metrics:
        """The numbers that move by themselves, in some updates from `first` on."""
        config = bound.at({**fixed, **meta.overrides(values)})
        return bound.moving(config, first + jnp.arange(length))

    def updated(
        values: api.Values, state: PyTree, length: int
    ) -> tuple[PyTree, Metrics]:
        """Some updates that no derivative goes through; none have no metrics."""
        if length == 0:
            return state, {}
        step = meta.algorithm(values, fixed).step
        return jax.lax.scan(lambda state, _: step(state), state, length=length)

    def take_round(carry: tuple, _: None) -> tuple[tuple, tuple[Metrics, PyTree]]:
        """The updates from one step of the numbers to the next."""
        state, values, opt_state = carry
        metrics = moving(values, state.update, every)
        state, before = updated(values, state, every - meta.unroll)
        found = meta(state, values, fixed)
        norm = optax.tree.norm(found.gradient)
        steps, moved = optim.update(found.gradient, opt_state, values)
        is_finite = jnp.isfinite(norm)
        new = jax.tree.map(
            lambda new, old: jnp.where(is_finite, new, old),
            (optax.apply_updates(values, steps), moved),
            (values, opt_state),
        )
        row = {
            "update": state.update,
            "objective": found.value,
            "gradient_norm": norm,
            **meta.overrides(values),
        }
        return (found.state, *new), (metrics | _joined(before, found.metrics), row)

    values = meta.start()
    state = meta.algorithm(values, fixed).init(key)
    carry = (state, values, optim.init(values))
    rounds, left = divmod(bound.plan.num_updates, every)
    (state, values, _), (metrics, course) = jax.lax.scan(
        take_round, carry, length=rounds
    )
    metrics = flatten(metrics)
    first = state.update
    state, rest = updated(values, state, left)
    if left:
        metrics = _joined(metrics, rest | moving(values, first, left))
    tuned, evaluation = meta.overrides(values), {}
    if bound.plan.evaluate_after:
        config = bound.at({**fixed, **tuned})
        recurrence = recurrence_of(bound.algorithm(config))
        env_params = bind_params(bound.env, config.env_params)
        played = evaluate_agent(bound, config, env_params, recurrence, state)
        evaluation = jax.tree.map(lambda x: x[None], played)
    return SelfTuned(state, held(metrics), evaluation, tuned, course)


def _joined(first: Metrics, second: Metrics) -> Metrics:
    """Metrics of updates one after the other, of which the first may be none."""
    if not first:
        return second
    return jax.tree.map(lambda x, y: jnp.concatenate([x, y]), first, second)


class MetaTrainState(NamedTuple):
    """The numbers that are learned, and the agents that learn with them.

    Attributes:
        values: The numbers as coordinates without bounds, by name of the leaf.
        opt_state: State of their optimiser.
        agents: States of the N agents, with a leading axis.
        task: `[N]` row of `tasks` in which each agent is.
        left: `[N]` updates of each agent's life that are left.
        key: Key of the lives to come.
        step: Number of steps so far, int32.
    """

    values: api.Values
    opt_state: PyTree
    agents: PyTree
    task: Array
    left: Array
    key: Array
    step: Array


class MetaTraining(NamedTuple):
    """The parts of a meta-training; its methods are pure functions.

    Made by `purerl.meta_train`.

    Attributes:
        meta: The meta-gradient of one agent.
        agents: The number of agents, N.
        num_updates: The number of updates of a life.
        optim: The optimiser of the coordinates.
        tasks: Overrides with a leading axis, a row for each task; may be empty.
    """

    meta: api.MetaGradientFunction
    agents: int
    num_updates: int
    optim: optax.GradientTransformation
    tasks: Overrides

    @in_32_bits
    def init(self, key: Array) -> MetaTrainState:
        """Return the config's own numbers, and agents at the beginning of their lives.

        Args:
            key: A scalar key from `jax.random.key`.
        """
        check_key(key)
        values = self.meta.start()
        key, born = jax.random.split(key)
        agents, task = self._births(values, born)
        # On the host, in 64 bits: a product of 32 bits may be too small.
        ages = np.arange(self.agents, dtype=np.int64) * self.num_updates // self.agents
        return MetaTrainState(
            values=values,
            opt_state=self.optim.init(values),
            agents=agents,
            task=task,
            # The first lives end early, so that later ones begin one after the other.
            left=jnp.asarray(
                np.maximum(self.num_updates - ages, self.meta.unroll), jnp.int32
            ),
            key=key,
            step=jnp.int32(0),
        )

    @in_32_bits
    def step(self, state: MetaTrainState) -> tuple[MetaTrainState, Metrics]:
        """Make K updates of all agents, and one step of the numbers.

        Args:
            state: From `init` or from the step before.

        Returns:
            The next state, and scalars: `objective`, the mean outer loss;
            `gradient_norm` of the mean meta-gradient; `failed`, the share of agents
            whose meta-gradient was not finite, which are left out of all means and
            begin again; `episode_return`, the mean over the episodes that ended in
            these updates, NaN where none did, and `episodes`, their number.
        """
        tasks = self._of(state.task)
        learn = jax.vmap(self.meta, in_axes=(0, None, 0))
        found = learn(state.agents, state.values, tasks)
        is_finite = _are_finite(found)
        mean, metrics = _mean_of(found, is_finite)
        steps, opt_state = self.optim.update(mean, state.opt_state, state.values)
        new: Any = optax.apply_updates(state.values, steps)
        left = jnp.where(is_finite, state.left - self.meta.unroll, 0)
        state = state._replace(
            values=new,
            opt_state=opt_state,
            agents=found.state,
            left=left,
            step=state.step + 1,
        )
        return self._bear(state), metrics

    def overrides(self, state: MetaTrainState) -> Overrides:
        """Return the numbers as overrides, by name of the field.

        `make_train(config)(key, overrides)` trains with them.

        Args:
            state: From `init` or `step`.
        """
        return self.meta.overrides(state.values)

    def _of(self, task: Array) -> Overrides:
        return jax.tree.map(lambda x: x[task], self.tasks)

    def _births(self, values: api.Values, key: Array) -> tuple[PyTree, Array]:
        """N fresh agents in tasks that are drawn for them."""
        number = max(1, _rows(self.tasks))
        of_task, of_agents = jax.random.split(key)
        task = jax.random.randint(of_task, (self.agents,), 0, number)

        def bear(key: Array, overrides: Overrides) -> PyTree:
            return self.meta.algorithm(values, overrides).init(key)

        keys = jax.random.split(of_agents, self.agents)
        return jax.vmap(bear)(keys, self._of(task)), task

    def _bear(self, state: MetaTrainState) -> MetaTrainState:
        """Put fresh agents in the place of those whose lives are over."""
        over = state.left < self.meta.unroll
        key, born = jax.random.split(state.key)

        def renewed(state: MetaTrainState) -> MetaTrainState:
            fresh = self._births(state.values, born)
            agents, task = jax.tree.map(
                lambda new, old: _choose(over, new, old),
                fresh,
                (state.agents, state.task),
            )
            left = jnp.where(over, self.num_updates, state.left)
            return state._replace(agents=agents, task=task, left=left)

        state = state._replace(key=key)
        return jax.lax.cond(over.any(), renewed, lambda state: state, state)


@in_32_bits
def meta_train(
    config: TrainConfig,
    wrt: Names,
    *,
    agents: int,
    unroll: int = 5,
    tasks: Overrides | None = None,
    meta_learning_rate: api.StepSize = 1e-3,
    objective: str | OuterLoss | None = None,
    reference: Overrides | None = None,
) -> MetaTraining:
    """Make a meta-training: agents in many tasks share numbers, which they improve.

    What is returned is a pair of pure functions, like an algorithm: `init(key)` and
    `step(state)`. The step can be compiled, and called in a `jax.lax.scan`.

    Args:
        config: The config of the agents; its `total_timesteps` are a lifetime, and its
            values are where the numbers begin.
        wrt: The name of a field, several, or names with scales; see `meta_gradient`.
        agents: The number of agents that learn at the same time, N.
        unroll: The number of updates that a meta-gradient goes through, K; the default
            is that of Oh et al. (2020).
        tasks: Overrides of dynamic fields with a leading axis, a row for each task,
            such as the physics of its environment. An agent is born into a random one.
        meta_learning_rate: The step size of Adam on the coordinates without bounds, or
            a function from the number of steps so far to it, such as
            `optax.linear_schedule(3e-3, 0.0, 1_000)`.
        objective: The outer loss; see `meta_gradient`.
        reference: Values of dynamic fields that the outer loss has in place of the
            config's own.

    Returns:
        `MetaTraining`, with `init`, `step` and `overrides`.

    Raises:
        ConfigError: see `meta_gradient`; or tasks have no common leading axis, name
            what is learned, or have a number that the field does not take; or a life is
            shorter than `unroll`.
    """
    agents = required("agents", agents)
    meta = api.meta_gradient(
        config, wrt, unroll=unroll, objective=objective, reference=reference
    )
    api.check_step_size(meta_learning_rate)
    bound = bind(config)
    num_updates = bound.plan.num_updates
    if unroll > num_updates:
        raise ConfigError(
            f"unroll must be at most the {num_updates} updates of a lifetime, got "
            f"{unroll}; raise total_timesteps, or lower unroll."
        )
    check_mapping("tasks", tasks, '{"env_params.length": [0.5, 1.0]}')
    rows = _as_rows(tasks or {})
    meta.algorithm(meta.start(), jax.tree.map(lambda x: x[0], rows))  # May refuse them.
    if all(map(is_concrete, jax.tree.leaves(rows))):  # Traced ones are taken.
        plain = jax.tree.map(np.asarray, rows)
        for number in range(_rows(rows)):
            try:
                bound.at(jax.tree.map(lambda x, n=number: x[n], plain))
            except ConfigError as error:
                raise ConfigError(f"tasks: row {number}: {error}") from None
    optim = optax.adam(meta_learning_rate)
    return MetaTraining(meta, agents, num_updates, optim, rows)


def _as_rows(tasks: Mapping[str, Any]) -> Overrides:
    """The tasks as arrays, which all have as many rows."""
    arrays = jax.tree.map(
        jnp.asarray, dict(tasks), is_leaf=lambda value: isinstance(value, list)
    )
    rows = {jnp.shape(x)[:1] for x in jax.tree.leaves(arrays)}
    if len(rows) > 1 or rows & {(), (0,)}:
        raise ConfigError(
            "tasks must be arrays that all have the same leading axis, a row for each "
            f"task, got {jax.tree.map(jnp.shape, arrays)}."
        )
    return arrays


def _rows(tasks: Mapping[str, Any]) -> int:
    leaves = jax.tree.leaves(tasks)
    return leaves[0].shape[0] if leaves else 0


def _are_finite(found: api.MetaGradient) -> Array:
    """`[N]`, whether the meta-gradients of each agent are finite."""
    leaves = [found.value, *jax.tree.leaves(found.gradient)]
    finite = [jnp.isfinite(x.reshape(x.shape[0], -1)).all(-1) for x in leaves]
    return jnp.stack(finite).all(0)


def _mean_of(found: api.MetaGradient, finite: Array) -> tuple[api.Values, Metrics]:
    """The mean meta-gradient, and metrics, over the agents with finite ones."""
    number = jnp.maximum(finite.sum(), 1)

    def mean(x: Array) -> Array:
        return _choose(finite, x, jnp.zeros_like(x)).sum(0) / number

    gradient = jax.tree.map(mean, found.gradient)
    episodes = _choose(finite, found.metrics["episodes"], 0)
    returns = jnp.where(episodes > 0, found.metrics["episode_return"] * episodes, 0.0)
    metrics = {
        "objective": mean(found.value),
        "gradient_norm": optax.tree.norm(gradient),
        "failed": 1.0 - finite.mean(),
        "episode_return": returns.sum() / episodes.sum(),
        "episodes": episodes.sum(),
    }
    return gradient, metrics


def _choose(which: Array, yes: Any, no: Any) -> Any:
    """`[N, ...]` rows of one or of the other."""
    return jnp.where(which.reshape(-1, *[1] * (jnp.ndim(yes) - 1)), yes, no)
