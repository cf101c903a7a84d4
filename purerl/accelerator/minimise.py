"""Minibatch steps of actor and critic with few kernels."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp

from purerl.accelerator import paired
from purerl.learning import normalise, optimiser
from purerl.learning.minibatches import (
    Passes,
    is_one_loop,
    minimise,
    step_means,
)
from purerl.networks.distributions import CategoricalHead
from purerl.optimisers.first_order import is_known
from purerl.types import Array, Metrics, PyTree

Loss = Callable[..., tuple[Array, Metrics]]


def minimise_in_few_kernels(
    agent: Any,
    loss: Loss,
    params: PyTree,
    opt_state: PyTree,
    batch: Any,
    key: Array,
    passes: Passes,
) -> tuple[PyTree, PyTree, Metrics]:
    """Do what `minimise` does, for PPO without a memory.

    Advantages are standardised for all minibatches of a pass at once, an actor and a
    critic of one shape are one network, and metrics are averaged after the last step.

    Args:
        agent: Networks, environments and config.
        loss: `(agent, params, minibatch, by_sample) -> (scalar, metrics)`.
        params: Parameters of `actor` and `critic`.
        opt_state: State of `passes.optim`.
        batch: `[N, ...]` samples of the rollout.
        key: Random key, consumed.
        passes: Passes of gradient steps through the batch.
    """
    agent, batch, passes = with_few_kernels(agent, params, batch, passes)
    by_sample = agent.axis_name is None and is_one_loop(batch, passes)
    loss = partial(loss, agent, by_sample=by_sample)
    params, opt_state, metrics = minimise(loss, params, opt_state, batch, key, passes)
    return params, opt_state, step_means(metrics) if by_sample else metrics


def with_few_kernels(
    agent: Any, params: PyTree, batch: Any, passes: Passes
) -> tuple[Any, Any, Passes]:
    """Return agent, batch and passes of the same gradient steps in few kernels."""
    config = agent.config
    if config.normalize_advantages and not config.normalize_whole_batch:
        # The loss gets advantages that are standardised already.
        agent = agent._replace(config=config.replace(normalize_whole_batch=True))
        passes = passes._replace(prepare=partial(_standardise, agent.axis_name))
    if not _is_paired(agent):
        return agent, batch, passes
    actor = agent.actor
    form = optimiser.Form(
        partial(paired.join, actor), lambda pair: paired.split(pair, params)
    )
    obs = paired.with_ones(batch.obs.reshape(batch.obs.shape[0], -1))
    agent = agent._replace(forward=partial(forward, agent.head))
    return agent, batch._replace(obs=obs), passes._replace(form=form)


def forward(head: Any, params: paired.Pair, seen: Array) -> tuple[Any, Array, None]:
    """Return what a head takes, and values `[N]`; see `policy_gradient.outputs`.

    Args:
        head: Distribution of the actions.
        params: Actor and critic as one.
        seen: Observations as `paired.with_ones` makes them.
    """
    found, value = params(seen)
    if isinstance(found, list) and not isinstance(head, CategoricalHead):
        found = jnp.stack(found, -1)
    return found, value, None


def _standardise(axis_name: str | None, batch: Any) -> Any:
    advantage = normalise.standardise(batch.advantage, axis_name)
    return batch._replace(advantage=advantage)


def _is_paired(agent: Any) -> bool:
    """Whether actor and critic learn as one network."""
    config = agent.config
    return (
        agent.on_features is None
        and not config.frozen
        and config.critic_learning_rate is None
        and is_known(config.optimiser)
        and paired.can_be_paired(agent.actor, agent.critic)
    )
