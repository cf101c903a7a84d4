"""The page on the design names only tests, folders and files that there are."""

import ast
import itertools
import re
import xml.etree.ElementTree as ElementTree
from typing import NamedTuple

import pytest

from tests.docs import pages
from tests.test_architecture import LAYERS

PAGE = (pages.ROOT / "docs" / "design.md").read_text()
TESTS = pages.ROOT / "tests"
# A test as the page names it, and what it says about when that runs.
NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`(?:\s+\*\((slow|partly slow)\)\*)?")
FILE = re.compile(r"`(?:tests/)?((?:[a-z]+/)?test_\w+\.py)(?:::\w+)?`")
TOOLS = ["run", "sweep", "searches", "tune", "evolve", "compare"]


class Rest(NamedTuple):
    """What stands above a test: its own marks, and those that some cases have."""

    marks: str
    cases: str


def _tests(path: str) -> dict[str, Rest]:
    """The test functions of a file, by name."""
    tree = ast.parse((TESTS / path).read_text())
    known = {
        target.id: ast.unparse(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    found = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            every = [ast.unparse(mark) for mark in node.decorator_list]
            own = [known.get("pytestmark", ""), *every]
            # `@one_quickly` stands for a parametrisation with a name.
            cases = [known.get(mark, mark) for mark in every]
            found[node.name] = Rest("\n".join(own), "\n".join(cases))
    return found


def _speed(test: Rest) -> str:
    """What the page has to say: `slow`, `partly slow` or nothing."""
    if re.search(r"^\[?pytest\.mark\.slow\b", test.marks, re.MULTILINE):
        return "slow"
    partly = "slow_but" in test.cases or "marks=pytest.mark.slow" in test.cases
    return "partly slow" if partly else ""


def test_every_file_of_tests_is_there():
    files = set(FILE.findall(PAGE))
    assert len(files) > 20
    assert [file for file in files if not (TESTS / file).is_file()] == []


def test_every_test_is_there_and_as_quick_as_the_page_says():
    named = NAMED.findall(PAGE)
    assert len(named) > 60
    assert PAGE.count(".py::") == len(named)
    for path, name, said in named:
        tests = _tests(path)
        assert name in tests, f"{path} has no {name}"
        assert said == _speed(tests[name]), f"{path}::{name}"


@pytest.mark.parametrize(
    ("path", "name", "speed"),
    [
        ("docs/test_design.py", "test_every_file_of_tests_is_there", ""),
        ("sweeps/test_bits.py", "test_the_size_of_chunks", "slow"),
        ("meta/test_adversary.py", "test_kinds", "slow"),
        (
            "contracts/test_searches.py",
            "test_a_page_is_written_of_its_folder",
            "partly slow",
        ),
        (
            "cli/test_dry_run.py",
            "test_a_dry_run_says_what_it_would_cost",
            "partly slow",
        ),
    ],
)
def test_slow_tests_are_known_by_their_marks(path, name, speed):
    assert _speed(_tests(path)[name]) == speed


def test_every_cell_of_the_table_of_tools_is_filled_and_every_row_has_its_tests():
    section = PAGE.split("### What every tool has\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    head, _, *rows = ([c.strip() for c in line[1:-1].split("|")] for line in lines)
    assert head == ["", *TOOLS]
    assert all(len(row) == len(head) and all(row) for row in rows)
    listed = section.split(lines[-1])[1].lower()
    topics = " ".join(re.findall(r"^\* \*\*(.+?)\.?\*\*", listed, re.MULTILINE))
    for name, *_ in rows:
        assert name.split(":")[0].lower() in topics, name


def _check_order(rows):
    """Rows of names from the top to the bottom are those of the tested layers."""
    height = {name: number for number, layer in enumerate(LAYERS) for name in layer}
    named = list(itertools.chain(*rows))
    assert sorted(named) == sorted(height)
    heights = [sorted(height[name] for name in row) for row in rows]
    for above, below in itertools.pairwise(heights):
        assert above[0] > below[-1], (above, below)


def test_the_picture_of_the_layers_is_the_tested_table():
    root = ElementTree.parse(pages.ROOT / "docs" / "images" / "layers.svg").getroot()
    rows = [each.get("data-layer", "").split() for each in root]
    _check_order([row for row in rows if row])
    text = " ".join(root.itertext())
    for name in ("DiscoRL", "LPG", "tabular", "bandit", "recurrent PPO, DQN and PQN"):
        assert name in text, name


def test_the_table_of_the_layers_is_the_tested_one():
    section = PAGE.split("From the top to the bottom:\n")[1].split("\n`report`")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    rows = [re.findall(r"`([\w.]+)`", line.split("|")[1]) for line in lines]
    full = [[n if n == "purerl" else f"purerl.{n}" for n in row] for row in rows]
    _check_order(full)


def test_every_folder_and_every_file_at_the_top_is_in_the_tree():
    tree = PAGE.split("### The folders\n")[1].split("```")[1]
    # What one entry says, with its further lines.
    entries = re.split(r"\n(?=  \S)", tree)
    top = pages.ROOT / "purerl"
    for path in sorted(top.rglob("*")):
        if path.is_dir() and not path.is_symlink() and list(path.glob("*.py")):
            first, *inside = path.relative_to(top).parts
            found = [each for each in entries if each.startswith(f"  {first}/ ")]
            assert len(found) == 1, first
            assert all(re.search(rf"\b{name}\b", found[0]) for name in inside), path
    for path in sorted(top.glob("[a-z]*.py")):
        assert re.search(rf"\b{path.stem}\b", tree), path
