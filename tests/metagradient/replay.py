"""The updates of a run again, with other numbers and the same data, in float64.

A rollout is played once for every update, with the numbers that an agent has. After
that `outer_loss(values)` is a plain function of the numbers: the same rollouts go
through the algorithm's own `learn`. Its finite differences are what a meta-gradient is.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import algorithms
from purerl.acting.environment import with_params
from purerl.algorithms import lpg, on_policy, outer, ppo, pqn, vpg
from purerl.keys import update_keys
from purerl.metagradient.api import MetaGradientFunction
from purerl.train import bind
from tests.algorithms.agents import rows_of

MODULES = {
    "ppo": ppo,
    "recurrent_ppo": ppo,
    "vpg": vpg,
    "lpg": lpg,
    "pqn": pqn,
    "recurrent_pqn": pqn,
}


class Replay(NamedTuple):
    """An agent in float64, and the outer loss after its updates as a function.

    Attributes:
        state: before the updates.
        values: of the config, in coordinates without bounds.
        outer_loss: `(values) -> []`.
    """

    state: Any
    values: dict[str, jax.Array]
    outer_loss: Callable[[Any], jax.Array]


def doubled(tree):
    """A pytree with its 32-bit numbers with a fraction in 64 bits."""

    def one(x):
        is_float = jnp.issubdtype(x.dtype, jnp.floating)
        return jnp.asarray(x, jnp.float64) if is_float else x

    return jax.tree.map(one, tree)


def record(
    config, meta: MetaGradientFunction, key, objective="policy_gradient", values=None
) -> Replay:
    """Play the rollouts of the updates, and of the outer loss; under `enable_x64`."""
    bound = bind(config)
    env = bound.env
    name = algorithms.name_of(config)
    judge = algorithms.entry_of(config).outer
    module = MODULES[name]
    values = values or doubled(meta.start())

    def parts_of(values):
        return judge.make_agent(with_params(bound.at(meta.overrides(values)), env), env)

    reference = judge.make_agent(with_params(bound.config, env), env)

    def begin(key):
        state = bound.algorithm(bound.config).init(key)
        return doubled(state)._replace(envs=state.envs)

    def play(state):
        parts, rollouts = parts_of(values), []
        for _ in range(meta.unroll):
            rollouts.append(outer.collect_next(parts, state))
            state = learn(parts, state, rollouts[-1])
        rollouts.append(outer.collect_next(reference, state))
        return state, rollouts

    def learn(parts, state, rollout):
        key = update_keys(state, 4)[3]
        return on_policy.learn_and_report(parts, module.learn, state, rollout, key)[0]

    start = jax.jit(begin)(key)
    end, rollouts = jax.jit(play)(start)
    judged = frozen(name, reference, end, rollouts[-1], objective)

    @jax.jit
    def outer_loss(values):
        parts, state = parts_of(values), start
        for rollout in rollouts[:-1]:
            state = learn(parts, state, rollout)
        return judged(state)

    return Replay(start, values, outer_loss)


def frozen(name, parts, end, rollout, objective):
    """The outer loss of other parameters, with all that is data as it is now."""
    if name == "pqn":
        rows = jax.jit(lambda: rows_of(pqn, parts, end, rollout))()
        return lambda state: pqn.loss(parts, state.params, rows)[0]
    if name == "lpg":
        return lambda state: outer.returns_of_lpg(parts, state, rollout)
    targets = MODULES[name].targets
    rows = jax.jit(lambda: outer.begun(targets, parts, end, rollout))()
    now = jax.jit(lambda: outer.see_rows(parts, end.params, rows))()
    config = parts.config
    advantage = np.asarray(now.batch.advantage)
    if config.normalize_advantages:
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)

    def judged(state):
        seen = outer.see_rows(parts, state.params, rows)
        ratio = jnp.exp(seen.log_prob - now.log_prob)
        loss = -(ratio * advantage).mean()
        if objective == "actor_critic":
            errors = config.value_loss(seen.value, now.batch.target, now.batch.value)
            loss += config.value_coef * errors.mean()
        return loss

    return judged


def difference(outer_loss, values, direction, step=1e-5):
    """The central finite difference along a direction, a pytree like the values."""

    def at(size):
        return outer_loss(jax.tree.map(lambda x, d: x + size * d, values, direction))

    return float(at(step) - at(-step)) / (2 * step)


def along(gradient, direction):
    """The derivative along a direction."""
    parts = jax.tree.map(lambda g, d: jnp.sum(g * d), gradient, direction)
    return float(sum(jax.tree.leaves(parts)))


def axis(values, name):
    """The direction of one coordinate that is a number."""
    return {other: jnp.full_like(x, other == name) for other, x in values.items()}
