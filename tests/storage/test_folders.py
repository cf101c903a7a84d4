"""Folders: what is begun, kept and refused, and how what differs is said."""

import pytest

import purerl
from purerl.config import ConfigError
from purerl.storage import folders
from purerl.storage.folders import AUTO_FIELD, FIELD, differences, refuse
from purerl.sweeps import store
from tests.helpers import tiny_table

from .every_kind import WRITE

REMAINS = {
    "run": "metrics/rows.jsonl",
    "sweep": "chunks/one.npz",
    "pbt": "records/00000.npz",
    "tune": "checkpoints/3.npz",
    "evolution": "snapshots/1.npz",
}


def put(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize("tool", REMAINS)
def test_what_is_there_without_a_manifest_is_kept_and_not_gone_on_with(tool, tmp_path):
    for name in (REMAINS[tool], "config.yaml"):
        out = tmp_path / name[:3]
        put(out / name, "old")
        with pytest.raises(ConfigError, match=f"has {name.split('/')[0]}/? and no"):
            WRITE[tool](out)
        files = [path for path in out.rglob("*") if path.is_file()]
        assert files == [out / name] and files[0].read_text() == "old"


def test_what_a_kill_before_the_manifest_left_is_begun_again(tmp_path):
    put(tmp_path / "records" / ".write-test-123", "")
    (tmp_path / "metrics" / "train").mkdir(parents=True)
    folders.check_out(tmp_path, "run")
    folders.check_out(tmp_path / "missing", "run")


def test_a_kill_between_the_two_files_leaves_the_manifest(tmp_path, monkeypatch):
    def killed(path, text):
        raise KeyboardInterrupt

    monkeypatch.setattr(folders, "write_atomic", killed)
    with pytest.raises(KeyboardInterrupt):
        folders.write(tmp_path, {"config": {}})
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


def test_what_a_kill_between_the_two_files_kept_off_is_done_later(tmp_path):
    config = tiny_table(num_evaluations=0)
    run, sweep = tmp_path / "run" / "config.yaml", tmp_path / "sweep" / "config.yaml"
    written = []
    for resume in (False, True):
        purerl.run(config, out=run.parent, resume=resume, progress=False)
        purerl.sweep(
            config, {"gamma": [0.9]}, seeds=1, out=sweep.parent, progress=False
        )
        written.append([run.read_text(), sweep.read_text()])
        run.unlink()
        sweep.unlink()
    assert written[0] == written[1]


@pytest.mark.parametrize("name", [None, *folders.CONTENTS])
def test_a_folder_that_was_begun_is_undone_unless_it_has_results(name, tmp_path):
    def begin():
        with folders.undone_if_empty(tmp_path):
            folders.write(tmp_path, {"config": {}}, folders.CONTENTS)
            if name is not None:
                (tmp_path / name / "1.npz").write_bytes(b"some")
            raise ConfigError("nothing could be made of it")

    with pytest.raises(ConfigError, match="nothing could be made of it"):
        begin()
    assert (tmp_path / folders.MANIFEST).exists() == (name is not None)
    assert (tmp_path / folders.CONFIG).exists() == (name is not None)


def test_a_folder_that_was_there_stays_as_it_is(tmp_path):
    folders.write(tmp_path, {"config": {}})
    with pytest.raises(ConfigError), folders.undone_if_empty(tmp_path):
        (tmp_path / folders.TRACKERS_FILE).write_text("{}")
        raise ConfigError("holds something else")
    assert (tmp_path / folders.MANIFEST).exists()
    assert (tmp_path / folders.TRACKERS_FILE).exists()
    file = tmp_path / "file"
    file.write_text("")
    own = tmp_path / "own"
    put(own / "config.yaml", "mine: true")
    for folder in (file, own, None):
        with pytest.raises(ConfigError), folders.undone_if_empty(folder):
            raise ConfigError("cannot write")
    assert file.exists() and (own / "config.yaml").exists()


def test_what_was_made_with_another_device_or_version_is_said():
    made = folders.made_with()
    assert folders.differences_of_versions(made) is None
    other = {"device": "gpu H100", "versions": made["versions"] | {"jax": "9.9.9"}}
    said = folders.differences_of_versions(made | other)
    assert f"jax 9.9.9 -> {made['versions']['jax']}" in said
    assert f"device gpu H100 -> {made['device']}" in said


# What differs between a folder and what is asked for: one comparison for all kinds


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


CHANGES = [
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
]


@pytest.mark.parametrize(("changes", "expected"), CHANGES)
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
    words = "out: x holds another run: a is 1; b is 2. Give another folder"
    with pytest.raises(ConfigError, match=words):
        refuse(["a is 1", "b is 2"], "out: x", "run")


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


OTHER_GROUPS = [
    ({"auto": {"entropy_coef": 0.5}}, "entropy_coef, which is auto, is 0.0 there"),
    ({"lanes_asked": 8}, "lanes is 2 there and 8 here"),
    ({"segment_updates_asked": 2}, "segment_updates is 4 there and 2 here"),
]


@pytest.mark.parametrize(("changes", "words"), OTHER_GROUPS)
def test_groups_of_a_sweep_that_differ_are_no_extension(changes, words):
    stored = sweep()
    groups = {name: {**one, **changes} for name, one in stored["groups"].items()}
    new = sweep(groups=groups, seeds=[0, 1, 2])
    seeds, group = store.compare(stored, new)  # the two groups say it once
    assert seeds.startswith("seeds is") and group.startswith(words)
    assert not store.is_extension(stored, new)
    # Members of other groups have been trained with nothing yet.
    assert store.is_extension(stored, sweep(groups={"other": groups["ppo"]}))
