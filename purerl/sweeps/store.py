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
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from purerl import serialise
from purerl.config import ConfigError, TrainConfig
from purerl.storage import folders
from purerl.storage.files import DAMAGE, check_arrays, save_arrays
from purerl.storage.folders import REMEDY
from purerl.sweeps.spec import FORMAT, compare, is_extension, is_reordered

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


def open_folder(folder: Path, spec: dict[str, Any], *, extend: bool) -> dict[str, Any]:
    """Start a sweep's folder, or go on with it.

    Args:
        folder: The folder of the sweep.
        spec: The specification of the sweep (`purerl.sweeps.spec.describe`): `config`,
            `axes`, `design`, `points`, `seeds`; and how it runs: `groups`, `versions`,
            `device`.
        extend: Whether more points or seeds than there are may be asked for.

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
        folders.Format("sweep", FORMAT, "sweep", ("chunks",)),
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
    if is_reordered(stored, new):
        return (
            "Give them in the stored order, or add --extend (extend=True): the results "
            "then have this one."
        )
    if is_extension(stored, new):
        return (
            "It asks for more than there is: add --extend (extend=True) to train what "
            "is missing."
        )
    return REMEDY


def set_lanes(folder: Path, group: str, lanes: int) -> None:
    """Narrow the lanes of a group of which nothing has been trained yet.

    Args:
        folder: The folder of the sweep.
        group: The name of the group.
        lanes: The width of a block from now on, W.
    """
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


def chunk_ids(path: Path) -> tuple[str, ...]:
    """Return the members of a chunk file; none where it is damaged."""
    try:
        return tuple(_read_ids(path, verify=False))
    except DAMAGE:
        return ()


def read_chunk(path: Path) -> Chunk:
    """Read a chunk file.

    Raises:
        ConfigError: it is damaged.
    """
    with _opened(path) as file:
        contents = {name: file[name] for name in file.files}
    ids = json.loads(contents.pop(MEMBERS).tobytes())["ids"]
    return Chunk(tuple(ids), contents)


class MemberStore(Protocol):
    """A source of members' arrays: a `FolderStore` or a `MemoryStore`."""

    def __contains__(self, id: str) -> bool:
        """Return whether a member has finished."""
        ...

    def names(self) -> list[str]:
        """Return the names of all arrays."""
        ...

    def read(
        self, name: str, only: Collection[str] | None = None
    ) -> dict[str, np.ndarray]:
        """Return one array's rows, by member; of these members only, if given."""
        ...


class FolderStore:
    """The files of a folder and the members in them; arrays are read when asked for.

    Args:
        folder: The folder of the sweep.
        verify: Whether to read everything once, for its checksums.

    Attributes:
        locations: The file and row of each member, by its id.
        damaged: Files that cannot be read; without `verify`, not all such files.
    """

    def __init__(self, folder: Path, *, verify: bool = False) -> None:
        self.folder = folder
        self.locations: dict[str, tuple[Path, int]] = {}
        self.damaged: list[Path] = []
        for path in chunk_paths(folder):
            try:
                ids = _read_ids(path, verify)
            except DAMAGE:
                self.damaged.append(path)
                continue
            self.locations.update({id: (path, row) for row, id in enumerate(ids)})

    def __contains__(self, id: str) -> bool:
        return id in self.locations

    def rename_damaged(self) -> None:
        """Rename what cannot be read, so that it is trained again."""
        for path in self.damaged:
            path.rename(path.with_suffix(".damaged"))

    def names(self) -> list[str]:
        """Return the names of all arrays in any file.

        Raises:
            ConfigError: a damaged file.
        """
        names: dict[str, None] = {}
        for path in sorted({path for path, _ in self.locations.values()}):
            with _opened(path) as file:
                names.update(dict.fromkeys(file.files))
        names.pop(MEMBERS, None)
        return list(names)

    def read(
        self, name: str, only: Collection[str] | None = None
    ) -> dict[str, np.ndarray]:
        """Return one array's rows by member, without members whose chunk has none.

        Args:
            name: The name of the array.
            only: Ids of the members to read; no other file is opened. All where not
                given.

        Raises:
            ConfigError: a damaged file.
        """
        rows: dict[str, np.ndarray] = {}
        by_path: dict[Path, list[tuple[str, int]]] = {}
        # What one member takes does not grow with the others.
        ids = self.locations if only is None else filter(self.__contains__, only)
        for id in ids:
            path, row = self.locations[id]
            by_path.setdefault(path, []).append((id, row))
        for path, members in by_path.items():
            with _opened(path) as file:
                array = file[name] if name in file.files else None
            if array is not None:
                rows.update({id: array[row] for id, row in members})
        return rows


class MemoryStore:
    """Finished chunks in memory, where no folder was given."""

    def __init__(self) -> None:
        self._chunks: list[Chunk] = []
        self._ids: set[str] = set()

    def __contains__(self, id: str) -> bool:
        return id in self._ids

    def add(self, chunk: Chunk) -> None:
        """Keep a finished chunk."""
        self._chunks.append(chunk)
        self._ids.update(chunk.ids)

    def names(self) -> list[str]:
        """Return the names of all arrays."""
        return list(dict.fromkeys(name for c in self._chunks for name in c.arrays))

    def read(
        self, name: str, only: Collection[str] | None = None
    ) -> dict[str, np.ndarray]:
        """Return one array's rows, by member; of these members only, if given."""
        return {
            id: chunk.arrays[name][row]
            for chunk in self._chunks
            if name in chunk.arrays
            for row, id in enumerate(chunk.ids)
            if only is None or id in only
        }


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """A chunk's file, which may have been damaged since it was indexed."""
    try:
        with np.load(path, allow_pickle=False) as file:
            yield file
    except DAMAGE as error:
        raise ConfigError(
            f"{path} is damaged ({error}). Delete it and run the sweep again: "
            "only its members are trained anew."
        ) from None


def _read_ids(path: Path, verify: bool) -> list[str]:
    """The members of a file; with `verify` every array's checksum is looked at."""
    if verify:
        check_arrays(path)
    with np.load(path, allow_pickle=False) as file:
        return json.loads(file[MEMBERS].tobytes())["ids"]
