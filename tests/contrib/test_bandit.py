"""Bandits: single pulls by hand, and what an episode is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl.acting.environment import resolve_env, with_params
from purerl.acting.exploration import Coin
from purerl.contrib import bandit
from purerl.contrib.bandit import BanditConfig, Learner
from purerl.keys import init_keys
from purerl.randomisation import Uniform

K3 = {"env_kwargs": {"num_arms": 3}}


def parts_of(**fields):
    config = BanditConfig(**K3, **fields)
    env = resolve_env(config)
    bandit.validate(config, env)
    return bandit.Parts(
        config, bandit.rollout.make_stepper(with_params(config, env), env, None), 3
    )


def learner(values, counts=(1, 1, 1), mean=0.0):
    return Learner(jnp.array(values, jnp.float32), jnp.array(counts), jnp.float32(mean))


def noise(toss, action=0, tie=0):
    return bandit.Noise(
        Coin(jnp.float32(toss)[None], jnp.int32(action)[None]), jnp.int32(tie)[None]
    )


def test_an_estimate_moves_by_the_constant_step_or_to_the_average():
    known = learner([1.0, 2.0, 3.0], (3, 1, 0), mean=1.25)
    constant = bandit.learn(BanditConfig(learning_rate=0.1), known, 0, 5.0)
    np.testing.assert_allclose(constant.values, [1 + 0.1 * 4, 2, 3])
    average = bandit.learn(BanditConfig(step_size="sample_average"), known, 0, 5.0)
    np.testing.assert_allclose(average.values, [(3 * 1 + 5) / 4, 2, 3])
    assert average.counts.tolist() == [4, 1, 0]
    assert float(average.mean_reward) == pytest.approx((4 * 1.25 + 5) / 5)


def test_preferences_move_by_the_reward_above_the_baseline():
    # softmax of (0, 0, log 2) is (1/4, 1/4, 1/2).
    known = learner([0.0, 0.0, np.log(2.0)], (2, 1, 1), mean=1.0)
    config = BanditConfig(method="gradient", learning_rate=0.4)
    above = bandit.learn(config, known, 2, 3.0)
    steps = 0.4 * (3 - 1) * np.array([-0.25, -0.25, 0.5])
    np.testing.assert_allclose(above.values - known.values, steps, rtol=1e-5)
    without = bandit.learn(config.replace(baseline=False), known, 2, 3.0)
    np.testing.assert_allclose(without.values - known.values, steps * 1.5, rtol=1e-5)
    # The first reward is its own baseline.
    first = bandit.learn(config, learner([0.0] * 3, (0, 0, 0)), 1, 3.0)
    np.testing.assert_array_equal(first.values, [0.0, 0.0, 0.0])
    assert float(first.mean_reward) == 3.0


def test_the_confidence_bound_decides_by_hand():
    # t = 11 with 5, 4 and 1 pulls before: bonuses c sqrt(ln 11 / N).
    values, counts = [1.0, 1.1, 0.0], np.array([5, 4, 1])
    for c in (0.1, 0.5, 2.0):
        expected = np.argmax(values + c * np.sqrt(np.log(11) / counts))
        parts = parts_of(method="ucb", exploration=c)
        assert int(bandit.choose(parts, learner(values, counts), noise(0.0))[0]) == (
            expected
        )
    new = learner([9.0, 0.0, 0.0], (1, 0, 0))
    chosen = [int(bandit.choose(parts, new, noise(0.0, tie=i))[0]) for i in range(4)]
    assert chosen == [1, 2, 1, 2]  # What was never pulled comes first.


def test_epsilon_greedy_tosses_its_coin_and_breaks_ties():
    parts, known = parts_of(epsilon=0.25), learner([1.0, 3.0, 3.0])
    assert int(bandit.choose(parts, known, noise(0.24, action=0))[0]) == 0
    chosen = [int(bandit.choose(parts, known, noise(0.25, tie=i))[0]) for i in range(4)]
    assert chosen == [1, 2, 1, 2]


def test_softmax_is_drawn_with_its_probabilities():
    parts, known = parts_of(method="gradient"), learner([0.0, 0.0, np.log(2.0)])
    tosses = jnp.linspace(0, 1, 1_000, endpoint=False, dtype=jnp.float32)
    draws = bandit.Noise(
        Coin(tosses, jnp.zeros(1_000, jnp.int32)), jnp.zeros(1_000, jnp.int32)
    )
    chosen = np.asarray(bandit.choose(parts, known, draws))
    np.testing.assert_allclose(np.bincount(chosen), [250, 250, 500], atol=1)


def test_estimates_begin_anew_with_the_first_pull_of_the_next_problem():
    config = BanditConfig(
        env_params={"max_steps_in_episode": 5}, total_timesteps=7, initial_value=2.0
    )
    algorithm = purerl.make_algorithm(config)
    state, step = algorithm.init(jax.random.key(0)), jax.jit(algorithm.step)
    totals, problems = [], []
    for _ in range(7):
        problems.append(np.asarray(state.envs.state.values[0]))
        state, _ = step(state)
        totals.append(int(state.counts.sum()))
    assert totals == [1, 2, 3, 4, 5, 1, 2]
    np.testing.assert_array_equal(problems[0], problems[4])
    assert (problems[4] != problems[5]).all()
    assert int((state.params["values"] != 2.0).sum()) <= 2


def test_a_numbered_problem_is_the_same_for_all_and_can_be_vmapped():
    config = BanditConfig(env_params={"problem": 3}, total_timesteps=2)
    init = purerl.make_algorithm(config).init
    keys = jax.random.split(jax.random.key(0), 2)
    values = jax.jit(jax.vmap(init))(keys).envs.state.values
    np.testing.assert_array_equal(values[0], values[1])
    train = purerl.make_train(config)
    each = jax.jit(jax.vmap(train, (None, 0)))(
        keys[0], {"env_params.problem": jnp.array([3, 4, -1])}
    ).state.envs.state.values
    np.testing.assert_array_equal(each[0], values[0])
    drawn = resolve_env(config).reset(jax.random.split(init_keys(keys[0], 1)[0], 1)[0])
    np.testing.assert_allclose(each[2, 0], drawn[1].values)
    assert len({float(x) for x in each[:, 0, 0]}) == 3


@pytest.mark.parametrize(
    "fields",
    [
        {"env_wrappers": ("StickyActions(0.5)",)},
        {
            "env_params": {"reward_std": Uniform(0.5, 1.5)},
            "env_wrappers": ("ScaleReward(2.0)",),
            "randomise_per": "environment",
        },
    ],
)
def test_wrappers_and_drawn_numbers_do_not_hide_the_arms(fields):
    """The metrics are those of the values inside, by hand."""
    algorithm = purerl.make_algorithm(BanditConfig(total_timesteps=9, **fields))
    state, step = algorithm.init(jax.random.key(0)), jax.jit(algorithm.step)
    inner = state.envs.state
    while hasattr(inner, "inner"):
        inner = inner.inner
    values = np.asarray(inner.values[0])
    for _ in range(9):
        before = np.asarray(state.counts)
        state, metrics = step(state)
        (arm,) = np.flatnonzero(np.asarray(state.counts) - before)
        assert float(metrics["regret"]) == pytest.approx(values.max() - values[arm])
        assert float(metrics["optimal_action"]) == (arm == values.argmax())
