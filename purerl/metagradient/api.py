"""purerl.meta_gradient: the derivative of an outer loss through updates of a run.

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
"""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from purerl import schedules
from purerl.acting.environment import with_params
from purerl.acting.rollout import ROLLOUT
from purerl.algorithms import ALGORITHMS, entry_of, name_of
from purerl.algorithms.checks import optimiser_fields
from purerl.algorithms.outer import Outer, OuterLoss, collect_next
from purerl.config import ConfigError, TrainConfig, as_float32
from purerl.losses import AsymmetricClipDrift, ClipDrift, ClippedSquaredError
from purerl.meta.genome import Genome, Names
from purerl.optimisers.first_order import differentiable
from purerl.precision import algorithm_in_32_bits, in_32_bits
from purerl.scale.devices import required
from purerl.train import bind, check_may_move
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
