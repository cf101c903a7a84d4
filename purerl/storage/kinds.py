"""The kinds of folders, in words, and which commands read each.

Every command that is given a folder of another kind than its own says so with the
sentences of this module. It reads nothing but a manifest and imports nothing heavy.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from purerl.execution.commands import program
from purerl.execution.format import quoted

COMPARISON = "comparison"
COMPARISON_FILE = "comparison.json"


class Kind(NamedTuple):
    """One kind of folder, described for people.

    Attributes:
        words: The noun with its article.
        goes_on: The command that goes on with it; `{folder}` stands for the folder,
            `{purerl}` for the program.
        reads: The commands and functions that read it; `{folder}` stands for the
            folder, `{purerl}` for the program.
        is_tracked: Whether `purerl track` takes such a folder.
    """

    words: str
    goes_on: str
    reads: tuple[str, ...]
    is_tracked: bool = True


def _repeat(command: str) -> str:
    return f"repeat its purerl {command} command with --out {{folder}}"


KINDS = {
    "run": Kind(
        "a run",
        "{purerl} train --resume {folder}",
        (
            "{purerl} evaluate {folder}",
            "{purerl} render {folder}",
            "{purerl} plot {folder}",
            "{purerl} report {folder}",
        ),
    ),
    "sweep": Kind(
        "a sweep",
        _repeat("sweep"),
        (
            "{purerl} plot {folder}",
            "{purerl} report {folder}",
            "purerl.load_sweep({folder!r}) in Python",
        ),
    ),
    "pbt": Kind(
        "population-based training",
        _repeat("pbt"),
        ("{purerl} report {folder}", "purerl.load_search({folder!r}) in Python"),
    ),
    "halving": Kind(
        "a successive-halving search",
        _repeat("halving"),
        ("{purerl} report {folder}", "purerl.load_search({folder!r}) in Python"),
    ),
    "schedules": Kind(
        "agents trained with schedules",
        "repeat its purerl.train_schedules call with out={folder!r}",
        ("purerl.train_schedules with the same arguments",),
        is_tracked=False,
    ),
    "tune": Kind(
        "a tuning study",
        _repeat("tune"),
        ("{purerl} report {folder}", "purerl.load_tune({folder!r}) in Python"),
    ),
    "evolution": Kind(
        "an evolution",
        "{purerl} evolve --resume {folder}",
        (
            "{purerl} plot {folder}",
            "{purerl} report {folder}",
            "purerl.load_evolution({folder!r}) in Python",
        ),
    ),
    COMPARISON: Kind(
        "a comparison",
        "repeat its purerl compare or purerl transfer command with --out {folder}",
        (
            "{purerl} plot {folder}",
            "{purerl} report {folder}",
            "purerl.load_comparison({folder!r}) in Python",
        ),
    ),
}


def kind_of(folder: Path, stored: dict[str, Any] | None) -> str | None:
    """Return the kind of a folder, a key of `KINDS` where this program knows it.

    Args:
        folder: The folder.
        stored: The folder's manifest; None where it has none.

    Returns:
        None where the folder holds nothing that purerl has written. A run's manifest
        names no kind.
    """
    if stored is not None:
        return str(stored.get("kind", "run"))
    # Without the file its call has not ended, or somebody has deleted it.
    is_begun = holds_comparison(folder) or (folder / "trained").is_dir()
    return COMPARISON if is_begun else None


def holds_comparison(folder: Path) -> bool:
    """Return whether there is a comparison in a folder."""
    return (folder / COMPARISON_FILE).exists()


def is_tracked(kind: str) -> bool:
    """Return whether `purerl track` sends what trackers lack of a kind of folder."""
    return kind in KINDS and KINDS[kind].is_tracked


def words_of(kind: str) -> str:
    """Return the noun of a kind with its article."""
    known = KINDS.get(kind)
    return known.words if known else f"results of the kind {kind!r}"


def not_wanted(folder: Path, kind: str, wanted: str | Sequence[str]) -> str:
    """Return the sentences for a folder that holds something else than a command takes.

    Args:
        folder: The folder that was given.
        kind: The kind of what it holds.
        wanted: The kind or kinds that the command takes.
    """
    names = (wanted,) if isinstance(wanted, str) else wanted
    return refusal(folder, kind, f", not {' or '.join(map(words_of, names))}")


def refusal(folder: Path, kind: str, why: str) -> str:
    """Return the sentences for a folder that a command cannot use.

    Args:
        folder: The folder that was given.
        kind: The kind of what it holds.
        why: The end of the first sentence, with the comma before it.
    """
    lead = f"{folder} holds {words_of(kind)}{why}."
    known = KINDS.get(kind)
    if known is None:
        return f"{lead} This version does not know that kind; give another folder."
    quoted = _Quoted(folder)
    goes_on = known.goes_on.format(folder=quoted, purerl=program())
    reads = " or ".join(known.reads).format(folder=quoted, purerl=program())
    return f"{lead} To go on with it: {goes_on}. To read it: {reads}."


class _Quoted:
    """A folder as a command takes it, and with `!r` as Python does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __str__(self) -> str:
        return quoted(self.folder)

    def __repr__(self) -> str:
        return repr(str(self.folder))
