"""Environments on the host that break: the episode is cut, and the agent lives on."""

import gymnasium
import numpy as np
import pytest

import purerl
from purerl import envs
from purerl.acting.evaluate import play_episodes
from purerl.acting.rollout import EnvCarry, is_finite
from purerl.execution.hosted import play_steps
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


class Blind(Brittle):
    """An environment whose very first observation is none; episodes have four steps."""

    begun = 0

    def __init__(self):
        super().__init__("nothing", 0.0)

    def reset(self, *, seed=None, options=None):
        obs, info = super().reset(seed=seed)
        Blind.begun += 1
        return np.full_like(obs, np.nan if Blind.begun == 1 else 0), info

    def step(self, action):
        obs, reward, _, *rest = super().step(action)
        return obs, reward, self.time == AT - 1, *rest


def test_an_episode_that_begins_with_an_unknown_observation_is_started_anew():
    gymnasium.register("purerl-test/Blind-v0", Blind, disable_env_checker=True)
    env = envs.make("gymnasium/purerl-test/Blind-v0")
    Blind.begun, started = 0, env.start(1)
    assert np.isnan(started.reset(0)).all()
    obs, none = np.zeros((1, 3), np.float32), np.zeros(1, np.int32)
    carry = EnvCarry((), obs, np.full(1, np.nan, np.float32), none, none)

    def act(number, obs, memory, done):
        return np.zeros(1, np.int32), (), np.zeros(1, np.int32), memory

    carry, _, (steps, _, running) = play_steps(started, act, carry, (), 6)
    np.testing.assert_array_equal(steps.obs[:, 0, 0], [0, 0, 1, 2, 3, 0])
    np.testing.assert_array_equal(steps.truncated[:, 0], [1, 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(steps.terminated[:, 0], [1, 0, 0, 0, 1, 0])
    np.testing.assert_array_equal(running[0][1:, 0], [1, 2, 3, 4, 1])
    assert carry.bad == 1

    Blind.begun = 0
    played = play_episodes(
        env.start(2), lambda obs, memory: (np.zeros(2, np.int32), memory), (), 0, 10
    )
    np.testing.assert_array_equal(played["episode_return"], [0, AT - 1])
    np.testing.assert_array_equal(played["episode_length"], [0, AT - 1])
    assert played["cut_episodes"] == 1


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
    np.testing.assert_array_equal(broken.next_obs, np.full((2, 3), AT))
    np.testing.assert_array_equal(broken.reward, [0, 0])
    assert broken.terminated.all() and broken.truncated.all()
