"""Modules of the user's own in configs: read, written, refused in one sentence."""

import json
import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl import networks, serialise
from purerl.algorithms import sac
from purerl.cli import flags
from purerl.cli.train import parser
from purerl.config import ConfigError
from purerl.networks import modules
from purerl.space.axes import choice, from_dict, labels, to_dict
from purerl.train import bind
from tests import nets
from tests.contracts.test_algorithms import small
from tests.helpers import tiny_config

NESTED = nn.Sequential(
    [nn.Dense(4, dtype=jnp.bfloat16), nn.relu, nets.Torso(3), nets.Policy(2)]
)
WAYS = {
    "object": nets.Torso(4),
    "text": "tests.nets:Torso(features=4)",
    "mapping": {"type": "tests.nets:Torso", "features": 4},
}


@pytest.mark.parametrize("given", WAYS.values(), ids=WAYS)
def test_a_module_is_the_same_however_it_is_given(given):
    config = tiny_config(torso=given)
    assert config.torso == nets.Torso(4)
    assert hash(config.torso) == hash(nets.Torso(4))
    written = serialise.to_dict(config)["torso"]
    assert written == {"type": "tests.nets:Torso", "features": 4}
    assert modules.text(config.torso) == "tests.nets:Torso(features=4)"


@pytest.mark.parametrize(
    "module",
    [NESTED, nets.Policy(), networks.Impala((4, 4), 1), nets.Torso(2, jnp.tanh)],
)
def test_a_config_with_a_module_comes_back_from_its_file(module, tmp_path):
    config = tiny_config(torso=module, critic="mlp")
    serialise.to_yaml(config, tmp_path / "config.yaml")
    again = serialise.from_yaml(tmp_path / "config.yaml")
    assert again.torso == config.torso
    assert serialise.to_dict(again) == serialise.to_dict(config)


def test_a_module_is_a_value_of_an_axis():
    values = ["mlp", nets.Torso(4), nets.Torso(5)]
    axes = {"torso": choice(values)}
    again = from_dict(json.loads(json.dumps(to_dict(axes))))
    assert list(again["torso"].values) == values
    names = [f"tests.nets:Torso(features={number})" for number in (4, 5)]
    assert labels(values) == ["mlp", *names]


FLAGS = [
    ("torso", "tests.nets:Torso(features=7)", nets.Torso(7)),
    ("torso", "impala", "impala"),
    ("memory", "LRU(features=32)", networks.memories.LRU(features=32)),
    ("memory", "lru(features=32)", networks.memories.LRU(features=32)),
]


@pytest.mark.parametrize(("name", "text", "module"), FLAGS)
def test_the_command_line_keeps_a_module_or_replaces_it(name, text, module):
    base = small("recurrent_ppo", torso=nets.Policy(2))
    for words, expected in (([], getattr(base, name)), ([f"--{name}", text], module)):
        config = flags.read_config(flags.parse(parser(base), words, "train"), base)
        assert getattr(config, name) == expected


UNREADABLE = [
    (nets.Torso, "the class Torso; call it"),
    ("nowhere.nets:Torso", "'nowhere.nets' has not been imported"),
    ("tests.nets:Tors", "cannot find tests.nets:Tors"),
    ("tests.nets:nn", "must name a class of flax modules"),
    ("os:abort", "os:abort, which is of Python's own library"),
    (  # by a detour
        {"type": "flax.linen:Dense", "features": 2}
        | {"dot_general_cls": {"import": "purerl.atomic:os.abort"}},
        "purerl.atomic:os.abort, which is of Python's own library",
    ),
    ("tests.nets:Torso(features", "cannot read 'tests.nets"),
    ("tests.nets:Torso(feature=1)", "Did you mean 'features'"),
    ("tests.nets:Torso(8)", "given 8 without a name"),
    (nets.Holder(np.zeros(2)), "can be hashed"),
]


@pytest.mark.parametrize(("value", "words"), UNREADABLE)
def test_what_is_no_module_is_refused_where_the_config_is_made(value, words):
    with pytest.raises(ConfigError, match=f"torso.*{words}"):
        tiny_config(torso=value)


UNWRITABLE = [
    (nets.local(), "a class that no other program can import"),
    (nets.Holder(lambda x: x), "torso.value is <function <lambda>"),
]


@pytest.mark.parametrize(("module", "fragment"), UNWRITABLE)
def test_what_no_file_can_hold_trains_but_is_not_written(module, fragment):
    config = tiny_config(torso=module)
    assert purerl.resolve(config).torso == module
    with pytest.raises(ConfigError, match=re.escape(fragment)):
        serialise.to_dict(config)


MISFITS = [
    (lambda: tiny_config(torso=nn.relu), "torso must be one of"),
    (lambda: tiny_config(torso=nets.Value()), r"torso .*returned float32 \(3,\)"),
    (lambda: tiny_config(torso=nets.Normalised()), "torso.*with parameters alone"),
    (lambda: tiny_config(torso=nn.Dense(2, dtype=jnp.bfloat16)), "returned bfloat16"),
    (lambda: tiny_config(torso=nets.Policy(layer=nn.Embed(2, 3))), "torso.*failed"),
    (lambda: tiny_config(actor=nets.Policy(3)), r"actor.*logits of 2 actions"),
    (lambda: tiny_config(actor=nets.Policy(1), env="Pendulum-v1"), "actor.*mean and l"),
    (lambda: tiny_config(critic=nets.Column()), r"critic.*returned float32 \(3, 1\)"),
    (lambda: small("dqn", critic=nets.Policy(3)), "critic.*values of 2 actions"),
    (lambda: small("td3", critic=nets.Column()), r"critic.*\(3, 4\) and \(3, 1\)"),
    (lambda: tiny_config(shared_torso=True, critic=nets.Value()), "shared_torso.*crit"),
    (lambda: tiny_config(shared_torso=True, actor="mlp"), "shared_torso needs actor"),
    (lambda: small("dqn", dueling=True, critic=nets.Policy()), "critic must.*duel"),
    (lambda: small("recurrent_ppo", critic="mlp"), "critic must be auto"),
    (lambda: small("recurrent_ppo", shared_torso=True), "shared_torso needs actor"),
    (lambda: tiny_config(torso="nature", env="Breakout-MinAtar"), "torso 'nature'.*10"),
    (lambda: small("recurrent_ppo", memory="rnn"), "memory must be one of"),
]


@pytest.mark.parametrize("name", ["dqn", "pqn"])
def test_a_critic_of_ones_own_with_a_value_for_every_action_is_taken(name):
    critic = nets.Policy(2)
    assert purerl.resolve(small(name, critic=critic)).critic == critic


@pytest.mark.parametrize(("make", "words"), MISFITS)
def test_a_network_that_does_not_fit_is_a_sentence_before_tracing(make, words):
    with pytest.raises(ConfigError, match=words):
        purerl.resolve(make())


def test_a_module_sees_one_batch_axis_and_its_outputs_get_the_others_back(key):
    module = networks.Batched(nets.Torso(5), 2)
    obs = jax.random.normal(key, (4, 3, 2, 6))
    params = jax.jit(module.init)(key, obs[0])
    whole = jax.jit(module.apply)(params, obs)
    assert whole.shape == (4, 3, 5)
    kernel = params["params"]["module"]["Dense_0"]["kernel"]
    expected = jax.nn.relu(obs.reshape(4, 3, 12) @ kernel)
    assert jnp.allclose(whole, expected, atol=1e-6)
    assert jnp.allclose(module.apply(params, obs[1, 2]), expected[1, 2], atol=1e-6)


def test_a_policy_of_ones_own_cannot_leave_the_range_of_its_log_std():
    bound = bind(small("sac", actor=nets.Pair(1)))
    parts = sac.build(bound.config, bound.env)
    params = jax.jit(parts.actor.init)(jax.random.key(0), jnp.zeros((1, 4)))
    params = jax.tree.map(lambda x: jnp.full_like(x, 3.0), params)
    assert jnp.all(jax.jit(parts.actor.apply)(params, jnp.ones((3, 4))).log_std == 2.0)
