"""What settings may be, which of them share a program, and mistakes."""

import jax
import numpy as np
import pytest

import purerl
from purerl import presets, serialise
from purerl.comparison import api
from purerl.comparison.api import (
    CompareOptions,
    enter,
    make_parts,
    planned,
    read_settings,
)
from purerl.config import ConfigError
from purerl.envs.cartpole import CartPole
from purerl.space.axes import read_environments
from tests.comparison.small import CONFIG, DQN, SEEDS, SETTINGS, SLOW, SMALL
from tests.comparison.untrained import evolution
from tests.helpers import slow_but

# A preset per algorithm; the others are tried by `make test-slow`.
QUICK = (
    *("ppo-cartpole", "recurrent-ppo-cartpole", "vpg-cartpole", "dqn-cartpole"),
    *("pqn-minatar", "td3-pendulum", "sac-jaxrl", "mpo-swingup"),
)


def members(settings, config=CONFIG, environments=()):
    """The names of the settings that share programs."""
    return [names(part) for part in parts_of(settings, config, environments)]


def names(part):
    return tuple(entry.setting for entry in part.entries)


def parts_of(settings, config=CONFIG, environments=()):
    """What would be trained, a part for each program."""
    options = {"environments": environments, "seeds": SEEDS}
    return planned(CompareOptions(config, settings, **options))


def test_what_changes_the_same_numbers_is_one_program():
    faster = CONFIG.replace(learning_rate=0.1)
    settings = {
        "own": {},
        "slow": SLOW,
        "wide": {"learning_rate": 1.0, "hidden_sizes": (9,)},
        "whole": faster,  # a whole config is a program of its own
        "DQN": DQN,
        "DQN, slow": DQN.replace(learning_rate=1e-5),
        "DQN, slower": DQN.replace(learning_rate=1e-6),
        "same DQN": {"algorithm": "dqn", "rounds_per_update": 1, "learning_starts": 16},
        "clip": {"policy_loss.clip_eps": 0.1},
        "clip more": {"policy_loss.clip_eps": 0.05},
        "long": {"env_params.length": 1.5},
        "longer": {"env_params.length": 2.0},
    }
    assert members(settings) == [
        ("own",),
        ("slow",),
        ("wide",),
        ("whole",),
        ("DQN",),
        ("DQN, slow",),
        ("DQN, slower",),
        ("same DQN",),
        ("clip", "clip more"),
        ("long", "longer"),
    ]


def test_whole_configs_train_where_the_others_do():
    place = {"env": "Acrobot-v1", "total_timesteps": 320, "name": "short"}
    parts = parts_of(SETTINGS, environments=["CartPole-v1", place])
    configs = [part.bound.config for part in parts if "DQN" in names(part)]
    assert [config.env for config in configs] == ["CartPole-v1", "Acrobot-v1"]
    assert [config.total_timesteps for config in configs] == [640, 320]
    assert {type(config) for config in configs} == {purerl.DQNConfig}
    places = [part.entries[0].environment for part in parts]
    assert places == ["CartPole-v1"] * 3 + ["short"] * 3


def test_what_was_evolved_is_a_setting():
    result = evolution()
    (setting,) = read_settings({"learned": result})
    assert set(setting.values) == {"value_loss"}
    learned = result.parts("loss")
    np.testing.assert_array_equal(
        jax.tree.leaves(setting.values)[0], jax.tree.leaves(learned)[0]
    )


@pytest.mark.parametrize(
    ("settings", "options", "words"),
    [
        ({}, {}, "settings must map at least one name"),
        ({" ": {}}, {}, "' ' is no name"),
        ({"a": 3}, {}, "settings: a: a setting is changes of the config by name"),
        ({"a": "nowhere"}, {}, "settings: a: 'nowhere' is no folder"),
        ({"a": {"value_loss": "no.npz"}}, {}, "cannot read the loss 'no.npz'"),
        ({"a": {"learning_rate": -1}}, {}, "a: at learning_rate=-1: learning_rate mu"),
        ({"a": {"env": "Acrobot-v1"}}, {}, "a: it changes env, but all settings"),
        ({"a": {"num_evaluations": 3}}, {}, "a: it changes num_evaluations, but the"),
        ({"a": DQN.replace(env="Acrobot-v1")}, {}, "config of another task .* env is"),
        (SETTINGS, {"environments": [DQN]}, "by name, and PPOConfigs, got DQN"),
        (SETTINGS, {"baseline": "squared"}, "baseline must be one of slow, fast"),
        (SETTINGS, {"measures": []}, "measures must name each kind once"),
    ],
)
def test_mistakes_are_one_sentence_before_anything_is_trained(
    settings, options, words, monkeypatch
):
    monkeypatch.setattr(api, "stream", lambda *_: pytest.fail("it trained"))
    with pytest.raises(ConfigError, match=words):
        purerl.compare(CONFIG, settings, **SMALL, **options)


def test_an_environment_that_a_whole_config_cannot_take_is_refused():
    with pytest.raises(ConfigError, match="DQN: DQNConfig has no field 'num_ep"):
        members({"DQN": DQN}, environments=[{"num_epochs": 1}])


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"env_params": {"length": 0.7}}, r"None, .* is {'length': 0.7}"),
        ({"env_wrappers": ("FrameStack(2)",)}, r"\[\], .*is \['FrameStack\(2\)'\]"),
        ({"randomise_per": "environment"}, "'episode', .* is 'environment'"),
    ],
)
def test_a_whole_config_that_leaves_out_what_the_others_train_in_is_refused(
    fields, words
):
    (name,) = fields
    sentence = f"a: it is a config of another task .*{name} is {words}"
    with pytest.raises(ConfigError, match=sentence):
        members({"a": DQN}, CONFIG.replace(**fields))
    assert members({"a": DQN.replace(**fields)}, CONFIG.replace(**fields)) == [("a",)]


def test_what_a_whole_config_says_of_its_environment_is_its_own():
    own = DQN.replace(env_params={"length": 0.7})
    assert members({"a": own}) == [("a",)]


@pytest.mark.parametrize("name", slow_but(presets.names(), *QUICK))
def test_a_whole_config_is_trained_as_it_is(name):
    whole = presets.load(name)
    assert isinstance(whole, purerl.algorithms.TrainConfig)
    base = purerl.PPOConfig(
        env=whole.env,
        env_kwargs=whole.env_kwargs,
        total_timesteps=whole.total_timesteps,
        learning_rate=0.1,
        gamma=0.5,
        num_envs=3,
    )
    try:
        expected = purerl.resolve(whole.replace(num_evaluations=0))
    except ImportError:
        pytest.skip("its environment is not installed")
    (setting,) = read_settings({"whole": whole})
    (place,) = read_environments(base.replace(num_evaluations=0), ())
    entered = enter(setting, place)
    assert type(entered.trained) is type(expected)
    assert _plain(entered.trained) == _plain(expected)
    (part,) = make_parts([entered])
    first = jax.tree.map(lambda x: x[0], part.overrides)
    assert _plain(part.bound.at(first)) == _plain(expected)


def _plain(config):
    """A config's values; numbers as a program has them."""

    def rounded(value):
        return float(np.float32(value)) if isinstance(value, float) else value

    values = serialise.to_dict(config)
    return jax.tree.map(rounded, values, is_leaf=lambda x: not isinstance(x, dict))


def test_scores_of_an_environment_object_belong_to_its_name():
    env = CartPole()
    tasks = read_environments(CONFIG, [{"name": n, "env": env} for n in "ab"])
    (setting,) = read_settings({"own": {}})
    assert len({enter(setting, task).id for task in tasks}) == 2
