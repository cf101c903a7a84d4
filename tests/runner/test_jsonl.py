import json

import numpy as np
import pytest

import purerl
from purerl.execution.curves import reduce_segment
from purerl.runner.result import write_summary
from purerl.runner.rows import (
    RowFile,
    by_member,
    read_members,
    read_rows,
    rows_at,
    stack_rows,
)
from tests.report import synthetic


def test_episode_returns_are_weighted_by_episodes():
    # Two updates: one episode of return 10, then three of mean 20: (10 + 60) / 4.
    metrics = {
        "env_steps": np.array([[32, 64]]),
        "episodes": np.array([[1, 3]]),
        "episode_return": np.array([[10.0, 20.0]]),
        "episode_length": np.array([[1.0, 5.0]]),
        "policy_loss": np.array([[1.0, 2.0]]),
    }
    (row,) = rows_at(2, reduce_segment(metrics, {}))
    assert row == {
        "update": 2,
        "env_steps": 64,
        "episodes": 4,
        "episode_return": 17.5,
        "episode_length": 4.0,
        "policy_loss": 1.5,
    }


def test_rows_survive_the_file_exactly(tmp_path):
    file = RowFile(tmp_path)
    value = float(np.float32(0.1) / np.float32(3))
    file.log("train", 0, {"update": 1, "loss": value, "episode_return": np.nan})
    file.flush()
    ((row,),) = by_member(read_rows(tmp_path)["train"], [0])
    assert row == {"update": 1, "loss": value, "episode_return": None}
    stacked = stack_rows([[row]])
    assert stacked["loss"].tolist() == [[value]]
    assert np.isnan(stacked["episode_return"]).all()


def three_rows(folder):
    file = RowFile(folder)
    for at in (1, 2, 3):
        file.log("train", 0, {"update": at, "loss": at / 3})
    file.flush()
    return file.path


@pytest.mark.parametrize(
    ("change", "number"),
    [
        (lambda lines: [lines[0].replace("0.3", "0.4"), *lines[1:]], 1),
        (lambda lines: [*lines[:2], lines[2].replace("1.0", '"1.0"')], 3),
        (lambda lines: [lines[0], lines[2]], 2),
        (lambda lines: [lines[1], lines[0], lines[2]], 1),
        (lambda lines: [*lines, lines[2]], 4),
        (lambda lines: ["[" * 100_000, *lines[1:]], 1),
    ],
)
def test_a_row_that_is_another_or_missing_is_named(tmp_path, change, number):
    path = three_rows(tmp_path)
    rows = read_rows(tmp_path)["train"]
    assert [row["loss"] for row in rows] == [1 / 3, 2 / 3, 1.0]
    path.write_text("\n".join(change(path.read_text().splitlines())) + "\n")
    with pytest.raises(purerl.ConfigError, match=f"is damaged in line {number} of"):
        read_rows(tmp_path)


def test_rows_that_end_before_the_last_checkpoint_are_named(tmp_path):
    file = RowFile(tmp_path)
    for at in (1, 2):
        file.log("evaluation", 0, {"update": at})
        for seed in (0, 1):
            file.log("train", seed, {"update": at})
    file.flush()
    lines = file.path.read_text().splitlines(keepends=True)
    train = read_members(tmp_path, [0, 1], 2)["train"]
    assert stack_rows(train)["update"].shape == (2, 2)
    for kept in range(len(lines)):
        file.path.write_text("".join(lines[:kept]))
        with pytest.raises(purerl.ConfigError, match=r"rows\.jsonl .*checkpoint of up"):
            read_members(tmp_path, [0, 1], 2)


def test_a_file_goes_on_after_a_line_that_a_kill_cut_short(tmp_path):
    path = three_rows(tmp_path)
    path.write_text(path.read_text()[:-9])
    assert [row["update"] for row in read_rows(tmp_path)["train"]] == [1, 2]
    file = RowFile(tmp_path)
    file.rewind(2)
    file.log("train", 0, {"update": 3, "loss": 1.0})
    file.flush()
    whole = three_rows(tmp_path / "whole")
    assert path.read_text() == whole.read_text()


def test_episodes_without_a_return_are_nan_again_when_they_are_read(tmp_path):
    evaluation = {
        "env_steps": np.array([64, 64]),
        "episode_return": np.array([[1.0, 2.0], [np.nan, 4.0]]),
    }
    file = RowFile(tmp_path)
    for seed, row in enumerate(rows_at(2, evaluation)):
        file.log("evaluation", seed, row)
    file.flush()
    found = stack_rows(read_members(tmp_path, [0, 1], 0)["evaluation"])
    assert found["episode_return"].dtype == float
    np.testing.assert_array_equal(
        found["episode_return"][:, 0], evaluation["episode_return"]
    )


def test_a_summary_is_json_also_where_a_return_is_no_number(tmp_path):
    returns = np.array([[[1.0, 2.0]], [[np.nan, 4.0]]])
    result = synthetic.run(2)._replace(evaluation={"episode_return": returns})
    write_summary(result._replace(out=tmp_path))
    text = (tmp_path / "summary.json").read_text()
    found = json.loads(text, parse_constant=lambda name: pytest.fail(name))
    assert found["evaluation_per_seed"] == [1.5, None]
    assert found["evaluation_mean"] is None
