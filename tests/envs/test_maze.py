"""Mazes: dynamics and window against NumPy, the shortest way against a queue."""

from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import envs
from purerl.envs.maze import FORWARD, MOVES, TURN_LEFT, TURN_RIGHT, UNREACHABLE

SIZE, VIEW, LIMIT, LEVELS = (5, 6), 3, 40, 24
ENV = envs.Maze(size=SIZE, view=VIEW, max_walls=16)


@pytest.fixture(scope="module")
def levels():
    """Random levels with a leading axis, as arrays of NumPy."""
    params = ENV.default_params.replace(max_steps_in_episode=LIMIT)
    keys = jax.random.split(jax.random.key(3), LEVELS)
    drawn = jax.jit(jax.vmap(ENV.draw_level, (0, None)))(keys, params)
    return jax.tree.map(np.asarray, drawn)


def reference_step(walls, goal, place, direction, action):
    """Where an action leads: rows and columns, nothing else."""
    direction = (direction + {TURN_LEFT: -1, TURN_RIGHT: 1}.get(action, 0)) % 4
    if action == FORWARD:
        row, column = place[0] + MOVES[direction][0], place[1] + MOVES[direction][1]
        inside = 0 <= row < walls.shape[0] and 0 <= column < walls.shape[1]
        if inside and (not walls[row, column] or (row, column) == goal):
            place = (row, column)
    return place, direction


def reference_window(walls, goal, place, direction, view):
    """What is seen: the maze in a border, turned so that the agent looks up."""
    planes = []
    for plane, outside in ((walls, 1.0), (goal, 0.0)):
        padded = np.pad(plane.astype(np.float32), view, constant_values=outside)
        row, column = place[0] + view, place[1] + view
        around = padded[row - view : row + view + 1, column - view : column + view + 1]
        turned = np.rot90(around, k=direction + 1)  # 0 is right, which turns up
        half = view // 2
        planes.append(turned[1 : view + 1, view - half : view + half + 1])
    return np.concatenate([np.stack(planes).reshape(-1), np.eye(4)[direction]])


def free_walls(params):
    """The walls of a level without start and goal."""
    walls = np.asarray(params.walls).copy().reshape(-1)
    walls[[int(params.start), int(params.goal)]] = False
    return walls.reshape(np.shape(params.walls))


def reference_distances(walls, goal):
    """Actions to the goal from every place, by a queue over moves backwards."""
    found = {(direction, *goal): 0 for direction in range(4)}
    places = [(d, r, c) for d in range(4) for r, c in np.argwhere(~walls).tolist()]
    leads = {place: [] for place in places}
    for direction, row, column in places:
        for action in range(3):
            to, looks = reference_step(walls, goal, (row, column), direction, action)
            leads[(looks, *to)].append((direction, row, column))
    queue = deque(found)
    while queue:
        place = queue.popleft()
        for before in leads[place]:
            if before not in found:
                found[before] = found[place] + 1
                queue.append(before)
    table = np.full((4, *walls.shape), UNREACHABLE)
    for place, steps in found.items():
        table[place] = steps
    return table


def test_random_walks_in_random_mazes_are_those_of_numpy(levels):
    actions = np.asarray(
        jax.random.randint(jax.random.key(1), (LEVELS, 2 * LIMIT), 0, 3)
    )

    def play(params, actions):
        first, state = ENV.reset(jax.random.key(0), params)

        def step(state, action):
            _, state, reward, terminated, truncated, info = ENV.step(
                jax.random.key(0), state, action, params
            )
            return state, (info["final_observation"], reward, terminated, truncated)

        return first, jax.lax.scan(step, state, actions)[1]

    first, played = jax.device_get(jax.jit(jax.vmap(play))(levels, actions))
    ends = np.zeros(2, int)
    for i in range(LEVELS):
        params = jax.tree.map(lambda x, i=i: x[i], levels)
        walls = free_walls(params)
        start, goal = (divmod(int(c), SIZE[1]) for c in (params.start, params.goal))
        is_goal = np.zeros(SIZE, bool)
        is_goal[goal] = True
        begin = (start, int(params.start_direction), 0)
        place, direction, time = begin
        seen = reference_window(walls, is_goal, place, direction, VIEW)
        np.testing.assert_array_equal(first[i], seen)
        for t, action in enumerate(actions[i].tolist()):
            place, direction = reference_step(walls, goal, place, direction, action)
            time += 1
            obs, reward, terminated, truncated = (x[i, t] for x in played)
            seen = reference_window(walls, is_goal, place, direction, VIEW)
            np.testing.assert_array_equal(obs, seen)
            assert terminated == (place == goal)
            assert truncated == (time == LIMIT and place != goal)
            earned = 1 - 0.9 * time / LIMIT if place == goal else 0.0
            assert reward == pytest.approx(earned, abs=1e-6)
            ends += [terminated, truncated]
            if terminated or truncated:
                place, direction, time = begin
    assert (ends > 3).all()  # the walks tried both ends of an episode


def test_distances_are_those_of_a_queue(levels):
    found = np.asarray(jax.jit(jax.vmap(ENV.distances))(levels))
    shortest = np.asarray(jax.jit(jax.vmap(ENV.shortest_path))(levels))
    for i in range(LEVELS):
        params = jax.tree.map(lambda x, i=i: x[i], levels)
        start, goal = (divmod(int(c), SIZE[1]) for c in (params.start, params.goal))
        expected = reference_distances(free_walls(params), goal)
        np.testing.assert_array_equal(found[i], expected)
        assert shortest[i] == expected[(int(params.start_direction), *start)]
    assert 0 < (shortest == UNREACHABLE).sum() < LEVELS / 2


@pytest.mark.parametrize("size", [(3, 3), (4, 4), (4, 7), (5, 5), (8, 6)])
@pytest.mark.slow(optimised=False)
def test_the_four_rooms_are_connected(size):
    maze = envs.Maze(size=size, max_walls=1)
    cells = jnp.argwhere(~jnp.asarray(maze.default_params.walls))
    each = jax.vmap(
        lambda cell: maze.default_params.replace(goal=cell[0] * size[1] + cell[1])
    )(cells)
    ways = jax.jit(jax.vmap(maze.shortest_path))(each)
    assert (ways < envs.maze.UNREACHABLE).all()


def test_drawn_levels_have_their_distribution():
    env = envs.Maze()
    params = env.default_params.replace(max_steps_in_episode=77)
    keys = jax.random.split(jax.random.key(0), 2_000)
    drawn = jax.jit(jax.vmap(env.draw_level, (0, None)))(keys, params)
    assert set(np.unique(drawn.max_steps_in_episode)) == {77}
    number = np.asarray(drawn.walls).sum((1, 2))
    assert env.max_walls == 60 and number.min() == 0 and number.max() == 60
    assert number.mean() == pytest.approx(30, abs=4 * 17.6 / 2_000**0.5)
    assert (np.asarray(drawn.start) != np.asarray(drawn.goal)).all()
    flat = np.asarray(drawn.walls).reshape(2_000, -1)
    rows = np.arange(2_000)
    assert not (flat[rows, drawn.start] | flat[rows, drawn.goal]).any()
    for cells, count in ((drawn.start, 169), (drawn.goal, 169)):
        times = np.bincount(cells, minlength=count)
        expected = 2_000 / count  # chi squared of 168 degrees: 168 +- 4 * 18.3
        assert ((times - expected) ** 2 / expected).sum() < 168 + 4 * 18.4
    assert np.bincount(drawn.start_direction, minlength=4).min() > 400
