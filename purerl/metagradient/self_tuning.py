"""purerl.self_tune: an agent that tunes its own numbers while it learns.

One life: every few updates the meta-gradient of what the last of them have led to moves
the numbers by a step of Adam, and the agent goes on from where it is with the new ones
(Xu, van Hasselt and Silver 2018, arXiv:1805.09801; Zahavy et al. 2020,
arXiv:2002.12928). The rollout that judges is the one that the next update learns from.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from purerl.acting.environment import bind_params
from purerl.acting.policy import recurrence_of
from purerl.algorithms.outer import OuterLoss
from purerl.config import ConfigError, TrainConfig
from purerl.meta.genome import Names
from purerl.metagradient import api
from purerl.metrics import held
from purerl.precision import in_32_bits
from purerl.scale.devices import as_count
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
    metrics = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), metrics)
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
