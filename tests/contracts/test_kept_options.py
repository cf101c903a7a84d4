"""What changes what is computed or written is in a folder, and is taken by a resume."""

import inspect
import json

import pytest

import purerl
from purerl.cli import main
from purerl.storage import folders
from tests.storage.every_kind import AXES, CONFIG, SHARED, WRITE

FUNCTIONS = {
    "run": purerl.run,
    "sweep": purerl.sweep,
    "pbt": purerl.pbt,
    "halving": purerl.halving,
    "evolution": purerl.evolve,
    "tune": purerl.tune,
    "comparison": purerl.compare,
}
# How a call is carried out: no file of results has other contents for it.
OF_THE_CALL = {
    *("out", "resume", "extend", "progress", "checkpoint_seconds"),
    *("chunk_blocks", "memory_limit", "devices", "dry_run"),
}
# What stands under another name, or only where it was given.
ELSEWHERE = {
    "trackers": "trackers.json",
    "start": "start, where it was given",
    "truncation": "settings, where it was given",
    "num_points": "points",
    "design_seed": "points",
    "num_rounds": "milestones",
    "searches": "seeds",
    "storage": "may hold a password; without it the study is refused",
}


def names_in(value):
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name
            if name != "config":
                yield from names_in(inner)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A folder of every kind."""
    root = tmp_path_factory.mktemp("kept")
    with purerl.share_programs():
        for kind, write in WRITE.items():
            write(root / kind)
    return root


@pytest.fixture(scope="module")
def written(root):
    """What the folder of every kind says of itself."""
    return {
        kind: json.loads((root / kind / "manifest.json").read_text()) for kind in WRITE
    }


@pytest.mark.parametrize("kind", WRITE)
def test_a_folder_has_every_option_that_changes_it(written, kind):
    options = set(inspect.signature(FUNCTIONS[kind]).parameters)
    known = {*names_in(written[kind]), *OF_THE_CALL, *ELSEWHERE}
    assert not options - known


def test_an_evolution_goes_on_with_its_snapshots(tmp_path):
    out, words = tmp_path / "out", ["--no-progress"]
    WRITE["evolution"](out)
    command = ["evolve", "--resume", str(out), "--generations"]
    assert main([*command, "4", *words]) == 0
    assert max(int(path.stem) for path in (out / "snapshots").iterdir()) == 4
    assert main([*command, "6", "--snapshot-every", "3", *words]) == 0
    assert main([*command, "9", *words]) == 0
    found = sorted(int(path.stem) for path in (out / "snapshots").iterdir())
    assert found == [1, 2, 3, 4, 6, 9]


def test_a_run_goes_on_with_its_number_of_checkpoints(tmp_path):
    out = tmp_path / "out"
    options = {"out": out, "checkpoint_seconds": 0.0, **SHARED}
    purerl.run(CONFIG, keep_checkpoints=1, **options)
    command = ["train", "--resume", str(out), "--checkpoint-seconds", "0"]
    assert main([*command, "--extend", "1280", "--no-progress"]) == 0
    assert len(list((out / "checkpoints").iterdir())) == 1
    more = ["--extend", "1920", "--keep-checkpoints", "2", "--no-progress"]
    assert main([*command, *more]) == 0
    assert len(list((out / "checkpoints").iterdir())) == 2
    assert folders.load(out)["keep_checkpoints"] == 2


def test_a_sweep_goes_on_with_its_states(tmp_path):
    options = {"seeds": 1, "out": tmp_path, **SHARED}
    purerl.sweep(CONFIG, AXES, keep_states=True, **options)
    more = purerl.sweep(CONFIG, AXES, **{**options, "seeds": 2}, extend=True)
    assert more.state({"learning_rate": 1e-2}, 1) is not None
