"""Tabular methods: single updates by hand, fixed points by dynamic programming."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl import envs
from purerl.acting import exploration, rollout
from purerl.acting.environment import resolve_env, with_params
from purerl.algorithms import every_step, tabular
from purerl.algorithms.tabular import METHODS, TabularConfig
from purerl.config import ConfigError
from purerl.envs.gridworld import Model, action_values
from tests.helpers import slow_but

GRID = {"size": (3, 3), "start": (2, 2), "goal": (0, 0)}
PAIR = np.array([[[1.0, 2.0], [3.0, 5.0]], [[4.0, 0.5], [6.0, 1.0]]], np.float32)


def step_of(parts):
    """One update of a tabular method."""
    return partial(every_step.take_steps, tabular.STEPS.of(parts), parts)


def coins(second=False, toss=0.9, action=0, tie=0):
    """The randomness of a step of one environment."""
    coin = exploration.Coin(jnp.float32([toss]), jnp.int32([action]))
    number = jnp.int32([tie])
    return tabular.Noise(coin, number, jnp.asarray([second]), coin, number)


def error_of(method, table=PAIR, *, obs=0, action=0, terminated=False, **fields):
    """The error of one step from `obs` with reward 10 to state 1; next action 0."""
    names = {"gamma": 0.5, "epsilon": 0.2, **fields}
    which = names.pop("second", False)
    obs, action, reward, next_obs, flag = map(
        jnp.asarray, ([obs], [action], [10.0], [1], [terminated])
    )
    config = TabularConfig(method=method, **names)
    parts = tabular.build(config, envs.make("GridWorld-v0"))
    noise = coins(which, toss=0.1, action=0)  # explores, and takes action 0

    @jax.jit
    def error(table, flag):
        out = rollout.StepOutput(reward, next_obs, flag, ~flag, reward, next_obs)
        chosen = tabular.bootstrap_action(parts, table, next_obs, noise)
        return tabular.td_error(config, table, obs, action, out, chosen, noise.table)

    return [float(x[0]) for x in error(table, flag)]


@pytest.mark.parametrize(
    ("method", "second", "expected"),
    [
        # r + gamma V(s') - Q(s, a); Q(s, a) is 1 in the first table, 4 in the second.
        ("q_learning", False, 10 + 0.5 * 5 - 1),
        ("sarsa", False, 10 + 0.5 * 3 - 1),  # the next action is action 0
        ("expected_sarsa", False, 10 + 0.5 * (0.1 * 3 + 0.9 * 5) - 1),
        ("double_q", False, 10 + 0.5 * 1 - 1),  # argmax of table 1, value of table 2
        ("double_q", True, 10 + 0.5 * 3 - 4),  # argmax of table 2, value of table 1
    ],
)
def test_one_update_by_hand(method, second, expected):
    table = PAIR if method == "double_q" else PAIR[:1]
    error, value = error_of(method, table, second=second)
    assert error == pytest.approx(expected)
    assert value == (4.0 if second else 1.0)
    # What terminated is worth its reward alone, whatever the next cell holds.
    ended, _ = error_of(method, table, second=second, terminated=True)
    assert ended == pytest.approx(10 - value)


def test_equal_values_share_what_is_greedy():
    values = jnp.array([[1.0, 3.0, 3.0, 0.0], [2.0, 2.0, 2.0, 2.0]])
    np.testing.assert_allclose(
        exploration.policy_of(values, 0.2),
        [[0.05, 0.45, 0.45, 0.05], [0.25] * 4],
        rtol=1e-6,
    )
    numbers = jnp.arange(6)
    chosen = jax.vmap(partial(exploration.best_at_random, values[0]))(numbers)
    assert chosen.tolist() == [1, 2] * 3


def test_double_q_takes_one_of_equals_at_random():
    # Never their mean, which is not the algorithm's target.
    parts = tabular.build(TabularConfig(method="double_q"), envs.make("GridWorld-v0"))
    q = jnp.zeros((2, 96, 4)).at[0, 5].set(jnp.array([1.0, 2.0, 0.0, 2.0]))
    q = q.at[1, 5].set(jnp.array([0.0, 3.0, 0.0, -9.0]))
    obs = jnp.array([5])
    chosen = [
        int(tabular.bootstrap_action(parts, q, obs, coins(tie=tie))[0])
        for tie in range(4)
    ]
    assert chosen == [1, 3, 1, 3]
    best = tabular.bootstrap_action(parts, q, obs, coins(second=True, tie=1))
    assert int(best[0]) == 1


def build(config):
    env = resolve_env(config)
    return tabular.build(with_params(config, env), env)


def init(parts, seed=0):
    return jax.jit(partial(tabular.init, parts))(jax.random.key(seed))


def test_a_truncated_step_bootstraps_on_the_cell_before_the_reset():
    # From the start (cell 8) up to cell 5; the limit of one step cuts the episode, and
    # the reset is back at cell 8. Cell 5 is worth 7, cell 8 is worth 100.
    config = TabularConfig(
        num_steps=1, env_kwargs=GRID, env_params={"max_steps_in_episode": 1}
    )
    parts = build(config)
    state = init(parts)
    q = state.params["q"].at[0, 5].set(7.0).at[0, 8].set(jnp.array([100.0, 0, 0, 0]))
    always = parts._replace(config=config.replace(epsilon=0.0))
    step = jax.jit(step_of(always))
    after, metrics = step(state._replace(params={"q": q}))
    assert int(metrics["episodes"]) == 1 and int(after.envs.obs[0]) == 8
    expected = 100 + 0.1 * (0 + 0.9 * 7 - 100)
    assert float(after.params["q"][0, 8, 0]) == pytest.approx(expected)
    assert after.visits[8].tolist() == [1, 0, 0, 0]


def test_double_q_acts_by_the_sum_of_its_tables_and_moves_one_of_them():
    config = TabularConfig(method="double_q", num_steps=1, env_kwargs=GRID)
    parts = build(config)
    state, always = init(parts), parts._replace(config=config.replace(epsilon=0.0))
    tables = jnp.array([[3.0, 2.0, 0.0, 0.0], [0.0, 2.0, 3.0, 0.0]])  # sums 3, 4, 3, 0
    q = state.params["q"].at[:, 8].set(tables)
    after, _ = jax.jit(step_of(always))(state._replace(params={"q": q}))
    assert after.visits[8].tolist() == [0, 1, 0, 0]
    moved = np.argwhere(np.asarray(after.params["q"] != q))
    assert moved.tolist() in ([[0, 8, 1]], [[1, 8, 1]])


def test_sarsa_takes_the_action_that_its_target_was_made_of():
    config = TabularConfig(method="sarsa", num_steps=1, env_kwargs=GRID, epsilon=1.0)
    parts = build(config)
    step, state = jax.jit(step_of(parts)), init(parts)
    taken = []
    for _ in range(30):
        planned, visits = int(state.next_action[0]), state.visits
        state, _ = step(state)
        where = np.argwhere(np.asarray(state.visits - visits))
        taken.append((planned, int(where[0, 1])))
    pairs = [pair for pair in taken if pair[0] != tabular.NONE]
    assert len(pairs) > 20 and all(plan == did for plan, did in pairs)


def test_environments_that_meet_in_a_cell_move_it_by_their_mean_error():
    config = TabularConfig(num_envs=4, learning_rate=0.5)
    parts = tabular.build(config, resolve_env(config))
    place = jnp.array([1, 1, 1, 2]), jnp.array([0, 0, 1, 0])
    error = jnp.array([1.0, 3.0, 8.0, -2.0])
    none, all = jnp.zeros(4, bool), jnp.ones(4, bool)
    zeros, move = jnp.zeros((1, 96, 4)), jax.jit(partial(tabular.move, parts))
    q = move(zeros, *place, error, none, all)
    found = {(1, 0): 0.5 * 2, (1, 1): 0.5 * 8, (2, 0): 0.5 * -2}
    for cell, value in found.items():
        assert float(q[(0, *cell)]) == pytest.approx(value)
    assert int((q != 0).sum()) == 3
    # What does not count is in no mean.
    counts = jnp.array([True, False, True, False])
    q = move(zeros, *place, error, none, counts)
    assert float(q[0, 1, 0]) == 0.5 * 1 and float(q[0, 2, 0]) == 0


def test_value_iteration_knows_a_chain():
    # Three cells in a row; going on pays nothing but the last step, which pays 1.
    model = Model(
        next_state=np.array([[0, 1], [0, 2], [2, 2]]),
        reward=np.array([[0.0, 0.0], [0.0, 1.0], [0.0, 0.0]]),
        terminated=np.array([[False, False], [False, True], [True, True]]),
    )
    np.testing.assert_allclose(
        action_values(model, 0.5), [[0.25, 0.5], [0.25, 1.0], [0.0, 0.0]]
    )
    # With epsilon the policy goes on with 1 - e/2 = 0.9 and back with 0.1:
    # v1 = 0.9 + 0.1 (0.5 v0), v0 = 0.9 (0.5 v1) + 0.1 (0.5 v0).
    v0, v1 = np.linalg.solve([[1 - 0.05, -0.45], [-0.05, 1]], [0, 0.9])
    np.testing.assert_allclose(
        action_values(model, 0.5, 0.2)[:2],
        [[0.5 * v0, 0.5 * v1], [0.5 * v0, 1.0]],
        rtol=1e-8,
    )


FIXED_POINT = {"q_learning": 0.0, "double_q": 0.0, "sarsa": 0.5, "expected_sarsa": 0.5}


@pytest.mark.parametrize("method", slow_but(METHODS, "q_learning", "sarsa"))
def test_each_method_converges_to_its_fixed_point(method):
    # SARSA's targets are random, so that its step size must fall.
    config = TabularConfig(
        method=method,
        env_kwargs=GRID,
        gamma=0.8,
        epsilon=FIXED_POINT[method] or 1.0,
        learning_rate=purerl.schedules.Linear(0.5, 0.0),
        num_steps=100,
        total_timesteps=60_000,
        num_evaluations=0,
    )
    keys = jax.random.split(jax.random.key(0), 2)
    result = jax.jit(jax.vmap(purerl.make_train(config)))(keys)
    model = envs.make("GridWorld-v0", **GRID).model()
    known = action_values(model, 0.8, FIXED_POINT[method])
    visits = np.asarray(result.state.visits).min(0)
    # What is hardly ever tried, under a policy that mostly knows, is not yet known.
    often = visits > 150
    assert often.sum() >= 14
    for q in np.asarray(result.state.params["q"]).reshape(-1, *known.shape):
        np.testing.assert_allclose(q[often], known[often], atol=0.05)
    # The two fixed points are far apart: the test tells one from the other.
    others = action_values(model, 0.8, 0.5 if FIXED_POINT[method] == 0 else 0.0)
    assert np.abs(known - others)[often].max() > 0.1


def test_an_environment_on_the_host_without_numbered_states_is_refused():
    pytest.importorskip("gymnasium")
    env = "gymnasium/CartPole-v1"
    with pytest.raises(ConfigError, match=r"needs the number of a state .*gymnasium/"):
        purerl.run(TabularConfig(env=env), progress=False)
    with pytest.raises(ConfigError, match=r"BanditConfig needs .* a single state"):
        purerl.run(purerl.BanditConfig(env=env), progress=False)


def test_sarsa_chooses_anew_where_an_episode_begins():
    config = TabularConfig(
        method="sarsa",
        num_steps=1,
        env_kwargs=GRID,
        env_params={"max_steps_in_episode": 1},
    )
    parts = build(config)
    state = init(parts)
    after, metrics = jax.jit(step_of(parts))(state)
    assert int(metrics["episodes"]) == 1
    assert after.next_action.tolist() == [tabular.NONE]
