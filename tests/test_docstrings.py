"""Docstrings of purerl and envs: how they open, and lines that stand alone."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
# A docstring says what a thing is or does; these words begin a question about it.
OPENERS = re.compile(r"(As|How|Of|That|What|When|Where|Whether|Which|Who|Why)\b")
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def test_no_docstring_opens_with_a_question():
    assert [fault for path in files() for fault in openings(path.read_text())] == []


def test_openings_are_found():
    source = '''"""What a file holds."""
class A:
    """A thing."""
    def is_a(self):
        """Whether it is one."""
    def of(self):
        """Return whether it is one."""
async def f():
    """Whatever is awaited."""
'''
    assert openings(source) == ["What a file holds.", "Whether it is one."]


def files() -> list[Path]:
    return [path for name in ("purerl", "envs") for path in (ROOT / name).rglob("*.py")]


def docstrings(source: str) -> Iterator[str]:
    """Yield the docstrings of a file, from the outside in."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, Documented) and (text := ast.get_docstring(node)):
            yield text


def openings(source: str) -> list[str]:
    """Return the first lines of the docstrings that open with such a word."""
    firsts = (text.splitlines()[0] for text in docstrings(source))
    return [first for first in firsts if OPENERS.match(first)]
