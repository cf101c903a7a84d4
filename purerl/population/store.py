"""A search's folder: a manifest, one atomic file per mark, and the last states.

config.yaml      the base config, for people
manifest.json    kind, axes, options, seeds, lanes and segments, versions, device
records/         00000.npz, ...: what happened up to a mark, and what was decided there
checkpoints/     states of the members that go on, by number of finished updates

Everything is decided by the seed, so what was lost with a kill is computed again with
the same result. Nothing is pickled.
"""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from purerl import serialise
from purerl.config import ConfigError
from purerl.population.space import same_axes
from purerl.runner import manifest
from purerl.types import HostMetrics

KINDS = ("pbt", "halving")
# Files written by a program that lays them out otherwise are not read.
FORMAT = 1


def open_folder(folder: Path, spec: dict[str, Any]) -> dict[str, Any]:
    """Start a search's folder, or go on with it.

    Args:
        folder: of the search.
        spec: what it is: `kind`, `config`, `axes`, `options`, `seeds`, `lanes`,
            `segment_updates`, and what was asked of the last two.

    Returns:
        The manifest that holds: a stored one's lanes and segments win.

    Raises:
        ConfigError: another search's folder (with what differs), or one that cannot be
            written.
    """
    if (folder / "manifest.json").exists():
        stored = load(folder)
        differences = compare(stored, json.loads(json.dumps(spec)))
        if differences:
            raise ConfigError(
                f"out: {folder} holds another search: {'; '.join(differences)}. Give "
                "another folder, or the stored settings."
            )
        manifest.require_writable(folder)
        return stored
    try:
        (folder / "records").mkdir(parents=True, exist_ok=True)
        manifest.check_writable(folder)
        text = serialise.yaml_text(spec["config"])
        serialise.write_atomic(folder / "config.yaml", text)
        serialise.write_atomic(folder / "manifest.json", json.dumps(spec, indent=1))
    except OSError as error:
        raise ConfigError(
            f"out: cannot write to {folder} ({error.strerror or error}). Give a folder "
            "that you may write to."
        ) from None
    return spec


def load(folder: Path) -> dict[str, Any]:
    """A search's manifest.

    Raises:
        ConfigError: there is none, or it cannot be read, or it is of another kind.
    """
    return manifest.load_kind(folder, KINDS, FORMAT)


def compare(stored: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """What differs between two searches, in words."""
    if stored["kind"] != new["kind"]:
        return [f"it is a {stored['kind']} search there and {new['kind']} here"]
    found = []
    for part in ("config", "auto", "options"):
        for name in sorted({*stored.get(part, {}), *new[part]}):
            before, now = stored.get(part, {}).get(name), new[part].get(name)
            if before != now:
                found.append(f"{name} is {before!r} there and {now!r} here")
    if not same_axes(stored["axes"], new["axes"]):
        found.append(f"axes are {stored['axes']} there and {new['axes']} here")
    if stored["seeds"] != new["seeds"]:
        found.append(f"seeds are {stored['seeds']} there and {new['seeds']} here")
    for name in ("lanes", "segment_updates"):
        asked = new[f"{name}_asked"]
        if asked and stored[name] != asked:
            found.append(f"{name} is {stored[name]} there and {asked} here")
    return found


def save_record(folder: Path, number: int, record: HostMetrics) -> None:
    """Write what happened up to a mark; a reader sees all of it or nothing."""
    buffer = io.BytesIO()
    np.savez(buffer, **record)  # type: ignore[arg-type]  # (of allow_pickle)
    serialise.write_atomic(_path(folder, number), buffer.getvalue())


def load_records(folder: Path, count: int) -> list[HostMetrics]:
    """The first `count` records.

    Raises:
        ConfigError: one is missing or damaged.
    """
    return [_load_record(_path(folder, number)) for number in range(count)]


def _load_record(path: Path) -> HostMetrics:
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.testzip() is not None:
                raise zipfile.BadZipFile("a checksum does not match")
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise ConfigError(
            f"{path} is missing or damaged ({error}). Delete the folder checkpoints "
            "beside it: the search is then computed again, with the same result."
        ) from None


def _path(folder: Path, number: int) -> Path:
    return folder / "records" / f"{number:05d}.npz"
