"""Commands on agents that remember: the memory is carried through their episodes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl.runner.result import load_run

pytestmark = pytest.mark.slow

SHARED = {
    "env": "CartPole-v1",
    "total_timesteps": 640,
    "num_envs": 2,
    "hidden_sizes": (8,),
    "memory_size": 8,
    "head_sizes": (),
    "learning_rate": 3e-2,
    "num_evaluations": 1,
    "eval_episodes": 2,
}
CONFIG = purerl.RecurrentPPOConfig(
    num_steps=16, num_epochs=2, num_minibatches=2, **SHARED
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("cli") / "run"
    purerl.run(CONFIG, seeds=2, out=out, lanes=2, progress=False)
    return out


def test_gymnasium_is_played_with_the_memory_of_each_episode(folder):
    import gymnasium

    # Agents whose memories move a lot: after so short a training actions hardly vary.
    # Large matrices, and biases of 0, which would drown CartPole's small observations.
    saved, rng = load_run(folder), np.random.default_rng(0)
    params = jax.tree.map(
        lambda x: (x.ndim > 2) * rng.normal(0, 3, x.shape).astype(np.float32),
        saved.state.params,
    )
    saved = saved._replace(state=saved.state._replace(params=params))
    played = purerl.evaluate(saved, episodes=3, gymnasium=True, episode_seed=5)
    env = gymnasium.make("CartPole-v1")

    def play(policy, seed, *, forgetful):
        obs, _ = env.reset(seed=seed)
        memory, done, total = policy.init(), False, 0.0
        while not done:
            action, memory = policy(jnp.asarray(obs), memory)
            if forgetful:
                memory = policy.init()
            obs, reward, terminated, truncated, _ = env.step(int(action))
            total, done = total + reward, terminated or truncated
        return total

    alone, forgetful = np.zeros((2, 3)), np.zeros((2, 3))
    for member in range(2):
        state = jax.tree.map(lambda x, i=member: jnp.asarray(x[i]), saved.state)
        policy = purerl.make_policy(saved.config, state)
        for i in range(3):
            alone[member, i] = play(policy, 5 + i, forgetful=False)
            forgetful[member, i] = play(policy, 5 + i, forgetful=True)
    np.testing.assert_array_equal(played.episode_return, alone)
    assert (alone != forgetful).any()  # so a memory that is lost would show
