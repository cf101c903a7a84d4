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
from tests.helpers import CONTINUOUS_CARTPOLE, tiny_config

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


def test_lists_become_tuples_and_modules_are_copied():
    config = tiny_config(torso=NESTED)
    assert isinstance(config.torso.layers, tuple)
    assert config.torso.layers[2] is not NESTED.layers[2]


def test_an_import_path_survives_what_moves_inside_a_library():
    text = json.dumps(modules.plain(modules.parse("torso", NESTED), "torso"))
    assert "flax.linen:Dense" in text and "flax.linen:relu" in text
    assert "jax._src" not in text and "flax.linen.linear" not in text


def test_a_module_is_a_value_of_an_axis():
    values = ["mlp", nets.Torso(4), nets.Torso(5)]
    axes = {"torso": choice(values)}
    again = from_dict(json.loads(json.dumps(to_dict(axes))))
    assert list(again["torso"].values) == values
    assert labels(values) == [
        "mlp",
        "tests.nets:Torso(features=4)",
        "tests.nets:Torso(features=5)",
    ]


@pytest.mark.parametrize("words", [[], ["--torso", "impala"]], ids=["same", "other"])
def test_the_command_line_keeps_a_module_or_replaces_it(words):
    base = tiny_config(torso=nets.Policy(2), env="CartPole-v1")
    parsed = flags.parse(parser(base), words, "train")
    config = flags.read_config(parsed, base)
    assert config.torso == ("impala" if words else nets.Policy(2))


def test_the_command_line_takes_an_import_path():
    words = ["--torso", "tests.nets:Torso(features=7)", "--critic", "tests.nets:Value"]
    base = tiny_config()
    parsed = flags.parse(parser(base), words, "train")
    config = flags.read_config(parsed, base)
    assert (config.torso, config.critic) == (nets.Torso(7), nets.Value())
    assert purerl.resolve(config).torso == nets.Torso(7)


@pytest.mark.parametrize("text", ["LRU(features=32)", "lru(features=32)"])
def test_a_memory_of_this_package_needs_no_import_path(text):
    words = ["--memory", text]
    base = purerl.RecurrentPPOConfig()
    parsed = flags.parse(parser(base), words, "train")
    config = flags.read_config(parsed, base)
    assert config.memory == networks.memories.LRU(features=32)
    assert config == purerl.RecurrentPPOConfig(memory=text)
    with pytest.raises(ConfigError, match="memory must be one of none, gru, lstm, lru"):
        purerl.make_train(purerl.RecurrentPPOConfig(memory="Elman(features=3)"))


UNREADABLE = {
    "class": (nets.Torso, "got the class Torso; call it to make a module"),
    "nowhere": (
        "nowhere.nets:Torso",
        "the module 'nowhere.nets' has not been imported",
    ),
    "no such class": ("tests.nets:Tors", "cannot find tests.nets:Tors"),
    "no module": ("tests.nets:nn", "must name a class of flax modules, and tests.nets"),
    "of Python": ("os:abort", "names os:abort, which is of Python's own library"),
    "by a detour": (
        {"type": "flax.linen:Dense", "features": 2}
        | {"dot_general_cls": {"import": "purerl.atomic:os.abort"}},
        "names purerl.atomic:os.abort, which is of Python's own library",
    ),
    "text": ("tests.nets:Torso(features", "cannot read 'tests.nets:Torso(features'"),
    "field": ("tests.nets:Torso(feature=1)", "Did you mean 'features'"),
    "no name": ("tests.nets:Torso(8)", "given 8 without a name"),
    "array": (nets.Holder(np.zeros(2)), "whose fields can be hashed"),
}


@pytest.mark.parametrize(("value", "fragment"), UNREADABLE.values(), ids=UNREADABLE)
def test_what_is_no_module_is_refused_where_the_config_is_made(value, fragment):
    with pytest.raises(ConfigError, match=f"torso.*{re.escape(fragment)}"):
        tiny_config(torso=value)


UNWRITABLE = {
    "class in a function": (nets.local(), "a class that no other program can import"),
    "lambda": (nets.Holder(lambda x: x), "torso.value is <function <lambda>"),
}


@pytest.mark.parametrize(("module", "fragment"), UNWRITABLE.values(), ids=UNWRITABLE)
def test_what_no_file_can_hold_trains_but_is_not_written(module, fragment):
    config = tiny_config(torso=module)
    assert purerl.resolve(config).torso == module
    with pytest.raises(ConfigError, match=re.escape(fragment)):
        serialise.to_dict(config)


MISFITS = {
    "a function": (
        lambda: tiny_config(torso=nn.relu),
        ["torso must be one of auto, mlp, cnn, nature, impala, a flax module"],
    ),
    "one number": (
        lambda: tiny_config(torso=nets.Value()),
        ["torso tests.nets:Value", "float32 (3, F)", "returned float32 (3,)"],
    ),
    "statistics": (
        lambda: tiny_config(torso=nets.Normalised()),
        ["tests.nets:Normalised must hold parameters only", "batch_stats"],
    ),
    "parameters": (
        lambda: tiny_config(torso=nn.Dense(2, param_dtype=jnp.bfloat16)),
        ["must have float32 parameters", "bfloat16"],
    ),
    "fails": (
        lambda: tiny_config(torso=nets.Policy(layer=nn.Embed(2, 3))),
        ["torso tests.nets:Policy", "(3, 4)", "it failed on them"],
    ),
    "logits": (
        lambda: tiny_config(actor=nets.Policy(3)),
        ["actor tests.nets:Policy(num=3)", "(3, 2) (logits of 2 actions)", "(3, 3)"],
    ),
    "values": (
        lambda: tiny_config(critic=nets.Column()),
        ["critic tests.nets:Column", "(3,) (one value", "returned float32 (3, 1)"],
    ),
    "action values": (
        lambda: small("dqn", critic=nets.Policy(3)),
        ["critic tests.nets:Policy(num=3)", "values of 2 actions"],
    ),
    "values of actions": (
        lambda: small("td3", critic=nets.Column()),
        ["critic tests.nets:Column", "(3, 4) and (3, 1)", "takes 2 positional"],
    ),
    "shared": (
        lambda: tiny_config(shared_torso=True, critic=nets.Value()),
        ["shared_torso needs critic to be auto", "got tests.nets:Value"],
    ),
    "dueling": (
        lambda: small("dqn", dueling=True, critic=nets.Policy()),
        ["critic must not be", "with dueling", "tests.nets:Policy"],
    ),
    "recurrent torso": (
        lambda: small("recurrent_ppo", critic="mlp"),
        ["critic must be auto or a flax module of memories [N, 4]", "'mlp'"],
    ),
    "small pictures": (
        lambda: tiny_config(torso="nature", env="Breakout-MinAtar"),
        ["torso 'nature' needs observations [height >= 36", "(10, 10, 4)", "use cnn"],
    ),
    "memory": (
        lambda: small("recurrent_ppo", memory="rnn"),
        ["memory must be one of none, gru, lstm"],
    ),
}


@pytest.mark.parametrize(("make", "fragments"), MISFITS.values(), ids=MISFITS)
def test_a_network_that_does_not_fit_is_a_sentence_before_tracing(make, fragments):
    with pytest.raises(ConfigError) as caught:
        purerl.resolve(make())
    for fragment in fragments:
        assert fragment in str(caught.value)
    assert "\n" not in str(caught.value)


FITTING = {
    "ppo": lambda: tiny_config(actor=nets.Policy(2), critic=nets.Value()),
    "ppo of numbers": lambda: tiny_config(
        actor=nets.Pair(1), env=CONTINUOUS_CARTPOLE, torso="mlp"
    ),
    "recurrent": lambda: small("recurrent_ppo", actor=nets.Policy(2), torso=NESTED),
    "td3": lambda: small("td3", actor=nets.Policy(1), critic=nets.Value()),
    "sac": lambda: small("sac", actor=nets.Pair(1), critic=nets.Value()),
    "sac/discrete": lambda: small(
        "sac/discrete", actor=nets.Policy(2), critic=nets.Policy(2)
    ),
    "mpo with a torso": lambda: small("mpo", torso=nets.Torso()),
    "mpo on pictures": lambda: small("mpo", env=nets.CONTINUOUS_PICTURES),
    "td3 on pictures": lambda: small(
        "td3", env=nets.CONTINUOUS_PICTURES, torso="nature", critic=nets.Value()
    ),
    "dqn in bfloat16": lambda: small("dqn", torso_dtype="bfloat16", layer_norm=True),
    "dueling on pictures": lambda: small(
        "dqn", env=nets.PICTURES, torso="impala", dueling=True
    ),
}


@pytest.mark.parametrize("make", FITTING.values(), ids=FITTING)
def test_whole_networks_of_ones_own_make_a_state_and_act(make):
    # Shapes of a whole update alone: nothing is compiled.
    config = make()
    algorithm = purerl.make_algorithm(config)
    state = jax.eval_shape(algorithm.init, jax.random.key(0))
    again, metrics = jax.eval_shape(algorithm.step, state)
    assert jax.tree.map(jnp.shape, again) == jax.tree.map(jnp.shape, state)
    assert "value_loss" in metrics
    critics = state.params.get("critics", {}).get("params", {})
    # Two critics of one module have parameters of their own.
    assert sum(n.endswith("_0") for n in critics) == sum(
        n[-2:] == "_1" for n in critics
    )


def test_a_module_sees_one_batch_axis_and_its_outputs_get_the_others_back(key):
    module = networks.Batched(nets.Torso(5), 2)
    obs = jax.random.normal(key, (4, 3, 2, 6))
    params = module.init(key, obs[0])
    whole = module.apply(params, obs)
    assert whole.shape == (4, 3, 5)
    kernel = params["params"]["module"]["Dense_0"]["kernel"]
    expected = jax.nn.relu(obs.reshape(4, 3, 12) @ kernel)
    assert jnp.allclose(whole, expected, atol=1e-6)
    assert jnp.allclose(module.apply(params, obs[1, 2]), expected[1, 2], atol=1e-6)


def test_a_policy_of_ones_own_cannot_leave_the_range_of_its_log_std():
    bound = bind(small("sac", actor=nets.Pair(1)))
    parts = sac.build(bound.config, bound.env)
    params = parts.actor.init(jax.random.key(0), jnp.zeros((1, 4)))
    params = jax.tree.map(lambda x: jnp.full_like(x, 3.0), params)
    assert jnp.all(parts.actor.apply(params, jnp.ones((3, 4))).log_std == 2.0)
