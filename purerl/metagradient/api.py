"""purerl.meta_gradient: the derivative of an outer loss through updates of a run.

    theta_k = U(theta_{k-1}, D_k, eta)     update k with the numbers eta, k = 1 ... K
    m(eta)  = L(theta_K, D_{K+1})          the outer loss, with the reference's numbers
    dm/deta = sum_k dL/dtheta_K (dU_K/dtheta_{K-1}) ... (dU_k/deta)

`D_k` is the rollout of update k. It is a constant: how other numbers would have led to
other data is left out, as in Xu, van Hasselt and Silver (2018, arXiv:1805.09801) and
Zahavy et al. (2020, arXiv:2002.12928).
"""

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import schedules
from purerl.acting.rollout import ROLLOUT
from purerl.algorithms import ALGORITHMS, entry_of, name_of
from purerl.algorithms.outer import Outer, OuterLoss, collect_next
from purerl.config import ConfigError, TrainConfig
from purerl.meta.names import Names
from purerl.metagradient.coordinates import Coordinates, Values
from purerl.metagradient.zeros import check_acts
from purerl.optimisers.check import optimiser_fields
from purerl.optimisers.differentiable import differentiable
from purerl.precision import algorithm_in_32_bits, in_32_bits
from purerl.scale.devices import required
from purerl.train import Bound, bind
from purerl.types import Algorithm, Array, Metrics, Overrides, PyTree


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


class _OuterObjective(NamedTuple):
    """The outer loss of a state, with the reference's numbers.

    Attributes:
        outer: Outer losses that judge updates of the algorithm.
        bound: The run, whose length schedules follow.
        reference: The numbers that the outer loss has in place of the config's own.
        loss: The outer loss.
    """

    outer: Outer
    bound: Bound
    reference: Overrides
    loss: OuterLoss

    def build(self, state: PyTree, overrides: Overrides) -> Any:
        """Return networks, environments and config, with the numbers of the moment."""
        config = self.bound.at({**overrides, **self.reference})
        if schedules.is_moving(config):
            share = state.update / self.bound.plan.num_updates
            config = schedules.at(schedules.without_flags(config), share)
        return self.outer.make_agent(config, self.bound.env)

    def collect(self, parts: Any, state: PyTree) -> Any:
        """Return the rollout that the agent would collect next, a constant."""
        return jax.lax.stop_gradient(collect_next(parts, state))

    def __call__(self, state: PyTree, overrides: Overrides) -> Array:
        parts = self.build(state, overrides)
        return self.loss(parts, state, self.collect(parts, state))


class MetaGradientFunction:
    """A pure function `(state, values=None, overrides=None) -> MetaGradient`.

    Made by `purerl.meta_gradient`. It can be transformed by `jax.jit` and `jax.vmap`,
    and called in the body of a `jax.lax.scan`.

    Attributes:
        unroll: The number of updates that it goes through, K.
    """

    def __init__(
        self,
        bound: Bound,
        coordinates: Coordinates,
        judge: _OuterObjective,
        unroll: int,
        checkpoint: bool,
    ) -> None:
        self._bound = bound
        self._coordinates = coordinates
        self._judge = judge
        self._checkpoint = checkpoint
        self.unroll = unroll

    @in_32_bits
    def start(self) -> Values:
        """Return the coordinates of the config's own values, by name of the leaf."""
        return self._coordinates.start()

    @in_32_bits
    def overrides(self, values: Mapping[str, Any]) -> Overrides:
        """Return the numbers that coordinates mean, by name of the field.

        `make_train(config)(key, overrides)` trains with them.

        Args:
            values: Coordinates by name of the leaf, without bounds.
        """
        return self._coordinates.decode(values)

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
        self._coordinates.check_apart(others)
        config = self._bound.at({**others, **self.overrides(values)})
        return algorithm_in_32_bits(self._bound.algorithm(_differentiable(config)))

    def kept_bytes(self, state: PyTree) -> int:
        """Return how many bytes of each update are kept for the derivative.

        They are its state and its rollout. The insides of an update are computed again,
        those of one update at a time, so that they do not grow with the updates.

        Args:
            state: The state of one agent, or its shapes.
        """
        judge = self._judge
        rollout = jax.eval_shape(lambda s: judge.collect(judge.build(s, {}), s), state)
        return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves((state, rollout)))

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
        if update is None or callable(update):  # A dictionary has such a method.
            raise ConfigError(
                "state must be the state of an agent, such as TrainResult.state or "
                f"what algorithm(values).init(key) returns, got {type(state).__name__}."
            )
        if jnp.ndim(state.update) > 0:
            raise ConfigError(
                f"state holds {np.shape(state.update)} agents; use jax.vmap over them."
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
        return self._judge(state, overrides), (state, metrics)


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
    return make_meta_gradient(
        config,
        wrt,
        "wrt",
        unroll=unroll,
        objective=objective,
        reference=reference,
        checkpoint=checkpoint,
    )


def make_meta_gradient(
    config: TrainConfig,
    names: Names,
    word: str,
    *,
    unroll: int,
    objective: str | OuterLoss | None,
    reference: Overrides | None,
    checkpoint: bool = True,
) -> MetaGradientFunction:
    """Make a `meta_gradient` for a function whose argument has another name.

    Args:
        config: The config of the agent, of an on-policy algorithm.
        names: The name of a field, several, or names with scales.
        word: Name in messages of the argument that names the fields.
        unroll: The number of updates, K.
        objective: The outer loss.
        reference: Values of dynamic fields by name that the outer loss has.
        checkpoint: Whether the insides of an update are computed again.

    Raises:
        ConfigError: see `meta_gradient`.
    """
    unroll = required("unroll", unroll)
    bound = bind(config)
    outer = entry_of(config).outer
    if outer is None:
        raise ConfigError(_no_outer(config))
    coordinates = Coordinates(bound, names, word)
    loss = _loss_of(objective, outer)
    for field in coordinates.fields:
        check_acts(bound, field, outer, unroll, loss, word)
    bound.at(reference)  # Refuses what cannot be overridden.
    judge = _OuterObjective(outer, bound, dict(reference or {}), loss)
    return MetaGradientFunction(bound, coordinates, judge, unroll, checkpoint)


def _no_outer(config: TrainConfig) -> str:
    known = [name for name, entry in ALGORITHMS.items() if entry.outer is not None]
    return (
        f"meta_gradient needs an algorithm whose updates learn from their own rollout "
        f"alone ({', '.join(known)}), got {name_of(config)}: what it learns from was "
        "collected by many updates. purerl.evolve takes its numbers."
    )


def _loss_of(objective: str | OuterLoss | None, outer: Outer) -> OuterLoss:
    if objective is None:
        return next(iter(outer.losses.values()))
    if callable(objective):
        return objective
    if not isinstance(objective, str) or objective not in outer.losses:
        raise ConfigError(
            f"objective must be one of {', '.join(outer.losses)}, or a function "
            f"(parts, state, rollout) -> scalar, got {objective!r}."
        )
    return outer.losses[objective]


def _differentiable(config: TrainConfig) -> TrainConfig:
    """The config with optimisers through whose steps a derivative can be taken."""
    changes = {
        name: differentiable(getattr(config, name)) for name in optimiser_fields(config)
    }
    return dataclasses.replace(config, **changes)
