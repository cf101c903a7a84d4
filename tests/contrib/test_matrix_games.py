"""Matrix games: exact values, gradients, learners that end where theory says."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import envs
from purerl.contrib import matrix_games

IDS = ("IteratedPrisonersDilemma-v0", "MatchingPennies-v0", "Chicken-v0")
GAMMA = 0.96
IPD = matrix_games.IteratedPrisonersDilemma()
COOPERATE, DEFECT, RECIPROCATE = (
    matrix_games.ALWAYS_FIRST,
    matrix_games.ALWAYS_SECOND,
    matrix_games.TIT_FOR_TAT,
)
# What the players earn in a round: cooperate is 0, defect is 1.
PAYS = {(0, 0): (-1, -1), (0, 1): (-3, 0), (1, 0): (0, -3), (1, 1): (-2, -2)}


@pytest.fixture(scope="module")
def average():
    """The average payoffs, compiled once; discount and payoffs are arguments."""
    return jax.jit(matrix_games.average_payoffs)


def _rounds(agent, opponent, num_rounds=2_000):
    """Payoffs of deterministic policies, played round by round in Python."""
    decide = [(np.asarray(logits) < 0).astype(int) for logits in (agent, opponent)]
    outcome, sums = None, np.zeros(2)
    for t in range(num_rounds):
        if outcome is None:
            moves = (decide[0][0], decide[1][0])
        else:
            mine, other = outcome
            moves = (decide[0][1 + 2 * mine + other], decide[1][1 + 2 * other + mine])
        sums += (1 - GAMMA) * GAMMA**t * np.array(PAYS[moves])
        outcome = moves
    return sums


def test_all_pairs_of_deterministic_policies_pay_what_playing_them_pays(average):
    """Alternation and cycles, and each player counting outcomes from its own side."""
    signs = [np.float32(s) for s in itertools.product((-20, 20), repeat=5)]
    rng = np.random.default_rng(0)
    for i, j in rng.integers(0, len(signs), (12, 2)):
        earned = average(signs[i], signs[j], IPD.default_params.payoffs, GAMMA)
        np.testing.assert_allclose(earned, _rounds(signs[i], signs[j]), atol=5e-5)


@pytest.mark.slow
def test_the_opponents_step_is_the_gradient_by_finite_differences(average):
    """In double precision, by rate 0.5; the agent is held still."""
    rng = np.random.default_rng(2)
    with jax.enable_x64(True):
        agent, opponent = jnp.asarray(rng.normal(size=(2, 5)))
        pays = matrix_games.ChickenGame().default_params.payoffs
        after, earned = matrix_games.opponent_learns(agent, opponent, pays, GAMMA, 0.5)

        def value(own):
            return matrix_games.average_payoffs(agent, own, pays, GAMMA).opponent / (
                1 - GAMMA
            )

        h = 1e-6 * np.eye(5)
        slope = [float(value(opponent + d) - value(opponent - d)) / 2e-6 for d in h]
        np.testing.assert_allclose((after - opponent) / 0.5, slope, rtol=1e-5)
        assert np.isclose(earned.opponent, value(opponent) * (1 - GAMMA))


@pytest.mark.parametrize("id", IDS)
@pytest.mark.slow(optimised=False)
def test_a_step_pays_first_and_teaches_afterwards(id):
    game = envs.make(id)
    params = game.default_params
    _, state = game.reset(jax.random.key(0))
    action = jnp.array([0.3, -1.0, 2.0, 50.0, 0.0])
    obs, after, reward, *flags, info = game.step(jax.random.key(1), state, action)
    clipped = jnp.clip(action, -6, 6)
    learnt, earned = matrix_games.opponent_learns(
        clipped, state.opponent, params.payoffs, 0.96, params.opponent_learning_rate
    )
    assert reward == earned.agent and info["opponent_payoff"] == earned.opponent
    np.testing.assert_array_equal(after.opponent, learnt)
    assert not np.allclose(after.opponent, state.opponent)
    expected = jax.nn.sigmoid(jnp.concatenate([clipped, learnt]))
    np.testing.assert_allclose(obs, expected, rtol=1e-6)
    assert not any(flags)


def test_a_lifetime_is_the_environment_step_by_step():
    """Also its end: truncated after the last game, and a fresh opponent."""
    game = matrix_games.MatchingPennies()
    params = game.default_params.replace(max_steps_in_episode=3)
    lived = matrix_games.shaped_lifetime(
        game, lambda obs: 3 * obs[:5] - obs[5:], jax.random.key(5), params
    )
    key = jax.random.fold_in(jax.random.key(5), 0)
    obs, state = game.reset(key, params)
    for t in range(3):
        seen = obs
        obs, state, reward, terminated, truncated, info = game.step(
            key, state, 3 * obs[:5] - obs[5:], params
        )
        np.testing.assert_allclose(lived.payoffs.agent[t], reward, atol=1e-6)
        np.testing.assert_allclose(lived.opponent[t], seen[5:], atol=1e-6)
        played = info["final_observation"][:5]
        np.testing.assert_allclose(lived.agent[t], played, atol=1e-6)
        assert (bool(terminated), bool(truncated)) == (False, t == 2)
    np.testing.assert_allclose(obs[:5], 0.5)


def test_the_end_of_a_lifetime_terminates_the_episode_where_it_is_asked_to():
    env = envs.make("Chicken-v0", terminal_lifetime=True)
    params = env.default_params.replace(max_steps_in_episode=1)
    _, state = env.reset(jax.random.key(0), params)
    *_, terminated, truncated, _ = env.step(
        jax.random.key(0), state, jnp.zeros(5), params
    )
    assert terminated and not truncated
