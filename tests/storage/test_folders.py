import pytest

import purerl
from purerl.config import ConfigError
from purerl.storage import folders
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
