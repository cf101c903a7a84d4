"""Terms of the user's own in a loss, and networks that learn by them.

A term is a callable pytree with a number `coef`. Every gradient step calls
`term(params, batch, apply, key)`, which returns a number for each sample, adds `coef`
times their weighted mean to what the algorithm minimises, and reports that mean under
the term's name.

A term that has a method `init`, of the same arguments, has a network of its own: `init`
returns its parameters, which the term finds as `params["head"]`. They lie among the
agent's under the term's name, so that they are saved, frozen and resumed as these are,
and Adam moves them. No policy reads them.
"""

from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from purerl.acting import rollout
from purerl.config import ConfigError, shown, term_name, tried
from purerl.keys import init_keys, update_keys
from purerl.learning import optimiser
from purerl.learning.branches import add_gradient
from purerl.learning.minibatches import Passes
from purerl.learning.sequences import flatten
from purerl.networks import observe
from purerl.networks.modules import Batched
from purerl.networks.observe import Masked
from purerl.optimisers.first_order import Adam
from purerl.types import Array, Metrics, PyTree

HEAD = "head"
_TAKES = "take (params, batch, apply, key), see docs/adding-loss.md"
Terms = dict[str, Any]
Apply = Callable[..., Any]
"""`(params, network, obs, *more) -> outputs` of a network, or of a part of it."""


class Samples(NamedTuple):
    """What a term is given of the samples of a gradient step, `[N, ...]` each.

    Attributes:
        obs: Observations as the networks see them: prepared, or of an agent with a
            memory what it shows of them.
        action: Actions as the algorithm stores them.
        reward: Reward of the step, or the discounted sum of n steps.
        next_obs: What the networks see after the step, before any reset.
        discount: `gamma`, of n steps its power; 0 where the episode terminated.
        weight: Weight of the sample in the mean.
        own: The algorithm's own samples of a rollout, such as `advantage`; () of
            replay.
    """

    obs: Any
    action: Array
    reward: Array
    next_obs: Any
    discount: Array
    weight: Array
    own: Any = ()


def terms_of(config: Any) -> Terms:
    """Return the terms of a config by name, in the order of the names."""
    value = config.extra_loss
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return {name: value[name] for name in sorted(value)}
    return {term_name(value): value}


def heads_of(terms: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the terms that have a network of their own."""
    return tuple(name for name, term in terms.items() if hasattr(term, "init"))


def key_of(key: Array) -> Array:
    """Return the key of what terms draw, from that of everything that learning draws.

    No split of the key is equal to it.
    """
    return jax.random.fold_in(key, jnp.uint32(2**32 - 1))


def applying(networks: Mapping[str, Any], inputs: Callable | None = None) -> Apply:
    """Return the function by which terms call the networks of an agent.

    Args:
        networks: Modules by name.
        inputs: `(params, network, obs) -> inputs` of a network; the observations where
            not given.

    Returns:
        `(params, name, obs, *more) -> outputs`. A name with dots, such as
        `actor.torso`, is that of a part; see the field `frozen`.
    """

    def apply(params: PyTree, name: str, obs: Any, *more: Any) -> Any:
        first, _, part = name.partition(".")
        if first not in networks:
            raise ConfigError(
                f"extra_loss: there is no network {first!r} to apply; there are "
                f"{', '.join(networks)}."
            )
        module = networks[first]
        if part:
            return module.apply(params[first], obs, *more, method=_part(part))
        if inputs is not None:
            obs = inputs(params, first, obs)
        return module.apply(params[first], obs, *more)

    return apply


def _part(part: str) -> Callable[..., Any]:
    def call(module: Any, *inputs: Any) -> Any:
        while isinstance(module, Masked | Batched):
            module = module.module
        return attrgetter(part)(module)(*inputs)

    return call


def added(
    terms: Terms, params: PyTree, samples: Samples, apply: Apply, key: Array
) -> tuple[Array, Metrics]:
    """Return what terms add to a loss, `[]`, and the mean of each by name.

    Args:
        params: Parameters by network, those of the terms among them.
        key: Random key, consumed.
    """
    total, metrics = jnp.zeros(()), {}
    for number, (name, term) in enumerate(terms.items()):
        if hasattr(term, "init"):
            given = {**params, HEAD: params[name]}
        else:
            given = params
        call = partial(term, given, samples, apply, jax.random.fold_in(key, number))
        found = tried(f"extra_loss.{name}", term, _TAKES, call)
        if getattr(found, "shape", None) != samples.reward.shape:
            raise ConfigError(
                f"extra_loss: {name} must return a number for each sample, not "
                f"{getattr(found, 'shape', shown(found))}; leave the mean to the "
                "learner."
            )
        metrics[name] = (samples.weight * found).mean()
        total = total + term.coef * metrics[name]
    return total, metrics


def with_heads(
    terms: Terms,
    params: PyTree,
    seen: tuple[Any, Any],
    action: PyTree,
    apply: Apply,
    key: Array,
) -> PyTree:
    """Return parameters by network, with those that terms have beside them.

    Args:
        params: Fresh parameters of the agent by network.
        seen: Two observations `[1, ...]` as the networks see them, the second after a
            step.
        action: An action `[1, ...]` as the algorithm stores it.
        key: The agent's key.

    Raises:
        ConfigError: a term has the name of a network.
    """
    obs, next_obs = seen
    one, key = jnp.ones(1), init_keys(key, 4)[3]
    samples = Samples(obs, action, 0.0 * one, next_obs, one, one)
    found = dict(params)
    for number, name in enumerate(terms):
        if name in heads_of(terms):
            if name in found:
                raise ConfigError(
                    f"extra_loss: {name} is the name of a network of the agent; give "
                    f"the term another name, such as extra_loss={{'my_{name}': ...}}."
                )
            own = jax.random.fold_in(key, number)
            call = partial(terms[name].init, params, samples, apply, own)
            found[name] = tried(f"extra_loss.{name}", terms[name], _TAKES, call)
    return found


AddGradient = Callable[..., tuple[PyTree, Metrics]]
"""`(grads, restore, moved) -> (grads with that of the terms, means of the terms)`,
where `restore(moved)` are the parameters by network."""


class _Observed(NamedTuple):
    """Samples of which there are only observations."""

    obs: Any


class OwnTerms(NamedTuple):
    """The terms of an agent that learns from rollouts, by name.

    This is all that such algorithms know of `extra_loss`. An agent without terms has
    none, and its programs are what they would be if this class were not there.
    """

    terms: Terms

    @property
    def heads(self) -> tuple[str, ...]:
        """The names of the networks that terms have."""
        return heads_of(self.terms)

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
        return with_heads(self.terms, params, (seen, seen), action, _apply(agent), key)

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
        keys = jax.random.split(key_of(key), shape)
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
        key = key_of(update_keys(state, num_keys)[3])

        def add(grads: Any, restore: Callable, moved: Any) -> tuple[Any, Metrics]:
            added = partial(self._added, agent, rows, key, restore)
            return add_gradient(grads, added, moved, state.update, key)

        return add

    def _added(
        self, agent: Any, rows: Any, key: Array, restore: Callable, moved: Any
    ) -> tuple[Array, Metrics]:
        """What terms add to the loss of rows, and their means by name."""
        params = restore(moved)
        if agent.memory is None:
            samples = agent.samples_of(params, rows)
        else:
            samples = flatten(agent.memory.steps(params, rows))
        samples = samples._replace(own=_own(samples))
        return added(self.terms, params, samples, _apply(agent), key)


def of_heads(config: Any, rate: Array | float) -> optimiser.Make:
    """Return what makes Adam for the terms' networks, clipped apart."""
    frozen = optimiser.frozen_in(config.frozen)
    max_norm = getattr(config, "max_grad_norm", None)
    return partial(optimiser.make, Adam(), rate, max_norm, frozen=frozen)


def of_config(config: Any) -> OwnTerms | None:
    """Return the terms of a config; None where it has none."""
    terms = terms_of(config)
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


def _apply(agent: Any) -> Apply:
    """How terms call the networks; a critic may see a torso's features."""

    def seen(params: PyTree, name: str, obs: Any) -> Any:
        return agent.inputs(params, obs) if name == "critic" else obs

    return applying(agent.networks, seen)
