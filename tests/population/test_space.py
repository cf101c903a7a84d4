import math

import numpy as np
import pytest

import purerl
from purerl.population.space import Space, perturb
from purerl.space.axes import Choice, LogUniform, Uniform, expand
from tests.helpers import ordered


@pytest.mark.parametrize(
    ("axis", "value", "factor", "expected"),
    [
        (LogUniform(1e-4, 1e-2), 1e-3, 1.25, 1.25e-3),
        (LogUniform(1e-4, 1e-2), 1e-3, 0.8, 8e-4),
        (LogUniform(1e-4, 1e-2), 9e-3, 1.25, 1e-2),  # cut at the end
        (LogUniform(1e-4, 1e-2), 1.1e-4, 0.8, 1e-4),
        (Uniform(0.0, 1.0), 0.5, 1.25, 0.5 + math.log(1.25) / 2),
        (Uniform(-1.0, 1.0), 0.1, 0.8, 0.1 - math.log(1.25)),  # crosses zero
        (Uniform(0.0, 1.0), 0.95, 1.25, 1.0),
        (LogUniform(1, 64), 8.0, 1.25, 10.0),
        (LogUniform(1, 64), 2.0, 1.25, 3.0),  # 2.5 rounds to 2: by one at least
        (LogUniform(1, 64), 1.0, 0.8, 1.0),
        (Uniform(0, 10), 5.0, 0.8, 4.0),
        (Choice((1, 5, 9)), 0.0, 1.25, 1.0),
        (Choice((1, 5, 9)), 2.0, 0.8, 1.0),
        (Choice((1, 5, 9)), 2.0, 1.25, 1.0),  # turns back at the end
        (Choice((1, 5, 9)), 0.0, 0.8, 1.0),
        (Choice((7,)), 0.0, 1.25, 0.0),
    ],
)
def test_a_step_is_what_its_docstring_says(axis, value, factor, expected):
    assert perturb(axis, value, factor) == pytest.approx(expected, rel=1e-12)


def test_explored_values_stay_in_bounds_and_are_resampled_as_often_as_asked(tiny):
    axes = {
        "learning_rate": purerl.loguniform(1e-4, 1e-3),
        "gamma": purerl.uniform(0.9, 0.99),
        "entropy_coef": [0.0, 0.01, 0.1],
    }
    space, resampled = Space(tiny, axes), 0
    hyper = middle = {"learning_rate": 3e-4, "gamma": 0.95, "entropy_coef": 1.0}
    steps = {perturb(space.axes["learning_rate"], 3e-4, f) for f in (0.8, 1.25)}
    for number in range(400):
        hyper = space.explore(hyper, (0, number), (0.8, 1.25), 0.5)
        assert 1e-4 <= hyper["learning_rate"] <= 1e-3
        assert 0.9 <= hyper["gamma"] <= 0.99
        assert hyper["entropy_coef"] in (0.0, 1.0, 2.0)
        moved = space.explore(middle, (1, number), (0.8, 1.25), 0.5)
        resampled += moved["learning_rate"] not in steps
    assert 160 < resampled < 240  # 200 +- 4 standard deviations of 10


def test_without_resampling_every_value_moves_one_step(tiny, axes):
    space, factors = Space(tiny, axes), (0.8, 1.25)
    hyper = {"learning_rate": 1e-3, "gamma": 0.95, "entropy_coef": 1.0}
    moved = [space.explore(hyper, (number,), factors, 0.0) for number in range(40)]
    for name, axis in space.axes.items():
        reached = {perturb(axis, hyper[name], factor) for factor in factors}
        assert {one[name] for one in moved} == reached
    assert len({tuple(one.values()) for one in moved}) == 8  # each axis by itself


def test_an_axis_more_leaves_the_draws_of_the_others_as_they_are(tiny, axes):
    some = {name: axes[name] for name in ("learning_rate", "gamma")}
    one, two = Space(tiny, axes), Space(tiny, some)
    a, b = one.draws(5, [7]), two.draws(5, [7])
    np.testing.assert_array_equal(a["gamma"], b["gamma"])
    hyper = {"learning_rate": 1e-3, "gamma": 0.95, "entropy_coef": 1.0}
    moved = one.explore(hyper, (1, 2), (0.8, 1.25), 0.5)
    other = two.explore(hyper, (1, 2), (0.8, 1.25), 0.5)
    assert moved["gamma"] == other["gamma"]


def test_the_first_points_are_those_of_a_random_sweep(tiny, axes):
    space = Space(tiny, axes)
    points = expand(axes, "random", 6, 4).points
    drawn = space.draws(6, [4])
    for number, point in enumerate(points):
        mine = {name: values[number] for name, values in drawn.items()}
        assert space.values(mine) == point


def test_overrides_are_the_values_in_the_programs_type(tiny):
    axes = {
        "policy_loss": ["ClipDrift(clip_eps=0.1)", "ClipDrift(clip_eps=0.3)"],
        "learning_rate": purerl.loguniform(1e-4, 1e-2),
    }
    space = Space(tiny, axes)
    hyper = {
        "policy_loss": np.array([1.0, 0.0, 1.0]),
        "learning_rate": np.array([1e-3, 2e-3, 3e-3]),
    }
    overrides = space.overrides(hyper)
    np.testing.assert_array_equal(
        overrides["policy_loss"].clip_eps, np.float32([0.3, 0.1, 0.3])
    )
    assert overrides["learning_rate"].dtype == np.float32
    point = space.values({"policy_loss": 1.0, "learning_rate": 2e-3})
    config = space.config_at(point)
    assert config.policy_loss.clip_eps == 0.3 and config.learning_rate == 2e-3
    np.testing.assert_array_equal(
        space.labelled("policy_loss", np.array([0.0, 1.0])),
        ["ClipDrift(clip_eps=0.1)", "ClipDrift(clip_eps=0.3)"],
    )


@pytest.mark.parametrize(
    ("axes", "words"),
    [
        ({}, "at least one axis"),
        ({"hidden_sizes": [(8,), (16,)]}, "'hidden_sizes' is static"),
        ({"algorithm": ["ppo", "dqn"]}, "'algorithm' is static"),
        ({"learning_rat": [1e-3]}, "Did you mean 'learning_rate'"),
        ({"gamma": purerl.uniform(0.9, 1.2)}, "gamma must lie between 0 and 1"),
        ({"policy_loss": ["ClipDrift()", "DPODrift()"]}, "differ in structure"),
        ({"gamma": [0.9, 0.9]}, "more than once"),
    ],
)
def test_what_cannot_be_searched_is_refused_in_a_sentence(tiny, axes, words):
    with pytest.raises(purerl.ConfigError, match=words.replace("(", r"\(")):
        Space(tiny, axes)


def test_numbers_that_are_wrong_together_are_neither_drawn_nor_moved_to(monkeypatch):
    config = ordered(monkeypatch, entropy_coef=0.1, gamma=0.1)
    axes = {"entropy_coef": purerl.uniform(0.4, 0.6), "gamma": purerl.uniform(0.4, 0.6)}
    space, up = Space(config, axes), (2.0, 2.0)
    with pytest.raises(purerl.ConfigError, match=r"at entropy_coef=0.5.*must be small"):
        space.draws(64, [0])
    moved = space.explore({"entropy_coef": 0.41, "gamma": 0.41}, (0,), up, 0.0)
    assert moved == pytest.approx(dict.fromkeys(axes, 0.41 + np.log(2) * 0.1))
    held = {"entropy_coef": 0.45, "gamma": 0.52}
    assert space.explore(held, (0,), up, 0.0) == held
