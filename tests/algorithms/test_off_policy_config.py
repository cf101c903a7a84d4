"""How often an off-policy agent learns, from when on, and what would never learn."""

import chex
import jax
import numpy as np
import pytest

import purerl
from purerl import SACConfig, TD3Config
from purerl.optimisers import SGD
from purerl.runner.run import run
from tests.helpers import slow_but

SMALL = {
    "env": "Pendulum-v1",
    "hidden_sizes": (4,),
    "batch_size": 4,
    "num_evaluations": 0,
}


def test_the_last_step_that_is_run_may_be_the_first_that_learns():
    config = SACConfig(num_envs=16, total_timesteps=5_990, learning_starts=4_800)
    purerl.make_train(config)
    assert config.total_gradient_steps == 1


def test_gradient_steps_per_round_from_updates_per_step():
    assert SACConfig(num_envs=64).update_ratio == 1 / 64
    config = SACConfig(num_envs=10, num_steps=3, updates_per_step=0.7)
    assert config.gradient_steps_per_round == 21  # 0.7 * 30 is 20.999999999999996
    assert config.update_ratio == 0.7
    purerl.make_train(config)


@pytest.mark.slow
def test_an_agent_of_many_environments_learns_as_often_as_it_is_told(capsys):
    config = TD3Config(
        num_envs=4, updates_per_step=0.5, rounds_per_update=5, learning_starts=10,
        total_timesteps=40, **SMALL,
    )  # fmt: skip
    result = run(config, seeds=1)
    # The warm-up ends in round 2 (steps 8 to 11); 8 rounds of 10 learn, twice each.
    assert result.metrics["gradient_steps"].tolist() == [[6, 16]]
    assert "0.5 gradient steps per environment step" in capsys.readouterr().err


@pytest.mark.slow
def test_random_steps_are_apart_from_the_start_of_learning():
    config = TD3Config(
        rounds_per_update=12, learning_starts=12, random_steps=3, total_timesteps=12,
        exploration_noise=0.0, **SMALL,
    )  # fmt: skip
    algorithm = purerl.make_algorithm(config)
    start = jax.jit(algorithm.init)(jax.random.key(0))
    after, _ = jax.jit(algorithm.step)(start)
    obs, action = after.buffer.obs[:12], np.asarray(after.buffer.action[:12])
    chosen = np.asarray(jax.vmap(lambda o: algorithm.act(start, o))(obs))
    chosen = chosen / 2.0  # Pendulum's actions lie in [-2, 2], stored ones in [-1, 1].
    # Without noise the policy, which has not learned yet, acts from step 3 on.
    np.testing.assert_allclose(action[3:], chosen[3:], atol=1e-6)
    assert (np.abs(action[:3] - chosen[:3]) > 1e-3).all()


def test_counts_of_gradient_steps_do_not_wrap():
    config = TD3Config(total_timesteps=4_000_000_000, buffer_size=1_000)
    number = np.uint32(3_999_999_999)
    assert int(config.gradient_steps_before(number)) == 3_999_999_000


def test_the_dependent_steps_of_an_update_are_those_of_acting_and_of_learning():
    config = TD3Config(num_steps=2, gradient_steps=3, rounds_per_update=5)
    assert config.sequential_steps == 5 * (2 + 3)


@pytest.mark.parametrize(
    "config",
    slow_but([purerl.DQNConfig, purerl.SACConfig, purerl.MPOConfig], purerl.SACConfig),
)
def test_targets_stand_still_until_they_are_due(config):
    small = config(
        num_envs=2,
        total_timesteps=64,
        rounds_per_update=16,
        learning_starts=12,
        batch_size=8,
        hidden_sizes=(8,),
        num_evaluations=0,
        target_update_interval=10**6,
        tau=0.5,
    )
    algorithm = purerl.make_algorithm(small)
    first = algorithm.init(jax.random.key(0))
    last = jax.jit(algorithm.step)(first)[0]
    chex.assert_trees_all_equal(last.target_params, first.target_params)
    with pytest.raises(AssertionError):
        chex.assert_trees_all_equal(last.params, first.params)


@pytest.mark.parametrize("config", [purerl.TD3Config, purerl.SACConfig])
def test_a_whole_part_where_bounds_of_spaces_are_arrays_of_jax(config):
    train = purerl.make_train(config(env="Reacher-misc", total_timesteps=2_000))
    # SGD without momentum keeps no averages of gradients, as Adam does.
    adam = jax.eval_shape(train, jax.random.key(0))
    sgd = jax.eval_shape(
        lambda key: train(key, {"optimiser": SGD()}), jax.random.key(0)
    )
    assert jax.tree.structure(sgd.metrics) == jax.tree.structure(adam.metrics)
    count = [len(jax.tree.leaves(result.state)) for result in (adam, sgd)]
    assert count[1] < count[0]
