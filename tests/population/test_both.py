"""What holds of population-based training and of halving alike."""

import pytest

import purerl
from purerl.search import folder
from purerl.storage.files import write_json
from tests.helpers import assert_same_bits

from .conftest import HALVING, PBT, SEED

SEARCHES = {"pbt": (purerl.pbt, PBT), "halving": (purerl.halving, HALVING)}


def search(kind, config, axes, **changes):
    call, options = SEARCHES[kind]
    return call(config, axes, searches=[SEED], **{**options, **changes})


class KilledError(Exception):
    """In place of a kill: nothing after it runs."""


@pytest.fixture
def begun(tiny, axes, tmp_path, monkeypatch):
    """Makes the folder of a search that died after its first record."""
    save = folder.save_step

    def save_and_die(*args):
        save(*args)
        raise KilledError

    def begin(kind):
        with monkeypatch.context() as patch, pytest.raises(KilledError):
            patch.setattr(folder, "save_step", save_and_die)
            search(kind, tiny, axes, out=tmp_path)
        return tmp_path

    return begin


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


@pytest.mark.parametrize(
    ("kind", "changes", "words"),
    [
        ("pbt", {"population": 8}, "population is 6 there and 8 here"),
        ("pbt", {"quantile": 0.5}, "quantile is 0.2 there and 0.5 here"),
        ("pbt", {"lanes": 2}, "lanes is 4 there and 2 here"),
        ("pbt", {"config": {"gae_lambda": 0.9}}, "gae_lambda is 0.95 there and 0.9"),
        ("pbt", {"axes": {"gamma": [0.9, 0.99]}}, "axes are"),
        ("halving", {"eta": 2}, "eta is 3 there and 2 here"),
    ],
)
def test_a_folder_of_another_search_is_refused_with_the_difference(
    tiny, axes, begun, kind, changes, words
):
    out = begun(kind)
    other = tiny.replace(**changes.pop("config", {}))
    axes = changes.pop("axes", axes)
    with pytest.raises(purerl.ConfigError, match=words):
        search(kind, other, axes, out=out, **changes)


def test_folders_of_other_kinds_are_refused(tiny, axes, begun, tmp_path):
    words = "holds a successive-halving search, not popul"
    with pytest.raises(purerl.ConfigError, match=words):
        search("pbt", tiny, axes, out=begun("halving"))
    (tmp_path / "other").mkdir()
    write_json(tmp_path / "other" / "manifest.json", {"kind": "run"})
    with pytest.raises(purerl.ConfigError, match="not a successive-halving search"):
        search("halving", tiny, axes, out=tmp_path / "other")


@pytest.mark.parametrize("kind", SEARCHES)
def test_a_population_that_diverges_as_a_whole_says_so(tiny, kind):
    axes = {"learning_rate": [1e38], "max_grad_norm": [1e30]}
    with pytest.raises(purerl.ConfigError, match="every member has diverged by upd"):
        search(kind, tiny, axes)


@pytest.mark.parametrize(
    ("kind", "changes", "words"),
    [
        ("pbt", {"population": 0}, "population must be"),
        ("pbt", {"quantile": 0.7}, "quantile must lie between 0 and 0.5"),
        ("pbt", {"factors": (1.0,)}, "factors must be"),
        ("pbt", {"resample_probability": 1.5}, "resample_probability must lie"),
        ("pbt", {"fitness": "training_curve"}, "fitness must be one of"),
        ("pbt", {"num_rounds": 3}, "num_rounds or ready_updates, not both"),
        ("pbt", {"segment_updates": 3}, "segment_updates must divide ready_updates"),
        ("pbt", {"extend": 4096}, "extend must be True or False, got 4096"),
        ("halving", {"segment_updates": 3}, "segment_updates must divide min_updates"),
        ("halving", {"min_updates": 8}, "min_updates must leave room"),
        *(("halving", {"eta": eta}, "eta must be") for eta in (2.0, True, 1)),
    ],
)
def test_options_out_of_range_are_refused_in_a_sentence(
    tiny, axes, kind, changes, words
):
    with pytest.raises(purerl.ConfigError, match=words):
        search(kind, tiny, axes, **changes)


@pytest.mark.parametrize("call", [purerl.pbt, purerl.halving])
@pytest.mark.parametrize("searches", [0, [4, 4]])
def test_searches_are_a_number_or_different_seeds(call, tiny, axes, searches):
    with pytest.raises(purerl.ConfigError, match=r"^searches must be a positive"):
        call(tiny, axes, searches=searches)
