"""Wrappers that change rewards alone: the game is counted beside what was paid."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl import envs
from purerl.envs.wrappers import RewardWrapper
from tests.contracts.test_algorithms import small
from tests.helpers import tiny_config


@dataclasses.dataclass(unsafe_hash=True)
class Potential(RewardWrapper):
    """Ng et al. (1999): the difference of a potential, here the angle of the pole."""

    weight: float = 2.0

    def numbers(self):
        return {"potential_weight": self.weight}

    def pay(self, reward, step, params):
        before, after = step.state.theta, step.next_state.theta
        return reward + params.potential_weight * (after - before)


envs.register_wrapper("Potential", Potential)


def known(metrics):
    return np.asarray(metrics["episodes"]) > 0


@pytest.mark.parametrize("name", ["ppo", "dqn", "tabular"])
def test_the_game_is_counted_and_what_was_paid_beside_it(name):
    config = small(name, env_wrappers=("ScaleReward(0.25)",))
    result = jax.jit(purerl.make_train(config))(jax.random.key(0))
    metrics, evaluation = result.metrics, result.evaluation
    there = known(metrics)
    assert there.any()
    # CartPole pays 1 in every step.
    np.testing.assert_array_equal(
        metrics["episode_return"][there], metrics["episode_length"][there]
    )
    np.testing.assert_allclose(
        metrics["shaped_return"][there], 0.25 * metrics["episode_length"][there]
    )
    np.testing.assert_array_equal(
        evaluation["episode_return"], evaluation["episode_length"]
    )


def test_an_agent_learns_from_what_it_is_paid():
    """A scale of 1 changes nothing, to the bit, but the state that counts it."""
    config = tiny_config(num_evaluations=0)
    scaled = config.replace(env_wrappers=("ScaleReward(1.0)",))
    train = jax.jit(purerl.make_train(scaled))
    shaped, zero = (
        train(jax.random.key(0), {"env_params.reward_factor": factor})
        for factor in (1.0, 0.0)
    )
    plain = jax.jit(purerl.make_train(config))(jax.random.key(0))
    np.testing.assert_allclose(
        shaped.metrics["value_loss"], plain.metrics["value_loss"], rtol=1e-5
    )
    assert "shaped_return" not in plain.metrics
    assert plain.state.envs.shaped_return == ()
    metrics = zero.metrics
    assert (metrics["shaped_return"][known(metrics)] == 0).all()
    assert metrics["value_loss"][0] < 0.1 * plain.metrics["value_loss"][0]


def test_a_wrapper_of_ones_own_that_only_pays_declares_it_by_its_class():
    """What a difference of potentials pays in an episode is that of its ends."""
    config = tiny_config(env_wrappers=("Potential(3.0)",), num_evaluations=0)
    metrics = jax.jit(purerl.make_train(config))(jax.random.key(0)).metrics
    there = known(metrics)
    np.testing.assert_array_equal(
        metrics["episode_return"][there], metrics["episode_length"][there]
    )
    moved = (metrics["shaped_return"] - metrics["episode_return"])[there] / 3.0
    assert (np.abs(moved) > 0).all() and (np.abs(moved) < 0.5).all()


@pytest.mark.parametrize(
    "wrappers",
    [
        ("ScaleReward(0.5)", "ActionRepeat(2)"),
        ("ScaleReward(0.25)", "ClipReward(0, 0.2)", "FrameStack(2)"),
        ("ScaleReward(0.5)", "StickyActions(0.5)", "TerminalLimit"),
    ],
)
def test_wrappers_around_it_hand_the_rewards_of_the_game_on(wrappers):
    env = envs.wrap(envs.make("CartPole-v1"), wrappers)
    assert env.shapes_rewards and "shaped_return" in env.note
    params, key = env.default_params, jax.random.key(0)
    _, state = env.reset(key, params)
    info = env.step(key, state, jnp.int32(0), params)[-1]
    assert float(info[envs.base.RAW_REWARD]) == env.time_per_step


def test_gymnasium_plays_where_only_rewards_were_changed(tmp_path):
    pytest.importorskip("gymnasium")
    wrappers = ("ScaleReward(0.25)", "Potential")
    config = tiny_config(
        env_wrappers=wrappers,
        env_params={"reward_factor": 0.5},
        total_timesteps=64,
        num_evaluations=0,
    )
    run = purerl.run(config, seeds=2, out=tmp_path / "r", progress=False)
    played = purerl.evaluate(run, gymnasium=True, episodes=3)
    np.testing.assert_array_equal(played.episode_return, played.episode_length)
    assert played.title.startswith("Gymnasium's own CartPole-v1")
    assert played.title.endswith("rewards of the game")
