"""What differs between a folder and what is asked for: one comparison for all kinds."""

import pytest

from purerl.config import ConfigError
from purerl.storage.folders import AUTO_FIELD, FIELD, differences, refuse
from purerl.sweeps import store

AXES, TURNED = {"b": 1, "a": 2}, {"a": 2, "b": 1}
STORED = {
    "kind": "pbt",
    "device": "cpu",
    "config": {"gamma": 0.99, "clip": None, "env": "A"},
    "axes": AXES,
    "seeds": [0, 1],
    "generations": 3,
    "lanes": 4,
    "lanes_asked": None,
}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"device": "gpu", "kind": "x"}, []),
        ({"generations": 9}, []),
        ({"config": {"gamma": 0.99, "env": "A"}}, []),
        (
            {"config": {"gamma": 0.9, "clip": 1, "lr": 2}},
            [
                "clip is None there and 1 here",
                "env is 'A' there and missing here",
                "gamma is 0.99 there and 0.9 here",
                "lr is missing there and 2 here",
            ],
        ),
        ({"config": {"gamma": 0.99, "env": "A"}, "seeds": [0, 1]}, []),
        ({"seeds": [0, 1, 2]}, ["seeds is [0, 1] there and [0, 1, 2] here"]),
        # Axes draw one after the other, so that their order counts.
        ({"axes": TURNED}, [f"axes is {AXES} there and {TURNED} here"]),
        ({"lanes": 8}, []),  # chosen, because nobody asked for a width
        ({"lanes": 4, "lanes_asked": 4}, []),
        ({"lanes": 8, "lanes_asked": 8}, ["lanes is 4 there and 8 here"]),
        ({"more": 1}, ["more is missing there and 1 here"]),
    ],
)
def test_all_that_differs_is_said_with_both_values(changes, expected):
    assert differences(STORED, {**STORED, **changes}, free=("generations",)) == expected


def test_a_field_is_named_as_its_entry_says():
    stored, new = {"auto": {"a": 1}, "x": {"b": 2}}, {"auto": {"a": 3}, "x": {"b": 4}}
    auto = "a, which is auto, is 1 there and 3 here"
    found = differences(stored, new, {"x": FIELD, "auto": AUTO_FIELD})
    assert found == ["b is 2 there and 4 here", auto]


def test_of_long_values_the_place_that_differs_is_shown():
    values = list(range(1000))
    other = [*values[:500], -7, *values[501:]]
    (said,) = differences({"config": {"w": values}}, {"config": {"w": other}})
    assert len(said) < 300
    assert ", 499, 500, 501, 502," in said and ", 499, -7, 501, 502," in said
    # A difference at the end of a long value is shown as well.
    (said,) = differences({"config": {"w": values}}, {"config": {"w": values[:-1]}})
    assert "998, 999] there" in said and "997, 998] here" in said


def test_the_refusal_has_the_place_everything_and_the_remedy():
    refuse([], "out: here", "run")
    with pytest.raises(ConfigError) as error:
        refuse(["a is 1 there and 2 here", "b is 3 there and 4 here"], "out: x", "run")
    assert str(error.value) == (
        "out: x holds another run: a is 1 there and 2 here; b is 3 there and 4 here. "
        "Give another folder, or the stored settings."
    )


def sweep(**changes):
    """What a manifest says of a sweep of one axis."""
    group = {"auto": {"entropy_coef": 0.0}, "lanes": 2, "segment_updates": 4}
    own = {
        "config": {"gamma": 0.99},
        "design": "grid",
        "axes": ["learning_rate"],
        "shape": [2],
        "points": [{"learning_rate": 0.1}, {"learning_rate": 0.2}],
        "seeds": [0, 1],
        "options": {"keep_states": False},
        "groups": {"ppo": group, "ppo-2": group},
    }
    return {**own, **changes}


def test_what_a_sweep_adds_to_the_comparison():
    stored = sweep()
    more = sweep(points=[*stored["points"], {"learning_rate": 0.3}], shape=[3])
    (found,) = store.compare(stored, more)
    assert found == "2 points there and 3 here (1 new, 0 left out)"
    assert store.is_extension(stored, more) and not store.is_extension(more, stored)
    turned = sweep(points=stored["points"][::-1])
    (found,) = store.compare(stored, turned)
    assert found == "2 points there and 2 here (0 new, 0 left out)"
    assert store.is_extension(stored, turned)
    # Points of other axes have nothing in common, and are not counted.
    assert store.compare(stored, sweep(axes=["gamma"], points=[{"gamma": 0.9}])) == [
        "axes is ['learning_rate'] there and ['gamma'] here"
    ]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"auto": {"entropy_coef": 0.5}}, "entropy_coef, which is auto, is 0.0 there"),
        ({"lanes_asked": 8}, "lanes is 2 there and 8 here"),
        ({"segment_updates_asked": 2}, "segment_updates is 4 there and 2 here"),
    ],
)
def test_groups_of_a_sweep_that_differ_are_no_extension(changes, words):
    stored = sweep()
    groups = {name: {**one, **changes} for name, one in stored["groups"].items()}
    new = sweep(groups=groups, seeds=[0, 1, 2])
    seeds, group = store.compare(stored, new)  # the two groups say it once
    assert seeds.startswith("seeds is") and group.startswith(words)
    assert not store.is_extension(stored, new)
    # Members of other groups have been trained with nothing yet.
    assert store.is_extension(stored, sweep(groups={"other": groups["ppo"]}))
