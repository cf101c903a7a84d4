"""JSON of a folder is what was written, or is damaged."""

import json

import pytest

from purerl import ConfigError
from purerl.storage.files import read_json, write_json

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


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "null", "3", "[]", "{}", "[" * 100_000, '{"a":' * 100_000, "\0"),
        json.dumps(VALUES),
        json.dumps({**VALUES, "sha256": "0" * 64}),
    ],
)
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
