"""What holds of population-based training and of halving alike."""

import pytest

import purerl
from tests.helpers import assert_same_bits

from .conftest import HALVING, PBT, SEED

SEARCHES = {"pbt": (purerl.pbt, PBT), "halving": (purerl.halving, HALVING)}


def search(kind, config, axes, **changes):
    call, options = SEARCHES[kind]
    return call(config, axes, searches=[SEED], **{**options, **changes})


@pytest.mark.slow(optimised=False)
@pytest.mark.parametrize("kind", SEARCHES)
def test_a_search_does_not_depend_on_other_searches(tiny, axes, kind):
    whole = search(kind, tiny, axes)
    call, options = SEARCHES[kind]
    both = call(tiny, axes, searches=[SEED + 1, SEED], **options)
    mine = both.dataset.sel(seed=SEED)
    assert mine.drop_vars("seed").equals(whole.dataset.sel(seed=SEED).drop_vars("seed"))
    assert_same_bits(both.best(SEED).state, whole.best().state)
    with pytest.raises(purerl.ConfigError, match="no search with seed 99"):
        both.best(99)


@pytest.mark.parametrize("kind", SEARCHES)
def test_a_population_that_diverges_as_a_whole_says_so(tiny, kind):
    axes = {"learning_rate": [1e38], "max_grad_norm": [1e30]}
    with pytest.raises(purerl.ConfigError, match="every member has diverged by upd"):
        search(kind, tiny, axes)


@pytest.mark.parametrize(
    ("kind", "changes", "words"),
    [
        ("pbt", {"factors": (1.0,)}, "factors must be"),
        ("pbt", {"resample_probability": 1.5}, "resample_probability must be"),
        ("pbt", {"fitness": "training_curve"}, "fitness must be one of"),
        ("pbt", {"segment_updates": 3}, "segment_updates must divide ready_updates"),
        ("pbt", {"extend": 4096}, "extend must be True or False, got 4096"),
        ("halving", {"min_updates": 8}, "min_updates must leave room"),
        *(("halving", {"eta": eta}, "eta must be") for eta in (2.0, True, 1)),
    ],
)
def test_options_out_of_range_are_refused_in_a_sentence(
    tiny, axes, kind, changes, words
):
    with pytest.raises(purerl.ConfigError, match=words):
        search(kind, tiny, axes, **changes)
