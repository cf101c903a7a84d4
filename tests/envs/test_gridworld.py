"""Grids and bandits: steps by hand, optimal values in closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import envs
from purerl.envs.gridworld import GridState

UP, RIGHT, DOWN, LEFT = range(4)


def step(env, cell, action, **params):
    """Observation, cell, reward and end of a step from a cell."""
    numbers = env.default_params.replace(**params)
    state = GridState(jnp.int32(0), jnp.array(cell, jnp.int32))
    obs, after, reward, terminated, _ = env.step_env(
        jax.random.key(0), state, jnp.int32(action), numbers
    )
    return int(obs), tuple(after.position.tolist()), float(reward), bool(terminated)


GRID, CLIFF = envs.make("GridWorld-v0"), envs.make("CliffWalking-v0")
BOOK = envs.make("CliffWalking-v0", size=(4, 12), cliff_ends=False)


STEPS = [
    (GRID, (7, 11), UP, (83, (6, 11), 0.0, False)),
    (GRID, (7, 11), LEFT, (94, (7, 10), 0.0, False)),
    (GRID, (7, 11), RIGHT, (95, (7, 11), 0.0, False)),  # against the edge
    (GRID, (7, 11), DOWN, (95, (7, 11), 0.0, False)),
    (GRID, (0, 1), LEFT, (0, (0, 0), 1.0, True)),
    (GRID, (1, 0), UP, (0, (0, 0), 1.0, True)),
    (CLIFF, (3, 0), UP, (22, (2, 0), -1.0, False)),
    (CLIFF, (3, 0), RIGHT, (34, (3, 1), -100.0, True)),
    (CLIFF, (2, 9), DOWN, (42, (3, 9), -100.0, True)),
    (CLIFF, (2, 10), DOWN, (43, (3, 10), 0.0, True)),
    (BOOK, (3, 0), RIGHT, (36, (3, 0), -100.0, False)),
    (BOOK, (2, 11), DOWN, (47, (3, 11), 0.0, True)),
]


@pytest.mark.parametrize(("env", "cell", "action", "expected"), STEPS)
def test_a_step_by_hand(env, cell, action, expected):
    assert step(env, cell, action) == expected


def test_the_optimal_values_of_a_grid_are_powers_of_the_discount():
    values = GRID.optimal_values(0.9).max(1).reshape(8, 12)
    rows, columns = np.mgrid[:8, :12]
    away = rows + columns  # steps to the goal, of which the last one pays 1
    np.testing.assert_allclose(values[away > 0], 0.9 ** (away[away > 0] - 1))


def test_the_optimal_returns_of_the_cliff_are_those_of_the_shortest_path():
    # 12 steps, one free.
    assert CLIFF.optimal_values(1.0)[33].max() == pytest.approx(-11)
    params = BOOK.default_params.replace(goal_reward=-1.0)
    values = BOOK.optimal_values(1.0, params)
    assert values[36].max() == pytest.approx(-13)
    assert values[36, RIGHT] == pytest.approx(-113)  # a fall, and the path after it


def test_options_as_files_have_them_and_a_start_that_follows_the_size():
    arms = envs.make("KArmedBandit-v0", num_arms=3.0)
    assert arms == envs.make("KArmedBandit-v0", num_arms=np.int64(3))
    assert type(arms.num_arms) is int and arms.action_space().n == 3
    small = envs.make("GridWorld-v0", size=[4, 5.0])
    assert (small.size, small.start, small.goal) == ((4, 5), (3, 4), (0, 0))
    assert int(small.reset(jax.random.key(0))[0]) == 19
    assert envs.make("GridWorld-v0") == envs.make("GridWorld-v0", start=(7, 11))


def test_arms_pay_their_value_with_noise_and_walk_if_they_are_told_to():
    env = envs.make("KArmedBandit-v0")
    params = env.default_params
    keys = jax.random.split(jax.random.key(0), 20_000)
    _, state = jax.device_get(jax.jit(jax.vmap(env.reset, (0, None)))(keys, params))
    np.testing.assert_allclose(state.values.mean(0), 0.0, atol=0.03)
    np.testing.assert_allclose(state.values.std(0), 1.0, atol=0.03)
    one = jax.tree.map(lambda x: x[0], state)
    walking = params.replace(walk_std=0.5)
    play = jax.jit(jax.vmap(env.step_env, (0, None, None, None)))
    _, after, reward, ended, _ = play(keys, one, jnp.int32(3), walking)
    assert float(reward.mean()) == pytest.approx(float(one.values[3]), abs=0.03)
    assert float(reward.std()) == pytest.approx(1.0, abs=0.03) and not ended.any()
    moved = np.asarray(after.values) - np.asarray(one.values)
    np.testing.assert_allclose(moved.std(0), 0.5, atol=0.02)
    noise = np.corrcoef(reward, after.values[:, 3])[0, 1]
    assert abs(noise) < 0.03  # the walk is no part of the reward
    _, still, _, _, _ = play(keys[:2], one, jnp.int32(3), params)
    np.testing.assert_array_equal(still.values[1], one.values)
