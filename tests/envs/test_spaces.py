"""Spaces: membership at the edges, draws, bounds."""

import jax
import numpy as np
import pytest

from purerl.envs.spaces import (
    Box,
    Dict,
    Discrete,
    MultiBinary,
    MultiDiscrete,
    Tuple,
    bounds,
)

KEYS = jax.random.split(jax.random.key(0), 500)


FINITE = [
    (Discrete(3), np.int32, range(3)),
    (Box(0, 3, (2,), np.int8), np.int8, [*np.ndindex(4, 4)]),
    (MultiDiscrete([2, 3]), np.int32, [*np.ndindex(2, 3)]),
    (MultiBinary(2), np.int8, [*np.ndindex(2, 2)]),
]


@pytest.mark.parametrize(("space", "dtype", "members"), FINITE)
def test_finite_spaces_draw_every_member_and_no_other(space, dtype, members):
    draws = np.asarray(jax.vmap(space.sample)(KEYS))
    assert draws.dtype == dtype
    np.testing.assert_array_equal(np.unique(draws, axis=0), members)


def test_box_draws_fill_each_element_range():
    box = Box(np.array([-1.0, 0.0]), np.array([3.0, 0.5]))
    draws = np.asarray(jax.vmap(box.sample)(KEYS))
    assert (draws.min(0) > [-1, 0]).all() and (draws.max(0) < [3, 0.5]).all()
    # Means 1 and 0.25; standard errors 4/sqrt(12 * 500) and an eighth of it.
    np.testing.assert_allclose(draws.mean(0), [1.0, 0.25], atol=0.2)


@pytest.mark.parametrize("big", [np.inf, np.finfo(np.float32).max])
def test_without_bounds_draws_are_normal_or_half_of_it(big):
    """Uniform draws between the largest numbers are 1e38 almost always."""
    box = Box(np.array([-big, 0.0, -1.0, -big]), np.array([big, big, 1.0, np.inf]))
    draws = jax.vmap(box.sample)(KEYS)
    assert jax.vmap(box.contains)(draws).all()
    np.testing.assert_allclose(draws[:, 0].std(), 1.0, atol=0.15)
    assert np.abs(draws).max() < 10 and (draws[:, 1] >= 0).all()
    np.testing.assert_array_equal(box.high, np.float32([big, big, 1.0, np.inf]))


@pytest.mark.parametrize(
    ("low", "high", "dtype"),
    [
        (-(2**31), 2**31 - 1, np.int32),
        (0, 2**32 - 1, np.uint32),
        (-1e30, 1e30, np.float32),
    ],
)
def test_the_widest_boxes_are_filled_too(low, high, dtype):
    """One more than the upper bound, or the width, is no number of the type."""
    box = Box(low, high, (4096,), dtype)
    drawn = box.sample(jax.random.key(0))
    assert box.contains(drawn)
    places = (np.asarray(drawn, np.float64) - low) / (float(high) - low)
    # Six standard errors of the mean of a uniform number.
    np.testing.assert_allclose(places.mean(), 0.5, atol=6 * np.sqrt(1 / 12 / 4096))
    assert places.min() < 0.01
    assert places.max() > 0.99


def test_bounds_stay_concrete_inside_a_trace():
    def traced(x):
        concrete = Box(-1.0, bounds(1.0, 2.0), (2,))
        assert isinstance(concrete.high, np.ndarray)
        return Box(0.0, bounds(x, 1.0), (2,)).high

    np.testing.assert_array_equal(jax.jit(traced)(4.0), [4.0, 1.0])


BOX = Box(np.array([-1.0, 0.0]), np.array([3.0, 0.5]))
NESTED = Dict(
    {"b": Tuple((Discrete(2), MultiBinary((1, 2)))), "a": Box(0.0, 1.0, (2,))}
)
A, B = [0.5, 0.5], (1, [[0, 1]])
MEMBERS = [
    *((Discrete(3), x) for x in (0, 2)),
    *((BOX, np.array(x)) for x in ([-1.0, 0.0], [3.0, 0.5])),
    (MultiDiscrete([2, 3]), np.array([1, 2])),
    *((MultiBinary(2), np.array(x)) for x in ([1, 0], [True, False])),
    (NESTED, {"a": A, "b": B}),
]
OTHERS = [
    *((Discrete(3), x) for x in (3, -1, 1.0, [1])),
    *((BOX, np.array(x)) for x in ([3.01, 0.5], [0.0, 0.6], [0.0], [np.nan, 0.0])),
    (BOX, np.array([0, 0])),  # Integers are another kind.
    *((MultiDiscrete([2, 3]), np.array(x)) for x in ([2, 1], [-1, 1], [1.0, 1.0], [1])),
    *((MultiBinary(2), np.array(x)) for x in ([2, 0], [1.0, 0.0])),
    *((NESTED, {"a": A, "b": b}) for b in ((2, [[0, 1]]), (1,))),
    (NESTED, {"a": A, "b": list(B)}),  # A list is no tuple.
    *((NESTED, x) for x in ({"a": [0.5, 1.5], "b": B}, {"a": A}, A)),
]


@pytest.mark.parametrize(("space", "x"), [*MEMBERS, *OTHERS])
def test_membership(space, x):
    inside = any(space is one and x is other for one, other in MEMBERS)
    assert bool(space.contains(x)) == inside


def test_parts_are_drawn_by_themselves_and_lie_in_their_spaces():
    draws = jax.vmap(NESTED.sample)(KEYS)
    assert list(draws) == ["a", "b"] == list(NESTED.spaces)
    assert jax.vmap(NESTED.contains)(draws).all()
    one, (two, _) = draws["a"][:, 0], draws["b"]
    assert abs(np.corrcoef(one, two)[0, 1]) < 0.15
    assert NESTED.shape == {"a": (2,), "b": ((), (1, 2))}
    assert NESTED["b"][1].bits == 2 and len(NESTED["b"]) == 2


REFUSED = [
    (lambda: Discrete(0), "n must be a whole number of at least 1, got 0"),
    (lambda: Box([0.0, 2.0], 1.0, (2,)), r"greater than high, got \[0., 2.\] and"),
    (lambda: Box(np.nan, 1.0, (2,)), "low is nan, expected a number that float32"),
    (lambda: Box(0, 256, (2,), np.uint8), "high is 256, expected a number that ui"),
    (lambda: Box(-np.inf, 1, (2,), np.int32), "low is -inf, expected a number tha"),
    (lambda: Box(np.zeros(3), 1.0, (2,)), r"low has shape \(3,\)"),
    (lambda: MultiDiscrete([2, 0]), "positive whole numbers"),
    (lambda: MultiDiscrete(np.zeros(0, int)), "positive whole numbers"),
    (lambda: MultiBinary(0), "positive whole number"),
    (lambda: Dict({}), "at least one key"),
]


@pytest.mark.parametrize(("make", "words"), REFUSED)
def test_what_is_no_space_is_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()
