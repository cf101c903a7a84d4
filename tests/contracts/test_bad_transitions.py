"""A number that is not finite ends an episode, and never an agent.

Each row of `test_algorithms.SMALL` is trained in its environment, of which every
episode breaks at a certain step. What breaks there, and how, are numbers of the
environment: a row is one program.
"""

import dataclasses
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
from tests.helpers import assert_close, assert_same_bits, lane, slow_but

# Every SMALL run makes 48 steps in each of two environments, or 96 in one; PLR makes 96
# in each of two, and begins anew after 32.
AT = 5
# What breaks, by its number: rewards are even.
KINDS = ("reward", "observation", "infinite reward", "infinite observation")
BAD = (jnp.nan, jnp.nan, jnp.inf, -jnp.inf)
NEVER = {"at": 0.0, "kind": 0.0, "start": 0.0}
# Rows that are trained as the second of three agents, of which the others never break.
TOGETHER = ("ppo", "recurrent_ppo", "dqn", "sac", "tabular")


@dataclasses.dataclass(unsafe_hash=True)
class Breaks(envs.Wrapper):
    """An environment whose episodes break in step number `break_at`; 0 is never.

    Their first observations break with the probability `break_start`.
    """

    at: float = 0.0
    stochastic_transitions: ClassVar[bool] = True

    def numbers(self):
        return {"break_at": self.at, "break_kind": 0.0, "break_start": 0.0}

    def reset_env(self, key, params):
        obs, state = self.env.reset_env(key, params)
        chance = jax.random.uniform(jax.random.fold_in(key, 7))
        return self.broken(obs, chance < params.break_start, jnp.nan), state

    def step_env(self, key, state, action, params):
        obs, state, reward, *rest = self.env.step_env(key, state, action, params)
        kind = jnp.asarray(params.break_kind, int)
        bad, is_reward = jnp.array(BAD)[kind], kind % 2 == 0
        breaks = state.time == params.break_at
        obs = self.broken(obs, breaks & ~is_reward, bad)
        return obs, state, jnp.where(breaks & is_reward, bad, reward), *rest

    def broken(self, obs, breaks, bad):
        """Observations of numbers; those of tables are whole."""
        is_numbered = jnp.issubdtype(obs.dtype, jnp.integer)
        return obs if is_numbered else jnp.where(breaks, bad, obs)


@pytest.fixture(autouse=True, scope="module")
def registered():
    known = {**envs.wrappers.WRAPPERS, "Breaks": Breaks}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("purerl.envs.wrappers.WRAPPERS", known)
        yield


def make_train(name, *around, **changes):
    around = ("RandomLevels",) if name == "plr" else around
    return purerl.make_train(small(name, env_wrappers=("Breaks", *around), **changes))


def overrides(numbers):
    return {f"env_params.break_{n}": jnp.float32(x) for n, x in numbers.items()}


@pytest.fixture(scope="module")
def trained():
    """A function: the agent of a row where numbers break, and those beside it."""
    programs = {}

    def of(name, key=KEY, **numbers):
        train, mine = make_train(name), overrides(NEVER | numbers)
        if name not in TOGETHER:
            train = programs.setdefault(name, jax.jit(train))
            return train(key, mine), None
        train = programs.setdefault(name, jax.jit(jax.vmap(train)))
        lanes = [overrides(NEVER), mine, overrides(NEVER)]
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(3))
        results = train(keys, jax.tree.map(lambda *xs: jnp.stack(xs), *lanes))
        first, mine, last = (lane(results, index) for index in (0, 1, 2))
        return mine, (first, last)

    return of


def expected(name):
    """Every fifth step of each environment, counted from its first one."""
    if name == "plr":
        return 2 * UPDATES * (32 // AT)
    config = small(name)
    steps = config.total_timesteps // config.num_envs
    return config.num_envs * (steps // AT)


def known(state):
    """A state without the free places of PLR's buffer, which have the score -inf."""
    buffer = getattr(state, "level_buffer", ())
    if not buffer:
        return state
    size = int(buffer.size)
    filled = jax.tree.map(lambda x: x[:size] if x.ndim else x, buffer)
    return state._replace(level_buffer=filled)


def learnt(result):
    """What a bad transition may have no part in."""
    metrics = dict(result.metrics)
    return result.state.params, getattr(result.state, "opt_state", ()), metrics


@pytest.mark.parametrize(
    "name", slow_but(SMALL, *(name for name in SMALL if name not in LONG))
)
def test_no_number_that_is_not_finite_reaches_an_agent(name, trained):
    results = []
    for kind, what in enumerate(KINDS):
        if "observation" in what and name in ("tabular", "bandit"):
            continue  # Numbers of states are whole.
        result, _ = trained(name, at=AT, kind=kind)
        results.append(result)
        assert bool(is_finite(known(result.state))), what
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
    first, *others = map(learnt, results)
    for other in others:
        assert_same_bits(first, other)


@pytest.mark.parametrize("name", TOGETHER)
def test_other_agents_stay_as_they_are(name, trained):
    mine, whole = trained(name)
    assert int(mine.metrics["bad_transitions"][-1]) == 0
    mine, beside = trained(name, at=AT)
    assert int(mine.metrics["bad_transitions"][-1]) == expected(name)
    assert_same_bits([*map(learnt, beside)], [*map(learnt, whole)])


@pytest.mark.parametrize("name", ["ppo", "dqn"])
def test_an_episode_that_begins_with_a_bad_observation_is_cut_at_once(name, trained):
    """One start in three is unknown."""
    unseen, bad = [], 0
    for key in jax.random.split(KEY, 11):
        result, _ = trained(name, key, start=1 / 3)
        assert bool(is_finite(result.state.params))
        bad += int(result.metrics["bad_transitions"][-1])
        unseen.append(result.evaluation["episode_length"] == 0)
    assert bad > 0
    assert 8 <= np.sum(unseen) <= 36  # 66 / 3, more than three deviations either way


@pytest.mark.parametrize("name", ["ppo", "recurrent_ppo", "dqn"])
def test_of_whole_observations_a_reward_alone_is_bad(name):
    """And they train as the same numbers that are floats."""
    whole, floats = (
        jax.jit(make_train(name, *flat, env="Catch-bsuite", env_kwargs={}))
        for flat in ((), ("FlattenObservation",))
    )
    # Another program rounds differently.
    found, same = (train(KEY, overrides(NEVER)) for train in (whole, floats))
    assert found.state.envs.obs.dtype == jnp.int32
    assert_close(learnt(found), learnt(same), rtol=1e-3, atol=1e-5)
    result = whole(KEY, overrides(NEVER | {"at": AT}))
    assert int(result.metrics["bad_transitions"][-1]) == expected(name)
    assert bool(is_finite(result.state))
    assert bool((result.evaluation["episode_length"] == AT - 1).all())


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
    check_replaced(flags, taken, truncated, remembers=False)


@pytest.mark.parametrize(
    "flags, taken, truncated",
    [
        # The next step begins an episode, as the one does whose place it takes.
        ([[0, 0], [1, 0], [0, 0]], [[0, 1], [4, 3], [4, 5]], [[1, 0], [1, 0], [0, 0]]),
        # The memory before a rollout is not cleared, and after its last step no episode
        # begins in it: the step stays, and the one before goes on to it.
        ([[1], [0]], [[-1], [1]], [[1], [0]]),
        ([[0, 0], [0, 1]], [[0, 1], [2, -1]], [[0, 0], [0, 1]]),
        ([[0], [1], [1], [0]], [[0], [-1], [3], [3]], [[0], [1], [1], [0]]),
    ],
)
def test_with_a_memory_a_step_stands_only_where_its_episode_begins(
    flags, taken, truncated
):
    check_replaced(flags, taken, truncated, remembers=True)


def check_replaced(flags, taken, truncated, remembers):
    given = rollout(flags)
    given = given._replace(next_obs=given.obs + 100)
    found, memories = replaced(given, given.obs if remembers else ())
    taken = np.asarray(taken, np.float32)
    pair = np.stack([taken, taken + 0.5], -1)
    for name in ("action", "log_prob", "reward"):
        np.testing.assert_array_equal(getattr(found, name), taken)
    for array in (found.obs, *([memories] if remembers else [])):
        np.testing.assert_array_equal(array, pair)
    # What stays has led nowhere.
    led_to = np.where(taken[..., None] < 0, pair, pair + 100)
    np.testing.assert_array_equal(found.next_obs, led_to)
    np.testing.assert_array_equal(found.truncated, np.asarray(truncated, bool))
    assert not found.terminated.any()


def test_between_whole_observations_a_bad_step_stays_and_is_cut():
    given = rollout([[0, 0], [1, 0], [0, 0]])
    given = given._replace(obs=given.obs.astype(int), next_obs=given.obs.astype(int))
    found, _ = replaced(given)
    assert_same_bits(found, given._replace(terminated=jnp.zeros((3, 2), bool)))


def test_a_termination_that_takes_the_place_of_a_bad_one_stays_one():
    given = rollout([[1, 0]])
    given = given._replace(terminated=jnp.array([[True, True]]))
    found, _ = replaced(given)
    np.testing.assert_array_equal(found.terminated, [[True, True]])
    np.testing.assert_array_equal(found.truncated, [[False, False]])


def test_an_agent_with_too_many_counts_as_diverged():
    config = small("ppo", num_evaluations=0, env_wrappers=("Breaks",))
    found = purerl.sweep(
        config.replace(max_bad_transitions=0.1),
        {"env_params.break_at": [5.0, 9.0, 11.0]},
        seeds=1,
        progress=False,
    )
    # 0.1 of 96 steps is less than the 10 that are bad after 27 steps of each, or 45;
    # of every eleventh step they are 8.
    assert found["diverged_at"].values.ravel().tolist() == [1, 2, -1]
