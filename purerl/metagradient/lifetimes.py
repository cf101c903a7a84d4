"""purerl.meta_train: numbers that many agents share, learned over their lifetimes.

A population of agents learns with the same numbers, each in a task of its own. Every
step makes some updates of all agents, and moves the numbers by a step of Adam along the
mean of their meta-gradients. An agent whose run is over begins again, with fresh
parameters and in another task, so that what is learned has to help from the beginning
of a run to its end. Lifetimes are staggered: at any moment the agents are of all ages.
That is how learned update rules are trained (Oh et al. 2020, arXiv:2007.08794; 2025,
doi:10.1038/s41586-025-09761-x).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from purerl.algorithms.outer import OuterLoss
from purerl.config import ConfigError, TrainConfig, check_mapping, is_concrete
from purerl.meta.genome import Names
from purerl.metagradient import api
from purerl.precision import in_32_bits
from purerl.scale.devices import required
from purerl.train import bind, check_key
from purerl.types import Array, Metrics, Overrides, PyTree


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
