"""Environments on the host that break: the episode is cut, and the agent lives on."""

import gymnasium
import numpy as np
import pytest

import purerl
from purerl import envs
from purerl.acting.rollout import is_finite
from tests.contracts.test_algorithms import small
from tests.helpers import assert_same_bits, slow_but

AT, BRITTLE = 5, "purerl-test/Brittle-v0"


class Brittle(gymnasium.Env):
    """An environment in which every fifth step of an episode breaks.

    Args:
        what: What is not finite then, an observation or a reward.
        value: The number that is not finite.
    """

    observation_space = gymnasium.spaces.Box(-10, 10, (3,), np.float32)

    def __init__(self, what, value, continuous=False):
        self.what, self.value = what, value
        self.action_space = (
            gymnasium.spaces.Box(-1, 1, (1,), np.float32)
            if continuous
            else gymnasium.spaces.Discrete(2)
        )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(3, np.float32), {}

    def step(self, action):
        assert self.time < AT, "an environment that broke was not started anew"
        self.time += 1
        obs, reward = np.full(3, self.time, np.float32), 1.0
        if self.time == AT and self.what == "observation":
            obs[1] = self.value
        if self.time == AT and self.what == "reward":
            reward = self.value
        return obs, reward, False, False, {}


if BRITTLE not in gymnasium.registry:
    gymnasium.register(BRITTLE, Brittle)


@pytest.mark.parametrize(
    "name", slow_but(("ppo", "recurrent_ppo", "dqn", "sac"), "ppo", "dqn")
)
def test_an_environment_that_breaks_is_started_anew(name):
    learnt = []
    for what, value in (("observation", np.nan), ("reward", -np.inf)):
        options = {"what": what, "value": value, "continuous": name == "sac"}
        env = {"env": f"gymnasium/{BRITTLE}", "env_kwargs": options}
        config = small(name, **env, num_evaluations=1, max_bad_transitions=1.0)
        result = purerl.run(config, seeds=1, progress=False)
        assert result.diverged_at.tolist() == [-1]
        assert bool(is_finite(result.state.params))
        counted = result.metrics["bad_transitions"][0]
        assert int(counted[-1]) == 2 * (48 // AT)
        # A bad step counts for nothing: four of reward 1.
        assert (result.evaluation["episode_return"] == AT - 1).all()
        assert (result.evaluation["episode_length"] == AT - 1).all()
        assert (result.evaluation["cut_episodes"] == 2).all()
        learnt.append((result.state.params, result.metrics))
    assert_same_bits(*learnt)


@pytest.mark.parametrize("mode", slow_but(["sync", "async"], "sync"))
def test_an_environment_is_reset_in_the_step_that_broke(mode):
    options = {"what": "reward", "value": np.nan, "vectorization_mode": mode}
    started = envs.make(f"gymnasium/{BRITTLE}", **options).start(2)
    try:
        started.reset(0)
        for _ in range(AT - 1):
            started.step(np.zeros(2, np.int32))
        broken = started.step(np.zeros(2, np.int32))
    finally:
        started.close()
    np.testing.assert_array_equal(broken.obs, np.zeros((2, 3)))
    np.testing.assert_array_equal(broken.reward, [0, 0])
    assert broken.terminated.all() and broken.truncated.all()
