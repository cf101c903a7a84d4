"""summary.json: facts are those of the last call, times of the last that trained,
or of all."""

import pytest

from purerl.storage import folders

TIMES = {"trained_members": 4, "train_seconds": 9.0}
NONE = {"trained_members": 0, "train_seconds": 0.0}


read = folders.read_summary


def test_costs_may_be_added_to_those_of_earlier_calls(tmp_path):
    call = {"train_seconds": 1.1, "programs": 1, "speed": 5.0}
    for _ in range(3):
        folders.write_summary(tmp_path, {}, call, True, ["train_seconds", "programs"])
        folders.write_summary(tmp_path, {}, NONE, False, ["train_seconds"])
    found = read(tmp_path)
    assert (found["train_seconds"], found["programs"]) == (3.3, 3)
    assert found["speed"] == 5.0


@pytest.mark.parametrize("text", [None, "{", "[1]", "3"])
def test_where_nothing_can_be_read_the_call_has_its_own(tmp_path, text):
    if text is not None:
        (tmp_path / folders.SUMMARY).write_text(text)
    folders.write_summary(tmp_path, {"members": 4}, NONE, False)
    assert read(tmp_path) == {"members": 4, **NONE}
