import numpy as np
import pytest
from optuna.distributions import (
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

import purerl
from purerl.losses.policy import ClipDrift, DPODrift
from purerl.tuning import samplers
from purerl.tuning.api import fresh_seeds
from purerl.tuning.space import Space


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
    assert samplers.distributions(space) == {
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


def test_an_optimiser_is_a_choice_of_a_study_and_of_its_pictures():
    adam, sgd = purerl.optimisers.Adam(), purerl.optimisers.SGD(0.9)
    rates = purerl.loguniform(1e-4, 1e-1)
    space = make({"optimiser": [adam, sgd], "learning_rate": rates}, optimiser=adam)
    names = space.names["optimiser"]
    distribution = samplers.distributions(space)["optimiser"]
    assert distribution == CategoricalDistribution(tuple(names))
    # What the database holds is text, and comes back as the optimiser.
    point = space.point({"optimiser": names[1], "learning_rate": 0.02})
    assert point == {"optimiser": sgd, "learning_rate": 0.02}
    assert "SGD" in names[1] and space.drawn()["optimiser"].names == list(names)
    default = space.default_params()
    assert default is not None and default["optimiser"] == names[0]


def test_the_default_is_found_on_the_axes():
    axes = {
        "learning_rate": purerl.loguniform(1e-4, 1e-2),
        "num_epochs": purerl.uniform(1, 8),
        "hidden_sizes": [(8,), (64, 64)],
        "policy_loss": ["ClipDrift(clip_eps=0.2)", "DPODrift(alpha=2.0, beta=0.6)"],
        "algorithm": ["ppo", "vpg"],
    }
    del axes["policy_loss"], axes["num_epochs"]
    space = make(axes, hidden_sizes=(64, 64))
    assert space.default_params() == {
        "learning_rate": 2.5e-4,
        "hidden_sizes": "64-64",
        "algorithm": "ppo",
    }
    space = make(
        {"policy_loss": ["ClipDrift(clip_eps=0.2)", "ClipDrift(clip_eps=0.3)"]}
    )
    assert space.default_params() == {"policy_loss": "ClipDrift(clip_eps=0.2)"}


@pytest.mark.parametrize(
    "axes",
    [
        {"learning_rate": purerl.loguniform(1e-3, 1e-2)},
        {"learning_rate": [1e-3, 1e-2]},
        {"env_params.gravity": [9.7, 20.0]},
        {"env_params.max_steps_in_episode": purerl.uniform(100, 499)},
        {"hidden_sizes": [(8,)]},
    ],
)
def test_a_default_off_its_axis_is_no_trial(axes):
    space = make(axes)
    assert space.default_params() is None and space.outside() == list(axes)


def test_a_default_off_its_axis_is_still_compared():
    space = make({"learning_rate": [1e-3], "env_params.gravity": [9.7]})
    assert space.default_point() == {
        "learning_rate": 2.5e-4,
        "env_params.gravity": 9.8,
    }


@pytest.mark.parametrize(
    ("axis", "given", "expected"),
    [
        (purerl.uniform(0.25, 1.0), None, 0.5),
        (purerl.loguniform(0.25, 0.3), 0.3, 0.3),
        (purerl.uniform(0.3, 0.4), 0.3, 0.3),
        (purerl.uniform(1 / 3, 0.4), 1 / 3, 1 / 3),
        ([0.25, 1 / 3], 1 / 3, 1 / 3),
        ([0.25, 0.5], None, 0.5),
        ([0.25, 0.3], "0.3", 0.3),
    ],
)
def test_the_default_of_a_parameter_is_the_environments(axis, given, expected):
    params = None if given is None else {"length": given}
    space = make({"env_params.length": axis}, env_params=params)
    assert space.default_params() == {"env_params.length": expected}
    assert space.default_point() == {"env_params.length": expected}
    assert space.outside() == []


def test_the_default_of_a_parameter_of_whole_numbers_is_whole():
    axes = {"env_params.max_steps_in_episode": purerl.uniform(100, 500)}
    default = make(axes).default_params()
    assert repr(default) == "{'env_params.max_steps_in_episode': 500}"


def test_the_default_of_a_range_is_its_end():
    axes = {"env_params.length.low": purerl.uniform(0, 1)}
    space = make(axes, env_params={"length": purerl.randomisation.Uniform(0.3, 2)})
    assert space.default_params() == {"env_params.length.low": 0.3}


@pytest.mark.parametrize(
    ("axes", "words"),
    [
        ({}, "at least one axis"),
        ({"env": ["CartPole-v1"]}, "'env' cannot be tuned"),
        ({"total_timesteps": [100]}, "'total_timesteps' cannot be tuned"),
        ({"lerning_rate": [1.0]}, "Did you mean 'learning_rate'"),
        ({"learning_rate": [-1.0]}, "greater than 0"),
        ({"gamma": purerl.uniform(0.5, 1.5)}, "between 0 and 1"),
        ({"gamma": []}, "has no values"),
        ({"gamma": 0.9}, "must be a list"),
        ({"gamma": [0.9, 0.9]}, "more than once"),
        ({"num_steps": purerl.uniform(1.5, 3.5)}, "whole number"),
        ({"algorithm": ["ppo", "poo"]}, "poo"),
        ({"algorithm": ["ppo", "dqn"], "gae_lambda": [0.9]}, "gae_lambda"),
    ],
)
def test_what_cannot_be_searched_is_refused(axes, words):
    with pytest.raises(purerl.ConfigError, match=words):
        make(axes)


def test_units_of_cma_es_cover_the_axis():
    axis = IntDistribution(3, 5)
    drawn = [samplers._from_unit(x, axis) for x in np.linspace(0, 1, 301)]
    assert np.unique(drawn, return_counts=True)[1].tolist() == [100, 101, 100]
    log = FloatDistribution(1e-4, 1e-2, log=True)
    assert samplers._from_unit(0.5, log) == pytest.approx(1e-3)
    for value in (1e-4, 3e-3, 1e-2):
        back = samplers._from_unit(samplers._to_unit(value, log), log)
        assert back == pytest.approx(value)


def test_a_default_of_none_is_a_value_of_an_axis():
    space = make({"critic_learning_rate": [None, 1e-3]})
    assert space.default_params() == {"critic_learning_rate": "None"}
    assert space.outside() == []
    assert make({"critic_learning_rate": [1e-4, 1e-3]}).outside() == [
        "critic_learning_rate"
    ]


def test_fresh_seeds_are_seeds_that_were_not_used():
    assert fresh_seeds([0, 3], 2) == (4, 5)
    assert fresh_seeds([2**32 - 1, 0], 3) == (1, 2, 3)
