"""Folders of every kind, damaged: a reader has the right data, or names the file.

A damage is a file that is cut, flipped in a bit, emptied, zeroed, deleted, exchanged
with another, without one of its lines, or with a value of another type.
"""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

import purerl
from purerl import ConfigError
from purerl.cli import main
from tests.runner.told import Told

from .every_kind import WRITE, contents

PARTS, EACH = 6, 50  # of every kind: 2,100 damages in all
# Pictures and texts for people, which nobody reads again.
UNREAD = (".png", ".html")


@pytest.fixture(scope="module")
def programs():
    with purerl.share_programs():
        yield


@pytest.fixture(scope="module")
def whole(request, programs, tmp_path_factory):
    """A folder of a kind, and what is read from it."""
    kind = request.param
    out = tmp_path_factory.mktemp(kind) / "whole"
    WRITE[kind](out)
    return kind, out, contents(kind, purerl.load(out)), told(out)


def told(out: Path) -> Any:
    """What a tracker is told of a folder."""
    tracker = Told()
    purerl.track(out, [tracker])
    (out / "trackers.json").unlink()
    return repr(sorted(tracker.rows.items()))


def files_of(out: Path) -> list[Path]:
    found = [path.relative_to(out) for path in out.rglob("*") if path.is_file()]
    return sorted(path for path in found if path.suffix not in UNREAD)


def _other_type(value: Any, rng: random.Random) -> Any:
    others = [None, True, "text", -1, 1e300, [], {}, [[1], 2], {"a": None}]
    return rng.choice([other for other in others if type(other) is not type(value)])


def _changed(value: Any, rng: random.Random) -> Any:
    """A value of JSON in which one entry, however deep, is of another type or gone."""
    if not value or not isinstance(value, dict | list) or rng.random() < 0.3:
        return _other_type(value, rng)
    keys = list(value) if isinstance(value, dict) else range(len(value))
    key = rng.choice(list(keys))
    if isinstance(value, dict) and rng.random() < 0.2:
        return {name: x for name, x in value.items() if name != key}
    changed = value.copy()
    changed[key] = _changed(value[key], rng)
    return changed


def damage(out: Path, rng: random.Random) -> tuple[str, list[Path]]:
    """Damage a file of a folder; return how, and which files."""
    name = rng.choice(files_of(out))
    path = out / name
    data = bytearray(path.read_bytes())
    how = rng.choice(("cut", "flip", "flip", "empty", "zero", "delete", "swap", "type"))
    if how == "swap":
        like = [x for x in files_of(out) if x.suffix == name.suffix and x != name]
        other = rng.choice(like or [x for x in files_of(out) if x != name])
        path.write_bytes((out / other).read_bytes())
        (out / other).write_bytes(data)
        return how, [name, other]
    if how == "delete":
        path.unlink()
        return how, [name]
    if how == "cut":
        data = data[: rng.randrange(len(data) + 1)]
    elif how == "flip" and data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif how == "empty":
        data = bytearray()
    elif how == "zero" and data:
        start = rng.randrange(len(data))
        data[start : start + 64] = bytes(len(data[start : start + 64]))
    elif how == "type" and name.suffix == ".json":
        values = json.loads(data) if rng.random() < 0.9 else None
        deep = b"[" * 100_000
        data = json.dumps(_changed(values, rng)).encode() if values else deep
    elif how == "type" and name.suffix in (".jsonl", ".csv", ".yaml"):
        lines = data.splitlines(keepends=True)
        del lines[rng.randrange(max(1, len(lines))) :][:1]
        data = bytearray(b"".join(lines))
    elif how == "type":
        data = bytearray(b"hello: world\n")
    path.write_bytes(data)
    return how, [name]


def names(sentence: str, out: Path, paths: list[Path]) -> bool:
    """Whether a sentence names a damaged file, or a folder in which it lies."""
    parts = {part for path in paths for part in path.parts}
    return any(part in sentence.replace(str(out), "") for part in parts)


def outcome(reader, capsys) -> tuple[Any, str]:
    """What a reader returns, and what it says."""
    capsys.readouterr()
    try:
        found = reader()
    except ConfigError as error:
        return None, f"{error} {capsys.readouterr().err}"
    return found, capsys.readouterr().err


def snapshot(out: Path) -> dict[Path, bytes]:
    return {name: (out / name).read_bytes() for name in files_of(out)}


def faults(whole, part, number, out, capsys):
    """What is wrong with what readers, and a call that goes on, make of a damage."""
    kind, source, right, rows = whole
    shutil.copytree(source, out)
    how, paths = damage(out, random.Random(f"{kind} {part} {number}"))
    before, found = snapshot(out), []

    def tried(reader, read):
        """What it returns and says, and whether that names a damaged file."""
        try:
            value, text = outcome(read, capsys)
        except Exception as error:
            found.append((reader, "raw", repr(error)[:200]))
            return None, "", True
        return value, text[:200], names(text, out, paths)

    readers = {
        "load": (lambda: contents(kind, purerl.load(out)), right),
        "track": (lambda: told(out), rows),
    }
    commands = {
        "report": number % 5 == 0,
        "evaluate": number % 10 == 0 and kind == "run",
        "plot": number % 10 == 5 and kind not in ("pbt", "halving", "tune"),
    }
    for command in (name for name, is_due in commands.items() if is_due):
        place = {"report": "page.html", "plot": "picture.png"}.get(command)
        words = [command, str(out)]
        words += ["--out", str(out.parent / place)] if place else []
        readers[command] = (lambda words=words: main(words)), 0
    for reader, (read, wanted) in readers.items():
        value, text, is_named = tried(reader, read)
        if value != wanted and not is_named:
            found.append((reader, "silent", text))
    if snapshot(out) != before:
        found.append(("a reader wrote",))
    if number % 3 == 0:
        value, text, is_named = tried("goes on", lambda: WRITE[kind](out))
        after = snapshot(out)
        if value is not None:
            again, *_ = tried("goes on", lambda: contents(kind, purerl.load(out)))
            is_named = again is not None and (is_named or again == right)
        elif changed := [str(n) for n in before if after.get(n) != before[n]]:
            found.append(("goes on", "overwritten", changed))
        if not is_named:
            found.append(("goes on", "silent", text))
    shutil.rmtree(out)
    return [(number, how, [*map(str, paths)], *fault) for fault in found]


@pytest.mark.slow(optimised=False)  # as the whole folders were
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("whole", WRITE, indirect=True)
def test_a_damaged_folder_is_read_rightly_or_named(whole, part, tmp_path, capsys):
    found = []
    for number in range(EACH):
        found += faults(whole, part, number, tmp_path / str(number), capsys)
    assert not found, f"{len(found)} of {EACH}:\n" + "\n".join(map(str, found))


LOST = {
    **dict.fromkeys(("run", "pbt", "halving", "evolution"), "checkpoints"),
    "tune": "study.db",
}


@pytest.mark.parametrize("whole", LOST, indirect=True)
def test_what_has_finished_is_not_trained_over_again(whole, tmp_path):
    kind, source, *_ = whole
    out = shutil.copytree(source, tmp_path / "copy")
    path = out / LOST[kind]
    (shutil.rmtree if path.is_dir() else Path.unlink)(path)
    before = snapshot(out)
    with pytest.raises(ConfigError, match=LOST[kind]):
        WRITE[kind](out)
    assert snapshot(out) == before


@pytest.mark.parametrize("whole", ["tune"], indirect=True)
def test_a_study_of_another_time_is_refused_and_a_table_is_written_anew(
    whole, tmp_path
):
    _, source, right, _ = whole
    out = shutil.copytree(source, tmp_path / "copy")
    table, database = out / "trials.json", out / "study.db"
    text, data = table.read_text(), database.read_bytes()
    for damaged in ("", text.splitlines()[0], text.replace("complete", "pruned", 1)):
        table.write_text(damaged)
        with pytest.raises(ConfigError, match=r"trials\.json is damaged"):
            purerl.load(out)
    for damaged in (b"", data[: len(data) // 2], b"hello: world"):
        database.write_bytes(damaged)
        with pytest.raises(ConfigError, match=r"study\.db .* is not that of the study"):
            WRITE["tune"](out)
        assert database.read_bytes() == damaged
    database.write_bytes(data)
    assert contents("tune", WRITE["tune"](out)) == right
    assert table.read_text() == text
