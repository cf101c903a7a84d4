"""Doors in NumPy equals Doors in JAX, and keeps Gymnasium's rules."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from doors_numpy import GYMNASIUM_ID, LIMIT, NumpyDoors
from gymnasium.utils.env_checker import check_env

from purerl.envs.doors import Doors, DoorsState


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


def test_every_step_equals_the_jax_environment():
    env, rng, walks = NumpyDoors(), np.random.default_rng(0), 24
    columns = rng.integers(0, 15, (2, walks))
    agents = np.stack([np.full(walks, 14), columns[0]], 1).astype(np.int32)
    goals = np.stack([np.zeros(walks, int), columns[1]], 1).astype(np.int32)
    # Upwards more often, so that doors and goals are reached.
    drawn = rng.choice(5, (walks, LIMIT), p=[0.05, 0.2, 0.05, 0.2, 0.5])
    first, (obs, reward, terminated, truncated, done) = jax_walk(
        Doors(), LIMIT, agents, goals, drawn.astype(np.int32)
    )
    steps = 0
    for i in range(walks):
        seen, info = env.reset(options={"agent": agents[i], "goal": goals[i]})
        np.testing.assert_array_equal(seen, first[i])
        assert seen.dtype == first.dtype and info == {}
        for t in range(LIMIT):
            seen, paid, *flags, info = env.step(drawn[i, t])
            np.testing.assert_array_equal(seen, obs[i, t])
            assert (paid, flags) == (reward[i, t], [terminated[i, t], truncated[i, t]])
            assert seen.dtype == obs.dtype and info == {}
            steps += 1
            if done[i, t]:
                break
    assert steps > 500 and terminated.any() and truncated.any()


def test_gymnasium_knows_it_and_its_checker_passes():
    env = gymnasium.make(GYMNASIUM_ID)
    check_env(env.unwrapped)
    first, _ = env.reset(seed=3)
    again, _ = env.reset(seed=3)
    np.testing.assert_array_equal(first, again)
