import jax
import numpy as np
import pytest

import purerl
from purerl.acting.evaluate import evaluate
from purerl.execution.cohort import Cohort, make_cohort
from purerl.execution.programs import Members
from purerl.population.space import Space, evaluation_keys, member_keys
from tests.helpers import assert_same_bits, trained

from .conftest import HALVING, LANES, NUM_UPDATES, RUNG, SEED


def search(config, axes, **changes):
    return purerl.halving(config, axes, searches=[SEED], **{**HALVING, **changes})


@pytest.fixture(scope="module")
def whole(tiny, axes):
    return search(tiny, axes)


@pytest.mark.slow(optimised=False)
def test_survivors_are_the_same_members_trained_alone_bit_for_bit(tiny, axes, whole):
    space, size = Space(tiny, axes), whole.plan.size
    hyper = space.draws(size, [SEED])
    everyone = Members(member_keys((SEED,), size), space.overrides(hyper))
    survivors = whole.steps[-1].after.alive
    assert len(survivors) == 5
    bound = purerl.train.bind(tiny)
    for row, member in enumerate(survivors):
        alone = jax.tree.map(lambda x, m=member: x[np.array([m])], everyone)
        cohort = make_cohort(bound, alone, LANES, RUNG)
        mine = jax.tree.map(lambda x, r=row: x[[r]], whole.states)
        assert_same_bits(mine, trained(cohort))


def test_the_best_third_of_each_bracket_goes_on(whole):
    data = whole.dataset.isel(seed=0)
    trained, bracket = data.trained_updates.values, data.bracket.values
    assert whole.plan.rungs == (2, 6, 20)
    for number, counts in enumerate([(6, 2, 1), (0, 4, 1), (0, 0, 3)]):
        mine = trained[bracket == number]
        assert tuple((mine == update).sum() for update in (2, 6, 20)) == counts
    scores = data.score.values
    for number, rung in ((0, 0), (0, 1), (1, 1)):
        end = data.updates[rung].item()
        here = (bracket == number) & (trained >= end)
        gone, kept = here & (trained == end), here & (trained > end)
        assert scores[kept, rung].min() >= scores[gone, rung].max()
    # Who was dropped has no later score.
    assert np.isnan(scores[trained == 2, 1:]).all()
    assert np.isfinite(scores[trained == 20]).all()


def test_work_falls_with_the_members(tiny, axes, monkeypatch):
    """Blocks that are really advanced, not members that are counted."""
    blocks: dict[int, int] = {}
    dispatch = Cohort._dispatch

    def counted(self, number, first):
        blocks[first] = blocks.get(first, 0) + 1
        return dispatch(self, number, first)

    monkeypatch.setattr(Cohort, "_dispatch", counted)
    result = search(tiny, axes)
    # 17 members, then 11, then 5, in blocks of four.
    assert [blocks[first] for first in (0, 2, 4, 6, 18)] == [5, 3, 3, 2, 2]
    assert result.training_steps == 32 * (17 * 2 + 11 * 4 + 5 * 14)


def test_one_bracket_is_successive_halving(tiny, axes, whole):
    result = search(tiny, axes, brackets="one")
    trained = result.dataset.trained_updates.values[0]
    assert sorted(trained) == [2] * 6 + [6] * 2 + [20]
    # The first bracket of Hyperband, which does not know that there are others.
    np.testing.assert_array_equal(trained, whole.dataset.trained_updates[0, :9])
    best = result.best()
    row = list(whole.steps[-1].before.alive).index(best.member)
    assert_same_bits(best.state, jax.tree.map(lambda x: x[row], whole.states))


@pytest.mark.slow
def test_diverged_members_are_dropped_and_rank_worst(tiny):
    axes = {"learning_rate": [1e-3, 1e38], "max_grad_norm": [1e30]}
    result = search(tiny, axes)
    data = result.dataset.isel(seed=0)
    huge = data.learning_rate.values > 1
    assert 0 < huge.sum() < len(huge)
    assert (data.trained_updates.values[huge] == RUNG).all()
    assert np.isin(data.diverged_at.values[huge], range(RUNG + 1)).all()
    assert (data.diverged_at.values[~huge] == -1).all()
    assert np.isnan(data.score.values[huge]).all()
    assert result.best().point["learning_rate"] == 1e-3
    # They were dropped for nothing else: a bracket keeps its best, if it has any.
    for number in range(3):
        mine = (data.bracket.values == number) & ~huge
        assert (data.trained_updates.values[mine] == NUM_UPDATES).any() == mine.any()


@pytest.mark.slow
def test_scores_of_a_rung_are_fresh_and_share_their_episodes(tiny, axes, whole):
    """Members alike get equal scores: the episodes are the same ones."""
    assert whole.steps[1].outcome.fresh is None  # between rungs nobody is judged
    assert whole.steps[0].outcome.fresh.env_steps.shape == (17,)
    frozen = {"learning_rate": [1e-30]}  # nobody learns, so all that differs is init
    result = search(tiny, frozen, brackets="one")
    best, env = result.best(), result.space.bound.env
    key = evaluation_keys(np.array([SEED]), len(result.milestones) - 1)[0]
    sizes = {"num_episodes": tiny.eval_episodes, "max_steps": tiny.eval_max_steps}
    played = evaluate(env, env.default_params, best.policy(), key, **sizes)
    assert best.score == pytest.approx(float(played.episode_return.mean()))
