"""Exported policies: the same actions, in a program without purerl, or without JAX."""

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from safetensors.numpy import load_file

import purerl
from purerl import envs
from purerl.acting.policy import recurrence_of
from purerl.warm_start import networks_of, put_networks
from tests import boxes
from tests.contracts.test_algorithms import SMALL, small
from tests.helpers import python, slow_but, tiny_config

# A policy with a memory of two arrays, one that normalises, one of several numbers.
QUICK = ("normalised",)
BATCH = 5
CONFIGS = {name: lambda name=name: small(name) for name in SMALL} | {
    "normalised": lambda: tiny_config(
        env="Pendulum-v1", normalize_observations=True, num_steps=32
    ),
    "discrete observations": lambda: tiny_config(env="FrozenLake-misc"),
    "images": lambda: tiny_config(env="Breakout-MinAtar"),
}
# What a stranger runs: JAX, NumPy, and the text of the README.
SCRIPT = """
import sys
for name in ("purerl", "flax", "optax", "distrax", "gymnax", "brax"):
    sys.modules[name] = None
import json
import numpy as np
from jax import export

def load(name):
    with open(name, "rb") as file:
        return export.deserialize(bytearray(file.read()))

about = json.load(open("policy.json"))
given = dict(np.load("given.npz"))
memory = [given[f"memory{i}"] for i in range(len(about["memory"]))]
for memory_row, row in zip(memory, about["memory"]):
    assert list(memory_row.shape[1:]) == row["shape"]
    assert str(memory_row.dtype) == row["dtype"]
found = {}
for kind, more in (("deterministic", []), ("sampled", [given["words"]])):
    policy = load(about["files"][kind])
    outputs = policy.call(given["obs"], *memory, *more)
    outputs = outputs if isinstance(outputs, (tuple, list)) else [outputs]
    found |= {f"{kind}{i}": np.asarray(x) for i, x in enumerate(outputs)}
assert "purerl" not in [name for name, module in sys.modules.items() if module]
np.savez("found.npz", **found)
"""


def agent(config):
    """A fresh agent whose statistics and networks are not those of the beginning."""
    state = jax.jit(purerl.make_algorithm(config).init)(jax.random.key(1))
    networks = {
        name: leaf + 0.3 * jax.random.uniform(jax.random.key(i), leaf.shape)
        for i, (name, leaf) in enumerate(networks_of(state).items())
    }
    return put_networks(state, networks)


def found_by(folder, *words):
    """What a program of its own, in the folder of a policy, has found."""
    python(*words, cwd=folder)
    return dict(np.load(folder / "found.npz"))


@pytest.mark.parametrize("name", slow_but(CONFIGS, *QUICK))
def test_the_actions_are_the_same_without_purerl(name, tmp_path):
    config = CONFIGS[name]()
    state = agent(config)
    purerl.export_policy(config, state, tmp_path, sampled=True)
    about = json.loads((tmp_path / "policy.json").read_text())

    # A fixed number of observations is exported for any number: 5 here.
    space = about["observation"]
    obs = jax.random.normal(jax.random.key(2), (BATCH, *space["shape"]))
    obs = np.asarray(obs * 2).astype(space["dtype"])
    policy, key = purerl.make_policy(config, state), jax.random.key(9)
    memory = ()
    if about["memory"]:
        memory = jax.tree.map(lambda x: x + jnp.ones_like(x), policy.init((BATCH,)))
    arguments = (obs, memory) if about["memory"] else (obs,)
    expected = policy(*arguments), policy(*arguments, key)
    given = numbered("memory", memory)
    words = jax.random.key_data(key)
    np.savez(tmp_path / "given.npz", obs=obs, words=words, **given)
    found = found_by(tmp_path, "-I", "-c", SCRIPT)
    for kind, outputs in zip(("deterministic", "sampled"), expected, strict=True):
        for i, value in enumerate(jax.tree.leaves(outputs)):
            mine = found[f"{kind}{i}"]
            assert mine.dtype == value.dtype
            np.testing.assert_allclose(mine, value, rtol=1e-6, atol=1e-6)


def test_the_weights_begin_another_run(tmp_path):
    """What is in the file is what `networks_of` names; a run can start from it."""
    config = CONFIGS["normalised"]()
    state = agent(config)
    folder = purerl.export_policy(config, state, tmp_path / "out", batch=3)
    weights = load_file(folder / "weights.safetensors")
    networks = networks_of(state)
    assert weights.keys() == networks.keys()
    for name, value in weights.items():
        np.testing.assert_array_equal(value, networks[name])
    train = purerl.make_train(config)
    jax.eval_shape(lambda key: train(key, start=weights), jax.random.key(0))
    about = json.loads((folder / "policy.json").read_text())
    assert about["batch"] == 3 and about["files"]["sampled"] is None
    action = {"type": "box", "shape": [1], "dtype": "float32"}
    assert about["action_space"] == action | {"low": -2.0, "high": 2.0}


def test_what_cannot_be_exported_is_refused(tmp_path, monkeypatch):
    config = tiny_config()
    init = purerl.make_algorithm(config).init
    one = jax.eval_shape(init, jax.random.key(0))
    with pytest.raises(purerl.ConfigError, match="batch must be"):
        purerl.export_policy(config, one, tmp_path, batch=0)
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    with pytest.raises(purerl.ConfigError, match=r"pip install 'purerl\[export\]'"):
        purerl.export_policy(config, one, tmp_path)
    with pytest.raises(purerl.ConfigError, match=r"pip install 'purerl\[onnx\]'"):
        purerl.export_policy(config, one, tmp_path, onnx=True)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("names", "changes"),
    [
        (("cart", "pole", "action_mask"), {"normalize_observations": True}),
        # What only the critic knew is not there where a policy is deployed.
        (("pole", "action_mask"), {"actor_keys": ("pole",)}),
    ],
)
def test_observations_of_several_parts_go_in_as_they_are(names, changes, tmp_path):
    env = boxes.PackedCartPole()
    masked = envs.ActionMask(env, lambda state, params: jnp.stack([state.x > 0, True]))
    config = tiny_config(env=masked, **changes)
    state = agent(config)
    purerl.export_policy(config, state, tmp_path)
    about = json.loads((tmp_path / "policy.json").read_text())
    assert set(about["observation"]) == set(names)
    spaces = about["observation_space"]["spaces"]
    assert spaces["action_mask"] == {"type": "multi_binary", "shape": [2]}
    keys = jax.random.split(jax.random.key(0), BATCH)
    obs, _ = jax.jit(jax.vmap(masked.reset))(keys)
    policy = export.deserialize(bytearray((tmp_path / "policy.stablehlo").read_bytes()))
    found = policy.call({name: obs[name] for name in names})
    np.testing.assert_array_equal(found, purerl.make_policy(config, state)(obs))
    assert np.asarray(found)[np.asarray(obs["action_mask"])[:, 0] == 0].all()
    # The code of the README, without its first lines.
    code = (tmp_path / "README.md").read_text().split("```")[1].removeprefix("python")
    scope = {}
    exec(code.replace('open("', f'open("{tmp_path}/'), scope)
    assert np.shape(scope["action"]) == (8,)


def test_an_export_replaces_an_earlier_one_and_nothing_else(tmp_path):
    config = tiny_config()
    state, own = agent(config), tmp_path / "own"
    purerl.export_policy(config, state, own, sampled=True, batch=1)
    assert (own / "sampled_policy.stablehlo").exists()
    purerl.export_policy(config, state, own, batch=1)
    assert not (own / "sampled_policy.stablehlo").exists()
    with pytest.raises(purerl.ConfigError, match="sampled must be True or False, got"):
        purerl.export_policy(config, state, own, sampled="False")  # type: ignore[arg-type]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "README.md").write_text("mine")
    for given, folder, words in (
        (state, tmp_path / "mine", "has files of something else"),
        (state, tmp_path / "mine" / "README.md", "is a file"),
        ((state,), own, r"such as result\.state"),
    ):
        with pytest.raises(purerl.ConfigError, match=words):
            purerl.export_policy(config, given, folder, batch=1)


# As ONNX

RECURRENT = [name for name in SMALL if name.startswith("recurrent_ppo")]
ONNX = {
    name: CONFIGS[name]
    for name in ("normalised", "images", "dqn", "sac", "sac/memory", *RECURRENT)
} | {
    "several parts": lambda: tiny_config(env=boxes.MIXED),
    "a critic that sees more": lambda: small("recurrent_ppo").replace(
        env=boxes.PACKED, env_kwargs={}, actor_keys=("cart",)
    ),
}
ONNX_SCRIPT = """
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
@pytest.mark.parametrize("name", ONNX)
def test_the_actions_are_the_same_without_jax(name, tmp_path):
    pytest.importorskip("jax2onnx", reason="an extra")
    config = ONNX[name]()
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
    found = found_by(tmp_path, "-c", ONNX_SCRIPT)
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
