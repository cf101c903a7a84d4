"""On-policy agents in the hands of tests: the phases of an update one by one."""

from functools import partial

import jax
import numpy as np

from purerl.acting.environment import resolve_env, with_params
from purerl.acting.rollout import Played
from purerl.algorithms import entry_of, on_policy, ppo
from purerl.learning.sequences import flatten


def compiled(function, *args):
    """What a function returns, compiled as one program, as arrays of numpy."""
    return jax.tree.map(np.asarray, jax.jit(function)(*args))


def agent_of(config, make_agent=ppo.make_agent):
    """The agent of a config in its environment."""
    env = resolve_env(config)
    return make_agent(with_params(config, env), env)


def algorithm_of(config):
    """The algorithm of a config that is not checked first."""
    env = resolve_env(config)
    return entry_of(config).make(with_params(config, env), env)


def played(transitions, memories=()):
    """A rollout of which only the transitions are known."""
    return Played(None, (), transitions, memories, None)


def samples_of(module, agent, state, transitions):
    """The samples `[N, ...]` that an algorithm without a memory learns from."""
    found = module.targets(agent, state, played(transitions))
    batch = found[0] if isinstance(found[0], tuple) else found
    return flatten(batch)


def rows_of(module, agent, state, rollout):
    """The rows of minibatches that an algorithm makes of a rollout."""
    found = module.targets(agent, state, rollout)
    batch = found[0] if isinstance(found[0], tuple) else found
    return agent.rows_of(state, rollout, batch)


def rolled(agent, learn, updates=2):
    """A state in the midst of training, and the rollout that comes next."""
    algorithm = on_policy.algorithm(agent, learn)
    state, step = jax.jit(algorithm.init)(jax.random.key(4)), jax.jit(algorithm.step)
    for _ in range(updates):
        state, _ = step(state)
    collect = jax.jit(partial(on_policy.collect, agent))
    return state, collect(state, jax.random.key(5))
