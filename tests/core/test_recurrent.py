"""The GRU and the LSTM against flax's, their gradients, and forgetting."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import networks
from purerl.accelerator import kernels
from purerl.accelerator.kernels import forget, traced_for
from purerl.contrib.hardware.work import num_carried
from purerl.execution.memory import inner_programs
from purerl.networks.recurrent import GRU, LSTM, LSTMMemory

STEPS, ENVS, OBS, EMBED, SIZE = 9, 3, 2, 5, 4


@pytest.fixture(scope="module")
def core():
    """A GRU with random numbers in every parameter, biases included."""
    module = GRU(networks.MLP((EMBED,), "relu"), SIZE)
    shapes = module.init(jax.random.key(0), jnp.zeros((1, OBS)), jnp.zeros((1, SIZE)))
    rng = np.random.default_rng(0)
    params = jax.tree.map(
        lambda x: jnp.asarray(rng.normal(size=x.shape), jnp.float32), shapes
    )
    return module, params


@pytest.fixture(scope="module")
def sequence():
    rng = np.random.default_rng(1)
    obs = jnp.asarray(rng.normal(size=(STEPS, ENVS, OBS)), jnp.float32)
    memory = jnp.asarray(rng.normal(size=(ENVS, SIZE)), jnp.float32)
    first = np.zeros((STEPS, ENVS), bool)
    first[0, 1] = first[3, 0] = first[4, 0] = first[STEPS - 1, 2] = True
    return obs, memory, jnp.asarray(first)


def flax_cell(params):
    """The parameters as flax's cell names them: one matrix per gate and side."""
    inputs = params["params"]["inputs"]
    names = ("r", "z", "n")
    cell = {}
    for i, name in enumerate(names):
        part = slice(i * SIZE, (i + 1) * SIZE)
        cell[f"i{name}"] = {
            "kernel": inputs["kernel"][:, part],
            "bias": inputs["bias"][part],
        }
        cell[f"h{name}"] = {"kernel": params["params"]["recurrent"][:, part]}
    cell["hn"]["bias"] = params["params"]["bias"]
    return {"params": cell}


def test_a_step_is_that_of_flaxs_cell(core, sequence):
    module, params = core
    obs, memory, _ = sequence
    embedded = networks.MLP((EMBED,), "relu").apply(
        {"params": params["params"]["torso"]}, obs[0]
    )
    expected, _ = nn.GRUCell(SIZE).apply(flax_cell(params), memory, embedded)
    np.testing.assert_allclose(module.apply(params, obs[0], memory), expected, 1e-5)


def test_a_step_of_the_lstm_is_that_of_flaxs_cell(sequence):
    obs, hidden, _ = sequence
    module = LSTM(networks.MLP((EMBED,), "relu"), SIZE)
    memory = LSTMMemory(hidden, hidden[::-1] - 0.5)
    shapes = module.init(jax.random.key(0), obs[0], memory)
    rng = np.random.default_rng(2)
    params = jax.tree.map(
        lambda x: jnp.asarray(rng.normal(size=x.shape), jnp.float32), shapes
    )
    layers = params["params"]
    names = ("i", "f", "g", "o")
    kernels = np.split(np.asarray(layers["inputs"]["kernel"]), 4, axis=1)
    biases = np.split(np.asarray(layers["inputs"]["bias"]), 4)
    recurrent = np.split(np.asarray(layers["recurrent"]), 4, axis=1)
    cell = {f"i{n}": {"kernel": k} for n, k in zip(names, kernels, strict=True)}
    for name, kernel, bias in zip(names, recurrent, biases, strict=True):
        cell[f"h{name}"] = {"kernel": kernel, "bias": bias}
    embedded = networks.MLP((EMBED,), "relu").apply({"params": layers["torso"]}, obs[0])
    (expected_cell, expected_hidden), _ = nn.LSTMCell(SIZE).apply(
        {"params": cell}, (memory.cell, memory.hidden), embedded
    )
    found: Any = module.apply(params, obs[0], memory)
    np.testing.assert_allclose(found.hidden, expected_hidden, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.cell, expected_cell, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_each_gate_starts_orthogonal():
    module = GRU(networks.MLP((EMBED,), "relu"), 16)
    params = module.init(jax.random.key(3), jnp.zeros((1, OBS)), jnp.zeros((1, 16)))
    gates = np.split(np.asarray(params["params"]["recurrent"]), 3, axis=1)
    for gate in gates:
        np.testing.assert_allclose(gate.T @ gate, np.eye(16), atol=1e-5)
    assert np.abs(gates[0] - gates[1]).max() > 0.1
    assert np.abs(gates[1] - gates[2]).max() > 0.1


@pytest.mark.slow
def test_forgetting_clears_ended_episodes_and_keeps_the_others_bit_for_bit():
    done = jnp.array([[True, False], [False, False], [False, True]])
    memory = {
        "vector": jax.random.normal(jax.random.key(0), (3, 2, 4)),
        "image": jax.random.normal(jax.random.key(1), (3, 2, 2, 5)),
        "count": jnp.arange(1, 7, dtype=jnp.int32).reshape(3, 2),
    }
    kept = forget(memory, done)
    for name, before in memory.items():
        assert kept[name].dtype == before.dtype
        np.testing.assert_array_equal(kept[name][~done], before[~done])
        np.testing.assert_array_equal(kept[name][done], jnp.zeros_like(before[done]))


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_an_accelerators_gradient_of_a_sequence_is_that_of_a_cpu(kind, core, sequence):
    obs, memory, first = sequence
    module, params = core
    if kind == "lstm":
        module = LSTM(networks.MLP((EMBED,), "relu"), SIZE)
        memory = LSTMMemory(memory, memory[::-1] - 0.5)
        shapes = module.init(jax.random.key(0), obs[0], memory)
        rng = np.random.default_rng(3)
        params = jax.tree.map(
            lambda x: jnp.asarray(rng.normal(size=x.shape), jnp.float32), shapes
        )
    weights = jnp.asarray(np.random.default_rng(4).normal(size=(STEPS, ENVS, SIZE)))

    def slopes(platform):
        def loss(params, obs, memory):
            memories = module.apply(params, obs, memory, first, method="unroll")
            squares = jax.tree.map(lambda x: (weights * x**2).sum(), memories)
            return sum(jax.tree.leaves(squares))

        with traced_for(platform):
            gradient = jax.value_and_grad(loss, argnums=(0, 1, 2))
            return gradient(params, obs, memory), jax.make_jaxpr(gradient)(
                params, obs, memory
            )

    known, plain = slopes("cpu")
    found, short = slopes("cuda")
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5),
        found,
        known,
    )
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
