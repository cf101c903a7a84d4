"""Running the code of a page as a reader would: block after block, one namespace."""

import importlib.util
import re
import sys
import textwrap
import types
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
# That come with purerl: a test of a page may have registered another one.
ALGORITHMS = (
    *("ppo", "recurrent_ppo", "vpg", "dqn", "pqn", "recurrent_pqn"),
    "recurrent_dqn",
    *("td3", "sac", "mpo"),
    *("tabular", "bandit", "lpg", "disco", "plr"),
)
# Indented where the block stands in a tab or a note.
FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```[ \t]*$", re.MULTILINE | re.DOTALL)


def load(path: Path) -> types.ModuleType:
    """The module in a file, under a name of its own."""
    spec = importlib.util.spec_from_file_location(f"loaded_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look up their module
    spec.loader.exec_module(module)
    return module


class Block(NamedTuple):
    """Fenced code: its language, its text and the line of the page it starts on."""

    language: str
    code: str
    line: int


def blocks(page: Path, *sections: str) -> Iterator[Block]:
    """The fenced blocks of a page, or of some of its sections in the order given.

    A section goes from its heading, of any level, to the next one as high.
    """
    text = page.read_text()
    for start, end in [_span(text, s) for s in sections] or [(0, len(text))]:
        for fence in FENCE.finditer(text, start, end):
            line = text.count("\n", 0, fence.start(3)) + 1
            yield Block(fence[2], textwrap.dedent(fence[3]), line)


def _span(text: str, section: str) -> tuple[int, int]:
    prose = FENCE.sub(lambda fence: " " * len(fence[0]), text)  # comments look like it
    heading = re.search(rf"^(#+) {re.escape(section)}$", prose, re.MULTILINE)
    assert heading, f"there is no section {section!r}"
    higher = re.compile(rf"^#{{1,{len(heading[1])}}} ", re.MULTILINE)
    following = higher.search(prose, heading.end())
    return heading.end(), following.start() if following else len(text)


def run(page: Path, *sections: str) -> dict:
    """Execute the `python` blocks in order; returns the namespace they leave.

    Tracebacks point to the lines of the page.
    """
    module = types.ModuleType(re.sub(r"\W", "_", "_".join((page.stem, *sections))))
    sys.modules[module.__name__] = module  # where dataclasses look up their module
    try:
        for block in blocks(page, *sections):
            if block.language == "python":
                padded = "\n" * (block.line - 1) + block.code
                exec(compile(padded, str(page), "exec"), module.__dict__)
    finally:
        del sys.modules[module.__name__]
    return module.__dict__
