"""Training in EnvPool's environments: what is stored, learned and repeated."""

import jax
import numpy as np
import pytest

import purerl
from tests.helpers import assert_same_bits

pytest.importorskip("envpool")
CARTPOLE = "envpool/CartPole-v1"
LIMIT = 12
DQN = purerl.DQNConfig(
    env=CARTPOLE,
    env_kwargs={"max_episode_steps": LIMIT},
    hidden_sizes=(2,),
    num_envs=2,
    num_steps=5,
    rounds_per_update=20,
    buffer_size=200,
    total_timesteps=200,
    learning_starts=190,
    batch_size=2,
    num_evaluations=1,
    eval_episodes=3,
)


def test_what_is_stored_is_what_was_played():
    """A hundred steps in a row of each environment, which terminate or are cut."""
    result = purerl.run(DQN, progress=False)
    buffer = jax.tree.map(lambda x: x[0], result.state.buffer)
    assert buffer.terminated.any() and buffer.truncated.any()
    for lane in range(2):
        obs, next_obs, terminated, truncated = (
            x[:, lane]
            for x in (buffer.obs, buffer.next_obs, buffer.terminated, buffer.truncated)
        )
        done = terminated | truncated
        np.testing.assert_array_equal(obs[1:][~done[:-1]], next_obs[:-1][~done[:-1]])
        assert (np.abs(obs[1:][done[:-1]]) <= 0.05).all()
        length = 0
        for t in range(len(obs)):
            length += 1
            assert truncated[t] == (length == LIMIT and not terminated[t])
            # The formula of Gymnasium's position: x + 0.02 of the velocity.
            np.testing.assert_allclose(
                next_obs[t, 0], obs[t, 0] + 0.02 * obs[t, 1], atol=1e-6
            )
            fallen = np.abs(next_obs[t, 2]) > 12 * np.pi / 180
            assert terminated[t] == fallen
            length = 0 if done[t] else length
        np.testing.assert_array_equal(
            result.state.envs.obs[0, lane] == next_obs[-1], ~done[-1]
        )
        assert result.state.envs.episode_length[0, lane] == length
    again = purerl.run(DQN, progress=False)
    assert_same_bits(*((r.state, r.evaluation) for r in (result, again)))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"env_params": {"length": 1.0}}, r"envpool\.make takes env_kwargs"),
        ({"env_wrappers": ("FrameStack(4)",)}, "EnvPool's environments have options"),
    ],
)
def test_what_needs_a_compiled_environment_is_refused(change, sentence):
    with pytest.raises(purerl.ConfigError, match=sentence):
        purerl.run(purerl.PPOConfig(env=CARTPOLE).replace(**change), progress=False)
