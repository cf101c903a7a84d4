"""Rounds of searches draw anew: parents, steps, episodes and keys of copies."""

import jax
import numpy as np
import pytest

import purerl
from purerl.execution.cohort import FreshReturns
from purerl.execution.programs import Members
from purerl.population.halving import HalvingSearch
from purerl.population.pbt import PBTSearch
from purerl.population.search import Fitness, measure
from purerl.population.space import Space, child_keys
from purerl.search.protocol import Outcome, Request, Search
from purerl.train import bind

from .conftest import SEED


def pbt_search(tiny, axes):
    options = {
        "population": 6,
        "ready_updates": 4,
        "quantile": 0.5,
        "factors": (0.8, 1.25),
        "resample_probability": 0.25,
        "fitness": "evaluation",
    }
    return PBTSearch(Space(tiny, axes), (SEED,), options)


def test_a_round_draws_its_own_parents_and_steps(tiny, axes):
    search = pbt_search(tiny, axes)
    found = Fitness(np.arange(6.0), np.zeros(6, bool))
    assert len({tuple(search._exploit(found, number)) for number in range(5)}) > 1
    hyper, parents = search.init().hyper, np.array([5, 4, 3, 3, 4, 5])
    moved = [search._explore(hyper, parents, number) for number in range(5)]
    assert len({tuple(one["learning_rate"]) for one in moved}) > 1


def halving_search(tiny, axes):
    kinds = {"brackets": "one", "fitness": "evaluation"}
    options = {"num_points": None, "eta": 3, "min_updates": 2, **kinds}
    return HalvingSearch(Space(tiny, axes), (SEED,), options)


@pytest.mark.parametrize("make", [pbt_search, halving_search])
def test_a_round_or_a_rung_is_judged_by_episodes_of_its_own(tiny, axes, make):
    search = make(tiny, axes)
    state, keys = search.init(), []
    for number in range(len(search.milestones)):
        asked = search.ask(state._replace(number=number)).evaluation_keys
        if asked is not None:
            keys.append(jax.random.key_data(asked)[0])
    assert len(keys) == (3 if make is halving_search else 5)
    assert len(np.unique(np.stack(keys), axis=0)) == len(keys)


def test_a_score_is_that_of_its_kind():
    train = {"episodes": [0, 1] * 3, "episode_return": [1, 9, 3, 9, np.nan, 9]}
    train = {name: np.asarray(x, float)[:, None] for name, x in train.items()}
    held = Outcome(train, {}, np.full(6, -1), np.zeros((6, 2), np.uint32))
    # Where no episode ended the return of before counts.
    found = measure(held, "final_return")
    np.testing.assert_array_equal(found.score, [1, 9, 3, 9, np.nan, 9])
    assert not found.diverged.any()
    planned = np.arange(24.0).reshape(6, 2, 2)
    planned[0, -1] = np.nan  # Of an evaluation a bad sign.
    found = measure(
        held._replace(evaluation={"episode_return": planned}), "final_return"
    )
    np.testing.assert_array_equal(found.score, [np.nan, *planned[1:, -1].mean(-1)])
    assert found.diverged.tolist() == [True] + [False] * 5
    fresh = FreshReturns(np.arange(6.0), np.full(6, 8))
    judged = held._replace(fresh=fresh, diverged_at=np.array([3] + [-1] * 5))
    found = measure(judged, "evaluation")
    np.testing.assert_array_equal(found.score, [np.nan, 1, 2, 3, 4, 5])
    assert np.isnan(measure(held, "evaluation").score).all()  # Between two rungs.


def test_a_copy_holds_its_parents_return(tiny):
    # Episodes of 32 steps, and 16 an update: they end in every second one.
    config = tiny.replace(env="Acrobot-v1", env_params={"max_steps_in_episode": 32})
    members = Members(jax.vmap(jax.random.key)(np.arange(2)), {})
    copied = Request(members, 3, np.array([0, 0]), is_copy=np.array([False, True]))
    requests = [Request(members, until=2), copied, None]

    def tell(number, request, outcome):
        if number == 0:  # Told apart by hand, as no agent reaches the goal so soon.
            outcome.train["episode_return"][:, -1] += [1, 0]
        return number + 1

    spec = {"config": {}, "options": {}, "seeds": [0]}
    asks = {"init": lambda: 0, "ask": requests.__getitem__, "tell": tell}
    search = Search("mine", bind(config), spec, (64, 32), 2, 1, **asks)
    first, second = (x.outcome for x in purerl.drive(search, progress=False).steps)
    assert (first.train["episodes"][:, -1] == 2).all()
    np.testing.assert_array_equal(first.train["episode_return"][:, -1], [-31, -32])
    assert (second.train["episodes"] == 0).all()
    np.testing.assert_array_equal(second.train["episode_return"], [[-31], [-31]])


def test_who_copies_twice_has_another_key_each_time():
    first, second = (
        jax.random.key_data(child_keys(np.full(2, SEED), mark, np.arange(2)))
        for mark in (0, 1)
    )
    assert (first != second).any(-1).all()
