import numpy as np
import pytest

import purerl
from purerl.space.design import expand


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


def test_a_value_may_come_again_in_a_zip():
    design = expand({"a": [1, 1, 2], "b": [3, 4, 3]}, "zip")
    assert [tuple(p.values()) for p in design.points] == [(1, 3), (1, 4), (2, 3)]


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
    ],
)
def test_bad_designs_get_a_sentence(call, words):
    with pytest.raises(purerl.ConfigError, match=words):
        call()
