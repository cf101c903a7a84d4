import math

import numpy as np
import pytest

import purerl
from purerl.losses import ClipDrift, DPODrift
from purerl.sweeps.axes import expand, parse
from purerl.sweeps.groups import for_fields
from purerl.sweeps.labels import label, labels


def test_a_grid_is_every_combination_the_last_axis_fastest():
    design = expand({"a": [1, 2], "b": ["x", "y", "z"]})
    assert design.shape == (2, 3) and design.dims == ("a", "b")
    assert [tuple(p.values()) for p in design.points] == [
        (1, "x"),
        (1, "y"),
        (1, "z"),
        (2, "x"),
        (2, "y"),
        (2, "z"),
    ]


def test_no_axes_are_one_point():
    assert expand({}).points == ({},) and expand({}).shape == ()


def test_a_zip_takes_the_values_together():
    design = expand({"a": [1, 2], "b": (3, 4)}, "zip")
    assert design.points == ({"a": 1, "b": 3}, {"a": 2, "b": 4})
    assert design.dims == ("point",) and design.shape == (2,)


def test_a_value_may_come_again_in_a_zip_but_no_point():
    design = expand({"a": [1, 1, 2], "b": [3, 4, 3]}, "zip")
    assert [tuple(p.values()) for p in design.points] == [(1, 3), (1, 4), (2, 3)]
    with pytest.raises(purerl.ConfigError, match=r"zip has \(1, 3\) more than once"):
        expand({"a": [1, 1], "b": [3, 3]}, "zip")


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

    one, other = Env(), Env()
    assert len(expand({"env": [one]}).points) == 1
    for design in ("grid", "zip"):
        with pytest.raises(purerl.ConfigError, match="objects that are written alike"):
            expand({"env": [one, other]}, design)


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


def test_loguniform_is_even_in_the_logarithm():
    design = expand({"a": purerl.loguniform(1e-5, 1e-1)}, "random", 4_000)
    logs = np.log10([p["a"] for p in design.points])
    counts, _ = np.histogram(logs, bins=4, range=(-5, -1))
    assert (abs(counts - 1_000) < 100).all()  # 3.6 standard deviations


def test_whole_ends_give_whole_numbers_with_both_ends():
    for axis in (purerl.uniform(2, 4), purerl.loguniform(2, 4)):
        design = expand({"n": axis}, "random", 300)
        values = {p["n"] for p in design.points}
        assert values == {2, 3, 4} and all(type(v) is int for v in values)


def test_fields_with_a_fraction_draw_fractions():
    config = purerl.PPOConfig()
    axes = {
        "entropy_coef": purerl.uniform(0, 1),
        "env_params.length": purerl.loguniform(1, 2),
        "policy_loss.clip_eps": purerl.uniform(0, 1),
        "num_envs": purerl.uniform(2, 4),
        "gamma": [0, 1],
    }
    found = for_fields(config, axes)
    kinds = {
        name: {type(end) for end in axis}
        for name, axis in found.items()
        if name != "gamma"
    }
    assert kinds.pop("num_envs") == {int}
    assert all(kind == {float} for kind in kinds.values())
    assert found == axes  # the ends are what they were


def test_loguniform_over_whole_numbers_gives_each_its_interval():
    design = expand({"n": purerl.loguniform(1, 3)}, "random", 6_000)
    values = np.array([p["n"] for p in design.points])
    total = math.log(3.5 / 0.5)
    for number in (1, 2, 3):
        share = math.log((number + 0.5) / (number - 0.5)) / total
        assert abs((values == number).mean() - share) < 0.02


@pytest.mark.parametrize(
    ("text", "axis"),
    [
        ("learning-rate=1e-4,3e-4", ("learning_rate", [1e-4, 3e-4])),
        ("gamma=linspace(0.9, 1, 3)", ("gamma", [0.9, 0.95, 1.0])),
        ("num_envs=range(2,9,2)", ("num_envs", [2, 4, 6, 8])),
        ("hidden_sizes=(64,64),(8,)", ("hidden_sizes", [(64, 64), (8,)])),
        ("env=CartPole-v1,Doors-v0", ("env", ["CartPole-v1", "Doors-v0"])),
        ("lr=loguniform(1e-4,1e-2)", ("lr", purerl.loguniform(1e-4, 1e-2))),
        ("n=choice(4,8)", ("n", purerl.choice([4, 8]))),
        ("n=7", ("n", [7])),
        (
            "policy_loss=ClipDrift(clip_eps=0.1),DPODrift(alpha=2.0, beta=0.6)",
            (
                "policy_loss",
                ["ClipDrift(clip_eps=0.1)", "DPODrift(alpha=2.0, beta=0.6)"],
            ),
        ),
    ],
)
def test_axes_as_the_command_line_writes_them(text, axis):
    assert parse(text) == axis


def test_geomspace_is_even_in_the_logarithm():
    name, values = parse("learning_rate=geomspace(1e-4,1e-2,3)")
    assert name == "learning_rate"
    np.testing.assert_allclose(values, [1e-4, 1e-3, 1e-2])


@pytest.mark.parametrize("ends", ["-1,1", "0,1", "1,1e999"])
@pytest.mark.filterwarnings("error")
def test_geomspace_needs_ends_of_one_sign_and_says_so_without_a_warning(ends):
    with pytest.raises(purerl.ConfigError, match="two finite ends of one sign"):
        parse(f"learning_rate=geomspace({ends},3)")


def test_labels_tell_values_apart():
    assert label((64, 64)) == "64-64" and label(0.5) == 0.5
    assert label(DPODrift(2.0, 0.6)) == "DPODrift(alpha=2.0, beta=0.6)"
    import jax

    make = purerl.losses.MLPValueLoss.create
    losses = [make(jax.random.key(i)) for i in range(2)]
    assert labels(losses) == ["MLPValueLoss#0", "MLPValueLoss#1"]
    assert labels([ClipDrift(0.1), ClipDrift(0.2)]) == [
        "ClipDrift(clip_eps=0.1)",
        "ClipDrift(clip_eps=0.2)",
    ]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: expand({"a": [1]}, "all"), "design must be one of grid, zip, random"),
        (lambda: expand({"a": []}), "the axis 'a' has no values"),
        (lambda: expand({"a": [1, 2, 1]}), "the axis 'a' has 1 more than once"),
        (lambda: expand({"a": 3}), r"must be a list of values, got 3; for .* \[3\]"),
        (lambda: expand({"a": "ppo"}), "must be a list of values, got 'ppo'"),
        (lambda: expand({"a": purerl.uniform(0, 1)}), "is a distribution"),
        (lambda: expand({"a": [1, 2], "b": [1]}, "zip"), "equal lengths.*'b': 1"),
        (lambda: expand({"a": [1]}, "random"), "needs num_points"),
        (lambda: expand({"a": [1]}, "random", 0), "num_points must be a positive"),
        (lambda: expand({}, "random", 3), "at least one axis"),
        (lambda: expand({"a": [1]}, "grid", 3), "num_points belongs to a random"),
        (lambda: purerl.uniform(2, 1), "lower one first, got 2 and 1"),
        (lambda: purerl.loguniform(0, 1), "positive ends, got 0"),
        (lambda: purerl.uniform(0, math.inf), "two finite ends"),
        (lambda: purerl.choice([]), "at least one value"),
        (lambda: parse("learning_rate"), "NAME=VALUES, got 'learning_rate'"),
        (lambda: parse("lr=linspace(1,2)"), "cannot read the axis 'lr=linspace"),
        (lambda: parse("lr=loguniform(2,1)"), "lower one first"),
    ],
)
def test_bad_axes_get_a_sentence(call, words):
    with pytest.raises(purerl.ConfigError, match=words):
        call()
