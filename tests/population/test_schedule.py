import jax
import numpy as np
import pytest

import purerl
from purerl.execution.cohort import make_cohort
from purerl.execution.programs import Members
from purerl.population.schedules import ConfigSchedule, schedules_search
from purerl.population.space import evaluation_keys
from tests.helpers import assert_same_bits, trained

LOW, HIGH = {"learning_rate": 1e-4}, {"learning_rate": 3e-3}


@pytest.fixture(scope="module")
def both(tiny):
    schedules = [ConfigSchedule((0,), (HIGH,)), ConfigSchedule((0, 8), (HIGH, LOW))]
    return purerl.train_schedules(tiny, schedules, seeds=[2, 5], lanes=2)


@pytest.mark.slow(optimised=False)
def test_a_schedule_of_one_piece_is_training_with_it_bit_for_bit(tiny, both):
    keys = jax.vmap(jax.random.key)(np.array([2, 5], np.uint32))
    rates = np.full(2, 3e-3, np.float32)
    members = Members(keys, {"learning_rate": rates})
    cohort = make_cohort(purerl.train.bind(tiny), members, 2, 8)
    fixed = jax.tree.map(lambda x: x[0], both.state)
    assert_same_bits(fixed, trained(cohort))


def test_a_schedule_takes_effect_at_its_update(both):
    loss = both.train["policy_loss"]
    np.testing.assert_array_equal(loss[0, :, 0], loss[1, :, 0])
    assert (loss[0, :, 1:] != loss[1, :, 1:]).all()
    # A smaller step size moves the policy less.
    kl = both.train["approx_kl"]
    assert (kl[1, :, 1:] < kl[0, :, 1:]).all()


def test_a_change_to_the_same_value_changes_nothing(tiny, both):
    idle = ConfigSchedule((0, 8, 16), (HIGH, HIGH, LOW))
    assert idle.merged() == ConfigSchedule((0, 16), (HIGH, LOW))
    same = ConfigSchedule((0, 8), (HIGH, HIGH))
    again = purerl.train_schedules(tiny, same, seeds=[2, 5], lanes=2)
    states = (jax.tree.map(lambda x: x[0], found.state) for found in (again, both))
    assert_same_bits(*states)
    np.testing.assert_array_equal(again.score[0], both.score[0])


def test_it_is_judged_by_episodes_on_which_no_search_selected(tiny):
    search = schedules_search(tiny, ConfigSchedule((0, 8), (HIGH, LOW)), seeds=[2, 5])
    state = search.init()
    first = search.ask(state)
    assert first is not None and first.evaluation_keys is None
    last = search.ask(1)
    assert last is not None and last.evaluation_keys is not None
    judged = jax.random.key_data(last.evaluation_keys)
    for milestone in range(100):
        keys = evaluation_keys(np.array([2, 5]), milestone)
        assert (jax.random.key_data(keys) != judged).any(-1).all()


def test_a_number_that_is_read_once_may_be_the_same_in_all_pieces():
    config = purerl.TabularConfig(total_timesteps=32, num_steps=8, num_evaluations=0)
    values = ({"initial_value": 3.0, "epsilon": e} for e in (0.1, 0.5))
    schedule = ConfigSchedule((0, 2), tuple(values))
    trained = purerl.train_schedules(config, schedule, progress=False)
    assert np.asarray(trained.state.params["q"]).max() == 3.0


STATIC = ConfigSchedule((0, 4), ({"num_envs": 4}, {"num_envs": 2}))


@pytest.mark.parametrize(
    ("schedule", "options", "words"),
    [
        (ConfigSchedule((1,), (LOW,)), {}, "begins at update 0"),
        (ConfigSchedule((0, 0), (LOW, LOW)), {}, "ascends"),
        (ConfigSchedule((0, 4), (LOW,)), {}, "1 values"),
        (ConfigSchedule((0, 2.5), (LOW, HIGH)), {}, "begins at update 0"),
        (ConfigSchedule((0, 4), (LOW, {"gamma": 0.9})), {}, "the same fields"),
        (ConfigSchedule((0, 20), (LOW, HIGH)), {}, "piece at update 20 is after"),
        (ConfigSchedule((0, 4), (LOW, HIGH)), {"segment_updates": 3}, "must divide 4"),
        (STATIC, {}, "numbers only"),
        ([], {}, "needs schedules that all set"),
    ],
)
def test_schedules_that_cannot_be_are_refused(tiny, schedule, options, words):
    with pytest.raises(purerl.ConfigError, match=words):
        purerl.train_schedules(tiny, schedule, **options)


PROBE = purerl.PPOConfig(
    env="probe/constant-reward",  # Every episode returns the parameter.
    **{"num_envs": 2, "num_steps": 8, "total_timesteps": 6 * 16},
    **{"num_minibatches": 2, "hidden_sizes": (4,), "num_evaluations": 0},
)


def test_every_piece_has_its_own_environment():
    rewards = (0.25, 0.5, 1.0)
    values = tuple({"env_params.reward": reward} for reward in rewards)
    schedule = ConfigSchedule((0, 2, 4), values)
    found = purerl.train_schedules(PROBE, schedule, seeds=2, progress=False)
    np.testing.assert_array_equal(found.train["episode_return"], [[rewards] * 2])
    np.testing.assert_array_equal(found.score, [[1.0, 1.0]])


def test_a_loop_around_step_has_an_environment_of_its_own_in_every_update():
    def algorithm(reward):
        return purerl.make_algorithm(PROBE.replace(env_params={"reward": reward}))

    def update(state, reward):
        state, metrics = algorithm(reward).step(state)
        return state, metrics["episode_return"]

    def train(key, rewards):
        return jax.lax.scan(update, algorithm(rewards[0]).init(key), rewards)[1]

    rewards = np.linspace(0.25, 1.0, 4, dtype=np.float32)
    np.testing.assert_allclose(jax.jit(train)(jax.random.key(0), rewards), rewards)
