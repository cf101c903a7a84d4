"""Meta-gradients, and numbers that agents tune by them while they learn.

`purerl.meta_gradient` is the derivative of an outer loss through updates of a run:

    theta_k = U(theta_{k-1}, D_k, eta)     update k with the numbers eta, k = 1 ... K
    m(eta)  = L(theta_K, D_{K+1})          the outer loss, with the reference's numbers
    dm/deta = sum_k dL/dtheta_K (dU_K/dtheta_{K-1}) ... (dU_k/deta)

`D_k` is the rollout of update k. It is a constant: how other numbers would have led to
other data is left out, as in Xu, van Hasselt and Silver (2018, arXiv:1805.09801) and
Zahavy et al. (2020, arXiv:2002.12928).

The derivative is with respect to *coordinates*, leaves of the config as arrays without
bounds, whose names and scales are those of `purerl.evolve`: a number that must stay
positive is `start * exp(z)`, a fraction `sigmoid(logit(start) + z)`, and arrays are
themselves. So a step of any size leads to numbers that can be trained with.

`purerl.self_tune` is one life: every few updates the meta-gradient of what the last of
them have led to moves the numbers by a step of Adam, and the agent goes on from where
it is with the new ones (Xu, van Hasselt and Silver 2018, arXiv:1805.09801; Zahavy et
al. 2020, arXiv:2002.12928). The rollout that judges is the one that the next update
learns from.

In `purerl.meta_train` many agents share the numbers, each in a task of its own. Every
step makes some updates of all agents, and moves the numbers by a step of Adam along the
mean of their meta-gradients. An agent whose run is over begins again, with fresh
parameters and in another task, so that what is learned has to help from the beginning
of a run to its end. Lifetimes are staggered: at any moment the agents are of all ages.
That is how learned update rules are trained (Oh et al. 2020, arXiv:2007.08794; 2025,
doi:10.1038/s41586-025-09761-x).
"""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax

from purerl import schedules
from purerl.acting.environment import bind_params, with_params
from purerl.acting.policy import recurrence_of
from purerl.acting.rollout import ROLLOUT
from purerl.algorithms import ALGORITHMS, entry_of, name_of
from purerl.algorithms.checks import optimiser_fields
from purerl.algorithms.outer import Outer, OuterLoss, collect_next
from purerl.config import (
    ConfigError,
    TrainConfig,
    as_float32,
    check_mapping,
    is_concrete,
)
from purerl.learning.sequences import flatten
from purerl.losses import AsymmetricClipDrift, ClipDrift, ClippedSquaredError
from purerl.meta.genome import Genome, Names
from purerl.metrics import held
from purerl.optimisers.first_order import differentiable
from purerl.precision import algorithm_in_32_bits, in_32_bits
from purerl.scale.devices import as_count, required
from purerl.train import (
    Bound,
    bind,
    check_environment_stays,
    check_key,
    check_may_move,
    check_time_limit,
    evaluate_agent,
)
from purerl.types import Algorithm, Array, Metrics, Overrides, PyTree

Values = dict[str, Array]
"""Coordinates by name of the leaf: `gamma`, `policy_loss.params[0]`."""
StepSize = float | Callable[[Any], Any]
"""A step size, or a function from the number of steps so far, int32 `[]`, to it."""

# How to give a number of which the derivative is, by the argument that names it.
_INSTEAD = {"wrt": "give them by values", "tune": "give them in the config"}
_CLIPS = (ClipDrift, AsymmetricClipDrift, ClippedSquaredError)


class MetaGradient(NamedTuple):
    """A meta-gradient, and the agent after the updates that it goes through.

    Attributes:
        value: The outer loss, `[]`.
        gradient: Derivative of the outer loss, by name of the leaf.
        state: The state of the agent after the updates.
        metrics: Metrics of the updates, `[K]` each.
    """

    value: Array
    gradient: Values
    state: PyTree
    metrics: Metrics


class MetaGradientFunction:
    """A pure function `(state, values=None, overrides=None) -> MetaGradient`.

    Made by `purerl.meta_gradient`. It can be transformed by `jax.jit` and `jax.vmap`,
    and called in the body of a `jax.lax.scan`.

    Attributes:
        unroll: The number of updates that it goes through, K.
    """

    def __init__(
        self,
        config: TrainConfig,
        names: Names,
        unroll: int,
        objective: str | OuterLoss | None,
        reference: Overrides | None,
        checkpoint: bool = True,
        word: str = "wrt",
    ) -> None:
        self.unroll = required("unroll", unroll)
        self._bound, self._checkpoint, self._word = bind(config), checkpoint, word
        outer, loss = entry_of(config).outer, objective
        if outer is None:
            known = [n for n, entry in ALGORITHMS.items() if entry.outer is not None]
            raise ConfigError(
                "meta_gradient needs an algorithm whose updates learn from their own "
                f"rollout alone ({', '.join(known)}), got {name_of(config)}; "
                "purerl.evolve takes its numbers."
            )
        bound = self._bound
        self._genome = Genome(bound.asked, bound.env, names, word)
        check_may_move(bound, self._genome.values, f"and {word} is about updates")
        if objective is None:
            loss = next(iter(outer.losses.values()))
        elif isinstance(objective, str) and objective in outer.losses:
            loss = outer.losses[objective]
        elif not callable(objective):
            raise ConfigError(
                f"objective must be one of {', '.join(outer.losses)}, or a function "
                f"(parts, state, rollout) -> scalar, got {objective!r}."
            )
        for field in self._genome.values:
            check_acts(bound.config, field, outer, word)
        bound.at(reference)  # Refuses what cannot be overridden.
        self._outer, self._objective = outer, cast("OuterLoss", loss)
        self._reference = dict(reference or {})

    @in_32_bits
    def start(self) -> Values:
        """Return the coordinates of the config's own values, by name of the leaf."""
        vector, found = self._genome.start(), {}
        for leaf in self._genome.leaves:
            part, vector = np.split(vector, [leaf.start.size])
            found[leaf.name] = jnp.asarray(part.reshape(leaf.start.shape))
        return found

    @in_32_bits
    def overrides(self, values: Mapping[str, Any]) -> Overrides:
        """Return the numbers that coordinates mean, by name of the field.

        `make_train(config)(key, overrides)` trains with them.

        Args:
            values: Coordinates by name of the leaf, without bounds; may be traced.

        Raises:
            ConfigError: there are other names, or other shapes.
        """
        shapes = {leaf.name: leaf.start.shape for leaf in self._genome.leaves}
        got: Any = type(values).__name__
        if isinstance(values, Mapping):
            got = {name: jnp.shape(value) for name, value in values.items()}
        if got != shapes:
            raise ConfigError(
                f"values must be arrays of the shapes {shapes}, as start() returns "
                f"them, got {got}; for several agents use jax.vmap."
            )
        vector = jnp.concatenate([jnp.ravel(values[name]) for name in shapes])
        return jax.tree.map(lambda x: x[0], self._genome.decode(vector[None]))

    @in_32_bits
    def algorithm(
        self, values: Mapping[str, Any], overrides: Overrides | None = None
    ) -> Algorithm:
        """Return the algorithm with the numbers that coordinates mean.

        Args:
            values: Coordinates by name of the leaf, without bounds.
            overrides: Other numbers of this agent by name of the field, such as the
                physics of its own environment.

        Raises:
            ConfigError: see `make_train` for overrides; or one of them is what the
                derivative is of.
        """
        others = dict(overrides or {})
        for name in others:
            for field in self._genome.values:
                if f"{name}.".startswith(f"{field}.") or field.startswith(f"{name}."):
                    raise ConfigError(
                        f"overrides: {name} and {field}, which the meta-gradient is "
                        f"of, are the same numbers; {_INSTEAD[self._word]}."
                    )
        config = self._bound.at({**others, **self.overrides(values)})
        # Optimisers through whose steps a derivative can be taken.
        fields = optimiser_fields(config)
        changes = {name: differentiable(getattr(config, name)) for name in fields}
        made = self._bound.algorithm(dataclasses.replace(config, **changes))
        return algorithm_in_32_bits(made)

    def kept_bytes(self, state: PyTree) -> int:
        """Return how many bytes of each update are kept for the derivative.

        They are its state and its rollout. The insides of an update are computed again,
        those of one update at a time, so that they do not grow with the updates.

        Args:
            state: The state of one agent, or its shapes.
        """
        _, rollout = jax.eval_shape(lambda s: self._next(s, {})[1:], state)
        return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves((state, rollout)))

    def _next(self, state: PyTree, overrides: Overrides) -> tuple[Any, PyTree, Any]:
        """The reference's parts, the state, and its next rollout, which is a constant.

        The parts are networks, environments and config, with the numbers of the moment.
        """
        bound = self._bound
        config = bound.at({**overrides, **self._reference})
        if schedules.is_moving(config):
            share = state.update / bound.plan.num_updates
            config = schedules.at(schedules.without_flags(config), share)
        parts = self._outer.make_agent(with_params(config, bound.env), bound.env)
        return parts, state, jax.lax.stop_gradient(collect_next(parts, state))

    @in_32_bits
    def __call__(
        self,
        state: PyTree,
        values: Mapping[str, Any] | None = None,
        overrides: Overrides | None = None,
    ) -> MetaGradient:
        """Make the updates, and return the outer loss after them with its derivative.

        Args:
            state: The state of one agent.
            values: Coordinates by name of the leaf; those of the config's own values
                where not given.
            overrides: Other numbers of this agent by name of the field, such as the
                physics of its own environment. They are constants, and both the
                updates and the outer loss have them.

        Raises:
            ConfigError: the state holds several agents, or there are other values, or
                an override is what the derivative is of.
        """
        update = getattr(state, "update", None)
        # A dictionary has such a method.
        if update is None or callable(update) or jnp.ndim(update):
            raise ConfigError(
                "state must be the state of one agent, such as TrainResult.state or "
                "what algorithm(values).init(key) returns (for several agents use "
                f"jax.vmap), got {type(state).__name__}."
            )
        values = self.start() if values is None else dict(values)
        loss = partial(self._loss, overrides=dict(overrides or {}))
        found, gradient = jax.value_and_grad(loss, has_aux=True)(values, state)
        value, (state, metrics) = found
        return MetaGradient(value, gradient, state, metrics)

    def _loss(
        self, values: Values, state: PyTree, overrides: Overrides
    ) -> tuple[Array, tuple[PyTree, Metrics]]:
        step = self.algorithm(values, overrides).step
        if self._checkpoint:
            # Of an update its state and its rollout are kept, and the rest is computed
            # again. A rollout that was played again might be rounded into another one.
            policy = jax.checkpoint_policies.save_only_these_names(ROLLOUT)
            step = jax.checkpoint(step, policy=policy, prevent_cse=False)
        state, metrics = jax.lax.scan(
            lambda state, _: step(state), state, length=self.unroll
        )
        return self._objective(*self._next(state, overrides)), (state, metrics)


@in_32_bits
def meta_gradient(
    config: TrainConfig,
    wrt: Names,
    *,
    unroll: int = 1,
    objective: str | OuterLoss | None = None,
    reference: Overrides | None = None,
    checkpoint: bool = True,
) -> MetaGradientFunction:
    """Make the derivative of an outer loss through updates of a run.

    What is returned makes K updates of an agent with the numbers that are asked about,
    and then computes the outer loss on the rollout that the agent would collect next.
    The updates are those of `make_train`. All data are constants. The outer loss has
    discount, trace decay and all other numbers from the reference, never from what is
    differentiated.

    Args:
        config: The config of the agent, of an on-policy algorithm.
        wrt: The name of a field with float leaves (`"gamma"`, `"policy_loss"`),
            several, or names with scales, as `purerl.evolve` takes them.
        unroll: The number of updates, K.
        objective: The outer loss, which is to become small: `"policy_gradient"`, the
            negated surrogate of the policy gradient without clipping or entropy bonus,
            which is the default (of LPG with standardised rewards-to-go in the place
            of advantages); `"actor_critic"`, which adds the value loss with the
            reference's `value_coef`; of PQN `"td_error"`; or a function `(parts,
            state, rollout) -> scalar`, see `purerl.algorithms.outer`.
        reference: Values of dynamic fields by name that the outer loss has in place
            of the config's own.
        checkpoint: Whether the insides of an update are computed again for the
            derivative; without it the insides of all K updates are kept.

    Returns:
        A function `(state, values=None, overrides=None) -> MetaGradient`, with
        `start()`, the coordinates of the config's own values, and
        `overrides(values)`, the numbers that coordinates mean.

    Raises:
        ConfigError: the algorithm learns from data of older updates, or the derivative
            would be zero whatever the data, or a name is unknown; before any tracing.
    """
    return MetaGradientFunction(config, wrt, unroll, objective, reference, checkpoint)


def check_acts(config: TrainConfig, field: str, outer: Outer, word: str) -> None:
    """Refuse a field whose meta-gradient is zero whatever the data.

    Raises:
        ConfigError: naming the field and the reason.
    """
    first = field.split(".")[0]
    why = outer.constant.get(first)
    if first == "env_params":
        why = "they only change what is collected, and data are constants"
    elif isinstance(getattr(config, first), _CLIPS):
        # A sample has its whole gradient or none, and moving the ends changes neither.
        why = "the interval of a clip only decides which samples count"
    if why is not None:
        raise ConfigError(
            f"{word}: the meta-gradient of {field} is zero, for {why}. Leave it out, "
            "or use purerl.evolve."
        )


def check_step_size(step_size: StepSize) -> None:
    """Refuse a `meta_learning_rate` that is neither positive nor a function of steps.

    Raises:
        ConfigError: naming the value.
    """
    is_positive = callable(step_size) and not schedules.is_moving(step_size)
    if isinstance(step_size, int | float | np.generic):
        is_positive = bool(0 < as_float32(step_size) < float("inf"))
    if not is_positive:
        raise ConfigError(
            "meta_learning_rate must be greater than 0, or a function from the number "
            "of steps so far to such a number, such as optax.linear_schedule(3e-3, "
            f"0.0, 1_000), got {step_size!r}."
        )


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
    meta_learning_rate: StepSize = 1e-2,
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
    meta = MetaGradientFunction(config, tune, unroll, objective, reference, word="tune")
    bound, every = bind(config), as_count("every", every) or unroll
    num_updates = bound.plan.num_updates
    if not unroll <= every <= num_updates:
        raise ConfigError(
            f"every must be at least unroll ({unroll}) and at most the updates of the "
            f"run ({num_updates}), got {every}."
        )
    check_step_size(meta_learning_rate)
    optim = optax.adam(meta_learning_rate)

    @in_32_bits
    def train(key: Array, overrides: Overrides | None = None) -> SelfTuned:
        check_key(key)
        return _train(bound, meta, every, optim, key, dict(overrides or {}))

    return train


def _train(
    bound: Bound,
    meta: MetaGradientFunction,
    every: int,
    optim: optax.GradientTransformation,
    key: Array,
    fixed: Overrides,
) -> SelfTuned:
    asked = bound.at(fixed)
    check_time_limit(bound, asked)
    check_environment_stays(asked)

    def moving(values: Values, first: Array, length: int) -> Metrics:
        """The numbers that move by themselves, in some updates from `first` on."""
        config = bound.at({**fixed, **meta.overrides(values)})
        return bound.moving(config, first + jnp.arange(length))

    def updated(values: Values, state: PyTree, length: int) -> tuple[PyTree, Metrics]:
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

    values: Values
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

    meta: MetaGradientFunction
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

    def _births(self, values: Values, key: Array) -> tuple[PyTree, Array]:
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
    meta_learning_rate: StepSize = 1e-3,
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
    meta = meta_gradient(
        config, wrt, unroll=unroll, objective=objective, reference=reference
    )
    check_step_size(meta_learning_rate)
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


def _are_finite(found: MetaGradient) -> Array:
    """`[N]`, whether the meta-gradients of each agent are finite."""
    leaves = [found.value, *jax.tree.leaves(found.gradient)]
    finite = [jnp.isfinite(x.reshape(x.shape[0], -1)).all(-1) for x in leaves]
    return jnp.stack(finite).all(0)


def _mean_of(found: MetaGradient, finite: Array) -> tuple[Values, Metrics]:
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
