"""Doors: moves by hand, the published optimum; tests/experiments has it in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl.envs.doors import Doors, DoorsParams, DoorsState

STAY, RIGHT, DOWN, LEFT, UP = range(5)
KEY = jax.random.key(0)


def _state(agent, goal, time=0):
    return DoorsState(*(jnp.asarray(x, jnp.int32) for x in (time, agent, goal)))


def test_the_published_optimum():
    optimum = Doors().optimum()
    assert round(optimum.episode_return.mean(), 2) == 15.21
    assert round(optimum.length.mean(), 2) == 19.60
    assert optimum.length.max() == 28  # The default limit costs nothing.
    # 60/225 = 27 % and 13/225 = 6 % are solved in so many steps in the original.
    assert [(optimum.length <= limit).sum() for limit in (17, 15)] == [60, 13]


@pytest.mark.slow
def test_agent_and_goal_columns_are_independent():
    """The original drew both with one key, so they were always equal."""
    keys = jax.random.split(jax.random.key(1), 9_000)
    _, state = jax.vmap(Doors().reset)(keys)
    a, g = np.asarray(state.agent[:, 1]), np.asarray(state.goal[:, 1])
    counts = np.zeros((15, 15))
    np.add.at(counts, (a, g), 1)
    # 225 pairs, 40 expected each: chi-square with 224 degrees of freedom, mean 224,
    # standard deviation 21; 4 deviations.
    assert ((counts - 40) ** 2 / 40).sum() < 224 + 4 * 21
    assert (state.agent[:, 0] == 14).all() and (state.goal[:, 0] == 0).all()


@pytest.mark.parametrize(
    ("action", "to"), [(RIGHT, (9, 6)), (DOWN, (10, 5)), (LEFT, (9, 4)), (UP, (8, 5))]
)
def test_moves_and_their_reward(action, to):
    before, twice = _state((9, 5), (0, 8)), DoorsParams(60, 2.0)
    _, state, reward, *_ = Doors().step_env(KEY, before, jnp.int32(action), twice)
    assert tuple(np.asarray(state.agent)) == to
    progress = np.hypot(9, 3) - np.hypot(to[0], to[1] - 8)
    assert float(reward) == pytest.approx(2 * progress, abs=1e-5)


def test_the_goal_terminates_even_on_the_last_step():
    env = Doors()
    out = env.step(KEY, _state((0, 7), (0, 8), time=59), jnp.int32(RIGHT))
    _, state, reward, terminated, truncated, info = out
    assert terminated and not truncated and state.time == 0
    assert float(reward) == pytest.approx(1.0)
    final = np.asarray(info["final_observation"]).reshape(15, 15)
    assert final[0, 8] == 1  # The agent stands on the goal and hides it.
    assert 3 not in final


def test_observation_kinds_show_the_same_grid():
    # 5 x 4, two doors at columns 0 and 2 (5 // 2 = 2), agent (3, 1), goal (0, 3).
    grid = np.array(
        [[0, 0, 0, 3], [0, 0, 0, 0], [0, 2, 0, 2], [0, 1, 0, 0], [0, 0, 0, 0]]
    )
    state = _state((3, 1), (0, 3))
    kinds = (Doors((5, 4), 2, kind) for kind in ("cells", "planes"))
    cells, planes = (np.asarray(env._observe(state)) for env in kinds)
    np.testing.assert_array_equal(cells, grid.reshape(-1))
    np.testing.assert_array_equal(planes.argmax(-1)[grid > 0], [2, 1, 1, 0])
    np.testing.assert_array_equal(planes.sum(-1), grid > 0)
