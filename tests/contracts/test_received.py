"""A folder that was received: opening it imports nothing that it names."""

import shutil
import sys

import numpy as np
import pytest

import purerl
from purerl.cli import main
from purerl.storage.files import read_json, write_json
from tests.helpers import tiny_config

ABORT = {"import": "os:abort"}
HOSTILE = {
    "a torso": {"torso": {"type": "evil.evil:Net"}},
    "a torso as text": {"torso": "evil.evil:Net()"},
    "a callable inside": {
        "torso": {"type": "flax.linen:Dense", "features": 4, "dot_general_cls": ABORT}
    },
    "an environment": {"env": "gymnasium/evil.evil:Net-v0"},
    "an environment object": {"env": {"type": "evil.evil:Env", "size": 2}},
    "an environment by its path": {"env": "evil.evil:Env(size=2)"},
    "a wrapper by its path": {"env_wrappers": ["evil.evil:Wrapper"]},
}
REFUSING = (["evaluate"], ["render"], ["train", "--resume"])
READING = (["report"], ["plot"], ["track", "--track", "tensorboard"])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("received") / "evil"
    return purerl.run(tiny_config(), seeds=2, out=out, progress=False)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    out = tmp_path_factory.mktemp("received") / "evil"
    axes = {"torso": ["mlp", "auto"], "learning_rate": [1e-3, 1e-2]}
    config = tiny_config(num_evaluations=0)
    return purerl.sweep(config, axes, seeds=1, out=out, progress=False)


def receive(folder, here, monkeypatch, change):
    """The folder in the working directory, with a module in it and a changed config."""
    shutil.copytree(folder, here / "evil")
    (here / "evil" / "evil.py").write_text("raise SystemExit('PWNED')")
    monkeypatch.chdir(here)
    monkeypatch.syspath_prepend("")
    path = here / "evil" / "manifest.json"
    stored = read_json(path, "")
    change(stored)
    write_json(path, stored)
    (here / "evil" / "config.yaml").unlink()  # As in the manifest, or resuming says so.


@pytest.mark.parametrize("values", HOSTILE.values(), ids=HOSTILE)
def test_a_run_is_read_and_what_it_names_is_not(
    trained, values, tmp_path, monkeypatch, capsys
):
    change = lambda stored: stored["config"].update(values)  # noqa: E731
    receive(trained.out, tmp_path, monkeypatch, change)
    loaded = purerl.load("evil")
    for name, rows in trained.metrics.items():
        np.testing.assert_array_equal(loaded.metrics[name], rows)
    assert loaded.finished and loaded.state is None
    assert loaded.best().score == trained.best().score
    told = capsys.readouterr().err
    assert "evil.evil" in told or "os:abort" in told
    for words in REFUSING:
        assert main([*words, "evil"]) == 2, words
        told = capsys.readouterr().err
        assert "--import evil.evil" in told or "os:abort" in told, words
    for words in READING:
        assert main([words[0], "evil", *words[1:]]) == 0, words
    assert not {name for name in sys.modules if name.split(".")[0] == "evil"}


def test_the_numbers_of_a_sweep_are_read_and_what_it_names_is_not(
    swept, tmp_path, monkeypatch, capsys
):
    def change(stored):
        stored["config"]["critic"] = {"type": "evil.evil:Net"}
        for point in stored["points"]:
            if point["torso"] == "auto":
                point["torso"] = {"type": "evil.evil:Net"}

    receive(swept.out, tmp_path, monkeypatch, change)
    loaded = purerl.load("evil")
    assert "--import evil.evil" in capsys.readouterr().err
    found, right = (x["episode_return"].sel(torso="mlp") for x in (loaded, swept))
    np.testing.assert_array_equal(found.values, right.values)
    assert main(["report", "evil"]) == main(["plot", "evil"]) == 0
    assert main(["track", "evil", "--track", "tensorboard"]) == 0
    assert "evil.evil" not in sys.modules


def test_a_module_that_was_named_is_taken(trained, tmp_path, monkeypatch, capsys):
    values = {"torso": {"type": "nets_of_mine:Torso"}}
    change = lambda stored: stored["config"].update(values)  # noqa: E731
    receive(trained.out, tmp_path, monkeypatch, change)
    (tmp_path / "nets_of_mine.py").write_text(
        "import flax.linen as nn\n\n\nclass Torso(nn.Module):\n"
        "    @nn.compact\n    def __call__(self, obs):\n        return obs\n"
    )
    with pytest.raises(purerl.ConfigError, match="'nets_of_mine' has not been import"):
        purerl.load_run("evil")
    monkeypatch.delitem(sys.modules, "nets_of_mine", raising=False)
    assert main(["--import", "nets_of_mine", "evaluate", "evil"]) == 2
    # It is another network than the one that was trained, and no longer unknown.
    assert "has not been imported" not in capsys.readouterr().err
