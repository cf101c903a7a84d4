"""Spaces: membership at the edges, draws, bounds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from envs.spaces import Box, Discrete, bounds

KEYS = jax.random.split(jax.random.key(0), 500)


def test_discrete_draws_every_member_and_no_other():
    draws = jax.vmap(Discrete(3).sample)(KEYS)
    assert draws.dtype == jnp.int32
    assert set(np.asarray(draws).tolist()) == {0, 1, 2}


@pytest.mark.parametrize(
    ("x", "inside"),
    [(0, True), (2, True), (3, False), (-1, False), (1.0, False), ([1], False)],
)
def test_discrete_membership(x, inside):
    assert bool(Discrete(3).contains(x)) == inside


@pytest.mark.parametrize(
    ("x", "inside"),
    [
        ([-1.0, 0.0], True),
        ([3.0, 0.5], True),
        ([3.01, 0.5], False),
        ([0.0, 0.6], False),
        ([0.0], False),
        ([0, 0], False),  # Integers are another kind.
        ([np.nan, 0.0], False),
    ],
)
def test_box_membership(x, inside):
    box = Box(np.array([-1.0, 0.0]), np.array([3.0, 0.5]))
    assert bool(box.contains(np.array(x))) == inside


def test_box_draws_fill_each_element_range():
    box = Box(np.array([-1.0, 0.0]), np.array([3.0, 0.5]))
    draws = np.asarray(jax.vmap(box.sample)(KEYS))
    assert (draws.min(0) > [-1, 0]).all() and (draws.max(0) < [3, 0.5]).all()
    # Means 1 and 0.25; standard errors 4/sqrt(12 * 500) and an eighth of it.
    np.testing.assert_allclose(draws.mean(0), [1.0, 0.25], atol=0.2)


def test_unbounded_and_half_bounded_draws_are_finite_members():
    box = Box(np.array([-np.inf, 0.0, -1.0]), np.array([np.inf, np.inf, 1.0]))
    draws = jax.vmap(box.sample)(KEYS)
    assert jnp.isfinite(draws).all() and jax.vmap(box.contains)(draws).all()
    assert 0.85 < float(draws[:, 0].std()) < 1.15  # Normal.


def test_integer_box_reaches_both_ends():
    box = Box(0, 3, (2,), np.int8)
    draws = jax.vmap(box.sample)(KEYS)
    assert draws.dtype == jnp.int8
    assert set(np.asarray(draws).ravel().tolist()) == {0, 1, 2, 3}
    assert jax.vmap(box.contains)(draws).all()


def test_bounds_stay_concrete_inside_a_trace():
    def traced(x):
        concrete = Box(-1.0, bounds(1.0, 2.0), (2,))
        assert isinstance(concrete.high, np.ndarray)
        return Box(0.0, bounds(x, 1.0), (2,)).high

    np.testing.assert_array_equal(jax.jit(traced)(4.0), [4.0, 1.0])


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Discrete(0), "n must be at least 1, got 0"),
        (lambda: Box(np.zeros(3), 1.0, (2,)), r"low has shape \(3,\)"),
        (lambda: Box(0.0, np.zeros(3), (2,)), r"high has shape \(3,\)"),
    ],
)
def test_bad_spaces(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()
