"""SAC and TD3 with a memory: a plain loop, agents without one, and a task for it."""

from functools import cached_property, partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl.acting.environment import resolve_env
from purerl.algorithms import off_policy, replayed_memory, sac, td3
from purerl.learning import returns
from purerl.learning.branches import StepCount
from purerl.learning.sequences import swap
from purerl.networks import observe
from purerl.optimisers import SGD
from purerl.replay import uniform as ring
from tests import nets
from tests.algorithms import by_hand
from tests.helpers import assert_close, slow_but

ENVS, STEPS, BURN_IN, ROUNDS, RATE, GAMMA, TAU = 3, 6, 4, 5, 0.05, 0.9, 0.1
SHARED = {
    "env": "probe/chain",  # terminations and truncations
    "env_kwargs": {"length": 5, "continuous": True},
    "num_envs": ENVS,
    "sequence_length": STEPS,
    "burn_in": BURN_IN,
    "rounds_per_update": 1,
    "buffer_size": 3 * ENVS * STEPS + 5,  # three rounds, so that two are overwritten
    "batch_size": 7 * STEPS,
    "learning_starts": 1,
    "n_step": 3,
    "gamma": GAMMA,
    "tau": TAU,
    "hidden_sizes": (6,),
    "head_sizes": (5,),
    "memory": nets.Leaky(4),
    "optimiser": SGD(momentum=0.0),
    "learning_rate": RATE,
    "policy_delay": 1,
    "total_timesteps": ENVS * STEPS * 20,
    "num_evaluations": 0,
}
CONFIGS = {
    sac: purerl.SACConfig(**SHARED, learn_temperature=False, temperature_init=0.3),
    td3: purerl.TD3Config(**SHARED),
}
# What can be drawn after five rounds: items of rounds 2 and 3, with rounds 3 and 4.
NUMBERS = jnp.arange(2 * ENVS, 4 * ENVS, dtype=jnp.uint32)
ROWS = len(NUMBERS)


class Trained:
    """An agent after five rounds, with a batch of its sequences."""

    def __init__(self, module):
        self.module, config = module, CONFIGS[module]
        self.agent = module.build(config, resolve_env(config))
        state = jax.jit(partial(module.init, self.agent))(jax.random.key(0))
        step = jax.jit(partial(off_policy.step, self.agent, module.enter))
        for _ in range(ROUNDS):
            state, _ = step(state)
        rng = np.random.default_rng(0)

        def moved(x):
            return np.float32(np.asarray(x) + rng.normal(0, 0.3, x.shape))

        params, targets = (
            jax.tree.map(moved, tree) for tree in (state.params, state.target_params)
        )
        self.state = state
        self.learner = off_policy.Learner(params, targets, state.opt_state)
        weight = jnp.asarray(rng.uniform(0.2, 1.0, ROWS), jnp.float32)
        prepare = partial(observe.prepare, self.agent, ())
        gather = jax.jit(
            lambda x: self.agent.replay.batch(
                ring.in_order(x), NUMBERS, weight, prepare
            )
        )
        self.batch = gather(state.buffer)
        self.noise = jnp.asarray(rng.normal(size=(2, STEPS * ROWS, 1)), jnp.float32)
        self.last = by_hand.windows(self.rows.batch, 3)

    @property
    def rows(self):
        return self.batch.obs.rows

    def walk(self, network, params, is_constant=True):
        """What a head sees at every step and after it, `[L, R, H]`."""
        core, memory = params["core"], getattr(self.rows.memory, network.owner).carry
        before = jax.lax.stop_gradient(core) if is_constant else core
        return by_hand.walk(network.core, core, self.rows, memory, before)

    def after(self, network, params):
        """What a head sees after every sample's window, `[N, H]`."""
        following = self.walk(network, params)[1]
        return jnp.take_along_axis(following, self.last[..., None], 0).reshape(-1, 4)

    @partial(jax.jit, static_argnums=0)
    def next_value(self):
        """What every sample's target goes on with, `[N]`."""
        agent, learner = self.agent, self.learner
        params, targets = learner.params, learner.target_params
        slow = targets["critics"]
        seen = self.after(agent.critics, slow)
        if self.module is sac:
            policy = agent.actor.head.apply(
                params["actor"]["head"], self.after(agent.actor, params["actor"])
            )
            action, log_prob = squashed(policy, self.noise[0])
        else:
            actor = targets["actor"]
            mean = agent.actor.head.apply(actor["head"], self.after(agent.actor, actor))
            action = jnp.clip(mean + jnp.clip(0.2 * self.noise[0], -0.5, 0.5), -1, 1)
            log_prob = 0.0
        value = jnp.minimum(*agent.critics.head.apply(slow["head"], seen, action))
        return value - 0.3 * log_prob

    @cached_property
    def target(self):
        """Targets `[N]`; the sum of rewards in float64."""
        value = np.asarray(self.next_value()).reshape(STEPS, ROWS)
        return by_hand.returns(self.rows.batch, self.last, value, GAMMA).reshape(-1)

    @cached_property
    def learned(self):
        """Targets, and what a gradient step returns."""
        module, learner = self.module, self.learner
        is_sac = module is sac

        @jax.jit
        def learn(batch, noise):
            given = learner if is_sac else learner.target_params
            drawn = noise if is_sac else noise[0]
            target = module.td_target(self.agent, given, batch, noise[0])
            at = StepCount(jnp.uint32(0))
            return target, *module.learn(self.agent, learner, batch, drawn, at)

        return learn(self.batch, self.noise)

    def critics_loss(self, params, target, is_constant=True):
        critics = self.agent.critics
        seen = self.walk(critics, params, is_constant)[0].reshape(-1, 4)
        action = swap(self.rows.batch.action).reshape(-1, 1)
        pair = critics.head.apply(params["head"], seen, action)
        weight = jnp.tile(self.batch.weight[:ROWS], STEPS)
        errors = sum(jnp.square(q - target) / 2 for q in pair)
        return (weight * errors).mean()

    def policy_loss(self, params, critics):
        agent = self.agent
        seen = self.walk(agent.critics, critics)[0].reshape(-1, 4)
        policy = agent.actor.head.apply(
            params["head"], self.walk(agent.actor, params)[0].reshape(-1, 4)
        )
        if self.module is sac:
            action, log_prob = squashed(policy, self.noise[1])
            pair = agent.critics.head.apply(critics["head"], seen, action)
            return (0.3 * log_prob - jnp.minimum(*pair)).mean()
        return -agent.critics.head.apply(critics["head"], seen, policy)[0].mean()


def squashed(policy, noise):
    """Actions and their log-densities, by the change of variables."""
    mean, std = policy.mean, jnp.exp(policy.log_std)
    raw = mean + std * noise
    normal = -0.5 * noise**2 - policy.log_std - 0.5 * np.log(2 * np.pi)
    log_prob = normal - jnp.log(1 - jnp.tanh(raw) ** 2)
    return jnp.tanh(raw), log_prob.sum(-1)


@pytest.fixture(scope="module", params=[sac, td3], ids=["sac", "td3"])
def trained(request):
    found = Trained(request.param)
    ended = found.rows.batch.terminated, found.rows.batch.truncated
    # The tests below see both ends within sequences and burn-ins, and at their edge.
    assert ended[0][:, :-1].any() and ended[1][:, :-1].any()
    assert found.rows.burn_in.first.any() and found.rows.first[:, 0].any()
    # Actor and critics began with memories of their own.
    actor, critic = (x.carry for x in found.rows.memory)
    assert np.abs(actor - critic).max() > 1e-3
    return found


def test_targets_are_those_of_a_plain_loop(trained):
    found = trained.learned[0]
    np.testing.assert_allclose(found, trained.target, rtol=1e-4, atol=1e-5)


def test_one_step_targets_are_the_returns_of_sequences(trained):
    rows, config = trained.rows, trained.agent.config
    value = jnp.asarray(np.random.default_rng(1).normal(size=(STEPS, ROWS)))

    @jax.jit
    def both(rows):
        steps, pairs = jax.tree.map(swap, rows.batch), []
        ends = steps.terminated, steps.truncated
        for n in (1, 2, 6):
            there = config.replace(n_step=n)
            batch = replayed_memory.as_batch(there, rows, jnp.ones(ROWS))
            at = batch.next_obs.last
            after = value.reshape(-1) if at is None else value.reshape(-1)[at]
            expected = returns.n_step(steps.reward, value, *ends, gamma=GAMMA, n=n)
            pairs.append((batch.reward + batch.discount * after, expected.reshape(-1)))
        return pairs

    for found, expected in both(rows):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_gradient_step_is_that_of_a_plain_loop_with_a_constant_burn_in(trained):
    learner, (_, new, td_error, metrics) = trained.learner, trained.learned
    target = np.float32(trained.target)

    critics, old = learner.params["critics"], learner.params
    slope = jax.value_and_grad(trained.critics_loss)
    slopes = jax.jit(lambda x: [slope(x, target, fixed) for fixed in (True, False)])
    (loss, grads), (_, through) = slopes(critics)
    np.testing.assert_allclose(metrics["value_loss"], loss, rtol=1e-4)
    assert td_error.shape == (STEPS * ROWS,)
    assert_moved(new.params["critics"], critics, grads)
    # A burn-in that learned too would have another gradient.
    core, other = grads["core"], through["core"]
    assert difference(core, other) > 0.01 * max(map(largest, jax.tree.leaves(core)))

    loss, grads = jax.jit(jax.value_and_grad(trained.policy_loss))(
        old["actor"], new.params["critics"]
    )
    np.testing.assert_allclose(metrics["policy_loss"], loss, rtol=1e-4)
    assert_moved(new.params["actor"], old["actor"], grads)
    for name, slow in learner.target_params.items():
        fast = jax.tree.map(np.asarray, new.params[name])
        expected = jax.tree.map(lambda a, b: a + TAU * (b - a), slow, fast)
        assert_close(new.target_params[name], expected, atol=1e-6)


def largest(x):
    return float(np.abs(x).max())


def difference(one, other):
    pairs = zip(*map(jax.tree.leaves, (one, other)), strict=True)
    return max(largest(np.asarray(a) - np.asarray(b)) for a, b in pairs)


def assert_moved(new, old, grads):
    """New parameters are the old ones minus the step size times their gradient."""
    found = jax.tree.map(lambda a, b: (np.asarray(b) - a) / RATE, new, old)
    assert_close(found, grads, rtol=2e-3)


def test_the_buffer_has_the_critics_memories_of_the_rollout(trained):
    # Those of the last round, after its observations were seen by the critics' core.
    agent, state = trained.agent, trained.state
    stored = ring.in_order(state.buffer)
    steps = jax.tree.map(lambda x: x[ENVS : 2 * ENVS], stored.steps)  # Round 4.
    assert jax.tree.leaves(stored.memory)[0].shape[0] == 3 * ENVS
    memory = agent.memory.blank(ENVS).critic
    assert jax.tree.structure(memory) == jax.tree.structure(state.memory.critic)
    ended = np.asarray(steps.terminated | steps.truncated)[:, -1]
    for part in state.memory:
        np.testing.assert_array_equal(part.carry[ended], 0.0)
        assert np.abs(part.carry[~ended]).max() > 0


class Same(nn.Module):
    """Features that are the observation itself."""

    @nn.compact
    def __call__(self, obs):
        return obs


@pytest.mark.parametrize("module", slow_but([sac, td3], sac), ids=["sac", "td3"])
def test_a_memory_that_remembers_nothing_is_none(module):
    fields = {
        "env": "Pendulum-v1",
        "total_timesteps": 120,
        "num_envs": 2,
        "rounds_per_update": 20,
        "learning_starts": 20,
        "batch_size": 8,
        "learning_rate": 1e-2,
        "num_evaluations": 0,
    }
    config = type(CONFIGS[module])
    plain = config(**fields, hidden_sizes=(8,))
    empty = {"memory": nets.Nothing(3), "torso": Same(), "sequence_length": 1}
    other = config(**fields, **empty, burn_in=0, head_sizes=(8,))
    states, steps = [], []
    for each in (plain, other):
        algorithm = purerl.make_algorithm(each)
        states.append(jax.jit(algorithm.init)(jax.random.key(1)))
        steps.append(jax.jit(algorithm.step))
    alone, with_memory = states

    def headed(tree):
        return {
            name: part if name == "log_temperature" else {"core": {}, "head": part}
            for name, part in tree.items()
        }

    with_memory = with_memory._replace(
        params=headed(alone.params), target_params=headed(alone.target_params)
    )
    for _ in range(3):
        (alone, _), (with_memory, metrics) = steps[0](alone), steps[1](with_memory)
    assert metrics["gradient_steps"] == 51
    found = with_memory.params
    assert difference(found, headed(alone.params)) < 1e-4
    np.testing.assert_allclose(with_memory.envs.obs, alone.envs.obs, atol=1e-4)
