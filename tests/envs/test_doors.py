"""Doors: rules derived by hand, the optimum against a search."""

from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl.envs.doors import Doors, DoorsParams, DoorsState

STAY, RIGHT, DOWN, LEFT, UP = range(5)
KEY = jax.random.key(0)


def _state(agent, goal, time=0):
    as_int = lambda pair: jnp.asarray(pair, jnp.int32)  # noqa: E731 - local shorthand
    return DoorsState(jnp.int32(time), as_int(agent), as_int(goal))


def _step(env, agent, goal, action, time=0, params=None):
    params = env.default_params if params is None else params
    return env.step_env(KEY, _state(agent, goal, time), jnp.int32(action), params)


def _search(env, agent, goal):
    """Steps from the agent to every free cell, by breadth-first search."""
    height, width = env.size
    bare = Doors(env.size, env.num_doors)
    grid = np.asarray(bare._observe(_state(agent, goal))).reshape(env.size)
    steps, queue = {agent: 0}, deque([agent])
    while queue:
        row, column = cell = queue.popleft()
        if cell == goal:
            continue
        for change in ((0, 1), (1, 0), (0, -1), (-1, 0)):
            near = (row + change[0], column + change[1])
            inside = 0 <= near[0] < height and 0 <= near[1] < width
            if inside and near not in steps and grid[near] != 2:
                steps[near] = steps[cell] + 1
                queue.append(near)
    return steps


def test_the_published_optimum():
    optimum = Doors().optimum()
    assert round(optimum.episode_return.mean(), 2) == 15.21
    assert round(optimum.length.mean(), 2) == 19.60
    assert optimum.length.max() == 28  # The default limit costs nothing.
    # 60/225 = 27 % and 13/225 = 6 % are solved in so many steps in the original.
    assert [(optimum.length <= limit).sum() for limit in (17, 15)] == [60, 13]


@pytest.mark.parametrize(
    ("size", "num_doors"), [((15, 15), 3), ((7, 6), 2), ((6, 9), 1), ((3, 2), 1)]
)
def test_optimum_equals_a_search(size, num_doors):
    env = Doors(size, num_doors)
    optimum = env.optimum()
    columns = range(0, size[1], 3) if size[0] == 15 else range(size[1])
    for a in columns:
        for g in columns:
            steps = _search(env, (size[0] - 1, a), (0, g))
            assert optimum.length[a, g] == steps[0, g]
            best = np.hypot(size[0] - 1, a - g)
            assert optimum.episode_return[a, g] == pytest.approx(best)


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
    ("agent", "action"),
    [
        ((8, 1), UP),  # Wall above.
        ((6, 4), DOWN),  # Wall below.
        ((7, 5), RIGHT),  # Wall beside a door.
        ((7, 5), LEFT),
        ((14, 3), DOWN),  # Edges.
        ((9, 0), LEFT),
        ((9, 14), RIGHT),
        ((0, 3), UP),
        ((9, 9), STAY),
    ],
)
def test_a_blocked_move_pays_nothing_and_goes_nowhere(agent, action):
    """The original paid the progress that the blocked move would have made."""
    _, state, reward, terminated, _ = _step(Doors(), agent, (0, 8), action)
    assert tuple(np.asarray(state.agent)) == agent
    assert reward == 0.0 and not terminated and state.time == 1


@pytest.mark.parametrize(
    ("action", "to"), [(RIGHT, (9, 6)), (DOWN, (10, 5)), (LEFT, (9, 4)), (UP, (8, 5))]
)
def test_moves_and_their_reward(action, to):
    twice = DoorsParams(60, 2.0)
    _, state, reward, _, _ = _step(Doors(), (9, 5), (0, 8), action, params=twice)
    assert tuple(np.asarray(state.agent)) == to
    progress = np.hypot(9, 3) - np.hypot(to[0], to[1] - 8)
    assert float(reward) == pytest.approx(2 * progress, abs=1e-5)


@pytest.mark.parametrize(("start", "end"), [((8, 5), (7, 5)), ((7, 10), (6, 10))])
def test_a_door_lets_through(start, end):
    _, state, _, _, _ = _step(Doors(), start, (0, 8), UP)
    assert tuple(np.asarray(state.agent)) == end


def test_the_goal_terminates_even_on_the_last_step():
    env = Doors()
    out = env.step(KEY, _state((0, 7), (0, 8), time=59), jnp.int32(RIGHT))
    _, state, reward, terminated, truncated, info = out
    assert terminated and not truncated and state.time == 0
    assert float(reward) == pytest.approx(1.0)
    final = np.asarray(info["final_observation"]).reshape(15, 15)
    assert final[0, 8] == 1  # The agent stands on the goal and hides it.
    assert 3 not in final


def test_the_shortest_path_earns_the_optimum():
    """From (14, 2) to (0, 13): right to the door at 5, up, right. 14 + 3 + 8 moves."""
    env = Doors()
    state, total = _state((14, 2), (0, 13)), 0.0
    moves = [RIGHT] * 3 + [UP] * 14 + [RIGHT] * 8
    assert len(moves) == env.optimum().length[2, 13]
    for i, move in enumerate(moves):
        _, state, reward, terminated, _ = env.step_env(
            KEY, state, jnp.int32(move), env.default_params
        )
        total += float(reward)
        assert bool(terminated) == (i == len(moves) - 1)
    assert total == pytest.approx(env.optimum().episode_return[2, 13], abs=1e-4)
    assert total == pytest.approx(np.hypot(14, 11), abs=1e-4)


def test_observation_kinds_show_the_same_grid():
    # 5 x 4, two doors at columns 0 and 2 (5 // 2 = 2), agent (3, 1), goal (0, 3).
    grid = np.array(
        [[0, 0, 0, 3], [0, 0, 0, 0], [0, 2, 0, 2], [0, 1, 0, 0], [0, 0, 0, 0]]
    )
    state = _state((3, 1), (0, 3))
    seen = {
        kind: np.asarray(Doors((5, 4), 2, kind)._observe(state))
        for kind in ("cells", "planes", "coordinates")
    }
    np.testing.assert_array_equal(seen["cells"], grid.reshape(-1))
    np.testing.assert_array_equal(seen["planes"].argmax(-1)[grid > 0], [2, 1, 1, 0])
    np.testing.assert_array_equal(seen["planes"].sum(-1), grid > 0)
    np.testing.assert_allclose(seen["coordinates"], [3 / 4, 1 / 3, 0, 1], rtol=1e-6)


@pytest.mark.parametrize(
    ("size", "num_doors", "columns"),
    [
        ((15, 15), 3, [0, 5, 10]),
        ((15, 15), 4, [0, 3, 6, 9]),  # The original has a fifth, at 12.
    ],
)
def test_doors_are_as_many_as_asked_for(size, num_doors, columns):
    env = Doors(size, num_doors)
    np.testing.assert_array_equal(env.doors, columns)
    _, state = env.reset(KEY)
    wall = np.asarray(env._observe(state)).reshape(size)[size[0] // 2]
    np.testing.assert_array_equal(np.flatnonzero(wall == 0), columns)
