"""The GRU and the LSTM against flax's, their gradients, and forgetting."""

from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import networks
from purerl.accelerator import kernels
from purerl.accelerator.kernels import traced_for
from purerl.contrib.hardware.estimate import num_carried
from purerl.execution.memory import inner_programs
from purerl.networks.recurrent import GRU, LSTM, LSTMMemory

STEPS, ENVS, OBS, EMBED, SIZE = 9, 3, 2, 5, 4


def made(kind):
    """A GRU or an LSTM with random numbers in every parameter, biases included."""
    module = kind(networks.MLP((EMBED,), "relu"), SIZE)
    blank = jnp.zeros((1, SIZE))
    memory = blank if kind is GRU else LSTMMemory(blank, blank)
    shapes = jax.eval_shape(module.init, jax.random.key(0), jnp.zeros((1, OBS)), memory)
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


@pytest.mark.parametrize("kind", [GRU, LSTM])
def test_a_step_is_that_of_flaxs_cell(kind, sequence):
    module, params = made(kind)
    obs, hidden, _ = sequence
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
    embedded = networks.MLP((EMBED,), "relu").apply({"params": layers["torso"]}, obs[0])
    if kind is GRU:
        cell["hn"]["bias"] = layers["bias"]
        memory, flax_cell, carry = hidden, nn.GRUCell(SIZE), hidden
    else:
        memory = LSTMMemory(hidden, hidden[::-1] - 0.5)
        flax_cell, carry = nn.LSTMCell(SIZE), (memory.cell, memory.hidden)
    expected, _ = flax_cell.apply({"params": cell}, carry, embedded)
    found: Any = jax.jit(module.apply)(params, obs[0], memory)
    found = found if kind is GRU else (found.cell, found.hidden)
    chex.assert_trees_all_close(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_each_gate_starts_orthogonal():
    module = GRU(networks.MLP((EMBED,), "relu"), 16)
    params = module.init(jax.random.key(3), jnp.zeros((1, OBS)), jnp.zeros((1, 16)))
    gates = np.split(np.asarray(params["params"]["recurrent"]), 3, axis=1)
    for gate in gates:
        np.testing.assert_allclose(gate.T @ gate, np.eye(16), atol=1e-5)
    assert np.abs(gates[0] - gates[1]).max() > 0.1
    assert np.abs(gates[1] - gates[2]).max() > 0.1


@pytest.mark.parametrize("kind", [GRU, LSTM])
def test_an_accelerators_gradient_of_a_sequence_is_that_of_a_cpu(kind, sequence):
    obs, memory, first = sequence
    module, params = made(kind)
    if kind is LSTM:
        memory = LSTMMemory(memory, memory[::-1] - 0.5)
    weights = jnp.asarray(np.random.default_rng(4).normal(size=(STEPS, ENVS, SIZE)))

    def slopes(platform):
        def loss(params, obs, memory):
            memories = module.apply(params, obs, memory, first, method="unroll")
            squares = jax.tree.map(lambda x: (weights * x**2).sum(), memories)
            return sum(jax.tree.leaves(squares))

        with traced_for(platform):
            gradient = jax.value_and_grad(loss, argnums=(0, 1, 2))
            traced = jax.jit(gradient).trace(params, obs, memory)
            compiled = traced.lower().compile()
            return compiled(params, obs, memory), traced.jaxpr

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
