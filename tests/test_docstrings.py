"""Docstrings and helps: how they open, lines that stand alone."""

import ast
import dataclasses
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from purerl.algorithms import ALGORITHMS
from purerl.cli import COMMANDS

ROOT = Path(__file__).parent.parent
# A docstring says what a thing is or does; these words begin a question about it.
OPENERS = re.compile(r"(As|How|Of|That|What|When|Where|Whether|Which|Who|Why)\b")
SECTION = re.compile(r"(Args|Attributes|Returns|Raises|Yields|Examples?):$")
ENTRY = re.compile(r"    (\*{0,2}\w+): +(\S.*)$")
# What a line of `Args:` or `Attributes:` cannot say without the line before it, or
# without the name of the argument.
DEPENDENT = re.compile(
    r"[a-z]|(As in|Its|Their|The same|What came|See there)\b"
    r"|.*\b(likewise|in the same way|of it[,.;])"
)
# What the help of a flag or of a field cannot say without the help before it.
HELP_DEPENDENT = re.compile(
    r"(After|From whose|In place of|Scale by|Standardise (by|over)|Them|Those)\b"
    r"|.*\b(as above|of before|Standardise them|such noise|the first one|there[.,;])"
)
QUOTED = re.compile(r"`[^`]*`")
TYPES = re.compile(r"\b(bool|each|float32|from|int|int32|uint8|uint32)\b")
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def test_no_docstring_opens_with_a_question():
    folders = ("purerl", "envs", "examples", "experiments", "docs/hooks")
    found = [text for source in sources(*folders) for text in docstrings(source)]
    assert [text.splitlines()[0] for text in found if OPENERS.match(text)] == []


def test_arguments_and_attributes_stand_alone():
    found = [
        line for source in sources("purerl", "envs") for line in dependent_lines(source)
    ]
    assert found == []


def test_helps_of_flags_and_fields_stand_alone():
    assert [text for text in helps() if is_dependent_help(text)] == []


@pytest.mark.parametrize(
    "text",
    [
        "Of everything random.",
        "That start in the first bracket.",
        "Those of the critics; none takes hidden_sizes.",
        "Number of this one, likewise.",
        "Levels of the target there.",
        "Seed of the first one.",
        "What stops hopeless ones.",
        "final_return: the last score.",
    ],
)
def test_faults_of_helps_are_found(text):
    assert is_dependent_help(text)


def test_faults_are_found():
    source = '''"""What a file holds."""
class A:
    """A thing.

    Attributes:
        size: `[N]`.
        rate: a number.
        share: `[N]` of the steps, which is
            above zero.

    """
    def is_a(self, one, two, three):
        """Whether it is one.

        Args:
            one: `[N]` numbers.
            two: Likewise; so it is
                that of `one`, likewise.
            three: Its name.
        Returns:
            the: answer.
        """
    def of(self):
        """Return whether it is one."""
'''
    openings = [text for text in docstrings(source) if OPENERS.match(text)]
    assert [text.splitlines()[0] for text in openings] == [
        "What a file holds.",
        "Whether it is one.",
    ]
    assert dependent_lines(source) == [
        "size: `[N]`.",
        "rate: a number.",
        "two: Likewise; so it is that of `one`, likewise.",
        "three: Its name.",
    ]


def helps() -> set[str]:
    """Return the help of every flag of the command line and of every field."""
    flags = [
        getattr(note, "help", None)
        for command in (*COMMANDS, "absent", "comparing", "options")
        for options in vars(importlib.import_module(f"purerl.cli.{command}")).values()
        if dataclasses.is_dataclass(options)
        for field in dataclasses.fields(options)
        for note in getattr(field.type, "__metadata__", ())
    ]
    configs = [entry.config for entry in ALGORITHMS.values()]
    told = [
        field.metadata["help"]
        for config in configs
        for field in dataclasses.fields(config)
    ]
    return {*filter(None, flags), *told}


def is_dependent_help(text: str) -> bool:
    """Return whether a help is a question, or cannot be read by itself."""
    patterns = (OPENERS, DEPENDENT, HELP_DEPENDENT)
    return any(pattern.match(text) for pattern in patterns)


def sources(*folders: str) -> list[str]:
    """Return the text of every file of Python in some folders."""
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    return [path.read_text() for path in sorted(paths)]


def docstrings(source: str) -> Iterator[str]:
    """Yield the docstrings of a file, from the outside in."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, Documented) and (text := ast.get_docstring(node)):
            yield text


def dependent_lines(source: str) -> list[str]:
    """Return the entries of arguments and attributes that do not stand alone."""
    every = [entry for text in docstrings(source) for entry in entries(text)]
    return [": ".join(entry) for entry in every if is_dependent(entry[1])]


def entries(text: str) -> list[tuple[str, str]]:
    """Return names and words of the entries of `Args:` and `Attributes:`."""
    found: list[tuple[str, str]] = []
    section = ""
    for line in text.splitlines():
        if line and not line.startswith(" "):
            match = SECTION.match(line)
            section = match.group(1) if match else ""
        elif section in ("Args", "Attributes"):
            if match := ENTRY.match(line):
                found.append((match.group(1), match.group(2)))
            elif found and line.startswith(8 * " "):
                name, words = found[-1]
                found[-1] = (name, f"{words} {line.strip()}")
    return found


def is_dependent(words: str) -> bool:
    """Return whether an entry is only a shape, or cannot be read by itself."""
    left = TYPES.sub("", QUOTED.sub("", words))
    return bool(DEPENDENT.match(words)) or not re.search(r"[A-Za-z]{2}", left)
