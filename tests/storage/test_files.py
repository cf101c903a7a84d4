"""JSON of a folder is what was written or damaged; one process trains into it."""

import json
import os
import subprocess
import sys
import textwrap
import time

import pytest

from purerl import ConfigError
from purerl.storage import files
from purerl.storage.files import read_json, write_json

from .every_kind import WRITE

HOLD = """
    import sys, time
    from pathlib import Path
    from purerl.storage.files import locked
    with locked(Path(sys.argv[1])):
        print("held", flush=True)
        time.sleep(600)
"""


@pytest.fixture
def other(tmp_path):
    """A process that holds the folder."""
    command = [sys.executable, "-c", textwrap.dedent(HOLD), str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_folder_in_use_is_refused_until_that_process_ends(tmp_path, other):
    folder = tmp_path / "run"
    with pytest.raises(ConfigError, match=f"in use by process {other.pid} on "):
        with files.locked(folder):
            raise AssertionError
    other.kill()
    other.wait()
    with files.locked(folder):
        assert str(os.getpid()) in (folder / files.LOCK).read_text()


def test_a_thread_of_this_process_is_refused_too(tmp_path):
    with files.locked(tmp_path):
        with pytest.raises(ConfigError, match=f"in use by process {os.getpid()} on "):
            with files.locked(tmp_path):
                raise AssertionError
    assert not list(tmp_path.iterdir())
    with files.locked(tmp_path):
        pass


def test_a_lock_that_was_taken_away_meanwhile_is_made_again(tmp_path, monkeypatch):
    flock, calls = files.fcntl.flock, []

    def flock_after_its_end(file, how):
        calls.append(how)
        if len(calls) == 1:  # Its holder ends between our opening and our locking.
            (tmp_path / files.LOCK).unlink()
        flock(file, how)

    monkeypatch.setattr(files.fcntl, "flock", flock_after_its_end)
    with files.locked(tmp_path):
        assert len(calls) == 2
        assert str(os.getpid()) in (tmp_path / files.LOCK).read_text()


LEFT = (
    *(".manifest.json.44c0dd0e", ".report.html.0123abcd", ".write-test-17"),
    *("chunks/.a-b.npz.abcd1234", "checkpoints/.000011.npz.0a0a0a0a"),
    "metrics/.rows.jsonl.00000000",
)
KEPT = (".notes.json", ".manifest.json.zzzzzzzz", "chunks/a-b.npz", "checkpoints/7/x")


@pytest.mark.parametrize("shared", [False, True])
def test_what_a_kill_left_half_written_is_removed(tmp_path, shared):
    for name in (*LEFT, *KEPT):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("half")
    late = tmp_path / ".config.yaml.12345678"  # it is being written now
    late.write_text("half")
    os.utime(late, (time.time() + 60.0,) * 2)
    with files.locked(tmp_path, shared=shared):
        left = {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*")}
    assert left & {*LEFT, *KEPT} == {*KEPT}
    assert late.exists()


def test_a_shared_folder_is_cleaned_by_whoever_is_alone_in_it(tmp_path):
    half = tmp_path / ".trials.json.44c0dd0e"
    with files.locked(tmp_path, shared=True):
        half.write_text("half")
        os.utime(half, (time.time() - 60.0,) * 2)
        with files.locked(tmp_path, shared=True):
            assert half.exists()  # the first one may be writing it
        with pytest.raises(ConfigError, match="in use by process"):
            with files.locked(tmp_path):
                raise AssertionError
    assert [path.name for path in tmp_path.iterdir()] == [half.name]
    with files.locked(tmp_path, shared=True):
        assert not half.exists()


# What appends to its files, or goes on from its own checkpoints.
@pytest.mark.parametrize("tool", ["run", "pbt", "evolution"])
def test_no_tool_writes_into_a_folder_in_use(tool, tmp_path):
    with files.locked(tmp_path):
        with pytest.raises(ConfigError, match="is in use by process"):
            WRITE[tool](tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == [files.LOCK]


# JSON


VALUES = {"axes": {"gamma": [0.9, 1e-300]}, "seeds": [0, 1], "out": None, "ä": "ö"}


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "manifest.json"
    write_json(path, VALUES)
    assert read_json(path, "") == VALUES
    write_json(path, read_json(path, "") | {"more": 1})
    assert read_json(path, "") == VALUES | {"more": 1}
    # Other spaces say the same.
    path.write_text(json.dumps(json.loads(path.read_text())))
    assert read_json(path, "") == VALUES | {"more": 1}


DAMAGED = [
    *("", "{", "null", "3", "[]", "{}", "[" * 100_000, '{"a":' * 100_000, "\0"),
    json.dumps(VALUES),
    json.dumps({**VALUES, "sha256": "0" * 64}),
]


@pytest.mark.parametrize("text", DAMAGED)
def test_anything_else_is_damaged(tmp_path, text):
    path = tmp_path / "manifest.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"manifest\.json is damaged .* Do this\."):
        read_json(path, "Do this.")


@pytest.mark.parametrize(
    "change", [{"seeds": [0, 2]}, {"seeds": 0}, {"axes": None}, {"more": 1}]
)
def test_another_entry_is_noticed(tmp_path, change):
    path = tmp_path / "manifest.json"
    write_json(path, VALUES)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ConfigError, match="its checksum differs"):
        read_json(path, "")


def test_a_file_is_not_taken_for_another(tmp_path):
    write_json(tmp_path / "summary.json", VALUES)
    (tmp_path / "summary.json").rename(tmp_path / "manifest.json")
    with pytest.raises(ConfigError, match="its checksum differs"):
        read_json(tmp_path / "manifest.json", "")
