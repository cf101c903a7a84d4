"""The user's own terms of a loss in the algorithms that learn from rollouts.

`OwnTerms` is all that these know of `extra_loss`. An agent without terms has none, and
its programs are what they would be if this file were not there. See `losses.extra`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from purerl.acting import rollout
from purerl.keys import init_keys, update_keys
from purerl.learning import optimiser
from purerl.learning.branches import add_gradient
from purerl.learning.minibatches import Passes
from purerl.losses import extra
from purerl.losses.extra import Samples
from purerl.networks import observe
from purerl.optimisers.first_order import Adam
from purerl.types import Array, Metrics, PyTree

AddGradient = Callable[..., tuple[PyTree, Metrics]]
"""`(grads, restore, moved) -> (grads with that of the terms, means of the terms)`,
where `restore(moved)` are the parameters by network."""


class _Observed(NamedTuple):
    """Samples of which there are only observations."""

    obs: Any


class OwnTerms(NamedTuple):
    """The terms of an agent by name."""

    terms: extra.Terms

    @property
    def heads(self) -> tuple[str, ...]:
        """The names of the networks that terms have."""
        return extra.heads_of(self.terms)

    def with_heads(self, agent: Any, params: PyTree, seen: Any, key: Array) -> PyTree:
        """Return fresh parameters by network with those that terms have beside them.

        Args:
            seen: What the networks see of one observation, `[1, ...]`.
            key: The agent's key.
        """
        if not self.heads:
            return params
        name = agent.behaviour.network

        def choose() -> Any:
            outputs = agent.networks[name].apply(params[name], seen)
            noise = agent.behaviour.noise(jax.random.key(0), (1, 1))
            noise = jax.tree.map(lambda x: x[0], noise)
            return agent.behaviour.explore(jnp.int32(0))(outputs, seen, noise)[0]

        shapes = jax.eval_shape(choose)
        action = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        one, own = jnp.ones(1), init_keys(key, 4)[3]
        example = Samples(seen, action, 0.0 * one, seen, one, one)
        return extra.with_heads(self.terms, params, example, _apply(agent), own)

    def optimiser(
        self, config: Any, params: dict[str, PyTree], anneal: Callable
    ) -> optax.GradientTransformation:
        """Return `optimiser.of_config`, with Adam beside it for the terms' networks."""
        heads = self.heads
        own = {name: x for name, x in params.items() if name not in heads}
        if not heads:
            return optimiser.of_config(config, own, anneal)
        return optimiser.beside(
            lambda _: optimiser.of_config(config, own, anneal),
            of_heads(config, anneal(config.learning_rate)),
            optimiser.layers_of(params),
            heads,
        )

    def beside(
        self,
        agent: Any,
        state: Any,
        played: rollout.Played,
        loss: Callable,
        batch: Any,
        passes: Passes,
        key: Array,
    ) -> tuple[Callable, Any, Passes]:
        """Return loss, rows and passes of `on_policy.fit` with the terms in each step.

        Args:
            loss: `(agent, params, rows) -> (scalar, metrics)` of the algorithm.
            batch: Samples `[T, B, ...]` of the algorithm.
            passes: Passes without terms.
            key: Key from which that of the terms is folded.
        """
        rows = agent.rows_of(state, played, _samples(agent, state, played, batch))
        shape = passes.num_epochs, passes.num_minibatches
        keys = jax.random.split(extra.key_of(key), shape)
        drawn = keys, jnp.arange(keys.size).reshape(shape)

        def own_loss(agent: Any, params: PyTree, rows: Any) -> Any:
            if agent.memory is None:
                return loss(agent, params, _own(rows))
            return loss(agent, params, rows._replace(batch=_own(rows.batch)))

        def add(
            grads: Any, restore: Callable, moved: Any, rows: Any, drawn: Any
        ) -> tuple[Any, Metrics]:
            key, number = drawn
            added = partial(self._added, agent, rows, key, restore)
            return add_gradient(grads, added, moved, number, key)

        return own_loss, rows, passes._replace(drawn=drawn, add=add)

    def over(
        self, agent: Any, state: Any, played: rollout.Played, num_keys: int
    ) -> AddGradient:
        """Return what adds the gradient of the terms over a whole rollout."""
        prepared = observe.prepare(agent, state.obs_moments, played.transitions.obs)
        samples = _samples(agent, state, played, _Observed(prepared))
        rows = agent.rows_of(state, played, samples)
        key = extra.key_of(update_keys(state, num_keys)[3])

        def add(grads: Any, restore: Callable, moved: Any) -> tuple[Any, Metrics]:
            added = partial(self._added, agent, rows, key, restore)
            return add_gradient(grads, added, moved, state.update, key)

        return add

    def _added(
        self, agent: Any, rows: Any, key: Array, restore: Callable, moved: Any
    ) -> tuple[Array, Metrics]:
        """What terms add to the loss of rows, and their means by name."""
        params, samples = restore(moved), rows
        if agent.memory is not None:
            steps = agent.memory.steps(params, rows)
            samples = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), steps)
        samples = samples._replace(own=_own(samples))
        return extra.added(self.terms, params, samples, _apply(agent), key)


def of_heads(config: Any, rate: Array | float) -> optimiser.Make:
    """Return what makes Adam for the terms' networks, clipped apart."""
    frozen = optimiser.frozen_in(config.frozen)
    max_norm = getattr(config, "max_grad_norm", None)
    return partial(optimiser.make, Adam(), rate, max_norm, frozen=frozen)


def of_config(config: Any) -> OwnTerms | None:
    """Return the terms of a config; None where it has none."""
    terms = extra.terms_of(config)
    return OwnTerms(terms) if terms else None


def _samples(agent: Any, state: Any, played: rollout.Played, batch: Any) -> Samples:
    """The samples `[T, B, ...]` of a rollout with what terms see beside them."""
    steps = played.transitions
    return Samples(
        obs=batch.obs,
        action=steps.action,
        reward=steps.reward,
        next_obs=observe.prepare(agent, state.obs_moments, steps.next_obs),
        discount=agent.config.gamma * (1.0 - steps.terminated),
        weight=jnp.ones_like(steps.reward),
        own=batch._replace(obs=()),
    )


def _own(samples: Samples) -> Any:
    """The algorithm's own samples, whose observations `_samples` has moved."""
    return samples.own._replace(obs=samples.obs)


def _apply(agent: Any) -> extra.Apply:
    """How terms call the networks; a critic may see a torso's features."""

    def seen(params: PyTree, name: str, obs: Any) -> Any:
        return agent.inputs(params, obs) if name == "critic" else obs

    return extra.applying(agent.networks, seen)
