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
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from purerl import serialise
from purerl.config import ConfigError, TrainConfig
from purerl.storage import folders
from purerl.storage.files import DAMAGE, check_arrays, save_arrays
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
    lanes = options.lanes if isinstance(options.lanes, int) else None
    design = outline.design
    return {
        "kind": "sweep",
        "format": FORMAT,
        "config": serialise.to_dict(outline.config),
        "design": design.kind,
        "axes": list(design.names),
        "shape": list(design.shape),
        "points": list(points),
        "seeds": list(outline.seeds),
        "options": options.kept(),
        "groups": {
            group.group.name: {
                "auto": group.group.bound.automatic,
                "lanes": group.lanes,
                "lanes_asked": lanes,
                "segment_updates": group.length,
                # More than a whole run is a whole run.
                "segment_updates_asked": group.length
                if options.segment_updates
                else None,
            }
            for group in outline.groups
        },
    }


def compare(stored: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return what differs between two sweeps, in words."""
    parts = {"config": FIELD, "options": FIELD}
    found = differences(stored, new, parts, free=("points", "shape", "groups"))
    if not found and _texts(stored) != _texts(new):
        known, wanted = set(_texts(stored)), set(_texts(new))
        found.append(
            f"{len(known)} points there and {len(wanted)} here ({len(wanted - known)} "
            f"new, {len(known - wanted)} left out)"
        )
    return found + _differences_of_groups(stored["groups"], new["groups"])


def _differences_of_groups(stored: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return the differences between groups of both sweeps, each of them once."""
    found = []
    for name in (name for name in new if name in stored):
        found += differences(stored[name], new[name], {"auto": AUTO_FIELD})
    return list(dict.fromkeys(found))


def is_extension(stored: dict[str, Any], new: dict[str, Any]) -> bool:
    """Return whether `new` has everything that `stored` has, trained alike."""
    kept = set(_texts(stored)) <= set(_texts(new))
    kept = kept and set(stored["seeds"]) <= set(new["seeds"])
    # The points and seeds may be more, or in another order.
    same = {**new, **{name: stored[name] for name in ("points", "seeds")}}
    return kept and not compare(stored, same)


def _texts(sweep: dict[str, Any]) -> list[str]:
    return [json.dumps(point, sort_keys=True) for point in sweep["points"]]


MEMBERS = "members"


class Chunk(NamedTuple):
    """Finished members of one group.

    Attributes:
        ids: Ids of the members.
        arrays: Arrays by name: `train/<metric>` `[M, R]`, `evaluation/<name>`
            `[M, K, ...]`, `diverged_at` `[M]` (-1: never), perhaps `state/<path>`
            `[M, ...]`.
    """

    ids: tuple[str, ...]
    arrays: Mapping[str, np.ndarray]


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

    return folders.open_folder(
        folder,
        spec,
        "chunks",
        compare=differences,
        merge=_extended,
        remedy=_remedy,
    )


def described(config: TrainConfig, folder: Path | None) -> dict[str, Any]:
    """Return the base config as plain values: those of the folder, if there is one."""
    return load(folder)["config"] if folder else serialise.to_dict(config)


def _extended(stored: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The stored groups win over the new ones."""
    merged = {**stored, **{name: new[name] for name in ("points", "seeds", "shape")}}
    return {**merged, "groups": {**new["groups"], **stored["groups"]}}


def _remedy(stored: dict[str, Any], new: dict[str, Any]) -> str:
    if is_extension(stored, new):
        return (
            "Add --extend (extend=True) to train what is missing, or to have the "
            "points in this order."
        )
    return REMEDY


def set_lanes(folder: Path, group: str, lanes: int) -> None:
    """Narrow the lanes of a group of which nothing has been trained yet."""
    groups = load(folder)["groups"]
    groups[group]["lanes"] = lanes
    folders.update(folder, {"groups": groups})


def load(folder: Path) -> dict[str, Any]:
    """Return a sweep's manifest.

    Raises:
        ConfigError: there is none, or it cannot be read, or it is of another kind.
    """
    return folders.load_kind(folder, "sweep", FORMAT)


def save(folder: Path, group: str, chunk: Chunk) -> Path:
    """Write a finished chunk; a reader sees all of it or nothing.

    Args:
        folder: The folder of the sweep.
        group: The name of the group.
        chunk: The finished members of the group.
    """
    text = json.dumps({"ids": list(chunk.ids), "group": group})
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    path = folder / "chunks" / f"{group}-{digest}.npz"
    named = {name: np.asarray(array) for name, array in chunk.arrays.items()}
    members = np.frombuffer(text.encode(), np.uint8)
    save_arrays(path, {**named, MEMBERS: members})
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
        with np.load(path, allow_pickle=False) as file:
            return tuple(json.loads(file[MEMBERS].tobytes())["ids"])
    except DAMAGE:
        return ()


def read_chunk(path: Path) -> Chunk:
    """Read a chunk file.

    Raises:
        ConfigError: it is damaged.
    """
    with _opened(path) as file:
        contents = {name: file[name] for name in file}
    ids = json.loads(contents.pop(MEMBERS).tobytes())["ids"]
    return Chunk(tuple(ids), contents)


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
        self.chunks: list[Chunk | Path] = []
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

    def add(self, ids: Sequence[str], chunk: Chunk | Path) -> None:
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
            with _opened(chunk) as arrays:
                names.update(dict.fromkeys(arrays))
        names.pop(MEMBERS, None)
        return list(names)

    def read(
        self, name: str, only: Collection[str] | None = None
    ) -> dict[str, np.ndarray]:
        """Return one array's rows by member, without members whose chunk has none.

        Raises:
            ConfigError: a damaged file.
        """
        rows: dict[str, np.ndarray] = {}
        wanted: dict[int, list[tuple[str, int]]] = {}
        # What one member takes does not grow with the others.
        ids = self.locations if only is None else filter(self.__contains__, only)
        for id in ids:
            number, row = self.locations[id]
            wanted.setdefault(number, []).append((id, row))
        for number, members in wanted.items():
            with _opened(self.chunks[number]) as arrays:
                array = arrays[name] if name in arrays else None
            if array is not None:
                rows.update({id: array[row] for id, row in members})
        return rows


@contextlib.contextmanager
def _opened(chunk: Chunk | Path) -> Iterator[Mapping[str, np.ndarray]]:
    """A chunk's arrays by name; its file may have been damaged since it was indexed."""
    if isinstance(chunk, Chunk):
        yield chunk.arrays
        return
    try:
        with np.load(chunk, allow_pickle=False) as file:
            yield file
    except DAMAGE as error:
        raise ConfigError(
            f"{chunk} is damaged ({error}). Delete it and run the sweep again: "
            "only its members are trained anew."
        ) from None
