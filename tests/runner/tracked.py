"""Readers of what trackers have written, for tests."""

import json
import struct
from collections import defaultdict
from pathlib import Path

import pytest

from purerl.runner.rows import by_member, read_rows
from purerl.runner.trackers.base import scalars

# MLflow's own use of SQLAlchemy; files that W&B's service leaves to the interpreter.
WARNINGS = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
COLUMNS = {"train": 7, "evaluation": 3}


def expected(out: Path, seed: int) -> dict[str, list[tuple[int, float]]]:
    """Name -> (env_steps, value) from the JSON lines of `run_tiny`."""
    found: dict[str, list[tuple[int, float]]] = {}
    for kind in ("train", "evaluation"):
        (rows,) = by_member(read_rows(out / "metrics")[kind], [seed])
        for row in rows:
            for name, value in scalars({"kind": kind, **row}):
                found.setdefault(name, []).append((row["env_steps"], value))
    assert len(found["train/entropy"]) == COLUMNS["train"]
    assert len(found["evaluation/episode_return"]) == COLUMNS["evaluation"]
    return found


def mlflow_history(client, run) -> dict[str, list[tuple[int, float]]]:
    """Name -> (step, value) of an MLflow run."""
    return {
        name: sorted(
            (m.step, m.value) for m in client.get_metric_history(run.info.run_id, name)
        )
        for name in run.data.metrics
    }


def event_scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Name -> (step, value) of all TensorBoard event files in a folder."""
    found = defaultdict(list)
    for event in events(folder):
        for value in event.summary.value:
            if value.HasField("simple_value"):
                found[value.tag].append((event.step, value.simple_value))
    return dict(found)


def event_tags(folder: Path) -> set[str]:
    """Names of all that is in the event files of a folder."""
    return {v.tag for event in events(folder) for v in event.summary.value}


def events(folder: Path):
    """Records of TFRecord files: length, checksum, message, checksum."""
    from tensorboardX.proto.event_pb2 import Event

    for path in sorted(folder.glob("events.out.tfevents.*")):
        data, place = path.read_bytes(), 0
        while place < len(data):
            (length,) = struct.unpack("<Q", data[place : place + 8])
            yield Event.FromString(data[place + 12 : place + 12 + length])
            place += 16 + length


def wandb_records(path: Path) -> list:
    """Records of an offline run: a LevelDB log of blocks of 32 KiB after 7 bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, place, parts, found = path.read_bytes(), 7, b"", []
    while place + 7 <= len(data):
        left = 32768 - place % 32768
        if left < 7:
            place += left
            continue
        _, length, kind = struct.unpack("<IHB", data[place : place + 7])
        parts += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            found.append(Record.FromString(parts))
            parts = b""
    return found


def wandb_history(records: list) -> list[dict]:
    """Rows of `log`, in their order."""
    return [
        {
            item.key or "/".join(item.nested_key): json.loads(item.value_json)
            for item in record.history.item
        }
        for record in records
        if record.HasField("history")
    ]
