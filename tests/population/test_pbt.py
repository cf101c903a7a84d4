import jax
import numpy as np
import pytest

import purerl
from purerl.execution.cohort import make_cohort
from purerl.execution.programs import Members, rekey
from purerl.population.space import Space
from purerl.scale.host import HostKey
from purerl.train import make_algorithm
from tests.helpers import assert_same_bits

from .conftest import LANES, PBT, ROUND, SEED, SIZE

# What is killed in a process of its own is compiled there as users compile it.
pytestmark = pytest.mark.optimised(slow=True)


def search(config, axes, **changes):
    return purerl.pbt(config, axes, searches=[SEED], **{**PBT, **changes})


def outcome(result):
    return result.states, result.steps


@pytest.fixture(scope="module")
def whole(tiny, axes):
    return search(tiny, axes)


def train_alone(config, pieces):
    """One agent at the same W and K through `pieces` of (key data, overrides)."""
    bound = purerl.train.bind(config)
    cohort = None
    for data, overrides in pieces:
        keys = jax.random.wrap_key_data(data[None])
        members = Members(keys, jax.tree.map(lambda x: x[None], overrides))
        if cohort is None:
            cohort = make_cohort(bound, members, LANES, ROUND)
            cohort.init()
        # A copy goes on with a key of its own; all else is its parent's.
        states = cohort.gather()
        states = states._replace(key=states.key.replace(data=data[None]))
        cohort.restore(states, cohort.update, members)
        list(cohort.segments(cohort.next_update))
    return jax.tree.map(lambda x: x[0], cohort.gather())


@pytest.mark.parametrize("member", range(SIZE))
def test_every_member_is_its_lineage_trained_alone_bit_for_bit(
    tiny, axes, whole, member
):
    """Keys, hyperparameters and parents in the record are all there is to it."""
    space = Space(tiny, axes)
    pieces = []
    for step, who in zip(whole.steps, whole.lineage(SEED, member), strict=True):
        hyper = {name: step.before.hyper[name][[who]] for name in space.axes}
        overrides = jax.tree.map(lambda x: x[0], space.overrides(hyper))
        pieces.append((step.outcome.keys[who], overrides))
    alone = train_alone(tiny, pieces)
    mine = jax.tree.map(lambda x: x[member], whole.states)
    assert_same_bits(mine, alone)


def test_the_bottom_copied_the_top_and_moved_within_bounds(whole):
    data, copies = whole.dataset.isel(seed=0), 0
    for mark in range(len(whole.milestones) - 1):
        scores, parents = data.score.values[mark], data.parent.values[mark]
        order = np.argsort(-scores, kind="stable")
        for member in np.flatnonzero(parents != np.arange(SIZE)):
            copies += 1
            assert member in order[-2:] and parents[member] in order[:2]
            assert scores[parents[member]] > scores[member]
            rate = data.learning_rate.values
            assert rate[mark + 1, member] != rate[mark, parents[member]]
            # With equal hyperparameters too, parent and child would not train alike.
            keys = [step.outcome.keys for step in whole.steps[mark : mark + 2]]
            assert (keys[1][member] != keys[1][parents[member]]).any()
            assert (keys[1][member] != keys[0][member]).any()
        assert (data.learning_rate.values[mark] >= 1e-4).all()
        assert (data.learning_rate.values[mark] <= 1e-2).all()
        assert (data.gamma.values[mark] <= 0.999).all()
        kept = parents == np.arange(SIZE)
        for name in ("learning_rate", "gamma", "entropy_coef"):
            values = data[name].values
            np.testing.assert_array_equal(values[mark + 1, kept], values[mark, kept])
    assert copies >= 3
    assert len(np.unique(whole.steps[-1].outcome.keys, axis=0)) == SIZE  # No twins.
    assert (data.parent.values[-1] == np.arange(SIZE)).all()


def test_keys_inside_environments_are_renewed_as_well():
    state = jax.eval_shape(make_algorithm(purerl.PPOConfig()).init, jax.random.key(0))
    inner = HostKey(np.arange(24, dtype=np.uint32).reshape(3, 4, 2), "fry")
    own = HostKey(np.arange(6, dtype=np.uint32).reshape(3, 2), "fry")
    known = {"params": np.ones(3), "envs": inner, "key": own, "update": np.zeros(3)}
    states = state._replace(opt_state=(), obs_moments=(), reward_scale=(), **known)
    keys, renewed = jax.random.split(jax.random.key(5), 3), np.arange(3) == 1
    new = rekey(states, renewed, keys)
    np.testing.assert_array_equal(new.key.data[1], jax.random.key_data(keys)[1])
    np.testing.assert_array_equal(new.key.data[[0, 2]], own.data[[0, 2]])
    np.testing.assert_array_equal(new.envs.data[[0, 2]], inner.data[[0, 2]])
    assert (new.envs.data[1] != inner.data[1]).any()
    assert len(np.unique(new.envs.data[1], axis=0)) == 4
    assert own.data[1, 0] == 2  # the old states are as they were


def test_a_stored_width_wins_where_none_is_asked_for(tiny, axes, whole, tmp_path):
    search(tiny, axes, out=tmp_path)
    result = search(tiny, axes, out=tmp_path, lanes=None)
    assert_same_bits(result.states, whole.states)


def test_the_best_member_acts_and_its_schedule_can_be_trained_again(tiny, axes, whole):
    best = whole.best()
    scores = whole.dataset.score.values[0, -1]
    assert best.score == scores.max() and best.member == int(scores.argmax())
    assert best.policy()(np.zeros(4)).shape == ()
    assert best.schedule.first_updates == (0, 4, 8, 12, 16)
    assert best.schedule.at(19) == best.point
    line = whole.lineage(SEED, best.member)
    rates = whole.dataset.learning_rate.values[0]
    for mark, who in enumerate(line):
        assert best.schedule.at(mark * ROUND)["learning_rate"] == rates[mark, who]
    again = purerl.train_schedules(tiny, best.schedule, seeds=3, lanes=LANES)
    assert again.score.shape == (1, 3) and np.isfinite(again.score).all()
    assert again.train["episode_return"].shape == (1, 3, 5)


def test_a_picture_does_not_join_evaluations_and_returns_in_training(tiny, axes):
    config, fitness = tiny.replace(num_evaluations=2, eval_share=1.0), "final_return"
    result = search(config, axes, fitness=fitness, population=2)
    known = [bool(step.outcome.evaluation) for step in result.steps]
    assert known == [False, False, True, False, True]  # After updates 10 and 20.
    *members, best = np.ravel(result.plot()[1])[0].get_lines()
    for line in (*members, best):
        np.testing.assert_array_equal(line.get_xdata(), [12, 20])
    played = result.steps[-1].outcome.evaluation["episode_return"][:, -1].mean(-1)
    assert best.get_ydata()[-1] == max(played)


def test_an_extended_search_keeps_what_auto_stood_for(tmp_path):
    """Exploration decays over the steps of the first run, and so it does in both."""
    config = purerl.DQNConfig(
        **{"num_envs": 2, "rounds_per_update": 4, "total_timesteps": 8 * 8},
        **{"buffer_size": 64, "batch_size": 8, "learning_starts": 8},
        **{"hidden_sizes": (4,), "num_evaluations": 0, "eval_episodes": 2},
    )
    axes = {"learning_rate": purerl.loguniform(1e-4, 1e-2)}

    def search(config, **options):
        more = {**PBT, "population": 4, "searches": 1, **options}
        return purerl.pbt(config, axes, **more)

    def extended():
        longer = config.replace(total_timesteps=16 * 8)
        return search(longer, out=tmp_path, extend=True)

    search(config, out=tmp_path)
    result = extended()
    asked = purerl.resolve(config).epsilon_steps
    assert asked == 32.0
    whole = config.replace(total_timesteps=16 * 8, epsilon_steps=asked)
    assert_same_bits(outcome(result), outcome(search(whole)))
    # The same call goes on, and finds everything trained; that of a longer search, in
    # which exploration would decay over other steps, is another one, by these alone.
    assert_same_bits(outcome(extended()), outcome(result))
    with pytest.raises(purerl.ConfigError) as error:
        search(config.replace(total_timesteps=16 * 8), out=tmp_path)
    assert "epsilon_steps is 32.0 there and 'auto' here" in str(error.value)
    assert "num_envs" not in str(error.value) and "tau" not in str(error.value)
    again = config.replace(total_timesteps=16 * 8, epsilon_steps=asked)
    assert_same_bits(outcome(search(again, out=tmp_path)), outcome(result))
