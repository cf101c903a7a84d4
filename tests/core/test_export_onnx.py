"""Policies as ONNX: the same actions, in a program that has neither JAX nor purerl."""

import subprocess
import sys

import jax
import numpy as np
import pytest

import purerl
from purerl.acting.policy import recurrence_of
from purerl.config import ConfigError
from tests import boxes
from tests.contracts.test_algorithms import small
from tests.helpers import tiny_config

BATCH = 5
CONFIGS = {
    "normalised": lambda: tiny_config(
        env="Pendulum-v1", normalize_observations=True, num_steps=32
    ),
    "several parts": lambda: tiny_config(env=boxes.MIXED),
    "images": lambda: tiny_config(env="Breakout-MinAtar"),
    "dqn": lambda: small("dqn"),
    "sac": lambda: small("sac"),
    "sac with a memory": lambda: small("sac/memory"),
    "gru": lambda: small("recurrent_ppo"),
    **{
        kind: lambda kind=kind: small("recurrent_ppo").replace(memory=kind)
        for kind in ("lstm", "lru", "s5", "transformer")
    },
    "a critic that sees more": lambda: small("recurrent_ppo").replace(
        env=boxes.PACKED, env_kwargs={}, actor_keys=("cart",)
    ),
}
SCRIPT = """
import sys
for name in ("purerl", "flax", "jax"):
    sys.modules[name] = None
import numpy as np
import onnxruntime

policy = onnxruntime.InferenceSession("policy.onnx")
given = dict(np.load("given.npz"))
assert [x.name for x in policy.get_inputs()] == list(given)
found = policy.run(None, given)
names = [x.name for x in policy.get_outputs()]
np.savez("found.npz", **dict(zip(names, found)))
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_the_actions_are_the_same_without_jax(name, tmp_path):
    pytest.importorskip("jax2onnx", reason="an extra")
    config = CONFIGS[name]()
    algorithm = purerl.make_algorithm(config)
    state = jax.jit(algorithm.init)(jax.random.key(0))
    env = purerl.train.bind(config).env
    keys = jax.random.split(jax.random.key(1), BATCH)
    obs, _ = jax.vmap(env.reset, (0, None))(keys, env.default_params)
    recurrence = recurrence_of(algorithm)
    action, after = recurrence.act(state, obs, recurrence.init((BATCH,)))
    # The second step begins with a memory that is not zero.
    memory = after
    action, after = recurrence.act(state, obs, memory)

    purerl.export_policy(config, state, tmp_path, onnx=True)
    inputs = {**named("obs", obs), **numbered("memory", memory)}
    np.savez(tmp_path / "given.npz", **inputs)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found = dict(np.load(tmp_path / "found.npz"))
    expected = {**named("action", action), **numbered("next_memory", after)}
    assert list(found) == list(expected)
    for key, value in expected.items():
        assert found[key].shape == value.shape, key
        np.testing.assert_allclose(found[key], value, rtol=1e-4, atol=1e-5)


def named(name, tree):
    """The arrays of a pytree, by the names of the model."""
    pairs, _ = jax.tree_util.tree_flatten_with_path(tree)
    found = {}
    for path, leaf in pairs:
        key = "".join(f".{getattr(x, 'key', getattr(x, 'idx', ''))}" for x in path)
        found[name + key] = np.asarray(leaf)
    return found


def numbered(name, memory):
    leaves = jax.tree.leaves(memory)
    return {f"{name}{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}


@pytest.mark.slow
def test_an_export_without_onnx_leaves_none_behind(tmp_path):
    pytest.importorskip("jax2onnx", reason="an extra")
    config = tiny_config()
    state = purerl.make_algorithm(config).init(jax.random.key(0))
    purerl.export_policy(config, state, tmp_path, onnx=True)
    assert "policy.onnx" in (tmp_path / "README.md").read_text()
    purerl.export_policy(config, state, tmp_path)
    assert not (tmp_path / "policy.onnx").exists()
    assert "onnx" not in (tmp_path / "README.md").read_text()


def test_without_the_converter_a_sentence_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jax2onnx", None)
    config = tiny_config()
    state = purerl.make_algorithm(config).init(jax.random.key(0))
    words = r"takes the package jax2onnx, .* pip install 'purerl\[onnx\]'"
    with pytest.raises(ConfigError, match=words):
        purerl.export_policy(config, state, tmp_path / "out", onnx=True)
    assert not (tmp_path / "out").exists()


def test_what_the_converter_cannot_do_is_a_sentence(tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise NotImplementedError("no plugin for 'sort'\nand more")

    monkeypatch.setitem(sys.modules, "jax2onnx", type("Fake", (), {"to_onnx": fail}))
    config = tiny_config()
    state = purerl.make_algorithm(config).init(jax.random.key(0))
    words = r"cannot convert this policy \(NotImplementedError: no plugin for 'sort'\)"
    with pytest.raises(ConfigError, match=words):
        purerl.export_policy(config, state, tmp_path / "out", onnx=True)
