"""Memories over sequences: their steps, their resets, and what each is known to be."""

from functools import partial
from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl.accelerator import kernels
from purerl.accelerator.kernels import forget, traced_for
from purerl.contrib.hardware.estimate import num_carried
from purerl.execution.memory import inner_programs
from purerl.networks.memories import LRU, S5, Transformer, linear
from purerl.networks.memories.kinds import kind_of
from purerl.networks.memories.linear import LinearUnit, StateSpace
from purerl.networks.memories.transformer import Attention, Cache, Gate
from purerl.networks.recurrent import GRU, LSTM, LSTMMemory
from purerl.networks.torsos import MLP
from tests import nets
from tests.helpers import assert_same_bits, slow_but

STEPS, ENVS, OBS, SIZE = 9, 3, 2, 4
MEMORIES = {
    "lru": LRU(SIZE, state_size=3),
    "s5": S5(SIZE, state_size=3),
    "transformer": Transformer(SIZE, window=5, num_heads=2),
    "of one's own": nets.Leaky(SIZE),
    "gru": "gru",
    "lstm": "lstm",
}


def normal(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


OBSERVED = normal(1, STEPS, ENVS, OBS)
# Environment 0 begins episodes at 3 and at 4, environment 1 at 0, environment 2 at 8.
FIRST = jnp.zeros((STEPS, ENVS), bool).at[[3, 4, 0, 8], [0, 0, 1, 2]].set(True)


def zeros_of(module, *arguments):
    """Zeros in place of a module's parameters."""
    shapes = jax.eval_shape(module.init, jax.random.key(0), *arguments)
    return jax.tree.map(lambda x: jnp.zeros(x.shape), shapes)


def randomised(params, seed=0):
    """Random numbers in every parameter, biases included."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda x: x + jnp.asarray(rng.normal(0, 0.3, x.shape), jnp.float32), params
    )


class Sequence:
    """A memory behind a torso, and what it makes of a sequence."""

    def __init__(self, module):
        self.module = module
        # A module has its own size.
        self.kind = kind_of(module, SIZE if isinstance(module, str) else 99)
        self.read = self.kind.read
        core = self.core = self.kind.core(MLP((5,), "tanh"))
        self.obs = OBSERVED
        blank = self.kind.blank((ENVS,))
        shapes = jax.jit(core.init)(jax.random.key(0), self.obs[0], blank)
        self.params = randomised(shapes)
        self.unroll = jax.jit(partial(core.apply, method="unroll"))
        self.step = jax.jit(core.apply)
        # Episodes that run already.
        before = self.unroll(self.params, 1.0 - self.obs, blank, FIRST & False)
        self.start = self.kind.last(before)


@pytest.fixture(
    scope="module", params=slow_but(MEMORIES, "lru", "gru", "lstm", "of one's own")
)
def sequence(request):
    return Sequence(MEMORIES[request.param])


close = partial(chex.assert_trees_all_close, rtol=2e-5, atol=2e-6)


@partial(jax.jit, static_argnums=0)
def by_steps(sequence, params, obs, memory):
    """The memories of a sequence, step by step, cleared as a policy that acts does."""

    def step(memory, xs):
        obs_t, first_t = xs
        memory = sequence.core.apply(params, obs_t, forget(memory, first_t))
        return memory, memory

    return jax.lax.scan(step, memory, (obs, FIRST))[1]


def test_a_sequence_is_its_steps(sequence):
    whole = sequence.unroll(sequence.params, sequence.obs, sequence.start, FIRST)
    steps = by_steps(sequence, sequence.params, sequence.obs, sequence.start)
    close(sequence.read(whole), sequence.read(steps))
    close(sequence.kind.last(whole), jax.tree.map(lambda x: x[-1], steps))
    # A single episode without an axis for it, and others with two, are the same.
    alone = jax.tree.map(lambda x: x[2], sequence.start)
    stepped = sequence.step(sequence.params, sequence.obs[0, 2], alone)
    first = sequence.read(whole)[0, 2]
    close(sequence.read(stepped), first)
    grid = jax.tree.map(lambda x: jnp.stack([x, x]), sequence.start)
    obs = jnp.stack([sequence.obs[0]] * 2)
    close(sequence.read(sequence.step(sequence.params, obs, grid))[1, 2], first)


def test_gradients_are_those_of_the_steps(sequence):
    weights = normal(2, STEPS, ENVS, SIZE)

    @jax.jit
    @jax.grad
    def of_whole(arguments):
        found = sequence.unroll(*arguments, sequence.start, FIRST)
        return (weights * sequence.read(found)).sum()

    @jax.jit
    @jax.grad
    def of_steps(arguments):
        steps = by_steps(sequence, *arguments, sequence.start)
        return (weights * sequence.read(steps)).sum()

    arguments = (sequence.params, sequence.obs)
    found, expected = of_whole(arguments), of_steps(arguments)
    close(found, expected, atol=5e-5)
    assert max(float(jnp.abs(x).max()) for x in jax.tree.leaves(expected)) > 0.1


def test_what_follows_a_reset_knows_nothing_of_what_preceded_it(sequence):
    def outputs_and_last(obs, start, first):
        found = sequence.unroll(sequence.params, obs, start, first)
        return sequence.read(found), jax.tree.leaves(sequence.kind.last(found))

    one, last = outputs_and_last(sequence.obs, sequence.start, FIRST)
    moved = sequence.obs.at[:3, 0].add(1.0)
    start = jax.tree.map(lambda x: x + jnp.ones_like(x), sequence.start)
    other, other_last = outputs_and_last(moved, start, FIRST)
    np.testing.assert_array_equal(one[3:, 0], other[3:, 0])
    np.testing.assert_array_equal(one[:, 1], other[:, 1])
    np.testing.assert_array_equal(one[8, 2], other[8, 2])
    assert_same_bits(last, other_last)  # every environment had a reset
    assert (one[:3, 0] != other[:3, 0]).any(-1).all()
    assert (one[:8, 2] != other[:8, 2]).any(-1)[0]
    # It is the memory of a fresh start, in what is carried on too.
    blank = sequence.kind.blank((ENVS,))
    fresh, fresh_last = outputs_and_last(sequence.obs[4:], blank, FIRST[4:])
    close(other[4:, 0], fresh[:, 0])
    close(*jax.tree.map(lambda x: x[0], (other_last, fresh_last)))


# The GRU and the LSTM


def made(kind):
    """One with random numbers in every parameter, and a memory of it."""
    module = kind(MLP((5,), "tanh"), SIZE)
    hidden = normal(2, ENVS, SIZE)
    memory = hidden if kind is GRU else LSTMMemory(hidden, hidden[::-1] - 0.5)
    return module, randomised(zeros_of(module, OBSERVED[0], memory)), memory


@pytest.mark.parametrize("kind", [GRU, LSTM])
def test_a_step_is_that_of_flaxs_cell(kind):
    module, params, memory = made(kind)
    layers, gates = params["params"], "rzn" if kind is GRU else "ifgo"

    # Flax's cell has one matrix for each gate and side.
    def parted(x):
        return zip(gates, np.split(np.asarray(x), len(gates), axis=-1), strict=True)

    inputs = layers["inputs"]
    cell = {f"i{name}": {"kernel": x} for name, x in parted(inputs["kernel"])}
    cell |= {f"h{name}": {"kernel": x} for name, x in parted(layers["recurrent"])}
    side = "i" if kind is GRU else "h"
    for name, bias in parted(inputs["bias"]):
        cell[side + name]["bias"] = bias
    torso = MLP((5,), "tanh")
    embedded = torso.apply({"params": layers["torso"]}, OBSERVED[0])
    if kind is GRU:
        cell["hn"]["bias"] = layers["bias"]
        flax_cell, carry = nn.GRUCell(SIZE), memory
    else:
        flax_cell, carry = nn.LSTMCell(SIZE), (memory.cell, memory.hidden)
    expected, _ = flax_cell.apply({"params": cell}, carry, embedded)
    found: Any = jax.jit(module.apply)(params, OBSERVED[0], memory)
    found = found if kind is GRU else (found.cell, found.hidden)
    chex.assert_trees_all_close(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_each_gate_starts_orthogonal():
    module = GRU(MLP((5,), "relu"), 16)
    params = module.init(jax.random.key(3), jnp.zeros((1, OBS)), jnp.zeros((1, 16)))
    gates = np.split(np.asarray(params["params"]["recurrent"]), 3, axis=1)
    for gate in gates:
        np.testing.assert_allclose(gate.T @ gate, np.eye(16), atol=1e-5)
    assert np.abs(gates[0] - gates[1]).max() > 0.1
    assert np.abs(gates[1] - gates[2]).max() > 0.1


@pytest.mark.parametrize("kind", [GRU, LSTM])
def test_an_accelerators_gradient_of_a_sequence_is_that_of_a_cpu(kind):
    module, params, memory = made(kind)
    weights = normal(4, STEPS, ENVS, SIZE)

    def slopes(platform):
        def loss(params, obs, memory):
            memories = module.apply(params, obs, memory, FIRST, method="unroll")
            squares = jax.tree.map(lambda x: (weights * x**2).sum(), memories)
            return sum(jax.tree.leaves(squares))

        with traced_for(platform):
            gradient = jax.value_and_grad(loss, argnums=(0, 1, 2))
            traced = jax.jit(gradient).trace(params, OBSERVED, memory)
            compiled = traced.lower().compile()
            return compiled(params, OBSERVED, memory), traced.jaxpr

    known, plain = slopes("cpu")
    found, short = slopes("cuda")
    chex.assert_trees_all_close(found, known, rtol=2e-4, atol=1e-5)
    # Where an episode begins, nothing passes to what was before it.
    np.testing.assert_array_equal(jax.tree.leaves(found[1][2])[0][1], np.zeros(SIZE))

    # The loop forward writes the memories and nothing else.
    def written(jaxpr):
        loops = [e for e in jaxpr.jaxpr.eqns if e.primitive.name == "scan"]
        return len(loops[0].outvars) - num_carried(loops[0])

    leaves = len(jax.tree.leaves(memory))
    assert written(short) == leaves < written(plain)


@pytest.mark.parametrize(("steps", "turn"), [(8, 4), (6, 2), (7, 1)])
def test_a_turn_of_a_sequences_loop_makes_some_steps_on_an_accelerator(steps, turn):
    def unrolls(platform):
        with traced_for(platform):
            jaxpr = jax.make_jaxpr(lambda: _unrolled(steps))().jaxpr
        return [e.params["unroll"] for e in _equations(jaxpr) if "unroll" in e.params]

    assert set(unrolls("cpu")) == {1}
    assert set(unrolls("cuda")) == {turn}


def _unrolled(steps):
    cell = kernels.Cell(lambda p, h: h @ p, lambda p, x, y, h: jnp.tanh(x + y))
    first = jnp.zeros((steps, 2), bool)
    inputs = jnp.ones((steps, 2, 3))
    return jax.grad(
        lambda p: kernels.unroll(cell, p, inputs, jnp.zeros((2, 3)), first).sum()
    )(jnp.eye(3))


def _equations(jaxpr):
    for equation in jaxpr.eqns:
        yield equation
        for inner in inner_programs(equation):
            yield from _equations(inner)


# The linear recurrent unit


def complex_of(x):
    return np.asarray(x.real, np.float64) + 1j * np.asarray(x.imag, np.float64)


def blank(size, steps=STEPS):
    """A state of zeros, no input and no resets."""
    state = linear.Complex(jnp.zeros((1, size)), jnp.zeros((1, size)))
    return state, jnp.zeros((steps, 1, 3)), jnp.zeros((steps, 1), bool)


def test_the_impulse_response_of_an_lru_is_the_closed_form():
    unit = LinearUnit(SIZE, 0.5, 0.99, 3.0)
    impulse = np.array([0.3, -1.0, 0.7])
    state, inputs, resets = blank(SIZE)
    params = jax.jit(unit.init)(jax.random.key(3), state, inputs, resets)
    inputs = inputs.at[0, 0].set(jnp.asarray(impulse))
    found = np.asarray(jax.jit(unit.apply)(params, state, inputs, resets)[1])[:, 0]
    p = jax.tree.map(lambda x: np.asarray(x, np.float64), params["params"])
    eigenvalues = np.exp(-np.exp(p["nu"]) + 1j * np.exp(p["theta"]))
    modulus = np.abs(eigenvalues)
    assert ((modulus > 0.5) & (modulus < 0.99)).all()
    # An input of variance 1 gives states of variance 1, whatever the modulus.
    np.testing.assert_allclose(np.exp(p["gamma"]), np.sqrt(1 - modulus**2), 1e-5)
    enter = np.exp(p["gamma"]) * (impulse @ (p["enter_real"] + 1j * p["enter_imag"]))
    leave = p["leave_real"] + 1j * p["leave_imag"]
    for t in range(STEPS):
        expected = (eigenvalues**t * enter @ leave).real
        expected += p["skip"] * impulse * (t == 0)
        np.testing.assert_allclose(found[t], expected, rtol=1e-5, atol=1e-6)


def test_the_eigenvalues_of_an_lru_are_in_the_ring_and_never_leave_the_disc():
    unit = LinearUnit(1000, 0.9, 0.999, 0.5)
    state, *nothing = blank(1000, steps=1)
    p = jax.jit(unit.init)(jax.random.key(0), state, *nothing)["params"]
    squared = np.exp(-2 * np.exp(np.asarray(p["nu"], np.float64)))
    low, high = 0.9**2, 0.999**2
    assert squared.min() > low - 1e-6 and squared.max() < high + 1e-6
    # Uniform on the ring: |lambda|^2 is uniform, here with a standard error of 1/110.
    share = (squared - low) / (high - low)
    assert abs(share.mean() - 0.5) < 0.04 and abs(share.var() - 1 / 12) < 0.01
    phase = np.exp(np.asarray(p["theta"]))
    assert phase.min() > 0 and phase.max() <= 0.5 + 1e-6
    # Whatever is learned: a state that has no input does not grow.
    far = {**p, "nu": jnp.linspace(-30.0, 30.0, 1000)}
    start = linear.Complex(jnp.ones((1, 1000)), jnp.ones((1, 1000)))
    after, _ = jax.jit(unit.apply)({"params": far}, start, *nothing)
    assert (np.abs(complex_of(after)) <= np.sqrt(2) * (1 + 1e-6)).all()


# S5


def test_hippo_has_the_eigenvectors_of_its_matrix():
    size = 3
    values, vectors = linear.hippo(size)
    order = np.arange(2 * size)
    root = np.sqrt(2 * order + 1)
    legs = -np.tril(np.outer(root, root), -1) - np.diag(order + 1)
    normal = legs + np.outer(root, root) / 2  # without its part of rank one
    np.testing.assert_allclose(normal @ vectors, vectors * values, atol=1e-10)
    np.testing.assert_allclose(values.real, -0.5)
    assert (values.imag > 0).all() and len(values) == size
    # The conjugates are the other half.
    rest = normal @ vectors.conj() - vectors.conj() * values.conj()
    np.testing.assert_allclose(rest, 0, atol=1e-10)


def test_s5_is_its_differential_equation_under_a_constant_input():
    # x' = Lambda x + B u from 0 is x(t) = (exp(Lambda t) - 1) / Lambda * B u, and the
    # layer holds an input for `dt`: after k steps t is k dt.
    module = StateSpace(SIZE, 0.05, 0.5)
    state, nothing, resets = blank(SIZE)
    inputs = nothing + jnp.array([[[0.3, -1.0, 0.7]]])
    params = jax.jit(module.init)(jax.random.key(1), state, inputs, resets)
    _, outputs = jax.jit(module.apply)(params, state, inputs, resets)
    p = jax.tree.map(lambda x: np.asarray(x, np.float64), params["params"])
    eigenvalues = p["real"] + 1j * p["imag"]
    np.testing.assert_allclose(eigenvalues, linear.hippo(SIZE)[0], rtol=1e-5)
    steady = np.asarray(inputs[0, 0]) @ (p["enter"][0] + 1j * p["enter"][1])
    for k in range(1, STEPS + 1):
        time = k * np.exp(p["log_dt"])
        state_t = (np.exp(eigenvalues * time) - 1) / eigenvalues * steady
        expected = 2 * (state_t @ (p["leave"][0] + 1j * p["leave"][1])).real
        expected += p["skip"] * np.asarray(inputs[0, 0])
        np.testing.assert_allclose(outputs[k - 1, 0], expected, rtol=1e-4, atol=1e-5)
    # B and C begin as real matrices in the basis of the whole HiPPO-N matrix.
    vectors = linear.hippo(SIZE)[1]
    both = np.concatenate([vectors, vectors.conj()], 1)
    enter = np.concatenate([p["enter"][0] + 1j * p["enter"][1]] * 2, 1)
    enter[:, SIZE:] = enter[:, SIZE:].conj()
    np.testing.assert_allclose((enter @ both.T).imag, 0, atol=1e-6)


# The transformer


@pytest.mark.parametrize(
    ("blocks", "window"), [pytest.param(1, 3, marks=pytest.mark.slow), (2, 2)]
)
def test_an_output_depends_on_the_window_of_every_block_and_on_nothing_before(
    blocks, window
):
    module = Transformer(SIZE, window, blocks, num_heads=2, gate_bias=0.0)
    carry, length = module.initial((1,)), 12
    inputs = jax.random.normal(jax.random.key(0), (length, 1, 3))
    resets = jnp.zeros((length, 1), bool)
    params = randomised(zeros_of(module, carry, inputs, resets))
    apply = jax.jit(lambda inputs: module.apply(params, carry, inputs, resets)[1])
    before = apply(inputs)
    for t in range(length):
        changed = (apply(inputs.at[t].add(1.0)) != before).any((1, 2))
        # The present step, and `window` steps before it for every block.
        expected = [t <= later <= t + blocks * window for later in range(length)]
        np.testing.assert_array_equal(changed, expected)


def test_attention_is_a_plain_loop_over_the_steps_of_the_window():
    window, heads, units, length = 3, 2, 2, 7
    module = Attention(window, heads)
    x = normal(0, 1, length, SIZE)
    resets = jnp.zeros((1, length), bool).at[0, 4].set(True)
    keys, values = np.asarray(normal(1, 2, 1, window, heads, units))
    cache = Cache(keys, values, jnp.array([2]))
    params = randomised(zeros_of(module, x, cache, resets))
    found, after = jax.jit(module.apply)(params, x, cache, resets)

    p = jax.tree.map(lambda x: np.asarray(x, np.float64), params["params"])
    inputs = np.asarray(x[0]) @ p["inputs"]["kernel"] + p["inputs"]["bias"]
    query, new_keys, new_values = (
        part.reshape(length, heads, units) for part in np.split(inputs, 3, -1)
    )
    # (episode, time, key, value); of the cache the first place holds no step.
    past = [(0, i - window, keys[0, i], values[0, i]) for i in (1, 2)]
    for t in range(length):
        episode = int(t >= 4)
        past.append((episode, t, new_keys[t], new_values[t]))
        seen = [row for row in past if row[0] == episode and row[1] >= t - window]
        scores = []
        for _, time, key, _ in seen:
            angles = (t - time) * np.array([1.0, 0.01])
            sines = np.concatenate([np.sin(angles), np.cos(angles)])
            place = (sines @ p["positions"]["kernel"]).reshape(heads, units)
            content = ((query[t] + p["content_bias"]) * key).sum(-1)
            position = ((query[t] + p["position_bias"]) * place).sum(-1)
            scores.append((content + position) / np.sqrt(units))
        weights = np.exp(scores) / np.exp(scores).sum(0)  # [steps, heads]
        mixed = sum(w[:, None] * row[3] for w, row in zip(weights, seen, strict=True))
        expected = mixed.reshape(-1) @ p["outputs"]["kernel"] + p["outputs"]["bias"]
        np.testing.assert_allclose(found[0, t], expected, rtol=1e-5, atol=1e-5)
    assert len(seen) == 3 and after.filled == 3
    np.testing.assert_allclose(after.keys[0], new_keys[4:], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(after.values[0], new_values[4:], rtol=1e-5, atol=1e-5)


def test_a_gate_is_a_grus_and_begins_near_the_identity():
    x, y = np.asarray(normal(0, 2, 5, SIZE))
    gate = Gate(2.0)
    start = jax.jit(gate.init)(jax.random.key(1), x, y)
    params = randomised(start)
    p = jax.tree.map(lambda x: np.asarray(x, np.float64), params["params"])
    after = y @ p["after"]["kernel"] + p["after"]["bias"]
    around = x @ p["around"]["kernel"]

    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    reset = sigmoid(after[:, :SIZE] + around[:, :SIZE])
    update = sigmoid(after[:, SIZE:-SIZE] + around[:, SIZE:] - p["bias"])
    new = np.tanh(after[:, -SIZE:] + (reset * x) @ p["kept"]["kernel"])
    expected = (1 - update) * x + update * new
    apply = jax.jit(gate.apply)
    np.testing.assert_allclose(apply(params, x, y), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(start["params"]["bias"], np.full(SIZE, 2.0))
    closed = apply(jax.jit(Gate(40.0).init)(jax.random.key(1), x, y), x, y)
    np.testing.assert_allclose(closed, x, rtol=1e-6)
