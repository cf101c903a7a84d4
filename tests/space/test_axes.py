import json
import math

import jax
import numpy as np
import pytest

import purerl
from purerl.config import TASK_FIELDS, ConfigError
from purerl.losses import ClipDrift, DPODrift
from purerl.randomisation import Uniform
from purerl.space.axes import (
    config_at,
    ends,
    expand,
    for_fields,
    from_dict,
    label,
    labels,
    parse_axis,
    read_axis,
    resolve_point,
    to_dict,
    with_algorithm,
)
from purerl.train import bind
from tests.helpers import tiny_config

INSIDE = {
    "policy_loss": [ClipDrift(0.1), ClipDrift(0.3)],
    "policy_loss.clip_eps": [0.1, 0.2],
}


@pytest.mark.parametrize("name", ["sweep", "plan", "tune", "pbt", "halving"])
def test_an_axis_inside_another_is_refused(name):
    words = r"axes name policy_loss and policy_loss\.clip_eps, which is inside it"
    with pytest.raises(ConfigError, match=words):
        getattr(purerl, name)(tiny_config(), INSIDE)


def test_loguniform_is_even_in_the_logarithm():
    design = expand({"a": purerl.loguniform(1e-5, 1e-1)}, "random", 4_000)
    logs = np.log10([p["a"] for p in design.points])
    counts, _ = np.histogram(logs, bins=4, range=(-5, -1))
    assert (abs(counts - 1_000) < 100).all()  # 3.6 standard deviations


def test_whole_ends_give_whole_numbers_with_both_ends():
    for axis in (purerl.uniform(2, 4), purerl.loguniform(2, 4)):
        values = [p["n"] for p in expand({"n": axis}, "random", 300).points]
        assert {*values} == {2, 3, 4} and {*map(type, values)} == {int}
    # On a logarithmic scale each has its interval.
    points = expand({"n": purerl.loguniform(1, 3)}, "random", 6_000).points
    values = np.array([p["n"] for p in points])
    for number in (1, 2, 3):
        share = math.log((number + 0.5) / (number - 0.5)) / math.log(3.5 / 0.5)
        assert abs((values == number).mean() - share) < 0.02


FRACTIONS = [
    ("env_params.length", {"env_params": {"length": 0.7}}),
    ("critic_learning_rate", {}),
    ("target_kl", {}),
    ("learning_rate.start", {"learning_rate": purerl.schedules.Linear(1, 0)}),
    ("optimiser.b1", {"optimiser": purerl.optimisers.Adam(b1=0)}),
]


@pytest.mark.parametrize(("name", "fields"), FRACTIONS)
def test_a_field_with_a_fraction_draws_fractions_whatever_its_value(name, fields):
    config = purerl.PPOConfig(**fields)
    axes = for_fields(config, {name: purerl.uniform(0, 2)})
    values = [point[name] for point in expand(axes, "random", 6, 0).points]
    plain = expand({name: purerl.uniform(0.0, 2.0)}, "random", 6, 0).points
    assert values == [point[name] for point in plain]
    assert not any(value.is_integer() for value in values)


@pytest.mark.parametrize("name", ["num_envs", "env_params.max_steps_in_episode"])
@pytest.mark.parametrize("params", [None, {"length": 0.7, "max_steps_in_episode": 9}])
def test_a_field_of_whole_numbers_draws_whole_ones(name, params):
    config = purerl.PPOConfig(env_params=params)
    axes = for_fields(config, {name: purerl.uniform(2, 4)})
    points = expand(axes, "random", 30, 0).points
    assert {repr(point[name]) for point in points} == {"2", "3", "4"}


def test_a_list_is_a_choice():
    assert read_axis("a", [1, (2,)]) == purerl.choice([1, (2,)])
    assert ends(purerl.choice([1, 2, 3])) == (1, 2, 3)
    assert ends(purerl.uniform(1, 3)) == (1, 3)


def test_axes_are_read_as_they_were_written():
    axes = {
        "learning_rate": purerl.loguniform(1e-4, 1e-2),
        "num_epochs": purerl.uniform(1, 8),
        "hidden_sizes": purerl.choice([(8,), (8, 8)]),
        "value_loss": purerl.choice(["MSEValueLoss()", "best.npz"]),
        "policy_loss": purerl.choice([ClipDrift(0.1), DPODrift()]),
        "env_params": purerl.choice([{}, {"length": Uniform(0.4, 0.6)}]),
    }
    written = to_dict(axes)
    assert written["hidden_sizes"] == {"kind": "choice", "values": [[8], [8, 8]]}
    assert written["num_epochs"] == {"kind": "uniform", "low": 1, "high": 8}
    again = from_dict(json.loads(json.dumps(written)))
    assert again == axes
    assert json.dumps(to_dict(again)) == json.dumps(written)


def test_labels_tell_values_apart():
    assert label((64, 64)) == "64-64" and label(0.5) == 0.5
    assert label(DPODrift(2.0, 0.6)) == "DPODrift(alpha=2.0, beta=0.6)"
    losses = [purerl.losses.MLPValueLoss.create(jax.random.key(i)) for i in range(2)]
    assert labels(losses) == ["MLPValueLoss#0", "MLPValueLoss#1"]
    names = [f"ClipDrift(clip_eps={eps})" for eps in (0.1, 0.2)]
    assert labels([ClipDrift(0.1), ClipDrift(0.2)]) == names


DESIGNS = [
    # The last axis of a grid is the fastest.
    ("grid", {"a": [1, 2], "b": ["x", "y"]}, (2, 2), "1x 1y 2x 2y"),
    ("grid", {}, (), [()]),
    ("zip", {"a": [1, 1, 2], "b": (3, 4, 3)}, (3,), "13 14 23"),
]


@pytest.mark.parametrize(("design", "axes", "shape", "points"), DESIGNS)
def test_a_grid_combines_and_a_zip_takes_together(design, axes, shape, points):
    made = expand(axes, design)
    assert made.shape == shape
    assert made.dims == (tuple(axes) if design == "grid" else ("point",))
    rows = [tuple(map(str, point.values())) for point in made.points]
    assert rows == [tuple(row) for row in (points.split() if axes else points)]


def test_arrays_are_values_like_any_other():
    drawn = expand({"a": purerl.choice(np.array([[8, 8], [4, 4]]))}, "random", 20)
    assert {p["a"] for p in drawn.points} == {(8, 8), (4, 4)}
    listed = expand({"a": np.array([[8, 8], [4, 4]])})
    assert [p["a"] for p in listed.points] == [(8, 8), (4, 4)]
    whole = purerl.uniform(np.int64(2), np.int64(4))
    assert type(whole.draw(np.random.default_rng(0))) is int


def test_environment_objects_that_are_written_alike_are_refused():
    class Env:
        def reset(self): ...

        def step(self): ...

    for design in ("grid", "zip"):
        with pytest.raises(ConfigError, match="objects that are written alike"):
            expand({"env": [Env(), Env()]}, design)


def test_random_draws_are_the_same_whatever_else_is_drawn():
    few = expand({"a": purerl.uniform(0, 1.0)}, "random", 3, seed=5)
    more = expand(
        {"b": purerl.choice(["x", "y"]), "a": purerl.uniform(0, 1.0)}, "random", 6, 5
    )
    assert [p["a"] for p in few.points] == [p["a"] for p in more.points[:3]]
    other = expand({"a": purerl.uniform(0, 1.0)}, "random", 3, seed=6)
    assert [p["a"] for p in few.points] != [p["a"] for p in other.points]


def test_axes_of_a_random_design_are_independent():
    design = expand(
        {"a": purerl.uniform(0.0, 1.0), "b": purerl.uniform(0.0, 1.0)}, "random", 2_000
    )
    a, b = np.array([list(p.values()) for p in design.points]).T
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.07  # 3 standard errors of 2,000 draws
    assert abs(a.mean() - 0.5) < 0.02


WRITTEN = [
    ("learning-rate=1e-4,3e-4", ("learning_rate", [1e-4, 3e-4])),
    ("gamma=linspace(0.9, 1, 3)", ("gamma", [0.9, 0.95, 1.0])),
    ("num_envs=range(2,9,2)", ("num_envs", [2, 4, 6, 8])),
    ("hidden_sizes=(64,64),(8,)", ("hidden_sizes", [(64, 64), (8,)])),
    ("env=CartPole-v1,Doors-v0", ("env", ["CartPole-v1", "Doors-v0"])),
    ("lr=loguniform(1e-4,1e-2)", ("lr", purerl.loguniform(1e-4, 1e-2))),
    ("a=geomspace(1e-4,1e-2,3)", ("a", pytest.approx([1e-4, 1e-3, 1e-2]))),
    ("a=logspace(-4,-2,3)", ("a", pytest.approx([1e-4, 1e-3, 1e-2]))),
    ("n=choice(4,8)", ("n", purerl.choice([4, 8]))),
    ("n=7", ("n", [7])),
    ("n=Clip(0.1),DPO(2.0, 0.6)", ("n", ["Clip(0.1)", "DPO(2.0, 0.6)"])),
]


@pytest.mark.parametrize(("text", "axis"), WRITTEN)
def test_axes_as_the_command_line_writes_them(text, axis):
    assert parse_axis(text) == axis


BAD = [
    (lambda: purerl.uniform(2, 1), "lower one first, got 2 and 1"),
    (lambda: purerl.loguniform(0, 1), "positive ends, got 0"),
    (lambda: purerl.uniform(0, math.inf), "two finite ends"),
    (lambda: purerl.choice([]), "at least one value"),
    (lambda: expand({"a": [1]}, "all"), "design must be one of grid, zip, random"),
    (lambda: expand({"a": []}), "the axis 'a' has no values"),
    (lambda: expand({"a": [1, 2, 1]}), "the axis 'a' has 1 more than once"),
    (lambda: expand({"a": 3}), r"must be a list of values, got 3; for .* \[3\]"),
    (lambda: expand({"a": {"ppo"}}), r"must be a list of .*{'ppo'}; .* \['ppo'\]"),
    (lambda: expand({"a": "1,ppo"}), r"list of .*'1,ppo'; .* \[1, 'ppo'\]"),
    (lambda: expand({"a": ["1e-3", 0.001]}), "has 0.001 more than once"),
    (lambda: expand({"a": purerl.uniform(0, 1)}), "is a distribution"),
    (lambda: expand({"a": [1, 2], "b": [1]}, "zip"), "equal lengths.*'b': 1"),
    (lambda: expand({"a": [1]}, "random"), "needs num_points"),
    (lambda: expand({"a": [1]}, "random", 0), "num_points must be a positive"),
    (lambda: expand({}, "random", 3), "at least one axis"),
    (lambda: expand({"a": [1]}, "grid", 3), "num_points belongs to a random"),
    (lambda: expand({"a": [1]}, "zip", seed=3), "design_seed belongs to a random"),
    (lambda: parse_axis("learning_rate"), "NAME=VALUES, got 'learning_rate'"),
    (lambda: parse_axis("lr=loguniform(2,1)"), "lower one first"),
    (lambda: parse_axis("lr=geomspace(1e-4)"), "cannot read the axis 'lr=geomsp"),
    (lambda: parse_axis("lr=linspace(0,1,-3)"), "must be non-negative"),
]


@pytest.mark.parametrize(("call", "words"), BAD)
def test_bad_axes_get_a_sentence(call, words):
    with pytest.raises(ConfigError, match=words):
        call()


# Points


def test_another_algorithm_takes_over_what_was_set():
    config = tiny_config(gamma=0.9)
    other = with_algorithm(config, "dqn")
    assert isinstance(other, purerl.DQNConfig)
    assert (other.gamma, other.total_timesteps) == (0.9, 640)
    assert other.hidden_sizes == (8,)
    # What is PPO's default stays DQN's default.
    assert other.num_envs == 2 and other.activation == "relu" != config.activation


@pytest.mark.parametrize("cls", [purerl.PPOConfig, purerl.SACConfig, purerl.DQNConfig])
def test_another_algorithm_has_the_same_task_also_where_it_is_the_default(cls):
    """PPO's default environment is CartPole-v1, and SAC's Pendulum-v1."""
    config = cls(num_envs=cls().num_envs)
    for name in ("ppo", "sac", "plr", "bandit", "tabular"):
        other = with_algorithm(config, name)
        for field in TASK_FIELDS:
            expected = getattr(config, field)
            if (name, field) == ("plr", "env_wrappers"):
                expected = ("RandomLevels",)  # It cannot train without.
            assert getattr(other, field) == expected, (name, field)
    bind(with_algorithm(purerl.PPOConfig(env="Maze-v0", total_timesteps=5e6), "plr"))
    point = config_at(purerl.SACConfig(env="Pendulum-v1"), {"algorithm": "ppo"})
    assert isinstance(point, purerl.PPOConfig) and point.env == "Pendulum-v1"
    assert point.learning_rate == purerl.PPOConfig().learning_rate


def test_a_point_is_a_config():
    point = {"num_envs": 4, "learning_rate": 0.1, "algorithm": "vpg"}
    config, overrides = resolve_point(tiny_config(), point)
    assert isinstance(config, purerl.VPGConfig) and config.num_envs == 4
    assert overrides == {"learning_rate": 0.1}
    assert config_at(tiny_config(), point) == config.replace(learning_rate=0.1)


def test_the_task_of_a_folder_read_without_modules_is_the_config_of_every_point():
    task = purerl.config.TrainConfig(total_timesteps=640)
    assert config_at(task, {"extra_loss.coef": 0.1}) is task
