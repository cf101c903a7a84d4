"""`searches` is a number of searches; `seeds`, its old name, means the same."""

import json

import pytest

import purerl
from purerl.population.searches import read_searches
from tests.helpers import assert_same_bits

CALLS = {"pbt": purerl.pbt, "halving": purerl.halving}


def test_one_search_where_nothing_is_asked_for():
    assert read_searches(None, None) == 1
    assert read_searches(3, None) == 3
    with pytest.warns(DeprecationWarning, match="^--seeds is called --searches$"):
        assert read_searches(None, [5, 7], "--") == [5, 7]


@pytest.mark.parametrize("name", CALLS)
def test_the_old_name_is_taken_with_a_warning_and_never_beside_the_new_one(
    name, tiny, axes
):
    call = CALLS[name]
    with pytest.raises(purerl.ConfigError, match="seeds is the old name of searches"):
        call(tiny, axes, searches=1, seeds=1)
    with pytest.raises(purerl.ConfigError, match=r"^searches must be a positive"):
        call(tiny, axes, searches=[4, 4])
    with pytest.raises(purerl.ConfigError, match=r"^searches must be a positive"):
        with pytest.warns(DeprecationWarning, match="seeds is called searches") as told:
            call(tiny, axes, seeds=0)
    assert [warning.filename for warning in told] == [__file__]


def test_both_names_make_the_same_searches_and_the_same_folder(tiny, axes, tmp_path):
    options = {"population": 2, "ready_updates": 10, "lanes": 4, "progress": False}
    found = purerl.pbt(tiny, axes, searches=[7, 3], out=tmp_path, **options)
    assert found.seeds == (7, 3) and found.dataset["seed"].values.tolist() == [7, 3]
    # The key in the folder is the one of before.
    stored = json.loads((tmp_path / "manifest.json").read_text())
    assert stored["seeds"] == [7, 3] and "searches" not in stored
    with pytest.warns(DeprecationWarning, match="seeds is called searches"):
        again = purerl.pbt(tiny, axes, seeds=[7, 3], out=tmp_path, **options)
    assert again.summary["trained_requests"] == 0
    assert_same_bits(again.states, found.states)
    with pytest.raises(purerl.ConfigError, match=r"seeds are .* there and .* here"):
        purerl.pbt(tiny, axes, searches=2, out=tmp_path, **options)
