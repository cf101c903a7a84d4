"""A search's folder: a manifest, one atomic file per mark, and the last states.

config.yaml      the base config, for people
manifest.json    kind, axes, options, seeds, lanes and segments, versions, device
records/         00000.npz, ...: what happened up to a mark, and what was decided there
checkpoints/     states of the members that go on, by number of finished updates

Everything is decided by the seed, so what was lost with a kill is computed again with
the same result. Nothing is pickled.
"""

from pathlib import Path
from typing import Any

from purerl.config import ConfigError
from purerl.population.space import same_axes
from purerl.storage import arrays, folders
from purerl.types import HostMetrics

KINDS = ("pbt", "halving")
# Files written by a program that lays them out otherwise are not read.
FORMAT = 1


def open_folder(folder: Path, spec: dict[str, Any]) -> dict[str, Any]:
    """Start a search's folder, or go on with it.

    Args:
        folder: The folder.
        spec: What the search is: `kind`, `config`, `axes`, `options`, `seeds`, `lanes`,
            `segment_updates`, and what was asked of the last two.

    Returns:
        The manifest that holds: a stored one's lanes and segments win.

    Raises:
        ConfigError: see `purerl.storage.folders.open_folder`.
    """
    return folders.open_folder(
        folder,
        spec,
        kind=KINDS,
        version=FORMAT,
        noun="search",
        compare=compare,
        places=("records",),
    )


def load(folder: Path) -> dict[str, Any]:
    """A search's manifest.

    Raises:
        ConfigError: there is none, or it cannot be read, or it is of another kind.
    """
    return folders.load_kind(folder, KINDS, FORMAT)


def compare(stored: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """What differs between two searches, in words."""
    if stored["kind"] != new["kind"]:
        return [f"it is a {stored['kind']} search there and {new['kind']} here"]
    found = []
    for part in ("config", "auto", "options"):
        found += folders.differing(stored.get(part, {}), new[part])
    if not same_axes(stored["axes"], new["axes"]):
        found.append(f"axes are {stored['axes']} there and {new['axes']} here")
    if stored["seeds"] != new["seeds"]:
        found.append(f"seeds are {stored['seeds']} there and {new['seeds']} here")
    return found + folders.differing_widths(stored, new)


def save_record(folder: Path, number: int, record: HostMetrics) -> None:
    """Write what happened up to a mark; a reader sees all of it or nothing."""
    arrays.save(_path(folder, number), record)


def load_records(folder: Path, count: int) -> list[HostMetrics]:
    """The first `count` records.

    Raises:
        ConfigError: one is missing or damaged.
    """
    return [_load_record(_path(folder, number)) for number in range(count)]


def _load_record(path: Path) -> HostMetrics:
    try:
        return arrays.load(path)
    except arrays.DAMAGE as error:
        raise ConfigError(
            f"{path} is missing or damaged ({error}). Delete the folder checkpoints "
            "beside it: the search is then computed again, with the same result."
        ) from None


def _path(folder: Path, number: int) -> Path:
    return folder / "records" / f"{number:05d}.npz"
