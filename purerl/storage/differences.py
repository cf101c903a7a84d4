"""The differences between what a folder holds and what is asked for, in words."""

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from purerl.config import ConfigError

# How a field of an entry is named: `{}` stands for the name of the field.
FIELD = "{}"
AUTO_FIELD = "{}, which is auto,"
CONFIG = MappingProxyType({"config": FIELD})
REMEDY = "Give another folder, or the stored settings."
LONGEST = 120  # The most characters of a value that are shown.
# What a folder adds to every specification. It may differ.
_ADDED = ("command", "kind", "format", "device", "versions", "prng_impl")
_ASKED = "_asked"
_MISSING = object()


def differences(
    stored: Mapping[str, Any],
    new: Mapping[str, Any],
    parts: Mapping[str, str] = CONFIG,
    free: Collection[str] = (),
    text: Callable[[Any], str] = repr,
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
            named, with `{}` for the field's own name.
        free: The entries that may differ, beside those that every folder adds.
        text: A function that writes a value.
    """
    found = []
    for part, naming in parts.items():
        before, now = stored.get(part) or {}, new.get(part) or {}
        for name in sorted({*before, *now}):
            if before.get(name) != now.get(name):
                pair = before.get(name, _MISSING), now.get(name, _MISSING)
                found.append(_phrase(naming.format(name), *pair, text))
    for name in sorted({*stored, *new} - {*parts, *free, *_ADDED}):
        before, now = stored.get(name), new.get(name)
        if f"{name}{_ASKED}" in new:
            now = new[f"{name}{_ASKED}"] or before
        if not name.endswith(_ASKED) and json.dumps(before) != json.dumps(now):
            is_given = name in new or f"{name}{_ASKED}" in new
            pair = stored.get(name, _MISSING), now if is_given else _MISSING
            write = partial(_seeds, text) if name == "seeds" else text
            found.append(_phrase(name, *pair, write))
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


def _phrase(name: str, before: Any, now: Any, text: Callable[[Any], str]) -> str:
    texts = ["missing" if x is _MISSING else text(x) for x in (before, now)]
    pairs = enumerate(zip(*texts, strict=False))
    first = next((n for n, (a, b) in pairs if a != b), min(map(len, texts)))
    there, here = (_cut(each, first) for each in texts)
    # A name of several words, such as that of an axis, begins with its noun.
    is_plural = re.fullmatch(r"\w*[^s]s", name) is not None
    is_plural = is_plural and isinstance(before, list | tuple | dict)
    verb = "are" if is_plural else "is"
    return f"{name} {verb} {there} there and {here} here"


def _cut(text: str, first: int) -> str:
    """A long text, cut around the first character that differs."""
    if len(text) <= LONGEST:
        return text
    begin = max(0, min(first - LONGEST // 4, len(text) - LONGEST))
    end = begin + LONGEST
    return f"{'...' * (begin > 0)}{text[begin:end]}{'...' * (end < len(text))}"


def _seeds(text: Callable[[Any], str], seeds: Any) -> str:
    """Seeds by the first and the last one, where there is none between them missing."""
    is_list = isinstance(seeds, list | tuple) and bool(seeds)
    if not (is_list and all(isinstance(seed, int) for seed in seeds)):
        return text(seeds)
    first, end = seeds[0], seeds[0] + len(seeds)
    is_whole = list(seeds) == list(range(first, end))
    return f"{first}..{end - 1} ({len(seeds)})" if is_whole else repr(list(seeds))
