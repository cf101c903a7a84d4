import pytest
from optuna.distributions import (
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

import purerl
from purerl.losses.policy import ClipDrift, DPODrift
from purerl.tuning.api import fresh_seeds
from purerl.tuning.space import Space
from purerl.tuning.study import distributions


def make(axes, **fields):
    return Space(purerl.PPOConfig(**fields), axes)


def test_every_kind_of_axis_has_its_distribution():
    space = make(
        {
            "gamma": purerl.uniform(0.9, 0.99),
            "learning_rate": purerl.loguniform(1e-4, 1e-2),
            "num_epochs": purerl.uniform(1, 8),
            "num_steps": purerl.loguniform(8, 128),
            "hidden_sizes": [(8,), (8, 8)],
            "gae_lambda": purerl.choice([0.9, 0.95]),
        }
    )
    assert distributions(space) == {
        "gamma": FloatDistribution(0.9, 0.99),
        "learning_rate": FloatDistribution(1e-4, 1e-2, log=True),
        "num_epochs": IntDistribution(1, 8),
        "num_steps": IntDistribution(8, 128, log=True),
        "hidden_sizes": CategoricalDistribution(("8", "8-8")),
        "gae_lambda": CategoricalDistribution((0.9, 0.95)),
    }


def test_a_point_has_values_where_the_study_has_labels():
    losses = [ClipDrift(clip_eps=0.1), DPODrift()]
    space = make({"hidden_sizes": [(8,), [8, 8]], "policy_loss": losses})
    names = space.names["policy_loss"]
    point = space.point({"policy_loss": names[1], "hidden_sizes": "8-8"})
    assert point == {"hidden_sizes": (8, 8), "policy_loss": losses[1]}
    config = space.config_at(point)
    assert config.hidden_sizes == (8, 8) and isinstance(config.policy_loss, DPODrift)


def test_the_default_is_found_on_the_axes():
    drifts = ["ClipDrift(clip_eps=0.2)", "ClipDrift(clip_eps=0.3)"]
    axes = {
        "learning_rate": purerl.loguniform(1e-4, 1e-2),
        "hidden_sizes": [(8,), (64, 64)],
        "policy_loss": drifts,
        "critic_learning_rate": [None, 1e-3],
    }
    space = make(axes, hidden_sizes=(64, 64))
    assert space.default_params() == {
        "learning_rate": 2.5e-4,
        "hidden_sizes": "64-64",
        "policy_loss": drifts[0],
        "critic_learning_rate": "None",
    }
    assert space.outside() == []
    assert make({"algorithm": ["ppo", "vpg"]}).default_params() == {"algorithm": "ppo"}


@pytest.mark.parametrize(
    ("axes", "default"),
    [
        ({"learning_rate": purerl.loguniform(1e-3, 1e-2)}, 2.5e-4),
        ({"learning_rate": [1e-3, 1e-2]}, 2.5e-4),
        ({"critic_learning_rate": [1e-4, 1e-3]}, None),
        ({"env_params.gravity": [9.7, 20.0]}, 9.8),
        ({"env_params.max_steps_in_episode": purerl.uniform(100, 499)}, 500),
        ({"hidden_sizes": [(8,)]}, None),
    ],
)
def test_a_default_off_its_axis_is_no_trial_and_is_still_compared(axes, default):
    space = make(axes)
    assert space.default_params() is None and space.outside() == list(axes)
    if default is not None:
        assert space.default_point() == dict.fromkeys(axes, default)


DRAWN = purerl.randomisation.Uniform(0.3, 2)


@pytest.mark.parametrize(
    ("name", "axis", "given", "expected"),
    [
        ("length", purerl.uniform(0.25, 1.0), None, 0.5),
        ("length", purerl.loguniform(0.25, 0.3), 0.3, 0.3),
        ("length", purerl.uniform(1 / 3, 0.4), 1 / 3, 1 / 3),
        ("length", [0.25, 1 / 3], 1 / 3, 1 / 3),
        ("length", [0.25, 0.3], "0.3", 0.3),
        ("length.low", purerl.uniform(0, 1), DRAWN, 0.3),
        ("max_steps_in_episode", purerl.uniform(100, 500), None, 500),
    ],
)
def test_the_default_of_a_parameter_is_the_environments(name, axis, given, expected):
    params = None if given is None else {"length": given}
    space = make({f"env_params.{name}": axis}, env_params=params)
    default = space.default_params()
    assert default == space.default_point() == {f"env_params.{name}": expected}
    assert type(default[f"env_params.{name}"]) is type(expected)
    assert space.outside() == []


@pytest.mark.parametrize(
    ("axes", "words"),
    [
        ({}, "at least one axis"),
        ({"env": ["CartPole-v1"]}, "'env' cannot be tuned"),
        ({"lerning_rate": [1.0]}, "Did you mean 'learning_rate'"),
        ({"gamma": purerl.uniform(0.5, 1.5)}, "between 0 and 1"),
        ({"algorithm": ["ppo", "poo"]}, "poo"),
        ({"algorithm": ["ppo", "dqn"], "gae_lambda": [0.9]}, "gae_lambda"),
    ],
)
def test_what_cannot_be_searched_is_refused(axes, words):
    with pytest.raises(purerl.ConfigError, match=words):
        make(axes)


def test_fresh_seeds_are_seeds_that_were_not_used():
    assert fresh_seeds([0, 3], 2) == (4, 5)
    assert fresh_seeds([2**32 - 1, 0], 3) == (1, 2, 3)
