"""Recurrent DQN: the buffer's sequences, a plain loop, and DQN without a memory."""

import itertools
from functools import cached_property, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl.acting import rollout
from purerl.acting.environment import resolve_env
from purerl.algorithms import off_policy, recurrent_dqn
from purerl.keys import update_keys
from purerl.learning import optimiser, sequences
from purerl.networks import observe
from purerl.replay import batches
from purerl.replay import uniform as ring
from tests import nets
from tests.algorithms import by_hand
from tests.helpers import assert_close, lane, slow_but

ENVS, STEPS, BURN_IN, ROUNDS = 3, 6, 4, 5
CONFIG = purerl.RecurrentDQNConfig(
    env="probe/chain",  # terminations and truncations
    env_kwargs={"length": 5},
    num_envs=ENVS,
    sequence_length=STEPS,
    burn_in=BURN_IN,
    buffer_size=3 * ENVS * STEPS + 5,  # three rounds, so that two are overwritten
    batch_size=7,
    gradient_steps=1,
    learning_starts=1,
    n_step=3,
    gamma=0.9,
    hidden_sizes=(6,),
    memory=nets.Leaky(4),
    epsilon_steps=1e6,
    learning_rate=1e-2,
    total_timesteps=ENVS * STEPS * 20,
    num_evaluations=0,
)
# What can be drawn after five rounds: items of rounds 2 and 3, with rounds 3 and 4.
NUMBERS = jnp.arange(2 * ENVS, 4 * ENVS, dtype=jnp.uint32)


class Trained:
    """An agent after five rounds, and the rounds themselves."""

    def __init__(self):
        self.parts = recurrent_dqn.build(CONFIG, resolve_env(CONFIG))
        self.state = jax.jit(partial(recurrent_dqn.init, self.parts))(jax.random.key(0))
        collect = jax.jit(self.collect)
        enter = recurrent_dqn.enter
        step = jax.jit(partial(off_policy.step, self.parts, enter))
        self.played, self.metrics, self.params = [], [], []
        for _ in range(ROUNDS):
            self.played.append(collect(self.state))
            self.params.append(optimiser.flatten(self.state.params)[0])
            self.state, metrics = step(self.state)
            self.metrics.append(metrics)
        self.buffer = jax.jit(ring.in_order)(self.state.buffer)
        self.restore = optimiser.flatten(self.state.params)[1]
        rng = np.random.default_rng(0)
        flat = optimiser.flatten(self.state.params)[0]
        self.nets = [
            flat + jnp.asarray(rng.normal(0, 0.3, flat.shape), jnp.float32)
            for _ in range(2)
        ]
        self.weight = jnp.asarray(rng.uniform(0.2, 1.0, NUMBERS.shape), jnp.float32)
        self.rows = self.rows_of(self.parts)

    def collect(self, state):
        """The rollout of the next update."""
        hooks, learner, _ = recurrent_dqn.enter(self.parts, state)
        policy = off_policy.policy(hooks, learner)
        number = state.update * CONFIG.steps_per_update
        step = jnp.full(ENVS, number.astype(jnp.uint32))

        def act(obs, memory, noise):
            return policy.act(obs, memory, (noise, step))

        return rollout.collect(
            self.parts.stepper,
            state.envs,
            state.memory,
            policy._replace(act=act),
            update_keys(state, off_policy.NUM_KEYS)[:3],
            STEPS,
        )

    def rows_of(self, parts, prepare=None):
        prepare = prepare or partial(observe.prepare, parts, ())
        ones = jnp.ones(len(NUMBERS))

        @jax.jit
        def gather(buffer):
            return parts.replay.batch(buffer, NUMBERS, ones, prepare)[0]

        return gather(self.buffer)

    @cached_property
    def walked(self):
        """What `walk` says of both networks."""
        walks = jax.jit(partial(walk, self))
        return [jax.tree.map(np.asarray, walks(flat)) for flat in self.nets]

    def learner(self):
        return off_policy.Learner(*self.nets, self.state.opt_state)

    def take_steps(self, hooks, priorities, update, key):
        """The gradient steps of an update: learner, priorities, sums of metrics."""
        buffer, agent = self.buffer, hooks.agent
        experience = off_policy.Experience(buffer, self.state.envs, priorities)
        noise = agent.replay.draw(key, (agent.config.gradient_steps,)), ()
        learner, number = self.learner(), update.astype(jnp.uint32)
        (learner, priorities), sums = off_policy.learn_if_due(
            hooks, learner, experience, number, noise, key
        )
        return learner, priorities, sums


@pytest.fixture(scope="module")
def trained():
    found = Trained()
    ended = found.rows.batch.terminated, found.rows.batch.truncated
    # The tests below see both ends within sequences and burn-ins, and at their edge.
    assert ended[0][:, :-1].any() and ended[1][:, :-1].any()
    assert found.rows.burn_in.first.any() and found.rows.first[:, 0].any()
    assert not found.rows.first[:, 0].all()
    return found


def test_after_the_ring_has_wrapped_rows_are_the_last_rounds_with_the_steps_before(
    trained,
):
    rows = trained.rows_of(trained.parts, prepare=lambda obs: obs)
    begin = STEPS - BURN_IN
    for row, number in enumerate(NUMBERS.tolist()):
        turn, env = divmod(number, ENVS)
        before, now = trained.played[turn], trained.played[turn + 1]
        for name in rows.batch._fields:
            expected = getattr(now.transitions, name)[:, env]
            np.testing.assert_array_equal(getattr(rows.batch, name)[row], expected)
        np.testing.assert_array_equal(
            rows.burn_in.obs[row], before.transitions.obs[begin:, env]
        )
        np.testing.assert_array_equal(
            rows.memory.carry[row], before.memories.carry[begin - 1, env]
        )
        done = [
            flags.terminated[:, env] | flags.truncated[:, env]
            for flags in (before.transitions, now.transitions)
        ]
        np.testing.assert_array_equal(rows.burn_in.first[row], done[0][begin - 1 : -1])
        first = [done[0][-1], *done[1][:-1]]
        np.testing.assert_array_equal(rows.first[row], first)
    assert rows.burn_in.exists.all()


def test_only_sequences_with_all_their_steps_are_drawn(trained):
    bits = jax.random.bits(jax.random.key(3), (500,))
    added = jnp.uint32(ROUNDS * ENVS)
    found, weight = trained.parts.replay.sample((), bits, added)
    assert set(found.tolist()) == set(NUMBERS.tolist())
    np.testing.assert_array_equal(weight, 1.0)
    # The first round has nothing before it, so that nothing is learned after it.
    learned = [int(metrics["gradient_steps"]) for metrics in trained.metrics]
    assert learned == [0, 1, 2, 3, 4]
    moved = [bool((a != b).any()) for a, b in itertools.pairwise(trained.params)]
    assert moved == [False, True, True, True]


@pytest.mark.parametrize("burn_in", [0, STEPS])
def test_without_steps_of_their_own_before_them_rows_begin_with_the_round(
    trained, burn_in
):
    memory, played = trained.state.memory, trained.played[-1]
    memory = jax.tree.map(lambda x: x + 1.0, memory)

    @jax.jit
    def store(memory, played):
        return batches.store_sequences(
            memory, played.memories, played.transitions, burn_in
        )

    @jax.jit
    def gather(stored, numbers):
        buffer = jax.tree.map(lambda x: jnp.concatenate([x, x[::-1]]), stored)
        return batches.gather_sequences(burn_in, ENVS, buffer, numbers)

    stored = jax.tree.map(np.asarray, store(memory, played))
    np.testing.assert_array_equal(stored.memory.carry, memory.carry)
    numbers = jnp.arange(ENVS, dtype=jnp.uint32)
    rows = gather(stored, numbers)
    now = stored.steps if not burn_in else jax.tree.map(lambda x: x[::-1], stored.steps)
    np.testing.assert_array_equal(rows.batch.reward, now.reward)
    done = [x.terminated | x.truncated for x in (stored.steps, now)]
    edge = done[0][:, -1] if burn_in else np.zeros(ENVS, bool)
    np.testing.assert_array_equal(rows.first[:, 0], edge)
    np.testing.assert_array_equal(rows.first[:, 1:], done[1][:, :-1])
    if burn_in:
        np.testing.assert_array_equal(rows.burn_in.obs, stored.steps.obs)
        assert not rows.burn_in.first[:, 0].any()
        np.testing.assert_array_equal(rows.burn_in.first[:, 1:], done[0][:, :-1])


def walk(trained, flat, constant_from=None):
    """Values `[L, R, n]` of sequences and of what follows each step, in a plain loop.

    Args:
        trained: the agent.
        flat: parameters.
        constant_from: those of the burn-in; `flat` if None.
    """
    params, core = trained.restore(flat), trained.parts.memory.core
    before = params if constant_from is None else trained.restore(constant_from)
    rows, head = trained.rows, params["q"]["params"]["Dense_0"]
    memories = by_hand.walk(
        core, params["core"], rows, rows.memory.carry, before["core"]
    )
    return [x @ head["kernel"] + head["bias"][None, None] for x in memories]


def squeezed(x):
    """Pohlen et al. (2018), proposition A.2."""
    return np.sign(x) * (np.sqrt(np.abs(x) + 1) - 1) + 1e-3 * x


def unsqueezed(x):
    root = (np.sqrt(1 + 4e-3 * (np.abs(x) + 1 + 1e-3)) - 1) / 2e-3
    return np.sign(x) * (root**2 - 1)


def targets(trained, double, rescaled):
    """Targets `[L, R]` in a plain loop, in float64."""
    (_, online), (_, slow) = trained.walked
    online, slow = (np.asarray(x, np.float64) for x in (online, slow))
    chosen = (online if double else slow).argmax(-1)
    value = np.take_along_axis(slow, chosen[..., None], -1)[..., 0]
    if rescaled:
        value = unsqueezed(value)
    last = by_hand.windows(trained.rows.batch, 3)
    value = np.take_along_axis(value, last, 0)
    found = by_hand.returns(trained.rows.batch, last, value, 0.9)
    return squeezed(found) if rescaled else found


@pytest.mark.parametrize(("double", "rescaled"), [(True, False), (False, True)])
def test_targets_are_those_of_a_plain_loop(trained, double, rescaled):
    changes = {"double": double, "value_rescaling": rescaled}
    parts = trained.parts._replace(config=trained.parts.config.replace(**changes))
    make = partial(recurrent_dqn.td_target, parts, trained.restore)
    found = jax.jit(make)(trained.learner(), trained.rows)
    expected = targets(trained, double, rescaled)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    other = targets(trained, not double, rescaled)
    assert np.abs(other - expected).max() > 1e-3


def test_loss_and_gradient_are_those_of_a_plain_loop_with_a_constant_burn_in(trained):
    flat = trained.nets[0]
    target = jnp.asarray(targets(trained, True, False), jnp.float32)
    rows, weight = trained.rows, trained.weight
    minimise = partial(recurrent_dqn.loss, trained.parts, trained.restore)
    grads, (td_error, metrics) = jax.jit(jax.grad(minimise, has_aux=True))(
        flat, rows, target, weight
    )

    def reference(flat, before):
        q, _ = walk(trained, flat, before)
        action = rows.batch.action.T[..., None]
        value = jnp.take_along_axis(q, action, -1)[..., 0]
        return (weight * jnp.square(target - value).mean(0)).mean() / 2, value

    @jax.jit
    def slopes(flat):
        through = jax.grad(lambda flat: reference(flat, flat)[0])(flat)
        return jax.value_and_grad(reference, has_aux=True)(flat, flat), through

    ((expected, value), gradient), through = slopes(flat)
    np.testing.assert_allclose(metrics["value_loss"], expected, rtol=1e-4)
    np.testing.assert_allclose(td_error, target - value, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(grads, gradient, rtol=1e-3, atol=1e-6)
    # A burn-in that learned too would have another gradient.
    assert np.abs(through - gradient).max() > 0.01 * np.abs(gradient).max()


def prioritised(trained):
    """An agent with priorities, and those after the rounds that were played."""
    config = trained.parts.config.replace(prioritised=True, priority_eta=0.7)
    parts = recurrent_dqn.build(config, resolve_env(config))
    priorities = parts.replay.grow(parts.replay.init())
    for turn in range(ROUNDS):
        priorities = parts.replay.add(priorities, jnp.uint32(turn * ENVS), ENVS)
    return parts, priorities


def test_a_gradient_step_gives_its_sequences_their_priorities(trained):
    parts, priorities = prioritised(trained)
    hooks = recurrent_dqn.make_hooks(parts, trained.restore)
    take = jax.jit(partial(trained.take_steps, hooks))
    key, update = jax.random.key(8), jnp.int32(ROUNDS - 1)
    _, after, _ = take(priorities, update, key)
    found = np.asarray(parts.replay.keep(after, update).p)

    noise = parts.replay.draw(key, (1,))[0]
    added = jnp.uint32(ROUNDS * ENVS)
    numbers, _ = parts.replay.sample(priorities, noise, added)
    assert set(numbers.tolist()) <= set(NUMBERS.tolist())
    action = np.asarray(trained.rows.batch.action).T[..., None]
    value = np.take_along_axis(trained.walked[0][0], action, -1)[..., 0]
    size = np.abs(targets(trained, True, False) - value)
    priority = 0.7 * size.max(0) + 0.3 * size.mean(0)
    # Round 3 lies in the first row, round 4 in the second, round 2 in the third.
    expected = np.zeros((3, ENVS))
    drawn = 0
    for row, number in enumerate(NUMBERS.tolist()):
        is_drawn = number in numbers.tolist()
        drawn += is_drawn
        place = number // ENVS % 3, number % ENVS
        expected[place] = (priority[row] + 1e-6) ** 0.9 if is_drawn else 1.0
    np.testing.assert_allclose(found, expected, rtol=1e-3)
    assert drawn > 2 and not found[1].any()  # The newest cannot be drawn yet.


def test_episodes_that_begin_anew_on_the_host_are_cut_in_the_buffer(trained):
    obs = jnp.ones((ENVS, 5))
    hosted = partial(off_policy.hosted, trained.parts, recurrent_dqn.enter)
    again = hosted(jnp.int32(ROUNDS)).restart(trained.state, obs)
    before, after = (x.buffer.steps.truncated for x in (trained.state, again))
    # The newest round lies in the second row.
    ended = trained.state.buffer.steps.terminated[1, :, -1]
    np.testing.assert_array_equal(after[1, :, -1], ~ended)
    others = np.ones(after.shape, bool)
    others[1, :, -1] = False
    np.testing.assert_array_equal(after[others], before[others])
    assert not any(np.asarray(x).any() for x in jax.tree.leaves(again.memory))
    first = hosted(jnp.int32(0)).restart(trained.state, obs)
    np.testing.assert_array_equal(first.buffer.steps.truncated, before)


def test_dueling_streams_are_on_the_memory():
    config = CONFIG.replace(dueling=True, head_sizes=(5, 3))
    algorithm = purerl.make_algorithm(config)
    state = jax.eval_shape(algorithm.init, jax.random.key(0))
    shapes = sorted(x.shape for x in jax.tree.leaves(state.params["q"]) if x.ndim == 2)
    # Two layers of the head, a stream each of value and advantages, and their ends.
    assert shapes == [(3, 1), (3, 2), (3, 3), (3, 3), (4, 5), (5, 3)]


@pytest.mark.parametrize(
    "memory", slow_but(("gru", "lstm", "lru", "s5", "transformer"), "gru")
)
def test_every_memory_is_the_same_step_by_step(trained, memory):
    # What targets go on with is what the gradient runs through, burn-in and ends too.
    config = CONFIG.replace(memory=memory, memory_size=4)
    parts = recurrent_dqn.build(config, resolve_env(config))
    steps = trained.rows
    one = jax.tree.map(lambda x: x[:1], parts.memory.kind.blank((1,)))
    init = jax.jit(parts.memory.core.init)
    params = init(jax.random.key(1), steps.batch.obs[:1, 0], one)
    rng = np.random.default_rng(2)

    def draw(x):
        if not jnp.issubdtype(x.dtype, jnp.floating):
            return jnp.ones_like(x)  # A count of the steps that are remembered.
        return jnp.asarray(rng.normal(size=x.shape), jnp.float32)

    stored = jax.tree.map(draw, parts.memory.kind.blank(NUMBERS.shape))
    rows = steps._replace(memory=stored)
    args = parts.memory.core, parts.memory.kind, params, rows
    whole = jax.jit(lambda: sequences.remember(*args))()
    each = jax.jit(lambda: sequences.remember_each(*args))()
    found, expected = parts.memory.kind.read(each), parts.memory.kind.read(whole)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    # The last memory is that with which a sequence would go on.
    assert_close(lane(each, -1), parts.memory.kind.last(whole), atol=1e-5)
    assert np.abs(np.diff(expected, axis=0)).max() > 0.01


def test_importance_weights_reach_the_gradient_step(trained):
    parts, priorities = prioritised(trained)
    errors = jnp.arange(1.0, len(NUMBERS) + 1)
    priorities = parts.replay.update(priorities, NUMBERS, errors)
    key, update = jax.random.key(8), jnp.int32(ROUNDS - 1)
    noise = parts.replay.draw(key, (1,))[0]
    _, weight = parts.replay.sample(priorities, noise, jnp.uint32(ROUNDS * ENVS))

    def learn(learner, batch, noise, count):
        weight = batch[1]
        return learner, jnp.zeros(len(weight)), {"value_loss": weight.sum()}

    hooks = recurrent_dqn.make_hooks(parts, trained.restore)._replace(learn=learn)
    take = jax.jit(partial(trained.take_steps, hooks))
    *_, metrics = take(priorities, update, key)
    np.testing.assert_allclose(metrics["value_loss"], weight.sum(), rtol=1e-6)
    assert float(weight.min()) < 0.9
