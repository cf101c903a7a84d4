"""Recurrent PPO: memory where it is needed, none of the episode before.

The networks are tiny, and a plain numpy GRU with explicit resets is the reference.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl import ConfigError, envs
from purerl.algorithms import ppo
from purerl.networks import observe
from tests import boxes
from tests.algorithms.agents import agent_of, rows_of
from tests.algorithms.agents import rolled as rolled_from
from tests.helpers import slow_but

CONFIG = purerl.RecurrentPPOConfig(
    env="probe/memory",
    num_envs=16,
    num_steps=14,  # no multiple of the episodes' 4 steps: they cross rollouts
    total_timesteps=16 * 14 * 60,
    hidden_sizes=(8,),
    memory_size=8,
    head_sizes=(),
    learning_rate=1e-2,
    num_minibatches=2,
    gamma=0.9,
    num_evaluations=1,
    eval_episodes=32,
    eval_max_steps=10,
)


def train(config, key=0):
    return jax.jit(purerl.make_train(config))(jax.random.key(key))


# Where memory is needed


@pytest.fixture(scope="module")
def remembers():
    return train(CONFIG)


def test_it_learns_what_only_a_memory_can(remembers):
    np.testing.assert_array_equal(
        remembers.evaluation["episode_return"], np.ones((1, 32))
    )
    assert remembers.metrics["episode_return"][-10:].mean() > 0.95
    assert abs(remembers.metrics["episode_return"][0]) < 0.5  # it began at chance


# Acting and learning, against a reference


def remember(parts, params, obs, memory):
    """The actor's memory with an observation in it."""
    return parts.memory.core.apply(params["core"], obs, memory)


CHAIN = CONFIG.replace(
    env="probe/chain",  # terminations and truncations
    env_kwargs={"length": 5},
    num_envs=6,
    num_steps=8,
    gamma=0.9,
    gae_lambda=0.8,
    head_sizes=(3,),
)


# Actor and critic with a memory each, which sees one of the two keys.
KEYS = {"actor": "some", "critic": "place"}
APART = {
    "env": boxes.WatchedChain(5),
    "env_kwargs": {},
    **{f"{network}_keys": (key,) for network, key in KEYS.items()},
}
CHAINS = {"one memory": CHAIN, "two memories": CHAIN.replace(**APART)}


def of(network, memory):
    """The memory of the actor or of the critic, whether they have one or two."""
    return getattr(memory, network, memory)


@pytest.fixture(scope="module", params=slow_but(CHAINS, "one memory"))
def rolled(request):
    """A state in the midst of training, and what its next update begins with."""
    parts = agent_of(CHAINS[request.param])
    start, out = rolled_from(parts, ppo.learn, updates=3)
    return parts, start, out, jax.jit(partial(rows_of, ppo, parts))(start, out)


class Reference:
    """The networks in float64, one environment at a time."""

    def __init__(self, params):
        self.params = jax.tree.map(lambda x: np.asarray(x, np.float64), params)

    def remember(self, network, obs, h):
        name = "core" if network == "actor" else "critic_core"
        core = self.params.get(name, self.params["core"])["params"]
        obs = obs[KEYS[network]] if isinstance(obs, dict) else obs
        x = np.maximum(dense(within(core["torso"])["Dense_0"], obs), 0)
        x_r, x_z, x_n = np.split(dense(core["inputs"], x), 3)
        h_r, h_z, h_n = np.split(h @ core["recurrent"], 3)
        r, z = 1 / (1 + np.exp(-(x_r + h_r))), 1 / (1 + np.exp(-(x_z + h_z)))
        n = np.tanh(x_n + r * (h_n + core["bias"]))
        return (1 - z) * n + z * h

    def head(self, name, h):
        layers = within(self.params[name]["params"])
        hidden = np.maximum(dense(within(layers["torso"])["Dense_0"], h), 0)
        return dense(layers["Dense_0"], hidden)

    def log_prob(self, h, action):
        logits = self.head("actor", h)
        return logits[action] - np.log(np.exp(logits).sum())

    def value(self, h):
        return self.head("critic", h)[0]


def within(layers):
    """The layers of a module that chooses what another one sees, or of a plain one."""
    while "Dense_0" not in layers:
        (layers,) = layers.values()
    return layers


def dense(layer, x):
    return x @ layer["kernel"] + layer["bias"]


def test_a_rollout_and_its_advantages_equal_a_plain_loop(rolled):
    _, start, (_, after, transitions, memories, _), sequences = rolled
    after, transitions, memories, batch = jax.tree.map(
        np.asarray, (after, transitions, memories, sequences.batch)
    )
    steps, num_envs = transitions.reward.shape
    reference = Reference(start.params)
    truncated_bootstraps = []
    for b in range(num_envs):
        h, g = (np.asarray(of(x, start.memory)[b], np.float64) for x in KEYS)
        delta, done = np.zeros(steps), np.zeros(steps, bool)
        for t in range(steps):
            step = jax.tree.map(lambda x, t=t, b=b: x[t, b], transitions)
            h = reference.remember("actor", step.obs, h)
            g = reference.remember("critic", step.obs, g)
            np.testing.assert_allclose(of("actor", memories)[t, b], h, atol=1e-5)
            np.testing.assert_allclose(of("critic", memories)[t, b], g, atol=1e-5)
            log_prob = reference.log_prob(h, step.action)
            np.testing.assert_allclose(step.log_prob, log_prob, atol=1e-5)
            value = reference.value(g)
            np.testing.assert_allclose(batch.value[b, t], value, atol=1e-5)
            # The memory of this episode sees the observation before any reset.
            ahead = partial(reference.remember, "critic", step.next_obs)
            next_value = reference.value(ahead(g))
            if step.truncated:
                wrong = reference.value(ahead(0 * g))
                truncated_bootstraps.append(abs(next_value - wrong))
            bootstrap = 0.0 if step.terminated else next_value
            delta[t] = step.reward + 0.9 * bootstrap - value
            done[t] = step.terminated | step.truncated
            if done[t]:
                h, g = 0 * h, 0 * g
        np.testing.assert_allclose(of("actor", after)[b], h, atol=1e-5)
        np.testing.assert_allclose(of("critic", after)[b], g, atol=1e-5)
        advantage = 0.0
        for t in reversed(range(steps)):
            advantage = delta[t] + 0.9 * 0.8 * (not done[t]) * advantage
            np.testing.assert_allclose(batch.advantage[b, t], advantage, atol=1e-5)
    # The tolerance tells the two memories apart.
    assert len(truncated_bootstraps) > 3 and min(truncated_bootstraps) > 1e-3


def test_the_memory_after_an_episodes_end_is_the_fresh_one_bit_for_bit(rolled):
    parts, start, (carry, after, transitions, _, _), _ = rolled
    ended = np.asarray(transitions.terminated | transitions.truncated)[-1]
    assert ended.any() and not ended.all()
    fresh = np.asarray(parts.memory.kind.blank((6,)))
    for network in KEYS:
        kept = of(network, after)
        np.testing.assert_array_equal(kept[ended], fresh[ended])
        assert (np.abs(kept[~ended]).max(-1) > 1e-3).all()
    # So the first thought of the next episode is that of a policy just begun.
    obs = observe.prepare(parts, start.obs_moments, carry.obs)
    follow = jax.jit(partial(remember, parts))
    one = follow(start.params, obs, of("actor", after))
    other = follow(start.params, obs, fresh)
    np.testing.assert_array_equal(one[ended], other[ended])
    assert (one[~ended] != other[~ended]).any(-1).all()


# Minibatches


def test_a_minibatch_is_whole_environments(rolled):
    parts, start, (_, _, transitions, *_), sequences = rolled
    for leaf in jax.tree.leaves(sequences):
        assert leaf.shape[0] == 6  # what is shuffled and split
    # Without standardised advantages the loss is a mean over samples: that of some
    # environments is that of their rows, whoever else is in the minibatch.
    config = parts.config.replace(normalize_advantages=False)
    parts = parts._replace(config=config)
    loss = jax.jit(lambda part: ppo.loss(parts, start.params, part)[0])
    total = loss(sequences)
    pieces = [
        jax.tree.map(lambda x, rows=rows: x[jnp.array(rows)], sequences)
        for rows in ([4, 1], [0, 5], [2, 3])
    ]
    losses = [loss(part) for part in pieces]
    assert np.std(losses) > 1e-3
    np.testing.assert_allclose(total, np.mean(losses), rtol=1e-5)
    for name in ("obs", "action", "log_prob"):
        rows, steps = getattr(sequences.batch, name), getattr(transitions, name)
        jax.tree.map(
            lambda x, y: np.testing.assert_array_equal(x[2], y[:, 2]), rows, steps
        )


# Playing


def test_acting_on_an_observation_alone_is_refused(remembers):
    algorithm = purerl.make_algorithm(CONFIG)
    with pytest.raises(ConfigError, match=r"make_policy\(config, state\).*policy.init"):
        algorithm.act(remembers.state, jnp.zeros(1))


@pytest.mark.slow
def test_bsuites_memory_chain():
    result = train(purerl.presets.load("recurrent-ppo-memory-chain"))
    assert result.evaluation["episode_return"][-1].mean() == 1.0
    assert envs.make("MemoryChain-bsuite").default_params.memory_length == 5
