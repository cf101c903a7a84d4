"""JSON of a folder is what was written, or is damaged."""

import json

import pytest

from purerl import ConfigError
from purerl.storage import documents

VALUES = {"axes": {"gamma": [0.9, 1e-300]}, "seeds": [0, 1], "out": None, "ä": "ö"}


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "manifest.json"
    documents.write(path, VALUES)
    assert documents.read(path, "") == VALUES
    documents.write(path, documents.read(path, "") | {"more": 1})
    assert documents.read(path, "") == VALUES | {"more": 1}
    # Other spaces say the same.
    path.write_text(json.dumps(json.loads(path.read_text())))
    assert documents.read(path, "") == VALUES | {"more": 1}


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
        documents.read(path, "Do this.")


@pytest.mark.parametrize(
    "change", [{"seeds": [0, 2]}, {"seeds": 0}, {"axes": None}, {"more": 1}]
)
def test_another_entry_is_noticed(tmp_path, change):
    path = tmp_path / "manifest.json"
    documents.write(path, VALUES)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ConfigError, match="its checksum differs"):
        documents.read(path, "")


def test_a_file_is_not_taken_for_another(tmp_path):
    documents.write(tmp_path / "summary.json", VALUES)
    (tmp_path / "summary.json").rename(tmp_path / "manifest.json")
    with pytest.raises(ConfigError, match="its checksum differs"):
        documents.read(tmp_path / "manifest.json", "")
