"""A number that is not finite ends an episode, and never an agent.

Each row of `test_algorithms.SMALL` is trained in its environment, of which every
episode breaks at a certain step.
"""

import dataclasses
from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl import envs
from purerl.acting.rollout import Transition, is_finite, replaced
from purerl.metrics import is_defined
from tests.contracts.test_algorithms import EPISODES, KEY, LONG, SMALL, UPDATES, small
from tests.helpers import assert_same_bits, slow_but

# Every SMALL run makes 48 steps in each of two environments, or 96 in one; PLR makes 96
# in each of two, and begins anew after 32.
AT = 5
KINDS = {
    "observation": jnp.nan,
    "reward": jnp.nan,
    "infinite observation": -jnp.inf,
    "infinite reward": jnp.inf,
}


@dataclasses.dataclass(unsafe_hash=True)
class Breaks(envs.Wrapper):
    """An environment whose episodes break in step number `break_at`; 0 is never.

    Other steps break with the probability `break_share`.
    """

    what: str = "reward"
    at: float = 0.0
    share: float = 0.0
    stochastic_transitions: ClassVar[bool] = True

    def numbers(self):
        return {"break_at": self.at, "break_share": self.share}

    def step_env(self, key, state, action, params):
        obs, state, reward, terminated, info = self.env.step_env(
            key, state, action, params
        )
        chance = jax.random.uniform(jax.random.fold_in(key, 7))
        breaks = (state.time == params.break_at) | (chance < params.break_share)
        if "reward" in self.what:
            reward = jnp.where(breaks, KINDS[self.what], reward)
        else:
            obs = jnp.where(breaks, jnp.asarray(KINDS[self.what], obs.dtype), obs)
        return obs, state, reward, terminated, info


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    known = dict(envs.wrappers.WRAPPERS)
    monkeypatch.setattr("purerl.envs.wrappers.WRAPPERS", known)
    envs.register_wrapper("Breaks", Breaks)


def trained(name, what, at=AT, **changes):
    around = ("RandomLevels",) if name == "plr" else ()
    wrappers = (f"Breaks({what!r}, {at})", *around)
    config = small(name, env_wrappers=wrappers, **changes)
    return jax.jit(purerl.make_train(config))(KEY)


def expected(name):
    """Every fifth step of each environment, counted from its first one."""
    if name == "plr":
        return 2 * UPDATES * (32 // AT)
    config = small(name)
    steps = config.total_timesteps // config.num_envs
    return config.num_envs * (steps // AT)


def learnt(result):
    """What a bad transition may have no part in."""
    metrics = dict(result.metrics)
    return result.state.params, getattr(result.state, "opt_state", ()), metrics


@pytest.mark.parametrize(
    "name", slow_but(SMALL, *(name for name in SMALL if name not in LONG))
)
def test_no_number_that_is_not_finite_reaches_an_agent(name):
    results = {}
    # One rule for all algorithms says what is finite: infinite numbers in two of them.
    for what in KINDS if name in ("ppo", "dqn") else ("observation", "reward"):
        is_numbered = name in ("tabular", "bandit")
        if "observation" in what and is_numbered:
            continue  # Numbers of states are whole.
        result = results[what] = trained(name, what)
        assert bool(is_finite(result.state)) or name == "plr", what
        assert bool(is_finite(result.state.params)), what
        counted = result.metrics["bad_transitions"]
        assert int(counted[-1]) == expected(name), what
        assert bool((jnp.diff(counted.astype(int)) >= 0).all())
        for metric, values in result.metrics.items():
            there = np.asarray(is_defined(metric, result.metrics))
            assert np.isfinite(np.where(there, values, 0.0)).all(), (what, metric)
        # Episodes of evaluations end before the step that breaks.
        lengths = result.evaluation["episode_length"]
        assert bool((lengths == AT - 1).all()), what
        assert bool(jnp.isfinite(result.evaluation["episode_return"]).all())
        assert bool((result.evaluation["cut_episodes"] == EPISODES).all())
    # What the bad number is, and where it stands, makes no difference.
    first, *others = (learnt(result) for result in results.values())
    for other in others:
        assert_same_bits(first, other)


@pytest.mark.parametrize("name", ["ppo", "recurrent_ppo", "dqn", "sac", "tabular"])
def test_other_agents_stay_as_they_are(name):
    config = small(name, env_wrappers=("Breaks('reward', 0)",))
    train = jax.jit(jax.vmap(purerl.make_train(config), (0, 0)))
    keys = jax.random.split(KEY, 3)
    whole = train(keys, {"env_params.break_at": jnp.zeros(3)})
    broken = train(keys, {"env_params.break_at": jnp.array([0.0, AT, 0.0])})
    assert int(broken.metrics["bad_transitions"][1, -1]) == expected(name)
    for i in (0, 2):
        mine = jax.tree.map(lambda x, i=i: x[i], learnt(broken))
        assert_same_bits(mine, jax.tree.map(lambda x, i=i: x[i], learnt(whole)))


def test_an_episode_that_begins_with_a_bad_observation_is_cut_at_once():
    class Blind(envs.CartPole):
        """One start in three is unknown."""

        def reset_env(self, key, params):
            obs, state = super().reset_env(key, params)
            is_bad = jax.random.uniform(jax.random.fold_in(key, 1)) < 1 / 3
            return jnp.where(is_bad, jnp.nan, obs), state

    for make in (purerl.PPOConfig, purerl.DQNConfig):
        fields = SMALL["ppo" if make is purerl.PPOConfig else "dqn"]
        config = make(env=Blind(), eval_episodes=64, num_evaluations=1, **fields)
        result = jax.jit(purerl.make_train(config))(KEY)
        assert bool(is_finite(result.state.params))
        assert int(result.metrics["bad_transitions"][-1]) > 0
        unseen = result.evaluation["episode_length"] == 0
        assert 8 <= int(unseen.sum()) <= 36  # 64 / 3, five deviations either way


class Sure(envs.CartPole):
    """Says that its observations are always finite; its rewards break."""

    finite_observations: ClassVar[bool] = True

    def step_env(self, key, state, action, params):
        obs, state, reward, *rest = super().step_env(key, state, action, params)
        return obs, state, jnp.where(state.time == AT, jnp.nan, reward), *rest


@pytest.mark.parametrize("name", ["ppo", "recurrent_ppo", "dqn"])
def test_of_finite_observations_a_reward_alone_is_bad(name):
    result = jax.jit(purerl.make_train(small(name, env=Sure())))(KEY)
    assert int(result.metrics["bad_transitions"][-1]) == expected(name)
    assert bool(is_finite(result.state))
    assert bool((result.evaluation["episode_length"] == AT - 1).all())


@pytest.mark.parametrize("name", ["ppo", "dqn"])
def test_nothing_changes_where_observations_are_known_to_be_finite(name, monkeypatch):
    config = small(name, env_wrappers=("TerminalLimit",))
    first = jax.jit(purerl.make_train(config))(KEY)
    monkeypatch.setattr(envs.wrappers.TerminalLimit, "finite_observations", True)
    second = jax.jit(purerl.make_train(config))(KEY)
    # Another program rounds differently.
    jax.tree.map(
        partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-5),
        *map(learnt, (first, second)),
    )


def rollout(flags):
    """Transitions `[T, B]` whose numbers tell which one is which; 1 is bad."""
    flags = np.asarray(flags, bool)
    number = np.arange(flags.size, dtype=np.float32).reshape(flags.shape)
    number = np.where(flags, -1, number)
    pair = np.stack([number, number + 0.5], -1)
    none = jnp.asarray(flags)
    return Transition(pair, number, number, number, pair, none, none)


@pytest.mark.parametrize(
    "flags, taken, truncated",
    [
        # The next step of the environment; the step before is cut.
        ([[0, 0], [1, 0], [0, 0]], [[0, 1], [4, 3], [4, 5]], [[1, 0], [1, 0], [0, 0]]),
        # After the last step there is none: that of the environment beside it.
        ([[0, 0], [0, 0], [0, 1]], [[0, 1], [2, 3], [4, 4]], [[0, 0], [0, 1], [0, 1]]),
        # An environment that is bad throughout.
        ([[1, 0], [1, 0], [1, 0]], [[1, 1], [3, 3], [5, 5]], [[1, 0], [1, 0], [1, 0]]),
        # Neither: the step before.
        ([[0], [0], [1]], [[0], [1], [1]], [[0], [1], [1]]),
        # None of these: an episode of one step with the numbers that it has.
        ([[1], [1], [0]], [[-1], [2], [2]], [[1], [1], [0]]),
        ([[1, 1]], [[-1, -1]], [[1, 1]]),
    ],
)
def test_others_take_the_place_of_bad_transitions(flags, taken, truncated):
    given = rollout(flags)
    found, memories = replaced(given, given.obs)
    taken = np.asarray(taken, np.float32)
    pair = np.stack([taken, taken + 0.5], -1)
    for name in ("action", "log_prob", "reward"):
        np.testing.assert_array_equal(getattr(found, name), taken)
    for array in (found.obs, found.next_obs, memories):
        np.testing.assert_array_equal(array, pair)
    np.testing.assert_array_equal(found.truncated, np.asarray(truncated, bool))
    assert not found.terminated.any()


def test_a_termination_that_takes_the_place_of_a_bad_one_stays_one():
    given = rollout([[1, 0]])
    given = given._replace(terminated=jnp.array([[True, True]]))
    found, _ = replaced(given)
    np.testing.assert_array_equal(found.terminated, [[True, True]])
    np.testing.assert_array_equal(found.truncated, [[False, False]])


def test_an_agent_with_too_many_counts_as_diverged():
    config = purerl.PPOConfig(
        **{**SMALL["ppo"], "num_evaluations": 0},
        env_wrappers=("Breaks('reward', 5)",),
    )
    few = purerl.run(config.replace(max_bad_transitions=0.2), progress=False)
    assert few.diverged_at.tolist() == [-1]
    # 0.1 of 96 steps is less than the 10 that are bad after 27 steps of each.
    many = purerl.run(config.replace(max_bad_transitions=0.1), progress=False)
    assert many.diverged_at.tolist() == [1]
