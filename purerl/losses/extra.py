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

from purerl.config import ConfigError, shown, term_name, tried
from purerl.networks.modules import Batched
from purerl.networks.observe import Masked
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
    terms: Terms, params: PyTree, samples: Samples, apply: Apply, key: Array
) -> PyTree:
    """Return parameters by network, with those that terms have beside them.

    Args:
        params: Fresh parameters of the agent by network.
        samples: Samples `[1, ...]` of the shapes that gradient steps have.
        key: Random key, consumed.

    Raises:
        ConfigError: a term has the name of a network.
    """
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
