"""A folder of results: what it holds, whether it may be gone on with, who wrote it.

config.yaml      every field, to be read by people, and to start others with
manifest.json    what the folder holds and how it was made

A folder is opened by the specification of what is to be in it. Where it holds something
else already, everything that differs is said; nothing in it is changed.
"""

import contextlib
import json
import os
import platform
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import jax

from purerl import serialise
from purerl.atomic import write_atomic
from purerl.config import ConfigError
from purerl.execution.commands import this_command
from purerl.storage import documents, kinds, prng
from purerl.storage.differences import REMEDY, refuse

PACKAGES = ("purerl", "jax", "jaxlib", "flax", "optax", "numpy")
MANIFEST, CONFIG = "manifest.json", "config.yaml"
# What trackers have been told of what is in the folder.
TRACKERS_FILE = "trackers.json"
# What tools write results into. Without the manifest nobody can say what they are of.
CONTENTS = ("checkpoints", "chunks", "metrics", "records", "snapshots")
Spec = dict[str, Any]


class Format(NamedTuple):
    """The layout of the folders of one kind of result.

    Attributes:
        kind: The kind, of `purerl.storage.kinds`, that the manifest names.
        version: The version of the layout that this program writes and reads.
        noun: The noun for what a folder holds, for the sentence "holds another NOUN".
        subfolders: Folders to make inside the folder.
    """

    kind: str
    version: int
    noun: str
    subfolders: tuple[str, ...] = ()


def versions() -> dict[str, str]:
    """Return the versions of what the bits of results depend on."""
    installed = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            installed[name] = "not installed"
    return installed


def made_with() -> dict[str, Any]:
    """Return what this process computes with, as a manifest has it.

    That is its device, versions, and the way in which it makes random numbers.
    """
    device = jax.local_devices()[0]
    return {
        "device": f"{device.platform} {device.device_kind}",
        "versions": versions(),
        **prng.made_with(),
    }


def differences_of_versions(stored: Spec) -> str | None:
    """Return a sentence where device or versions differ, so that bits may."""
    now = made_with()
    odd = [
        f"{name} {version} -> {now['versions'].get(name)}"
        for name, version in stored["versions"].items()
        if now["versions"].get(name) != version
    ]
    if stored["device"] != now["device"]:
        odd.append(f"device {stored['device']} -> {now['device']}")
    if not odd:
        return None
    return f"resumed with other versions, so bits may differ: {', '.join(odd)}"


def open_folder(
    folder: Path,
    spec: Spec,
    layout: Format,
    *,
    compare: Callable[[Spec, Spec], list[str]],
    merge: Callable[[Spec, Spec], Spec] = lambda stored, new: stored,
    remedy: Callable[[Spec, Spec], str] = lambda stored, new: REMEDY,
) -> Spec:
    """Start a folder, or go on with it.

    Args:
        folder: The folder.
        spec: The specification of what is to be in it: plain values, with `config`.
        layout: The kind of folder.
        compare: A function that says what differs between a stored and a new
            specification, in words.
        merge: A function that makes what the folder says from now on, from both.
        remedy: A function that says what to do where they differ, from both.

    Returns:
        The specification that holds.

    Raises:
        ConfigError: another specification's folder, with all that differs; one of
            another kind or format, or with other random keys; one with results and no
            manifest; one that cannot be written.
    """
    new = json.loads(json.dumps(spec))
    if not (folder / MANIFEST).exists():
        refuse_remains(folder)
        write(folder, new, layout.subfolders)
        return new
    refuse_other(folder, layout.kind)
    stored = load_kind(folder, layout.kind, layout.version)
    prng.check_keys(f"out: {folder}", stored)
    found = compare(stored, new)
    if found:
        refuse(found, f"out: {folder}", layout.noun, remedy(stored, new))
    merged = merge(stored, new)
    if merged == stored:
        require_writable(folder)
        finish(folder, stored)
    else:
        write(folder, merged, layout.subfolders)
    return merged


def refuse_other(folder: Path, wanted: str | Sequence[str]) -> None:
    """Refuse to write into a folder that holds something else.

    Raises:
        ConfigError: saying what it holds.
    """
    names = (wanted,) if isinstance(wanted, str) else tuple(wanted)
    kind = kind_of(folder)
    if kind not in names:
        here = kinds.words_of(kind)
        wanted_words = " or ".join(map(kinds.words_of, names))
        raise ConfigError(
            f"out: {folder} holds {here}, not {wanted_words}; give another folder."
        )


def check_out(folder: Path | None, wanted: str | Sequence[str]) -> None:
    """Refuse a folder that could not be begun or gone on with, for a plan of it.

    Args:
        folder: The folder that would be written, if any; it need not be there.
        wanted: The kind or kinds, of `purerl.storage.kinds`, that it may hold.

    Raises:
        ConfigError: see `refuse_other`, `refuse_remains` and `check_writable`.
    """
    if folder is None:
        return
    check_writable(folder)
    if (folder / MANIFEST).exists():
        refuse_other(folder, wanted)
    else:
        refuse_remains(folder)


def refuse_remains(folder: Path) -> None:
    """Refuse to begin in a folder that has no manifest, and is not new either.

    Old results would pass as those of what begins, and a config.yaml of the user's own
    would be overwritten.

    Args:
        folder: The folder, which need not be there.

    Raises:
        ConfigError: naming what is in it.
    """
    for name in CONTENTS:
        if any(map(_is_result, (folder / name).rglob("*"))):
            raise ConfigError(
                f"out: {folder} has results in {name}/ and no {MANIFEST}, so that "
                "nobody can say what they are of; give another folder, or move "
                f"{name}/ away."
            )
    if (folder / CONFIG).exists():
        raise ConfigError(
            f"out: {folder} has a {CONFIG} and no {MANIFEST}, and {CONFIG} would be "
            "overwritten; give another folder, or move it away."
        )


def _is_result(path: Path) -> bool:
    # What begins with a dot was being written when its process was killed.
    return not path.name.startswith(".") and path.is_file()


def write(folder: Path, spec: Spec, subfolders: Sequence[str] = ()) -> None:
    """Write manifest.json and config.yaml, and make the folder where there is none.

    The manifest says which command wrote it, where the specification does not yet.
    The manifest is written first: a folder with a config.yaml alone is none of ours.

    Args:
        folder: The folder.
        spec: The specification of what is in it: plain values, with `config`.
        subfolders: Folders to make inside the folder.

    Raises:
        ConfigError: the folder cannot be written.
    """
    make(folder, subfolders)
    spec = {"command": this_command(), **spec}
    try:
        documents.write(folder / MANIFEST, spec)
    except OSError as error:
        raise cannot_write(folder, error) from None
    write_config(folder, spec)


def finish(folder: Path, spec: Spec) -> None:
    """Do what `write` does after it has written the manifest, if a kill kept it off.

    Args:
        folder: The folder.
        spec: The specification of its manifest.

    Raises:
        ConfigError: the folder cannot be written.
    """
    if not (folder / CONFIG).exists():
        write_config(folder, spec)


def write_config(folder: Path, spec: Spec) -> None:
    """Write config.yaml of a specification, see `write`."""
    try:
        write_atomic(folder / CONFIG, serialise.yaml_text(spec["config"]))
    except OSError as error:
        raise cannot_write(folder, error) from None


def update(folder: Path, changes: Mapping[str, Any]) -> None:
    """Change entries of a folder's manifest."""
    documents.write(folder / MANIFEST, {**load(folder), **changes})


@contextlib.contextmanager
def undone_if_empty(folder: Path | None) -> Iterator[None]:
    """Take back a folder that was begun in this context if an error leaves it empty.

    A folder without results would otherwise refuse the same call with other settings.

    Args:
        folder: The folder, before it is begun or gone on with; None where there is
            none.
    """
    was_there = is_begun(folder)
    had_trackers = folder is not None and (folder / TRACKERS_FILE).exists()
    try:
        yield
    except ConfigError:
        # Without a manifest nothing was begun: files there are the user's own.
        is_new = not was_there and is_begun(folder)
        if folder is not None and is_new and not _has_results(folder):
            rollback(folder)
            if not had_trackers:
                # What begins here next is not what they were told of.
                (folder / TRACKERS_FILE).unlink(missing_ok=True)
        raise


def is_begun(folder: Path | None) -> bool:
    """Return whether something was begun in a folder: it has a manifest.

    Args:
        folder: The folder; None where there is none.
    """
    return folder is not None and (folder / MANIFEST).exists()


def _has_results(folder: Path) -> bool:
    return any(_is_result(p) for name in CONTENTS for p in (folder / name).rglob("*"))


def rollback(folder: Path) -> None:
    """Take back what `write` wrote, where nothing could begin in the folder.

    What the user had there stays: `refuse_remains` has seen that these files are ours.
    """
    for name in (CONFIG, MANIFEST):
        (folder / name).unlink(missing_ok=True)


def make(folder: Path, subfolders: Sequence[str] = ()) -> None:
    """Make a folder and folders in it, and see that they can be written.

    Raises:
        ConfigError: they cannot.
    """
    try:
        for path in (folder, *(folder / name for name in subfolders)):
            path.mkdir(parents=True, exist_ok=True)
            _write_and_remove(path)
    except OSError as error:
        raise cannot_write(folder, error) from None


def require_writable(folder: Path) -> None:
    """Refuse a folder that cannot be written.

    Raises:
        ConfigError: naming it and why.
    """
    try:
        _write_and_remove(folder)
    except OSError as error:
        raise cannot_write(folder, error) from None


def check_writable(folder: Path) -> None:
    """Refuse a folder that could not be made and written; nothing stays there.

    Raises:
        ConfigError: naming it and why.
    """
    try:
        above = folder
        while True:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                os.lstat(above)
                break
            above = above.parent
        with tempfile.TemporaryDirectory(dir=above, prefix=".write-test-"):
            pass
    except OSError as error:
        raise cannot_write(folder, error) from None


def _write_and_remove(folder: Path) -> None:
    probe = folder / f".write-test-{os.getpid()}"
    probe.write_text("")
    probe.unlink()


def cannot_write(folder: Path, error: OSError) -> ConfigError:
    """Return the error for a folder that cannot be written."""
    return ConfigError(
        f"out: cannot write to {folder} ({error.strerror or error}). Give a folder "
        "that you may write to."
    )


def load(folder: Path) -> Spec:
    """Return the manifest of a folder, whatever it holds.

    Raises:
        ConfigError: there is no folder, or no manifest, or it cannot be read.
    """
    path = folder / MANIFEST
    if not folder.exists():
        raise ConfigError(
            f"there is no folder {folder}; give the folder that a command or a call "
            "has written (out)."
        )
    if not path.exists():
        kind = kinds.kind_of(folder, None)
        if kind is not None:
            raise ConfigError(kinds.not_wanted(folder, kind, "run"))
        raise ConfigError(
            f"there is no run in {folder} (no manifest.json). Give the folder that a "
            "run printed."
        )
    stored = documents.read(path, "Put back a copy of it, or start a new run.")
    config = stored.get("config")
    if isinstance(config, dict) and _is_of_agents(stored, config):
        # So that what began before a field was there goes on with its default.
        stored["config"] = serialise.completed(config)
    return stored


def _is_of_agents(stored: Spec, config: Mapping[str, Any]) -> bool:
    """Return whether a config is that of agents; a search of one's own may have any."""
    return stored.get("kind", "run") in kinds.KINDS or "algorithm" in config


def written_by(stored: Spec) -> str:
    """Return which purerl and JAX wrote a manifest; empty where it does not say."""
    known = stored.get("versions", {})
    words = [f"{name} {known[name]}" for name in ("purerl", "jax") if name in known]
    return " with ".join(words)


def kind_of(folder: Path) -> str:
    """Return the kind of a folder, a key of `purerl.storage.kinds.KINDS` where known.

    Raises:
        ConfigError: nothing that purerl has written, or a manifest that is damaged.
    """
    has_manifest = (folder / MANIFEST).exists()
    kind = kinds.kind_of(folder, load(folder) if has_manifest else None)
    if kind is None:
        load(folder)  # says that there is nothing
    return str(kind)


def load_kind(folder: Path, wanted: str | Sequence[str], version: int) -> Spec:
    """Return the manifest of what is not a run.

    Args:
        folder: The folder that should hold it.
        wanted: The kind or kinds, of `purerl.storage.kinds`, that it may name.
        version: The format that this program reads.

    Raises:
        ConfigError: there is none, it cannot be read, or is of another kind or format.
    """
    stored = load(folder)
    names = (wanted,) if isinstance(wanted, str) else tuple(wanted)
    kind = kind_of(folder)
    if kind not in names:
        raise ConfigError(kinds.not_wanted(folder, kind, names))
    if stored.get("format") != version:
        raise ConfigError(
            f"{folder} was written in format {stored.get('format')}, this version "
            f"reads {version}; read it with the version in its manifest.json."
        )
    return stored
