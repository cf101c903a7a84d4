"""Recurrent PQN: PQN where nothing is remembered, and a plain loop where it is."""

from functools import partial

import jax
import numpy as np

import purerl
from purerl.algorithms import on_policy, pqn
from tests import nets
from tests.algorithms import by_hand
from tests.algorithms.agents import agent_of, algorithm_of, compiled, rows_of

FIELDS = {
    "env": "probe/chain",  # terminations and truncations
    "env_kwargs": {"length": 5},
    "num_envs": 4,
    "num_steps": 8,
    "num_minibatches": 2,
    "total_timesteps": 4 * 8 * 10,
    "hidden_sizes": (8,),
    "gamma": 0.9,
    "trace_decay": 0.7,
    "epsilon_steps": 50.0,
}
CONFIG = purerl.RecurrentPQNConfig(
    memory=nets.Leaky(6), sequence_length=8, num_evaluations=0, **FIELDS
)


def rolled(config):
    """Parts, a state that has learned, and the rollout that comes next."""
    parts, algorithm = agent_of(config, pqn.make_agent), algorithm_of(config)
    state = jax.jit(algorithm.init)(jax.random.key(0))
    state, _ = jax.jit(algorithm.step)(state)
    collect = jax.jit(partial(on_policy.collect, parts))
    return parts, state, collect(state, jax.random.key(1))


def test_values_targets_and_loss_are_those_of_a_plain_loop():
    parts, state, played = rolled(CONFIG)

    def learned_from(state, played):
        rows, core = rows_of(pqn, parts, state, played), state.params["core"]
        entering = partial(by_hand.entering, parts.memory.core, core)
        steps = played.transitions
        return (
            *(rows.batch.target, entering(steps.obs), entering(steps.next_obs)),
            pqn.loss(parts, state.params, rows)[0],
        )

    targets, entering, following, found = compiled(learned_from, state, played)
    transitions, memories = jax.tree.map(
        np.asarray, (played.transitions, played.memories)
    )
    head = jax.tree.map(np.asarray, state.params["q"]["params"]["Dense_0"])

    def values(memory):
        return memory @ head["kernel"] + head["bias"]

    ends = transitions.terminated, transitions.truncated
    steps, num_envs = ends[0].shape
    squared, cut = [], 0
    for b in range(num_envs):
        memory = np.asarray(state.memory.carry[b])
        q, bootstrap = np.zeros(steps), np.zeros(steps)
        for t in range(steps):
            memory = 0.5 * memory + entering[t, b]
            np.testing.assert_allclose(memories.output[t, b], memory, atol=1e-5)
            q[t] = values(memory)[transitions.action[t, b]]
            # The memory of this episode sees the observation before any reset.
            bootstrap[t] = values(0.5 * memory + following[t, b]).max()
            if ends[0][t, b] or ends[1][t, b]:
                memory = np.zeros_like(memory)
        target = 0.0
        for t in reversed(range(steps)):
            last = ends[1][t, b] or t == steps - 1
            decay = 0.0 if last else 0.7
            later = (1 - decay) * bootstrap[t] + decay * target
            target = transitions.reward[t, b] + 0.9 * later * (not ends[0][t, b])
            np.testing.assert_allclose(targets[b, t], target, atol=1e-5)
            squared.append(np.square(q[t] - target))
            cut += bool(ends[1][t, b])
    assert cut > 2
    np.testing.assert_allclose(found, np.mean(squared) / 2, rtol=1e-4)


def test_a_critic_of_ones_own_is_on_the_memory():
    config = CONFIG.replace(critic=nets.Policy(2))
    algorithm = purerl.make_algorithm(config)
    state = jax.eval_shape(algorithm.init, jax.random.key(0))
    kernel = jax.tree.leaves(state.params["q"])[-1]
    assert kernel.shape[0] == 6
