"""Grids with objects: steps by hand, expected returns in closed form and by playing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import envs
from purerl.envs.object_grid import ObjectGrid, ObjectGridState
from tests.envs.episodes import played

UP, RIGHT, DOWN, LEFT, STAY = range(5)


def grid(**numbers):
    """Three rows and four columns; objects in cells 1 and 6."""
    env = ObjectGrid(size=(3, 4), num_objects=2)
    values = {
        "cells": [1, 6],
        "rewards": [2.0, -0.5],
        "termination_probabilities": [0.0, 1.0],
        "respawn_probabilities": [0.0, 0.0],
        **numbers,
    }
    arrays = {name: jnp.asarray(x) for name, x in values.items()}
    return env, env.default_params.replace(**arrays)


STEPS = [
    (0, RIGHT, [True, True], (1, [False, True], 2.0, False)),
    (0, RIGHT, [False, True], (1, [False, True], 0.0, False)),
    (5, RIGHT, [True, True], (6, [True, False], -0.5, True)),
    (0, UP, [True, True], (0, [True, True], 0.0, False)),  # against the edge
    (3, RIGHT, [True, True], (3, [True, True], 0.0, False)),
    (8, DOWN, [True, True], (8, [True, True], 0.0, False)),
    (4, LEFT, [True, True], (4, [True, True], 0.0, False)),
    (4, DOWN, [True, True], (8, [True, True], 0.0, False)),
    (6, STAY, [True, False], (6, [True, False], 0.0, False)),
    (1, STAY, [True, True], (1, [False, True], 2.0, False)),
]


@pytest.mark.parametrize(("cell", "action", "present", "expected"), STEPS)
def test_a_step_by_hand(cell, action, present, expected):
    env, params = grid()
    state = ObjectGridState(jnp.int32(0), jnp.int32(cell), jnp.array(present))
    obs, after, reward, terminated, _ = env.step_env(
        jax.random.key(0), state, jnp.int32(action), params
    )
    found = (int(after.cell), after.present.tolist(), float(reward), bool(terminated))
    assert found == expected
    assert int(obs) == found[0] + 12 * (found[1][0] + 2 * found[1][1])


def test_objects_respawn_in_the_step_after_they_were_collected():
    env, params = grid(cells=[1, 1], respawn_probabilities=[1.0, 0.0])
    state = ObjectGridState(jnp.int32(0), jnp.int32(0), jnp.array([True, True]))
    seen = []
    for action in (RIGHT, STAY, STAY):
        _, state, reward, *_ = env.step_env(
            jax.random.key(0), state, jnp.int32(action), params
        )
        seen.append((float(reward), state.present.tolist()))
    # Both are in one cell, and the second one never comes back.
    assert seen == [(1.5, [False, False]), (0.0, [True, False]), (2.0, [False, False])]


def test_the_expected_return_in_closed_form():
    # From cell 0 to cell 1, then every second step: five steps collect three times.
    numbers = {"respawn_probabilities": [1.0, 0.0], "max_steps_in_episode": 5}
    env, params = grid(**numbers)
    assert env.expected_return(params) == pytest.approx(3 * 2.0)
    # Each collection ends the episode with probability 1/4: 2 (1 + 3/4 + 9/16).
    ending = params.replace(termination_probabilities=jnp.array([0.25, 1.0]))
    expected = 2.0 * (1 + 0.75 + 0.75**2)
    assert env.expected_return(ending) == pytest.approx(expected)
    # One step of a uniform policy: one action of five collects.
    short = params.replace(max_steps_in_episode=1)
    assert env.expected_return(short, "uniform") == pytest.approx(2.0 / 5)
    # Two cells away, with one step.
    far = short.replace(cells=jnp.array([2, 6]))
    assert env.expected_return(far) == 0.0
    with pytest.raises(ValueError, match=r"policy must be .*got 'best'"):
        env.expected_return(params, "best")


def test_the_expected_return_of_a_uniform_policy_is_what_it_plays():
    env, params = grid(
        termination_probabilities=[0.3, 0.6],
        respawn_probabilities=[0.2, 0.5],
        max_steps_in_episode=12,
    )

    def play(key):
        _, steps = played(env, params, key, 12)
        ends = steps.terminated | steps.truncated
        is_first = jnp.cumsum(ends) - ends == 0
        return jnp.where(is_first, steps.reward, 0.0).sum()

    returns = jax.jit(jax.vmap(play))(jax.random.split(jax.random.key(0), 20_000))
    error = 4 * float(returns.std()) / 20_000**0.5
    expected = env.expected_return(params, "uniform")
    assert float(returns.mean()) == pytest.approx(expected, abs=error)


def test_drawn_tasks_are_within_their_ranges_and_differ():
    env = envs.make("ObjectGrid-v0")
    keys = jax.random.split(jax.random.key(0), 500)
    tasks = jax.device_get(jax.jit(jax.vmap(env.draw_params))(keys))
    places = np.concatenate([tasks.start[:, None], tasks.cells], 1)
    assert all(len(set(row)) == 4 for row in places.tolist())
    assert places.min() == 0 and places.max() == 24
    assert (tasks.rewards[:, 0] > 0).all() and np.abs(tasks.rewards).max() <= 1
    assert (np.asarray(tasks.rewards[:, 1:]) < 0).mean() == pytest.approx(0.5, abs=0.06)
    # Log-uniform: the median is the geometric mean of the ends.
    for values, low, high in (
        (tasks.termination_probabilities, 0.01, 1.0),
        (tasks.respawn_probabilities, 0.001, 0.1),
        (tasks.max_steps_in_episode, 20, 100),
    ):
        assert low <= np.min(values) and np.max(values) <= high
        middle = float(np.log(low * high) / 2)
        assert np.median(np.log(values)) == pytest.approx(middle, abs=0.15)


def test_a_vector_says_where_the_agent_is_and_what_is_there():
    env = ObjectGrid(size=(2, 2), num_objects=1, observation="vector")
    params = env.default_params
    obs, state = env.reset(jax.random.key(0), params)
    np.testing.assert_array_equal(obs, [1, 0, 0, 0, 1])
    obs, *_ = env.step_env(
        jax.random.key(0), state, jnp.int32(DOWN), params.replace(cells=jnp.array([2]))
    )
    np.testing.assert_array_equal(obs, [0, 0, 1, 0, 0])
