"""What pages name is there: public names, commands, presets, places, layers, files."""

import ast
import itertools
import re
import shlex
import xml.etree.ElementTree as ElementTree
from functools import reduce

import pytest
import yaml

import purerl
from purerl import envs, presets
from purerl.cli import COMMANDS
from tests.docs import pages
from tests.test_architecture import LAYERS

SITE = sorted(
    path.relative_to(pages.ROOT).as_posix()
    for path in (pages.ROOT / "docs").rglob("*.md")
)


class _Loader(yaml.SafeLoader):
    """Without the tags that belong to MkDocs."""


def _names(code: str) -> set[str]:
    """Dotted names of `purerl` and `envs` that some code uses."""
    dotted = (ast.unparse(node) for node in ast.walk(ast.parse(code)))
    return {name for name in dotted if re.fullmatch(r"(purerl|envs)(\.\w+)+", name)}


@pytest.mark.parametrize("page", ["README.md", *SITE])
def test_what_a_page_names_is_there(page):
    modules = {"purerl": purerl, "envs": envs}
    for block in pages.blocks(pages.ROOT / page):
        if block.language == "python":
            for name in _names(block.code):
                first, *rest = name.split(".")
                reduce(getattr, rest, modules[first])
        if block.language in ("sh", "bash"):
            _check_commands(block.code.replace("\\\n", " "))


def _check_commands(code: str) -> None:
    for line in code.splitlines():
        words = shlex.split(line, comments=True)
        for first, command in itertools.pairwise(words):
            if first == "purerl":
                assert command in COMMANDS, line
        if "--preset" in words and words[1] != "evolve":
            assert words[words.index("--preset") + 1] in presets.names(), line


def test_every_page_has_a_place_in_the_menu():
    config = yaml.load((pages.ROOT / "mkdocs.yml").read_text(), _Loader)

    def leaves(node):
        if isinstance(node, str):
            return [node]
        values = node.values() if isinstance(node, dict) else node
        return [leaf for value in values for leaf in leaves(value)]

    made = [f"docs/notebooks/{path.stem}.md" for path in pages.NOTEBOOKS]
    listed = [f"docs/{page}" for page in leaves(config["nav"])]
    assert sorted(listed) == sorted([*SITE, *made])


def test_nothing_is_fetched_from_outside_when_a_page_is_read():
    config = yaml.load((pages.ROOT / "mkdocs.yml").read_text(), _Loader)
    assert config["theme"]["font"] is False
    extra = config.get("extra_css", []) + config.get("extra_javascript", [])
    assert not [path for path in extra if "//" in path]


# The design


PAGE = (pages.ROOT / "docs" / "design.md").read_text()


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
