"""A folder of results: what it holds, whether it may be gone on with, who wrote it.

config.yaml      every field, to be read by people, and to start others with
manifest.json    what the folder holds and how it was made
summary.json     numbers of what it holds, and about the call that trained it

A folder is opened by the specification of what is to be in it (`open_folder`). Where it
holds something else already, everything that differs is said, and nothing is changed.

A manifest has the implementation of its random keys under `prng_impl`, and whether
Threefry's numbers follow the size of an array (`JAX_THREEFRY_PARTITIONABLE=0`) under
`threefry_partitionable`: results of two ways of making random numbers do not fit
together.
"""

import contextlib
import json
import os
import platform
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

from purerl import serialise
from purerl.atomic import write_atomic
from purerl.config import ConfigError
from purerl.execution.format import say, this_command
from purerl.scale.host import impl_here
from purerl.storage.files import read_json, write_json

MANIFEST, CONFIG, SUMMARY = "manifest.json", "config.yaml", "summary.json"
# What trackers have been told of what is in the folder.
TRACKERS_FILE = "trackers.json"
# What tools write results into. Without the manifest nobody can say what they are of.
CONTENTS = (
    *("checkpoints", "chunks", "metrics", "records", "snapshots", "trained"),
    "trials.json",
)
PACKAGES = ("purerl", "jax", "jaxlib", "flax", "optax", "numpy")
COMPARISON = "comparison"
# Entries of a manifest.
PRNG_IMPL, PARTITIONABLE = "prng_impl", "threefry_partitionable"
Spec = dict[str, Any]


# Kinds of folders.


# Of each kind the words with an article, and the noun in "holds another NOUN".
KINDS = {
    "run": ("a run", "run"),
    "sweep": ("a sweep", "sweep"),
    "pbt": ("population-based training", "search"),
    "halving": ("a successive-halving search", "search"),
    "schedules": ("agents trained with schedules", "search"),
    "tune": ("a tuning study", "study"),
    "evolution": ("an evolution", "evolution"),
    COMPARISON: ("a comparison", "comparison"),
}


def kind_of(folder: Path) -> str:
    """Return the kind of a folder, a key of `KINDS` where it is known.

    Raises:
        ConfigError: nothing that purerl has written, or a manifest that is damaged.
    """
    return str(load(folder).get("kind"))


def is_tracked(kind: str) -> bool:
    """Return whether `purerl track` sends what trackers lack of a kind of folder."""
    return kind in KINDS and kind != "schedules"


def words_of(kind: str) -> str:
    """Return the noun of a kind with its article."""
    return KINDS[kind][0] if kind in KINDS else f"results of the kind {kind!r}"


def refusal(folder: Path, kind: str, why: str) -> str:
    """Return the sentences for a folder that a command cannot use.

    Args:
        why: The end of the first sentence, with the comma before it.
    """
    lead = f"{folder} holds {words_of(kind)}{why}."
    if kind not in KINDS:
        return f"{lead} This version does not know that kind; give another folder."
    return (
        f"{lead} purerl.load({str(folder)!r}) reads it, and the call that wrote it "
        "goes on with it; give another folder for anything else."
    )


# What wrote a folder.


def versions() -> dict[str, str]:
    """Return the versions of what the bits of results depend on."""
    installed = {name: version_of(name) or "not installed" for name in PACKAGES}
    return {"python": platform.python_version(), **installed}


def version_of(package: str) -> str:
    """Return the version of a package; empty where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def made_with() -> dict[str, Any]:
    """Return what this process computes with, as a manifest has it.

    That is its device, versions, and the way in which it makes random numbers.
    """
    device = jax.local_devices()[0]
    return {
        "device": f"{device.platform} {device.device_kind}",
        "versions": versions(),
        **_random_numbers(),
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


def written_by(stored: Spec) -> str:
    """Return which purerl and JAX wrote a manifest."""
    known = stored.get("versions", {})
    return " with ".join(f"{name} {known.get(name)}" for name in ("purerl", "jax"))


def _random_numbers() -> dict[str, Any]:
    """How this process makes random numbers."""
    is_partitionable: Any = jax.config.jax_threefry_partitionable  # type: ignore[attr-defined]
    return {PRNG_IMPL: impl_here(), PARTITIONABLE: bool(is_partitionable)}


def check_keys(where: str, stored: Mapping[str, Any]) -> None:
    """Refuse to go on with a folder where random numbers are made in another way.

    Args:
        where: What is gone on with, as the sentence begins.
        stored: The manifest of the folder.

    Raises:
        ConfigError: naming both.
    """
    for name, here in _random_numbers().items():
        if stored[name] != here:
            option = f"jax_{name}" if name == PARTITIONABLE else f"jax_default_{name}"
            value = int(stored[name]) if name == PARTITIONABLE else stored[name]
            raise ConfigError(
                f"{where} has random numbers of {option}={stored[name]}, and this "
                f"process makes those of {here}, with which nothing goes on as it "
                f"began. Set {option.upper()}={value} to go on with it."
            )


def keys_of(stored: Mapping[str, Any]) -> contextlib.AbstractContextManager:
    """Make random keys of a manifest's implementation, in this thread."""
    return jax.default_prng_impl(stored[PRNG_IMPL])


# What differs between what a folder holds and what is asked for.

# How a field of an entry is named: `{}` stands for the name of the field.
FIELD, AUTO_FIELD = "{}", "{}, which is auto,"
REMEDY = "Give another folder, or the stored settings."
LONGEST = 120  # The most characters of a value that are shown.
# What a folder adds to every specification. It may differ.
_ADDED = ("command", "kind", "format", "device", "versions", PRNG_IMPL, PARTITIONABLE)
_ASKED = "_asked"
_MISSING = object()


def differences(
    stored: Mapping[str, Any],
    new: Mapping[str, Any],
    parts: Mapping[str, str] | None = None,
    free: Collection[str] = (),
) -> list[str]:
    """Return all in which two specifications differ, a phrase with both values each.

    The fields of `parts` are compared one by one. What is missing is equal to None. Of
    any other entry the order counts, also that of a mapping. An entry such as
    `lanes`, beside which the new specification has `lanes_asked`, is compared only
    where something was asked for.

    Args:
        stored: The specification that there is, of plain values.
        new: The specification that is asked for, of plain values.
        parts: The entries that are mappings of fields, and how a field of each is
            named, with `{}` for the field's own name; `config` where not given.
        free: The entries that may differ, beside those that every folder adds.
    """
    found, parts = [], {"config": FIELD} if parts is None else parts
    for part, naming in parts.items():
        before, now = stored.get(part) or {}, new.get(part) or {}
        for name in sorted({*before, *now}):
            if before.get(name) != now.get(name):
                pair = before.get(name, _MISSING), now.get(name, _MISSING)
                found.append(_phrase(naming.format(name), *pair))
    for name in sorted({*stored, *new} - {*parts, *free, *_ADDED}):
        before, now = stored.get(name, _MISSING), new.get(name, _MISSING)
        if f"{name}{_ASKED}" in new:
            now = new[f"{name}{_ASKED}"] or before
        plain = [json.dumps(None if x is _MISSING else x) for x in (before, now)]
        if not name.endswith(_ASKED) and plain[0] != plain[1]:
            found.append(_phrase(name, before, now))
    return found


def refuse(found: Sequence[str], where: str, noun: str, remedy: str = REMEDY) -> None:
    """Refuse to go on in a place that holds something else.

    Args:
        found: What differs, of `differences`.
        where: The place, as the sentence begins.
        noun: The noun for what it holds.
        remedy: The sentence that says what to do.

    Raises:
        ConfigError: anything differs.
    """
    if found:
        raise ConfigError(f"{where} holds another {noun}: {'; '.join(found)}. {remedy}")


def _phrase(name: str, before: Any, now: Any) -> str:
    texts = ["missing" if x is _MISSING else repr(x) for x in (before, now)]
    pairs = enumerate(zip(*texts, strict=False))
    first = next((n for n, (a, b) in pairs if a != b), min(map(len, texts)))
    # A long text is cut around the first character that differs.
    begin = max(0, first - LONGEST // 2)
    there, here = (
        f"{'...' * (begin > 0)}{x[begin : begin + LONGEST]}"
        f"{'...' * (len(x) > begin + LONGEST)}"
        for x in texts
    )
    return f"{name} is {there} there and {here} here"


# Begin a folder, or go on with it.


def open_folder(
    folder: Path,
    spec: Spec,
    *subfolders: str,
    told: Sequence[str] = (),
    compare: Callable[[Spec, Spec], list[str]] | None = None,
    merge: Callable[[Spec, Spec], Spec] | None = None,
    remedy: Callable[[Spec, Spec], str] = lambda stored, new: REMEDY,
) -> Spec:
    """Begin a folder, or go on with it; return the specification that holds.

    Args:
        spec: The specification of what is to be in it: plain values, with `config`,
            and with its `kind` and the `format` of its layout. Versions and device are
            added.
        *subfolders: Folders to make inside the folder.
        told: The entries that each call says anew, and that may differ.
        compare: A function that says what differs between a stored and a new
            specification, in words; where not given, `differences` in all others.
        merge: A function that makes what the folder says from now on, from both; where
            not given, it is what it said, with what is told anew.
        remedy: A function that says what to do where they differ, from both.

    Raises:
        ConfigError: another specification's folder, with all that differs; one of
            another kind or format, or with other random keys; one with results and no
            manifest; one that cannot be written.
    """
    new, kind = json.loads(json.dumps({**spec, **made_with()})), spec["kind"]
    check_out(folder, kind)
    if not is_begun(folder):
        write(folder, new, subfolders)
        return new
    stored = load_kind(folder, kind, spec["format"])
    check_keys(f"out: {folder}", stored)
    if compare is not None:
        found = compare(stored, new)
    else:
        parts = {"config": FIELD, "options": FIELD}
        found = differences(stored, new, parts, free=told)
    if found:
        _, noun = KINDS.get(kind, ("", "search"))
        refuse(found, f"out: {folder}", noun, remedy(stored, new))
    merged = stored | {name: new[name] for name in told}
    if merge is not None:
        merged = merge(stored, new)
    if merged == stored:
        make(folder)
        if not (folder / CONFIG).exists():  # A kill kept it off.
            write_config(folder, stored)
    else:
        write(folder, merged, subfolders)
    return merged


def check_out(folder: Path | None, *wanted: str) -> None:
    """Refuse a folder that could not be begun or gone on with.

    Results without a manifest would pass as those of what begins, and a config.yaml of
    the user's own would be overwritten.

    Args:
        folder: The folder that would be written, if any; it need not be there.
        *wanted: The kinds, of `KINDS`, that it may hold.

    Raises:
        ConfigError: saying what it holds.
    """
    if folder is None:
        return
    if is_begun(folder):
        kind = kind_of(folder)
        if kind not in wanted:
            why = f", not {' or '.join(map(words_of, wanted))}"
            raise ConfigError(f"out: {refusal(folder, kind, why)}")
        return
    paths = [folder / name for name in CONTENTS if _has_results(folder / name)]
    found = [f"{path.name}{'/' * path.is_dir()}" for path in paths]
    found += [CONFIG] if (folder / CONFIG).exists() else []
    if found:
        raise ConfigError(
            f"out: {folder} has {', '.join(found)} and no {MANIFEST}, so that nobody "
            "can say what they are of; give another folder, or move them away."
        )


def _has_results(path: Path) -> bool:
    # What begins with a dot was being written when its process was killed.
    inside = (path, *path.rglob("*"))
    return any(p.is_file() and not p.name.startswith(".") for p in inside)


def write(folder: Path, spec: Spec, subfolders: Sequence[str] = ()) -> None:
    """Write manifest.json and config.yaml, and make the folder where there is none.

    The manifest says which command wrote it, where the specification does not yet.
    It is written first: a folder with a config.yaml alone is none of ours.

    Args:
        spec: The specification of what is in it: plain values, with `config`.
        subfolders: Folders to make inside the folder.

    Raises:
        ConfigError: the folder cannot be written.
    """
    make(folder, subfolders)
    spec = {"command": this_command(), **spec}
    with _refusing(folder):
        write_json(folder / MANIFEST, spec)
    write_config(folder, spec)


def write_config(folder: Path, spec: Spec) -> None:
    """Write config.yaml of a specification, see `write`."""
    with _refusing(folder):
        write_atomic(folder / CONFIG, serialise.yaml_text(spec["config"]))


def update(folder: Path, changes: Mapping[str, Any]) -> None:
    """Change entries of a folder's manifest."""
    write_json(folder / MANIFEST, {**load(folder), **changes})


def is_begun(folder: Path | None) -> bool:
    """Return whether something was begun in a folder: it has a manifest."""
    return folder is not None and (folder / MANIFEST).exists()


@contextlib.contextmanager
def undone_if_empty(folder: Path | None) -> Iterator[None]:
    """Take back a folder that was begun in this context if an error leaves it empty.

    A folder without results would otherwise refuse the same call with other settings.

    Args:
        folder: The folder, before it is begun or gone on with; None where there is
            none.
    """
    was_there = is_begun(folder)
    try:
        yield
    except ConfigError:
        # Without a manifest nothing was begun: files there are the user's own.
        if folder is not None and not was_there and is_begun(folder):
            if not any(_has_results(folder / name) for name in CONTENTS):
                # What begins here next is not what trackers were told of.
                for name in (CONFIG, MANIFEST, TRACKERS_FILE):
                    (folder / name).unlink(missing_ok=True)
        raise


def make(folder: Path, subfolders: Sequence[str] = ()) -> None:
    """Make a folder and folders in it, and see that they can be written.

    Raises:
        ConfigError: they cannot.
    """
    with _refusing(folder):
        for path in (folder, *(folder / name for name in subfolders)):
            path.mkdir(parents=True, exist_ok=True)
            probe = path / f".write-test-{os.getpid()}"
            probe.write_text("")
            probe.unlink()


@contextlib.contextmanager
def _refusing(folder: Path) -> Iterator[None]:
    """Turn an error of the file system into the sentence about a folder."""
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"out: cannot write to {folder} ({error.strerror or error}). Give a folder "
            "that you may write to."
        ) from None


# Read a folder.


def load(folder: Path) -> Spec:
    """Return the manifest of a folder, whatever it holds.

    Raises:
        ConfigError: there is no folder, or no manifest, or it cannot be read.
    """
    path = folder / MANIFEST
    try:
        if not folder.exists():
            raise ConfigError(f"there is no folder {folder}.")
        if not folder.is_dir():
            raise ConfigError(f"{folder} is a file; give the folder of a run.")
        if not path.exists():
            raise ConfigError(f"there is no run in {folder} (no {MANIFEST}).")
    except OSError as error:  # The path is too long, or the folder is somebody's own.
        why = error.strerror or error
        raise ConfigError(f"cannot look into {folder} ({why}).") from None
    return read_json(path, "Put back a copy of it, or start a new run.")


def load_kind(folder: Path, wanted: str | Sequence[str], version: int) -> Spec:
    """Return the manifest of a kind of folder.

    Args:
        folder: The folder that should hold it.
        wanted: The kind or kinds, of `KINDS`, that it may name.
        version: The format that this program reads.

    Raises:
        ConfigError: there is none, it cannot be read, or is of another kind or format.
    """
    stored, kind = load(folder), kind_of(folder)
    wanted = (wanted,) if isinstance(wanted, str) else wanted
    if kind not in wanted:
        why = f", not {' or '.join(map(words_of, wanted))}"
        raise ConfigError(refusal(folder, kind, why))
    if stored.get("format") != version:
        raise ConfigError(
            f"{folder} was written in format {stored.get('format')}, this version "
            f"reads {version}; read it with the version in its manifest.json."
        )
    return stored


# summary.json.


def write_summary(
    folder: Path,
    facts: Mapping[str, Any],
    call: Mapping[str, Any],
    has_trained: bool,
    added: Sequence[str] = (),
) -> None:
    """Write the file; a call that trained nothing leaves the times of an earlier one.

    Args:
        folder: Folder of the results.
        facts: Numbers of what the folder holds, whoever trained it, by name.
        call: Numbers about the call, such as its times, by name.
        has_trained: Whether the call has trained something.
        added: Names of the numbers of the call that are added to those of earlier ones.
    """
    try:
        earlier = read_summary(folder)
    except ConfigError:  # It is written anew.
        earlier = {}
    if has_trained:
        sums = {name: (earlier.get(name) or 0) + call[name] for name in added}
        earlier = {
            name: round(total, 2) if isinstance(total, float) else total
            for name, total in sums.items()
        }
    write_json(folder / SUMMARY, {**call, **earlier, **facts})


def read_summary(folder: Path) -> dict[str, Any]:
    """Return the numbers of a folder's summary; none where there is no file.

    Raises:
        ConfigError: the file is damaged.
    """
    path = folder / SUMMARY
    if not path.exists():
        return {}
    return read_json(path, "Repeat the call that wrote it: it is written anew.")


def say_what_is_cut(folder: Path, is_finished: bool) -> None:
    """Say of what had finished that its last checkpoint is not there."""
    if not is_finished and (folder / SUMMARY).exists():
        say(
            f"{folder / SUMMARY} is of more than {folder / 'checkpoints'}, whose last "
            "checkpoint is missing: put back a copy, or go on with what is there."
        )


def refuse_lost_checkpoints(folder: Path) -> None:
    """Refuse to begin again what has a summary and no checkpoint any more.

    Raises:
        ConfigError: naming both.
    """
    if (folder / SUMMARY).exists():
        raise ConfigError(
            f"{folder / 'checkpoints'} has no checkpoint, and {folder / SUMMARY} is of "
            "what had been trained. Put back a copy of the checkpoints, or give "
            "another folder; nothing was changed."
        )
