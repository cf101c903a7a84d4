"""A sweep's folder: a manifest, and one atomic file per finished chunk.

config.yaml      the base config, for people
manifest.json    axes, points, seeds, lanes and segments of each group, versions, device
chunks/          <group>-<members>.npz: metrics, evaluations, and who they belong to

A chunk file names its members by hashes of their values, so a folder may be extended,
and chunks may be cut otherwise, without touching what is there. Nothing is pickled.
"""

import contextlib
import hashlib
import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from purerl import serialise
from purerl.config import ConfigError
from purerl.execution.format import with_noun
from purerl.storage import folders
from purerl.storage.files import DAMAGE, check_arrays, open_arrays, save_arrays
from purerl.storage.folders import AUTO_FIELD, FIELD, REMEDY, differences
from purerl.sweeps.plan import SweepOptions, SweepPlan

# Files written by a program that lays them out otherwise are not read.
FORMAT = 1


def describe(
    outline: SweepPlan, points: Sequence[Mapping[str, Any]], options: SweepOptions
) -> dict[str, Any]:
    """Return what the manifest says of a sweep.

    Args:
        outline: The sweep's design, seeds and groups.
        points: Points of the design, as `purerl.sweeps.groups.written` gives them.
        options: The options of the sweep.
    """
    design, is_asked = outline.design, options.segment_updates is not None
    groups = {
        plan.group.name: {
            "auto": plan.group.bound.automatic,
            "lanes": plan.lanes,
            "lanes_asked": options.lanes,
            "segment_updates": plan.length,
            # More than a whole run is a whole run.
            "segment_updates_asked": plan.length if is_asked else None,
        }
        for plan in outline.groups
    }
    return {
        "kind": "sweep",
        "format": FORMAT,
        "config": serialise.to_dict(options.config),
        "design": design.kind,
        "axes": list(design.names),
        "shape": list(design.shape),
        "points": list(points),
        "seeds": list(outline.seeds),
        "options": options.kept(),
        "groups": groups,
    }


def compare(stored: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return what differs between two sweeps, in words."""
    parts = {"config": FIELD, "options": FIELD}
    found = differences(stored, new, parts, free=("points", "shape", "groups"))
    known, wanted = map(_texts, (stored, new))
    if not found and known != wanted:
        found.append(
            f"{with_noun(len(known), 'point')} there and {len(wanted)} here "
            f"({len({*wanted} - {*known})} new, {len({*known} - {*wanted})} left out)"
        )
    before, groups = stored["groups"], new["groups"]
    for name in (name for name in groups if name in before):
        found += differences(before[name], groups[name], {"auto": AUTO_FIELD})
    return list(dict.fromkeys(found))


def is_extension(stored: dict[str, Any], new: dict[str, Any]) -> bool:
    """Return whether `new` has everything that `stored` has, trained alike."""
    kept = {*_texts(stored)} <= {*_texts(new)} and {*stored["seeds"]} <= {*new["seeds"]}
    # The points and seeds may be more, or in another order.
    same = {**new, **{name: stored[name] for name in ("points", "seeds")}}
    return kept and not compare(stored, same)


def _texts(sweep: dict[str, Any]) -> list[str]:
    return [json.dumps(point, sort_keys=True) for point in sweep["points"]]


MEMBERS = "members"  # The array of a file that says whose the others are.
# Finished members in memory, `[M, ...]` by name: `train/<metric>`, `evaluation/<name>`,
# `diverged_at` (-1: never), perhaps `state/<path>`; or the file that holds them.
Chunk = Mapping[str, np.ndarray] | Path
STATE = "state/"


def open_folder(folder: Path, spec: dict[str, Any], extend: bool) -> dict[str, Any]:
    """Start a sweep's folder, or go on with it.

    Returns:
        The manifest that holds: the stored one's `groups` win over the new ones.

    Raises:
        ConfigError: another sweep's folder (with what differs), or one that cannot be
            written.
    """

    def differences(stored: dict[str, Any], new: dict[str, Any]) -> list[str]:
        found = compare(stored, new)
        return [] if extend and is_extension(stored, new) else found

    def extended(stored: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
        merged = {**stored, **{x: new[x] for x in ("points", "seeds", "shape")}}
        return {**merged, "groups": {**new["groups"], **stored["groups"]}}

    def remedy(stored: dict[str, Any], new: dict[str, Any]) -> str:
        if not is_extension(stored, new):
            return REMEDY
        return (
            "Add --extend (extend=True) to train what is missing, or to have the "
            "points in this order."
        )

    return folders.open_folder(
        folder, spec, "chunks", compare=differences, merge=extended, remedy=remedy
    )


def set_lanes(folder: Path, group: str, lanes: int) -> None:
    """Narrow the lanes of a group of which nothing has been trained yet."""
    groups = folders.load(folder)["groups"]
    groups[group]["lanes"] = lanes
    folders.update(folder, {"groups": groups})


def save(
    folder: Path, group: str, ids: Sequence[str], arrays: Mapping[str, np.ndarray]
) -> Path:
    """Write a finished chunk; a reader sees all of it or nothing.

    Args:
        folder: The folder of the sweep.
        group: The name of the group.
        ids: Ids of the finished members.
        arrays: Their arrays, see `Chunk`.
    """
    text = json.dumps({"ids": list(ids), "group": group})
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    path = folder / "chunks" / f"{group}-{digest}.npz"
    named = {name: np.asarray(array) for name, array in arrays.items()}
    save_arrays(path, {**named, MEMBERS: np.frombuffer(text.encode(), np.uint8)})
    return path


def chunk_paths(folder: Path) -> list[Path]:
    """Return the chunk files of a sweep's folder."""
    return sorted((folder / "chunks").glob("*.npz"))


def chunk_ids(path: Path, *, verify: bool = False) -> tuple[str, ...]:
    """Return the members of a chunk file; none where it is damaged.

    Args:
        path: The file.
        verify: Whether to read every array, for its checksum.
    """
    try:
        if verify:
            check_arrays(path)
        with open_arrays(path) as file:
            # An entry that is opened must have the name that the index gives it.
            archive = cast(zipfile.ZipFile, file.zip)
            for entry in archive.infolist():
                archive.open(entry).close()
            return tuple(json.loads(file[MEMBERS].tobytes())["ids"])
    except DAMAGE:
        return ()


@contextlib.contextmanager
def opened(chunk: Chunk) -> Iterator[Mapping[str, np.ndarray]]:
    """Yield a chunk's arrays by name.

    Raises:
        ConfigError: its file is damaged, perhaps since it was indexed.
    """
    if not isinstance(chunk, Path):
        yield chunk
        return
    try:
        with open_arrays(chunk) as file:
            yield file
    except DAMAGE as error:
        raise ConfigError(
            f"{chunk} is damaged ({error}). Delete it and run the sweep again: "
            "only its members are trained anew."
        ) from None


class MemberStore:
    """Finished members: chunks in memory or in files, read when they are asked for.

    Attributes:
        locations: The chunk, by its number, and the row of each member, by its id.
        chunks: The chunks, or their files.
        damaged: Files that cannot be read; where they were not verified, not all such
            files.
    """

    def __init__(self) -> None:
        self.locations: dict[str, tuple[int, int]] = {}
        self.chunks: list[Chunk] = []
        self.damaged: list[Path] = []

    @classmethod
    def of(cls, folder: Path, *, verify: bool = False) -> "MemberStore":
        """Return what a sweep's folder holds; `verify` reads everything once."""
        store = cls()
        for path in chunk_paths(folder):
            ids = chunk_ids(path, verify=verify)
            if ids:
                store.add(ids, path)
            else:
                store.damaged.append(path)
        return store

    def __contains__(self, id: str) -> bool:
        return id in self.locations

    def add(self, ids: Sequence[str], chunk: Chunk) -> None:
        """Take a finished chunk, or its file, with the ids of its members."""
        number = len(self.chunks)
        self.chunks.append(chunk)
        self.locations.update({id: (number, row) for row, id in enumerate(ids)})

    def names(self) -> list[str]:
        """Return the names of all arrays in any chunk.

        Raises:
            ConfigError: a damaged file.
        """
        names: dict[str, None] = {}
        for chunk in self.chunks:
            with opened(chunk) as arrays:
                names.update(dict.fromkeys(arrays))
        names.pop(MEMBERS, None)
        return list(names)

    def read(self, name: str) -> dict[str, np.ndarray]:
        """Return one array's rows by member, without members whose chunk has none.

        Raises:
            ConfigError: a damaged file.
        """
        found: dict[int, np.ndarray] = {}
        for number, chunk in enumerate(self.chunks):
            with opened(chunk) as arrays:
                if name in arrays:
                    found[number] = arrays[name]
        return {
            id: found[number][row]
            for id, (number, row) in self.locations.items()
            if number in found
        }

    def state(self, id: str) -> dict[str, np.ndarray]:
        """Return the arrays of a member's state, `[1, ...]`; none if it kept none.

        Raises:
            ConfigError: a damaged file.
        """
        if id not in self:
            return {}
        number, row = self.locations[id]
        with opened(self.chunks[number]) as arrays:
            kept = [name for name in arrays if name.startswith(STATE)]
            rows = {name: arrays[name][row : row + 1] for name in kept}
        return {name.removeprefix(STATE): array for name, array in rows.items()}
