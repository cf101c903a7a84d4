"""Doors in NumPy equals Doors in JAX, and keeps Gymnasium's rules."""

import sys
from pathlib import Path

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from purerl.envs.doors import Doors, DoorsState

sys.path.insert(0, str(Path(__file__).parents[2] / "experiments" / "studies"))

from doors_numpy import GYMNASIUM_ID, NumpyDoors


def jax_walk(env, limit, agents, goals, actions):
    """Observations, rewards and flags of the JAX environment, without resets."""
    params = env.default_params.replace(max_steps_in_episode=limit)

    def one(agent, goal, actions):
        state = DoorsState(jnp.int32(0), agent, goal)

        def step(state, action):
            key = jax.random.key(0)
            _, _, reward, terminated, truncated, info = env.step(
                key, state, action, params
            )
            done = terminated | truncated
            # The state before a reset: the walk goes on from it, whatever ended.
            _, unreset, _, _, _ = env.step_env(key, state, action, params)
            obs = info["final_observation"]
            return unreset, (obs, reward, terminated, truncated, done)

        first = env._observe(state)
        return first, jax.lax.scan(step, state, actions)[1]

    return jax.device_get(jax.jit(jax.vmap(one))(agents, goals, actions))


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, 60),
        ({"size": (7, 6), "num_doors": 2, "observation": "planes"}, 30),
        ({"size": (6, 9), "num_doors": 1, "observation": "coordinates"}, 1),
    ],
)
def test_every_step_equals_the_jax_environment(options, limit):
    env = NumpyDoors(**options, max_steps_in_episode=limit)
    task = Doors(**options)
    rng = np.random.default_rng(0)
    height, width = task.size
    walks = 24
    columns = rng.integers(0, width, (2, walks))
    agents = np.stack([np.full(walks, height - 1), columns[0]], 1).astype(np.int32)
    goals = np.stack([np.zeros(walks, int), columns[1]], 1).astype(np.int32)
    # Upwards more often, so that doors and goals are reached.
    drawn = rng.choice(5, (walks, limit), p=[0.05, 0.2, 0.05, 0.2, 0.5])
    first, (obs, reward, terminated, truncated, done) = jax_walk(
        task, limit, agents, goals, drawn.astype(np.int32)
    )
    steps = 0
    for i in range(walks):
        seen, info = env.reset(options={"agent": agents[i], "goal": goals[i]})
        np.testing.assert_array_equal(seen, first[i])
        assert seen.dtype == first.dtype and info == {}
        for t in range(limit):
            seen, paid, *flags, info = env.step(drawn[i, t])
            np.testing.assert_array_equal(seen, obs[i, t])
            assert (paid, flags) == (reward[i, t], [terminated[i, t], truncated[i, t]])
            assert seen.dtype == obs.dtype and info == {}
            steps += 1
            if done[i, t]:
                break
        assert not env._running
    if limit == 60:
        assert steps > 500 and terminated.any() and truncated.any()


def test_hand_derived_steps():
    env = NumpyDoors(max_steps_in_episode=2)
    env.reset(options={"agent": (8, 1), "goal": (0, 1)})
    # Above is the wall: a blocked move pays nothing. Then the clock runs out.
    assert env.step(4)[1:4] == (0.0, False, False)
    assert env.step(3)[2:4] == (False, True)
    with pytest.raises(gymnasium.error.ResetNeeded, match="call `reset`"):
        env.step(0)
    # On the last step the goal terminates: the flags are never both true.
    env.reset(options={"agent": (2, 1), "goal": (0, 1)})
    assert env.step(4)[1:4] == (1.0, False, False)
    assert env.step(4)[1:4] == (1.0, True, False)


def test_gymnasium_knows_it_and_its_checker_passes():
    env = gymnasium.make(GYMNASIUM_ID, render_mode="rgb_array")
    check_env(env.unwrapped)
    first, _ = env.reset(seed=3)
    again, _ = env.reset(seed=3)
    np.testing.assert_array_equal(first, again)


def test_starts_are_independent_and_uniform():
    env = NumpyDoors(size=(3, 3), num_doors=1)
    env.reset(seed=0)
    starts = []
    for _ in range(900):
        env.reset()
        starts.append((env._agent[1], env._goal[1]))
    counts = np.zeros((3, 3))
    np.add.at(counts, tuple(np.array(starts).T), 1)
    # Nine pairs, 100 expected of each: the statistic has 8 degrees of freedom, and
    # exceeds 26 with probability 0.001. One shared column would give 1,800.
    assert ((counts - 100) ** 2 / 100).sum() < 26


def test_pictures_equal():
    env = NumpyDoors(render_mode="rgb_array")
    env.reset(options={"agent": (9, 2), "goal": (0, 11)})
    state = DoorsState(jnp.int32(0), jnp.array([9, 2]), jnp.array([0, 11]))
    np.testing.assert_array_equal(env.render(), Doors().render(state))
    assert NumpyDoors().render() is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"agent": (7, 1)}, "no wall, got \\(7, 1\\)"),
        ({"goal": (0, 15)}, "15 x 15 grid"),
        ({"agent": 3}, "row and column"),
        ({"agent": (0.5, 1)}, "row and column"),
        ({"agent": (0, 1), "goal": (0, 1)}, "different cells"),
    ],
)
def test_bad_starts_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        NumpyDoors().reset(options=options)


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="max_steps_in_episode must be 1"):
        NumpyDoors(max_steps_in_episode=0)
    with pytest.raises(ValueError, match="'rgb_array' or None"):
        NumpyDoors(render_mode="human")
    env = NumpyDoors()
    env.reset(seed=0)
    for action in (5, -1, 2.7, 2.0, np.float32(2), True, "2", None, [2], np.array([2])):
        with pytest.raises(gymnasium.error.InvalidAction, match=r"0 \.\. 4, got"):
            env.step(action)
    assert env._time == 0  # nothing of it was played


@pytest.mark.parametrize("action", [4, np.int64(4), np.int8(4), np.array(4)])
def test_integers_of_any_kind_are_actions(action):
    env = NumpyDoors()
    env.reset(options={"agent": (14, 3), "goal": (0, 9)})
    env.step(action)
    assert env._agent == (13, 3)
