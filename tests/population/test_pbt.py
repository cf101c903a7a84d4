import jax
import numpy as np
import pytest

import purerl
from purerl.execution.cohort import make_cohort
from purerl.execution.programs import Members, rekey
from purerl.population.space import Space, member_keys
from tests.helpers import assert_same_bits, trained

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


def train_alone(config, pieces, length=ROUND):
    """One agent at the same W and K through `pieces` of (key data, overrides)."""
    bound = purerl.train.bind(config)
    cohort = None
    for data, overrides in pieces:
        keys = jax.random.wrap_key_data(data[None])
        members = Members(keys, jax.tree.map(lambda x: x[None], overrides))
        if cohort is None:
            cohort = make_cohort(bound, members, LANES, length)
            cohort.init()
        # A copy goes on with a key of its own; all else is its parent's.
        states = cohort.gather()
        states = states._replace(key=states.key.replace(data=data[None]))
        cohort.restore(states, cohort.update, members)
        list(cohort.segments(cohort.next_update))
    return jax.tree.map(lambda x: x[0], cohort.gather())


@pytest.mark.slow(optimised=False)
def test_without_exploit_it_is_plain_training_bit_for_bit(tiny, axes):
    result = search(tiny, axes, quantile=0.0)
    assert (result.dataset.parent.values == np.arange(SIZE)).all()
    space = Space(tiny, axes)
    members = Members(
        member_keys((SEED,), SIZE), space.overrides(space.draws(SIZE, [SEED]))
    )
    cohort = make_cohort(purerl.train.bind(tiny), members, LANES, ROUND)
    assert_same_bits(result.states, trained(cohort))


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
        assert (data.learning_rate.values[mark] >= 1e-4).all()
        assert (data.learning_rate.values[mark] <= 1e-2).all()
        assert (data.gamma.values[mark] <= 0.999).all()
        kept = parents == np.arange(SIZE)
        for name in ("learning_rate", "gamma", "entropy_coef"):
            values = data[name].values
            np.testing.assert_array_equal(values[mark + 1, kept], values[mark, kept])
    assert copies >= 3
    assert (data.parent.values[-1] == np.arange(SIZE)).all()


@pytest.mark.slow
def test_a_copy_draws_from_a_key_of_its_own(tiny, axes):
    """With equal hyperparameters too, parent and child do not train alike."""
    fixed = {"learning_rate": [1e-3]}
    result = search(tiny, fixed, quantile=0.5, resample_probability=0.0)
    parents = result.steps[0].after.parents
    child = int(np.flatnonzero(parents != np.arange(SIZE))[0])
    parent = int(parents[child])
    keys = [step.outcome.keys for step in result.steps]
    assert (keys[1][child] != keys[1][parent]).any()
    assert (keys[1][child] != keys[0][child]).any()
    np.testing.assert_array_equal(keys[1][parent], keys[0][parent])
    for metric in ("policy_loss", "grad_norm"):
        rows = result.steps[1].outcome.train[metric]
        assert rows[child] != rows[parent]
    # Twins of one parent are no twins of one another.
    assert len(np.unique(keys[-1], axis=0)) == SIZE


def test_keys_inside_environments_are_renewed_as_well():
    from purerl.scale.host import HostKey
    from purerl.train import make_algorithm

    state = jax.eval_shape(make_algorithm(purerl.PPOConfig()).init, jax.random.key(0))
    inner = HostKey(np.arange(24, dtype=np.uint32).reshape(3, 4, 2), "fry")
    own = HostKey(np.arange(6, dtype=np.uint32).reshape(3, 2), "fry")
    states = state._replace(
        params=np.ones(3), opt_state=(), obs_moments=(), reward_scale=(), envs=inner
    )._replace(key=own, update=np.zeros(3))
    keys = jax.random.split(jax.random.key(5), 3)
    renewed = np.array([False, True, False])
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


@pytest.mark.slow
def test_a_diverged_member_is_replaced_at_once_whatever_the_quantile(tiny):
    # One of two learning rates is so large that parameters overflow.
    axes = {"learning_rate": [1e-3, 1e38], "max_grad_norm": [1e30]}
    result = search(tiny, axes, quantile=0.0, resample_probability=0.0)
    first = result.dataset.isel(seed=0, round=0)
    huge = first.learning_rate.values > 1
    assert 0 < huge.sum() < SIZE
    np.testing.assert_array_equal(first.diverged.values, huge)
    np.testing.assert_array_equal(np.isnan(first.score.values), huge)
    parents = first.parent.values
    assert not huge[parents[huge]].any()
    np.testing.assert_array_equal(parents[~huge], np.flatnonzero(~huge))
    best = result.best()
    assert best.point["learning_rate"] == 1e-3
    assert np.isfinite(best.score)


def test_training_returns_count_where_nothing_is_evaluated(tiny, axes):
    result = search(tiny, axes, fitness="final_return")
    for step in result.steps:
        episodes = step.outcome.train["episodes"][:, 0]
        returns = step.outcome.train["episode_return"][:, 0].astype(float)
        ended = episodes > 0
        np.testing.assert_allclose(step.after.score[ended], returns[ended], rtol=1e-12)
    assert result.evaluation_steps == 0
    assert result.training_steps == SIZE * 640


@pytest.mark.slow
def test_planned_evaluations_count_in_the_rounds_that_have_one(tiny, axes):
    config = tiny.replace(num_evaluations=3)  # after updates 7, 13 and 20
    result = search(config, axes, fitness="final_return")
    for mark in (1, 3, 4):
        step = result.steps[mark]
        mean = step.outcome.evaluation["episode_return"][:, -1].mean(-1)
        np.testing.assert_allclose(step.after.score, mean, rtol=1e-6)
    assert "episode_return" not in result.steps[0].outcome.evaluation


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


def test_an_extended_search_keeps_what_auto_stood_for(tmp_path):
    """Exploration decays over the steps of the first run, and so it does in both."""
    config = purerl.DQNConfig(
        num_envs=2,
        rounds_per_update=4,
        buffer_size=64,
        batch_size=8,
        learning_starts=8,
        hidden_sizes=(4,),
        total_timesteps=8 * 8,
        num_evaluations=0,
        eval_episodes=2,
    )
    axes = {"learning_rate": purerl.loguniform(1e-4, 1e-2)}
    more = {"population": 4, "searches": 1}

    def extended():
        longer = config.replace(total_timesteps=16 * 8)
        return search(longer, axes, **more, out=tmp_path, extend=True)

    def search(config, axes, **options):
        return purerl.pbt(config, axes, **{**PBT, **options})

    search(config, axes, **more, out=tmp_path)
    result = extended()
    asked = purerl.resolve(config).epsilon_steps
    assert asked == 32.0
    whole = config.replace(total_timesteps=16 * 8, epsilon_steps=asked)
    assert_same_bits(outcome(result), outcome(search(whole, axes, **more)))
    # The same call goes on, and finds everything trained.
    assert_same_bits(outcome(extended()), outcome(result))
